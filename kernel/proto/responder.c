// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See responder.h. Clauses are those of the IBTA specification, volume 1.
 */
#include <linux/limits.h>
#include <linux/minmax.h>
#include <linux/string.h>

#include "proto/packet.h"
#include "proto/responder.h"

/*
 * A missing packet may be late instead of lost, so the sequence NAK waits. Packets that overtook
 * each other inside a host or on parallel links are back in order within tens of microseconds. To
 * wait longer costs more than an unnecessary NAK. The NAK waits no longer once three packets have
 * passed the missing one (TCP uses the same number).
 */
#define NAK_PATIENCE_NS		100000
#define NAK_EARLY_PACKETS	3

/*
 * A requester that never sets AckReq gets an ACK after so many packets, so that it can retire its
 * messages. This is rare enough to cost nothing.
 */
#define ACK_AT_LEAST_EVERY	32

/* ---- responder resources: READs and atomics, saved for replay ---- */

/* @age: 0 is the newest resource; less than `saved`. */
static struct peal_resource *peal_responder_resource(struct peal_responder *responder, u32 age)
{
	return &responder->resource[(responder->head + responder->resources - 1 - age) %
				    responder->resources];
}

static void peal_responder_stop_reply(struct peal_responder *responder, struct peal_resource *res)
{
	if (res->replying)
		responder->replying--;
	res->replying = false;
}

/*
 * Send responses @from to @to (exclusive) of @res. Their payload ends at offset @end. This
 * replaces a run that is not finished.
 */
static void peal_responder_start_reply(struct peal_responder *responder, struct peal_resource *res,
				       u32 from, u32 to, u64 end)
{
	if (!res->replying)
		responder->replying++;
	res->replying = true;
	res->from = from;
	res->begin = from;
	res->to = to;
	res->end = end;
}

static void peal_responder_forget_oldest(struct peal_responder *responder)
{
	peal_responder_stop_reply(responder,
				  peal_responder_resource(responder, responder->saved - 1));
	responder->saved--;
}

/* After a replay, go on with the responses that were never sent. */
static void peal_responder_end_reply(struct peal_responder *responder, struct peal_resource *res)
{
	if (res->sent < res->packets)
		peal_responder_start_reply(responder, res, res->sent, res->packets, res->length);
	else
		peal_responder_stop_reply(responder, res);
}

/* A READ takes one PSN for each response (9.7.2). */
static u32 peal_responder_packets(const struct peal_responder *responder, u64 length)
{
	u64 mtu = 1ULL << responder->config.mtu_shift;

	return length ? (length + mtu - 1) >> responder->config.mtu_shift : 1;
}

/* The saved READ or atomic that has @psn; NULL: it is no longer saved, or @psn is of neither. */
static struct peal_resource *peal_responder_find(struct peal_responder *responder, u32 psn)
{
	u32 age;

	for (age = 0; age < responder->saved; age++) {
		struct peal_resource *res = peal_responder_resource(responder, age);
		s32 distance = peal_psn_distance(res->psn, psn);

		if (distance >= 0 && distance < res->packets)
			return res;
	}
	return NULL;
}

/* ---- pending acknowledgments ---- */

static void peal_responder_owe_nak(struct peal_responder *responder, u8 syndrome)
{
	responder->nak = syndrome;
	responder->nak_psn = responder->psn;
}

/* After such a NAK the connection is in error (9.9.3). */
static void peal_responder_owe_fatal_nak(struct peal_responder *responder, enum peal_nak code)
{
	peal_responder_owe_nak(responder, PEAL_SYNDROME_NAK | code);
	responder->fatal = true;
}

/* Send one NAK for each gap. If it is lost, the requester's timeout helps (9.7.5.2). */
static void peal_responder_owe_sequence_nak(struct peal_responder *responder)
{
	responder->nak_at = 0;
	if (responder->nak_sent)
		return;
	responder->nak_sent = true;
	peal_responder_owe_nak(responder, PEAL_SYNDROME_NAK | PEAL_NAK_SEQUENCE);
}

/* The expected packet has arrived, so a pending NAK about it is void. */
static void peal_responder_close_gap(struct peal_responder *responder)
{
	responder->nak = 0;
	responder->nak_sent = false;
	responder->nak_at = 0;
	responder->gap_packets = 0;
	responder->rnr = false;
}

/* Packets behind the expected one have arrived, and the expected one has not. */
static void peal_responder_watch_gap(struct peal_responder *responder, u64 now)
{
	if (!responder->nak_at && !responder->nak_sent)
		responder->nak_at = now + NAK_PATIENCE_NS;
	if (responder->gap_packets >= NAK_EARLY_PACKETS)
		peal_responder_owe_sequence_nak(responder);
}

/*
 * After progress the next packet may be missing, too, if the peer is known to have sent a packet
 * with its PSN or a later one. If the gap before was a loss, this gap belongs to the same burst of
 * losses, so send the NAK now instead of after another wait.
 */
static void peal_responder_next_gap(struct peal_responder *responder, u64 now)
{
	if (!responder->reorder.count)
		responder->recovering = false;
	if (responder->conflict && peal_psn_before(responder->conflict_psn, responder->psn))
		responder->conflict = false;
	if (!responder->reorder.count && !responder->conflict)
		return;
	if (peal_reorder_has(&responder->reorder, responder->psn))
		return;
	responder->gap_packets = responder->reorder.count;
	peal_responder_watch_gap(responder, now);
	if (responder->recovering)
		peal_responder_owe_sequence_nak(responder);
}

/* ---- set-up ---- */

void peal_responder_init(struct peal_responder *responder, struct peal_resource *resource,
			 u32 entries)
{
	memset(responder, 0, sizeof(*responder));
	responder->resource = resource;
	responder->resources = entries;
}

void peal_responder_reset(struct peal_responder *responder)
{
	struct peal_responder_config config = responder->config;

	peal_responder_init(responder, responder->resource, responder->resources);
	responder->config = config;
}

void peal_responder_configure(struct peal_responder *responder,
			      const struct peal_responder_config *config)
{
	responder->config = *config;
	if (responder->config.rd_atomic > responder->resources)
		responder->config.rd_atomic = responder->resources;
	while (responder->saved > responder->config.rd_atomic)
		peal_responder_forget_oldest(responder);
}

void peal_responder_set_psn(struct peal_responder *responder, u32 psn)
{
	responder->psn = psn & PEAL_PSN_MASK;
}

void peal_responder_skip(struct peal_responder *responder, u32 psn, u32 msn)
{
	while (responder->saved)
		peal_responder_forget_oldest(responder);
	peal_responder_close_gap(responder);
	responder->conflict = false;
	responder->operation = 0;
	responder->ack_now = false;
	responder->unanswered = 0;
	responder->psn = psn;
	responder->msn = msn;
}

/* ---- a request arrives ---- */

/*
 * Fill in what the packet says. FIRST and ONLY say all about their message; MIDDLE and LAST leave
 * most of it to the first packet.
 */
static __always_inline void peal_responder_describe(const struct peal_responder *responder,
						    const struct peal_packet *packet,
						    const struct peal_wire_opcode *wire,
						    struct peal_request *request)
{
	struct peal_wqe *wqe = &request->wqe;

	request->first = wire->has & PEAL_HAS_FIRST;
	request->last = peal_packet_ends(packet);
	request->bytes = peal_packet_bytes(packet);
	wqe->opcode = wire->operation;
	wqe->flags = packet->solicited ? PEAL_WQE_SOLICITED : 0;
	wqe->srqn = packet->srqn;
	if (request->first) {
		wqe->rkey = packet->rkey;
		wqe->remote_addr = packet->remote_addr;
		wqe->length = packet->length;
	} else {
		request->offset = responder->offset;
		wqe->rkey = responder->rkey;
		wqe->remote_addr = responder->remote_addr;
		wqe->length = responder->length;
	}
	if (wire->has & PEAL_HAS_SEND)
		wqe->length = request->offset + request->bytes;
	if (wire->has & PEAL_HAS_IMM)
		wqe->imm_or_rkey = packet->imm;
	if (wire->has & PEAL_HAS_IETH)
		wqe->imm_or_rkey = packet->inv_rkey;
	switch (wire->operation) {
	case PEAL_OP_CMP_SWAP:
		wqe->length = sizeof(u64);
		wqe->atomic.compare_add = packet->compare;
		wqe->atomic.swap = packet->swap_add;
		break;
	case PEAL_OP_FETCH_ADD:
		wqe->length = sizeof(u64);
		wqe->atomic.compare_add = packet->swap_add;
		break;
	case PEAL_OP_FLUSH:
		wqe->length = 0;
		wqe->flush = (struct peal_flush_seg) {
			.length = packet->length, .placement = packet->placement,
			.selectivity = packet->selectivity,
		};
		break;
	}
}

/* FIRST and ONLY begin a message. MIDDLE and LAST continue a message of the same operation. */
static bool peal_responder_continues(const struct peal_responder *responder,
				     const struct peal_wire_opcode *wire)
{
	if (wire->has & PEAL_HAS_FIRST)
		return !responder->operation;
	if (responder->operation == PEAL_OP_SEND)
		return wire->has & PEAL_HAS_SEND;
	return responder->operation == PEAL_OP_WRITE && wire->has & PEAL_HAS_WRITE;
}

/*
 * Are the lengths of the packet and of its message valid? All packets but the last fill the path
 * MTU, and only a message of one packet may be empty. A message has at most 2^31 bytes. A WRITE has
 * exactly the length that its RETH names, and so has an ATOMIC_WRITE, which has 8 bytes (A19).
 */
static __always_inline bool peal_responder_fits(const struct peal_responder *responder,
						const struct peal_packet *packet, u32 has,
						const struct peal_request *request)
{
	u64 bytes = request->offset + request->bytes;
	u32 mtu = 1U << responder->config.mtu_shift;

	if (has & PEAL_HAS_PAYLOAD) {
		if (packet->payload_bytes > mtu)
			return false;
		if (!request->last && packet->payload_bytes != mtu)
			return false;
		if (!(has & PEAL_HAS_FIRST) && !packet->payload_bytes)
			return false;
	}
	if (request->wqe.length > PEAL_MAX_MSG || packet->length > PEAL_MAX_MSG)
		return false;
	if (request->wqe.opcode == PEAL_OP_ATOMIC_WRITE)
		return bytes == sizeof(u64) && request->wqe.length == bytes;
	if (!(has & PEAL_HAS_WRITE))
		return true;
	return request->last ? bytes == request->wqe.length : bytes < request->wqe.length;
}

static void peal_responder_execute(struct peal_responder *responder,
				   const struct peal_packet *packet, struct peal_request *request)
{
	responder->executing = packet;
	request->what = PEAL_REQUEST_EXECUTE;
}

/* The caller compares the two packets, because only the caller has the payload. */
static void peal_responder_copy(const struct peal_responder *responder, u32 psn,
				struct peal_request *request)
{
	request->what = PEAL_REQUEST_COPY;
	request->drop = PEAL_DROP_sequence;
	request->kept = peal_reorder_find(&responder->reorder, psn);
}

/*
 * A packet was executed before (9.7.5.1). A SEND or WRITE gets the newest acknowledgment once more
 * (C9-105). A READ is answered anew, also if only its rest is requested. Its address, key and
 * length must lie within the saved request, at the offset that its PSN stands for. An atomic is
 * never executed twice, its response carries the saved value. Here it is a READ of no bytes.
 */
static void peal_responder_duplicate(struct peal_responder *responder,
				     const struct peal_packet *packet,
				     const struct peal_wire_opcode *wire,
				     struct peal_request *request)
{
	u32 length = wire->operation == PEAL_OP_READ ? packet->length : 0;
	struct peal_resource *res;
	u64 offset;
	u32 from;

	request->duplicate = true;
	request->what = PEAL_REQUEST_ANSWERED;
	if (wire->has & (PEAL_HAS_SEND | PEAL_HAS_WRITE)) {
		responder->ack_now = true;
		return;
	}
	res = peal_responder_find(responder, packet->psn);
	if (!res || res->operation != wire->operation)
		goto stale;
	from = peal_psn_distance(res->psn, packet->psn);
	offset = (u64)from << responder->config.mtu_shift;
	if (packet->rkey != res->rkey || packet->remote_addr != res->remote_addr + offset)
		goto stale;
	if (length > res->length - offset || !length != !res->length)
		goto stale;
	/* These responses are due anyway, because they were never sent. */
	if (from >= res->sent)
		return;
	/*
	 * Finish the run that was requested before. Otherwise a requester that repeats two
	 * requests in turn would always get the second run, and never the first.
	 */
	if (res->replying && from >= res->to)
		return;
	peal_responder_start_reply(responder, res, from,
				   from + peal_responder_packets(responder, length),
				   offset + length);
	return;

stale:
	request->what = PEAL_REQUEST_DROPPED;
	request->drop = PEAL_DROP_stale;
}

/* A packet is ahead of the expected one. It is kept until its turn, and the gap is watched. */
static void peal_responder_reorder(struct peal_responder *responder,
				   const struct peal_packet *packet, u64 now, void *handle,
				   struct peal_request *request)
{
	if (peal_reorder_has(&responder->reorder, packet->psn)) {
		peal_responder_copy(responder, packet->psn, request);
		return;
	}
	request->drop = PEAL_DROP_sequence;
	/* After an RNR NAK the requester starts again with the expected packet (9.7.5.2). */
	if (responder->rnr)
		return;
	/* There is no gap if the expected packet is kept and the caller has yet to take it. */
	if (!peal_reorder_has(&responder->reorder, responder->psn)) {
		responder->gap_packets++;
		peal_responder_watch_gap(responder, now);
	}
	if (handle && peal_reorder_insert(&responder->reorder, responder->psn, packet->psn, handle,
					  now, responder->config.reorder_ns))
		request->what = PEAL_REQUEST_KEPT;
	else	/* The peer must retransmit this packet anyway, so do not wait. */
		peal_responder_owe_sequence_nak(responder);
}

/*
 * UC: a packet that continues a message must have the expected PSN. A packet that begins one may
 * have any (9.8), because the end of the message before it may be lost, and the requester may have
 * given that message up before it sent the end. A packet with another PSN than the expected one may
 * be forged, so it changes no state unless it is executed.
 */
static void peal_responder_receive_uc(struct peal_responder *responder,
				      const struct peal_packet *packet,
				      const struct peal_wire_opcode *wire,
				      struct peal_request *request)
{
	bool expected = packet->psn == responder->psn;

	if (peal_responder_is_late_uc(responder->psn, packet->psn)) {
		request->duplicate = true;
		request->drop = PEAL_DROP_sequence;
		return;
	}
	peal_responder_describe(responder, packet, wire, request);
	if ((wire->has & PEAL_HAS_FIRST ||
	     (expected && peal_responder_continues(responder, wire))) &&
	    peal_responder_fits(responder, packet, wire->has, request)) {
		peal_responder_execute(responder, packet, request);
		return;
	}
	if (expected)
		responder->operation = 0;	/* the message is lost */
	request->drop = PEAL_DROP_order;
}

/*
 * A run is taken only where its packets would be taken one after the other. The last packet of a
 * WRITE has at least one byte.
 */
u32 peal_responder_takes(const struct peal_responder *responder, const struct peal_packet *packet)
{
	u64 left = PEAL_MAX_MSG;

	if (responder->fatal || responder->again || responder->reorder.count ||
	    packet->psn != responder->psn || packet->srqn != responder->srqn ||
	    packet->payload_bytes != 1U << responder->config.mtu_shift ||
	    !peal_packet_is_middle(packet) ||
	    !peal_responder_continues(responder, peal_packet_opcode(packet)))
		return 0;
	if (responder->operation == PEAL_OP_WRITE)
		left = responder->length;
	if (left <= responder->offset)
		return 1;
	return max_t(u32, (left - responder->offset - 1) >> responder->config.mtu_shift, 1);
}

bool peal_responder_takes_last(const struct peal_responder *responder,
			       const struct peal_packet *run, const struct peal_packet *last)
{
	u64 bytes = responder->offset + peal_packet_bytes(run) + last->payload_bytes;

	if (!peal_packet_may_join(run, last) || !last->payload_bytes ||
	    last->payload_bytes > 1U << responder->config.mtu_shift)
		return false;
	return responder->operation == PEAL_OP_WRITE ? bytes == responder->length :
						       bytes <= PEAL_MAX_MSG;
}

/*
 * The checks of a request in the order of 9.7.4.1, as far as the packet itself can tell. Rights,
 * keys and ranges are the caller's.
 */
void peal_responder_receive(struct peal_responder *responder, const struct peal_packet *packet,
			    u64 now, void *handle, struct peal_request *request)
{
	const struct peal_wire_opcode *wire = peal_packet_opcode(packet);
	const struct peal_resource *oldest;
	s32 distance;
	bool again;

	memset(request, 0, sizeof(*request));	/* dropped, unless what follows says more */
	if (responder->fatal) {
		request->drop = PEAL_DROP_state;
		return;
	}
	if (!(wire->has & PEAL_HAS_REQUEST) ||
	    peal_opcode_transport(packet->opcode) != responder->config.transport) {
		request->drop = PEAL_DROP_opcode;
		return;
	}
	if (!peal_transport_is_reliable(responder->config.transport)) {
		peal_responder_receive_uc(responder, packet, wire, request);
		return;
	}

	/* The PSN. */
	distance = peal_psn_distance(responder->psn, packet->psn);
	if (distance < 0) {
		peal_responder_duplicate(responder, packet, wire, request);
		return;
	}
	if (distance > 0) {
		peal_responder_reorder(responder, packet, now, handle, request);
		return;
	}
	again = responder->again;
	responder->again = false;
	/*
	 * The packet was kept out of order, and the packet in front of it has another flow. Drop it
	 * and ask the peer for it. If the true peer changed its flow in between, it gets the NAK
	 * and retransmits; a forger does not get the NAK.
	 */
	if (again && packet->flow != responder->flow) {
		responder->conflict = true;
		responder->conflict_psn = responder->psn;
		peal_responder_next_gap(responder, now);
		request->drop = PEAL_DROP_conflict;
		return;
	}
	/* A packet with this PSN is kept, and the caller has yet to take it. */
	if (peal_reorder_has(&responder->reorder, packet->psn)) {
		peal_responder_copy(responder, packet->psn, request);
		return;
	}
	responder->flow = packet->flow;
	peal_responder_describe(responder, packet, wire, request);

	/* The sequence of opcodes. */
	if (!peal_responder_continues(responder, wire))
		goto invalid;
	/* All packets of a message name one shared receive queue. Without XRC the numbers are 0. */
	if (!(wire->has & PEAL_HAS_FIRST) && packet->srqn != responder->srqn)
		goto invalid;
	if (!peal_responder_fits(responder, packet, wire->has, request))
		goto invalid;
	/*
	 * At most the negotiated number of READs and atomics may lack a response. A new one may
	 * replace a resource whose responses were all sent, even during a replay, because a
	 * requester that sends a new READ or atomic has received them.
	 */
	if (wire->has & (PEAL_HAS_READ | PEAL_HAS_ATOMIC) &&
	    responder->saved >= responder->config.rd_atomic) {
		if (!responder->saved)
			goto invalid;
		oldest = peal_responder_resource(responder, responder->saved - 1);
		if (oldest->sent < oldest->packets)
			goto invalid;
	}
	peal_responder_execute(responder, packet, request);
	return;

invalid:
	peal_responder_close_gap(responder);
	peal_responder_owe_fatal_nak(responder, PEAL_NAK_INVALID_REQUEST);
	request->what = PEAL_REQUEST_ANSWERED;
	request->fatal = true;
}

void *peal_responder_take_reordered(struct peal_responder *responder)
{
	void *handle = peal_reorder_take(&responder->reorder, responder->psn);

	responder->again = handle;
	return handle;
}

/* If the PSN is the expected one, no late packet is to be waited for, so send the NAK at once. */
void *peal_responder_conflict(struct peal_responder *responder, u32 psn)
{
	if (psn == responder->psn)
		peal_responder_owe_sequence_nak(responder);
	responder->conflict = true;
	responder->conflict_psn = psn;
	return peal_reorder_take(&responder->reorder, psn);
}

/* ---- a request was executed, or could not be ---- */

static void peal_responder_save(struct peal_responder *responder, const struct peal_packet *packet,
				u8 operation, u64 original)
{
	u32 length = operation == PEAL_OP_READ ? packet->length : 0;
	struct peal_resource *res;

	if (responder->saved == responder->config.rd_atomic)
		peal_responder_forget_oldest(responder);
	res = &responder->resource[responder->head];
	responder->head = (responder->head + 1) % responder->resources;
	responder->saved++;
	responder->trailing = min_t(u32, responder->trailing + 1, responder->saved);

	*res = (struct peal_resource) {
		.psn = packet->psn,
		.packets = peal_responder_packets(responder, length),
		.operation = operation,
		.rkey = packet->rkey,
		.srqn = packet->srqn,
		.remote_addr = packet->remote_addr,
		.length = length,
		.original = original,
		.msn = responder->msn,
	};
	peal_responder_start_reply(responder, res, 0, res->packets, res->length);
}

void peal_responder_done(struct peal_responder *responder, u8 syndrome, u64 original, u64 now)
{
	bool reliable = peal_transport_is_reliable(responder->config.transport);
	const struct peal_packet *packet = responder->executing;
	const struct peal_wire_opcode *wire;

	if (!packet)
		return;
	responder->executing = NULL;
	wire = peal_packet_opcode(packet);
	if (syndrome != PEAL_SYNDROME_ACK) {
		if (!reliable) {
			if (packet->psn == responder->psn)
				responder->operation = 0;	/* the message is lost */
			return;
		}
		peal_responder_close_gap(responder);
		if ((syndrome & PEAL_SYNDROME_KIND) != PEAL_SYNDROME_RNR) {
			peal_responder_owe_fatal_nak(responder, syndrome & PEAL_SYNDROME_VALUE);
			return;
		}
		/* The packet stays the expected one, and the position in the message stays. */
		responder->rnr = true;
		peal_responder_owe_nak(responder, syndrome);
		return;
	}

	/* Move the position in the message behind the packet. */
	if (wire->has & PEAL_HAS_FIRST) {
		responder->operation = wire->operation;
		responder->offset = 0;
		responder->length = packet->length;
		responder->rkey = packet->rkey;
		responder->srqn = packet->srqn;
		responder->remote_addr = packet->remote_addr;
	}
	responder->offset += peal_packet_bytes(packet);
	if (peal_packet_ends(packet)) {
		responder->operation = 0;
		/* This counts READs and atomics, too (C9-148). */
		responder->msn = peal_psn_add(responder->msn, 1);
	}
	if (!reliable) {
		responder->psn = peal_psn_add(packet->psn, peal_packet_count(packet));
		return;
	}

	/* READs and atomics are answered by their responses. Other packets are if they ask. */
	if (wire->has & (PEAL_HAS_READ | PEAL_HAS_ATOMIC)) {
		peal_responder_save(responder, packet, wire->operation, original);
	} else {
		responder->trailing = 0;
		responder->unanswered += peal_packet_count(packet);
		if (packet->ack_request || responder->unanswered >= ACK_AT_LEAST_EVERY)
			responder->ack_now = true;
	}
	responder->recovering |= responder->nak_sent;
	peal_responder_close_gap(responder);
	responder->psn = peal_psn_add(responder->psn, wire->has & PEAL_HAS_READ ?
				      peal_responder_packets(responder, packet->length) :
				      peal_packet_count(packet));
	peal_responder_next_gap(responder, now);
}

/* ---- replies ---- */

static void peal_responder_head(const struct peal_responder *responder, struct peal_reply *reply,
				u8 opcode, u32 psn, u8 syndrome)
{
	memset(reply, 0, sizeof(*reply));
	reply->header.opcode = opcode;
	reply->header.migrated = true;	/* always set without path migration (9.2, 17.2.8) */
	reply->header.header_bytes = peal_wire_opcode(opcode)->header_bytes;
	reply->header.psn = psn;
	reply->header.syndrome = syndrome;
	reply->header.msn = responder->msn;
}

static void peal_responder_answer(struct peal_responder *responder, struct peal_resource *res,
				  u32 most, struct peal_reply *reply)
{
	u8 transport = responder->config.transport, opcode;
	u32 psn = peal_psn_add(res->psn, res->from);
	struct peal_packet *header = &reply->header;
	u8 shift = responder->config.mtu_shift;
	u32 left = res->to - res->from;
	u64 offset;

	if (res->operation == PEAL_OP_CMP_SWAP || res->operation == PEAL_OP_FETCH_ADD)
		opcode = peal_opcode_of(transport, PEAL_WIRE_ATOMIC_ACK);
	else
		opcode = peal_opcode_read_response(transport, res->from == res->begin,
						   res->from + 1 == res->to);
	peal_responder_head(responder, reply, opcode, psn,
			    PEAL_SYNDROME_ACK | PEAL_CREDITS_UNLIMITED);
	header->msn = res->msn;
	header->original = res->original;
	reply->again = res->from < res->sent;
	if (res->operation == PEAL_OP_READ) {
		offset = (u64)res->from << shift;
		header->payload_bytes = min_t(u64, res->end - offset, 1U << shift);
		header->pad = -header->payload_bytes & 3;
		reply->read = true;
		reply->rkey = res->rkey;
		reply->srqn = res->srqn;
		reply->remote_addr = res->remote_addr + offset;
		/* A repetition leaves alone. */
		if (!reply->again)
			header->more = min(most, left) - 1;
		if (header->more && header->more == left - 1) {
			header->last = peal_opcode_read_response(transport, false, true);
			header->last_bytes = res->end - ((u64)(res->to - 1) << shift);
		}
	}

	responder->reply_psn = psn;
	res->from += peal_packet_count(header);
	if (res->sent < res->from)
		res->sent = res->from;
	if (res->from == res->to)
		peal_responder_end_reply(responder, res);
	/* A response acknowledges every request up to its PSN (9.7.5.1). */
	if (peal_psn_add(psn, peal_packet_count(header)) == responder->psn) {
		responder->unanswered = 0;
		responder->ack_now = false;
	}
}

/*
 * An ACK names the newest request that is a SEND or WRITE. If it named a READ or atomic, it would
 * say that there was no data, and rxe would complete a READ whose responses were lost. Only the
 * resources since the last SEND or WRITE are looked at, because the PSNs of older ones may have
 * wrapped and belong to other requests.
 */
static u32 peal_responder_ack_psn(struct peal_responder *responder)
{
	u32 psn = peal_psn_add(responder->psn, PEAL_PSN_MASK);
	u32 age;

	for (age = 0; age < min_t(u32, responder->trailing, responder->saved); age++) {
		const struct peal_resource *res = peal_responder_resource(responder, age);

		if (peal_psn_add(res->psn, res->packets - 1) != psn)
			break;
		psn = peal_psn_add(res->psn, PEAL_PSN_MASK);
	}
	return psn;
}

/*
 * An acknowledgment covers all packets before it. It must not overtake the responses of a READ,
 * because it would declare them received (9.7.5.1).
 */
bool peal_responder_next(struct peal_responder *responder, u32 most, struct peal_reply *reply)
{
	u8 ack = peal_opcode_of(responder->config.transport, PEAL_WIRE_ACK);
	u32 age = responder->replying ? responder->saved : 0;

	while (age--) {
		struct peal_resource *res = peal_responder_resource(responder, age);

		if (res->replying) {
			peal_responder_answer(responder, res, most, reply);
			return true;
		}
	}
	if (responder->nak)
		peal_responder_head(responder, reply, ack, responder->nak_psn, responder->nak);
	else if (responder->ack_now)
		peal_responder_head(responder, reply, ack, peal_responder_ack_psn(responder),
				    PEAL_SYNDROME_ACK | PEAL_CREDITS_UNLIMITED);
	else
		return false;
	responder->nak = 0;
	responder->ack_now = false;
	responder->unanswered = 0;
	return true;
}

void peal_responder_refuse_read(struct peal_responder *responder)
{
	while (responder->saved)
		peal_responder_forget_oldest(responder);
	peal_responder_close_gap(responder);
	peal_responder_owe_fatal_nak(responder, PEAL_NAK_REMOTE_ACCESS);
	responder->nak_psn = responder->reply_psn;
}

/* Skip only the rest of the replay. Responses that were never sent stay due. */
void peal_responder_refuse_again(struct peal_responder *responder, struct peal_reply *reply)
{
	u32 psn = reply->header.psn;
	struct peal_resource *res = peal_responder_find(responder, psn);

	peal_responder_head(responder, reply,
			    peal_opcode_of(responder->config.transport, PEAL_WIRE_ACK), psn,
			    PEAL_SYNDROME_NAK | PEAL_NAK_REMOTE_ACCESS);
	reply->again = true;
	if (res && res->replying && res->from < res->sent)
		peal_responder_end_reply(responder, res);
}

/* ---- time ---- */

u64 peal_responder_deadline(const struct peal_responder *responder)
{
	return min_t(u64, responder->nak_at ? responder->nak_at : U64_MAX,
		     peal_reorder_deadline(&responder->reorder));
}

void peal_responder_expire(struct peal_responder *responder, u64 now)
{
	if (responder->nak_at && now >= responder->nak_at)
		peal_responder_owe_sequence_nak(responder);
}

void *peal_responder_take_expired(struct peal_responder *responder, u64 now)
{
	return peal_reorder_expire(&responder->reorder, now, responder->config.reorder_ns);
}
