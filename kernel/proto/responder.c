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

/* ---- requests ---- */

/* Fill in what the packet itself says. For the first packet of a message that is everything. */
static void peal_request_describe(struct peal_request *request, const struct peal_packet *packet,
				  const struct peal_wire_opcode *wire)
{
	request->what = PEAL_REQUEST_EXECUTE;
	request->operation = wire->operation;
	request->first = wire->has & PEAL_HAS_FIRST;
	request->last = wire->has & PEAL_HAS_LAST;
	request->solicited = packet->solicited;
	request->bytes = packet->payload_bytes;
	request->rkey = packet->rkey;
	request->srqn = packet->srqn;
	request->remote_addr = packet->remote_addr;
	request->length = packet->length;
	if (wire->has & PEAL_HAS_IMM)
		request->imm_or_rkey = packet->imm;
	if (wire->has & PEAL_HAS_IETH)
		request->imm_or_rkey = packet->inv_rkey;
	if (wire->operation == PEAL_OP_CMP_SWAP) {
		request->atomic.compare_add = packet->compare;
		request->atomic.swap = packet->swap_add;
	}
	if (wire->operation == PEAL_OP_FETCH_ADD)
		request->atomic.compare_add = packet->swap_add;
	if (wire->operation == PEAL_OP_FLUSH)
		request->flush = (struct peal_flush_seg) {
			.length = packet->length, .placement = packet->placement,
			.selectivity = packet->selectivity,
		};
}

/* FIRST and ONLY begin a message. MIDDLE and LAST continue a message of the same operation. */
static bool peal_request_continues(const struct peal_wire_opcode *wire, u8 operation)
{
	if (wire->has & PEAL_HAS_FIRST)
		return !operation;
	if (operation == PEAL_OP_SEND)
		return wire->has & PEAL_HAS_SEND;
	return operation == PEAL_OP_WRITE && wire->has & PEAL_HAS_WRITE;
}

/* All packets but the last fill the path MTU. Only a message of one packet may be empty. */
static bool peal_request_packet_fits(const struct peal_packet *packet, u32 has, u32 mtu)
{
	if (!(has & PEAL_HAS_PAYLOAD))
		return true;
	if (!(has & PEAL_HAS_LAST))
		return packet->payload_bytes == mtu;
	if (!(has & PEAL_HAS_FIRST) && !packet->payload_bytes)
		return false;
	return packet->payload_bytes <= mtu;
}

/*
 * A message has at most 2^31 bytes. A WRITE has exactly the length that its RETH names, and so has
 * an ATOMIC_WRITE, which has 8 bytes (A19).
 */
static bool peal_request_message_fits(const struct peal_request *request,
				      const struct peal_packet *packet, u32 has)
{
	u64 bytes = request->offset + packet->payload_bytes;

	if (request->length > PEAL_MAX_MSG)
		return false;
	if (request->operation == PEAL_OP_ATOMIC_WRITE)
		return bytes == sizeof(u64) && request->length == bytes;
	if (!(has & PEAL_HAS_WRITE))
		return true;
	return has & PEAL_HAS_LAST ? bytes == request->length : bytes < request->length;
}

static bool peal_request_fits(const struct peal_request *request, const struct peal_packet *packet,
			      u32 has, u32 mtu)
{
	return peal_request_packet_fits(packet, has, mtu) &&
	       peal_request_message_fits(request, packet, has);
}

/* ---- the responder ---- */

static bool peal_responder_reliable(const struct peal_responder *responder)
{
	return peal_transport_is_reliable(responder->config.transport);
}

static u32 peal_responder_mtu(const struct peal_responder *responder)
{
	return 1U << responder->config.mtu_shift;
}

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

/*
 * Does the requester respect the negotiated number of resources (9.7.4.1)? At most so many READs
 * and atomics may lack a response. A new one may replace a resource whose responses were all sent,
 * even during a replay, because a requester that sends a new READ or atomic has received them.
 */
static bool peal_responder_resource_free(struct peal_responder *responder)
{
	const struct peal_resource *oldest;

	if (responder->saved < responder->config.rd_atomic)
		return true;
	if (!responder->saved)
		return false;
	oldest = peal_responder_resource(responder, responder->saved - 1);
	return oldest->sent >= oldest->packets;
}

/* A READ takes one PSN for each response (9.7.2). */
static u32 peal_responder_packets(const struct peal_responder *responder, u64 length)
{
	if (!length)
		return 1;
	return (length + peal_responder_mtu(responder) - 1) >> responder->config.mtu_shift;
}

static void peal_responder_save(struct peal_responder *responder, u8 operation, u64 original)
{
	const struct peal_packet *packet = &responder->packet;
	struct peal_resource *res;

	if (responder->saved == responder->config.rd_atomic)
		peal_responder_forget_oldest(responder);
	res = &responder->resource[responder->head];
	responder->head = (responder->head + 1) % responder->resources;
	responder->saved++;
	responder->trailing = min_t(u32, responder->trailing + 1, responder->saved);

	*res = (struct peal_resource) {
		.psn = packet->psn,
		.packets = operation == PEAL_OP_READ ?
			   peal_responder_packets(responder, packet->length) : 1,
		.operation = operation,
		.rkey = packet->rkey,
		.srqn = packet->srqn,
		.remote_addr = packet->remote_addr,
		.length = operation == PEAL_OP_READ ? packet->length : 0,
		.original = original,
		.msn = responder->msn,
	};
	peal_responder_start_reply(responder, res, 0, res->packets, res->length);
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

static bool peal_responder_gap(const struct peal_responder *responder)
{
	return responder->nak_at || responder->nak_sent;
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

/* The peer is known to have sent a packet with the expected PSN or a later one. */
static bool peal_responder_knows_more(struct peal_responder *responder)
{
	if (responder->contradicted && peal_psn_before(responder->contradicted_psn, responder->psn))
		responder->contradicted = false;
	return responder->reorder.count || responder->contradicted;
}

/* Packets behind the expected one have arrived, and the expected one has not. */
static void peal_responder_watch_gap(struct peal_responder *responder, u64 now)
{
	if (!peal_responder_gap(responder))
		responder->nak_at = now + NAK_PATIENCE_NS;
	if (responder->gap_packets >= NAK_EARLY_PACKETS)
		peal_responder_owe_sequence_nak(responder);
}

/*
 * After progress the next packet may be missing, too. If the gap before was a loss, this gap
 * belongs to the same burst of losses, so send the NAK now instead of after another wait.
 */
static void peal_responder_next_gap(struct peal_responder *responder, u64 now)
{
	if (!responder->reorder.count)
		responder->recovering = false;
	if (!peal_responder_knows_more(responder) ||
	    peal_reorder_has(&responder->reorder, responder->psn))
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

/* ---- checks of the expected packet; false: an invalid request (9.7.4.1) ---- */

/* All packets of a message name one shared receive queue. Without XRC the numbers are 0. */
static bool peal_responder_same_srq(const struct peal_responder *responder,
				    const struct peal_packet *packet,
				    const struct peal_wire_opcode *wire)
{
	return wire->has & PEAL_HAS_FIRST || packet->srqn == responder->srqn;
}

static bool peal_responder_valid(struct peal_responder *responder, const struct peal_packet *packet,
				 const struct peal_wire_opcode *wire,
				 const struct peal_request *request)
{
	if (!peal_request_continues(wire, responder->operation))
		return false;
	if (!peal_responder_same_srq(responder, packet, wire))
		return false;
	if (!peal_request_fits(request, packet, wire->has, peal_responder_mtu(responder)))
		return false;
	if (wire->has & (PEAL_HAS_READ | PEAL_HAS_ATOMIC))
		return peal_responder_resource_free(responder);
	return true;
}

/* ---- what a packet asks for ---- */

static void peal_responder_drop(struct peal_request *request, enum peal_drop drop)
{
	request->what = PEAL_REQUEST_DROPPED;
	request->drop = drop;
}

/* Fill in what the first packet said about the message. */
static void peal_responder_describe_message(const struct peal_responder *responder,
					    struct peal_request *request)
{
	request->offset = responder->offset;
	request->rkey = responder->rkey;
	request->remote_addr = responder->remote_addr;
	request->length = responder->length;
}

static void peal_responder_describe(const struct peal_responder *responder,
				    const struct peal_packet *packet,
				    const struct peal_wire_opcode *wire,
				    struct peal_request *request)
{
	peal_request_describe(request, packet, wire);
	if (!request->first)
		peal_responder_describe_message(responder, request);
	if (wire->has & PEAL_HAS_SEND)
		request->length = request->offset + packet->payload_bytes;
}

static void peal_responder_execute(struct peal_responder *responder,
				   const struct peal_packet *packet)
{
	responder->packet = *packet;
	responder->executing = true;
}

/* ---- reliable connections ---- */

/* The caller compares the two packets, because only the caller has the payload. */
static void peal_responder_copy(const struct peal_responder *responder, u32 psn,
				struct peal_request *request)
{
	request->what = PEAL_REQUEST_COPY;
	request->drop = PEAL_DROP_sequence;
	request->kept = peal_reorder_find(&responder->reorder, psn);
}

/*
 * A packet with this PSN arrived and was dropped as suspect. Remember the PSN to report a gap
 * there, because its sender may believe that the packet was received.
 */
static void peal_responder_request_again(struct peal_responder *responder, u32 psn)
{
	responder->contradicted = true;
	responder->contradicted_psn = psn;
}

/*
 * The packet was kept out of order, and the packet in front of it has another flow. Drop it and ask
 * the peer for it. If the true peer changed its flow in between, it gets the NAK and retransmits;
 * a forger does not get the NAK.
 */
static void peal_responder_mistrust(struct peal_responder *responder, u64 now,
				    struct peal_request *request)
{
	peal_responder_request_again(responder, responder->psn);
	peal_responder_next_gap(responder, now);
	peal_responder_drop(request, PEAL_DROP_conflict);
}

static void peal_responder_expected(struct peal_responder *responder,
				    const struct peal_packet *packet,
				    const struct peal_wire_opcode *wire, u64 now,
				    struct peal_request *request)
{
	bool again = responder->again;

	responder->again = false;
	if (again && packet->flow != responder->flow) {
		peal_responder_mistrust(responder, now, request);
		return;
	}
	/* A packet with this PSN is kept, and the caller has yet to take it. */
	if (peal_reorder_has(&responder->reorder, packet->psn)) {
		peal_responder_copy(responder, packet->psn, request);
		return;
	}
	responder->flow = packet->flow;
	peal_responder_describe(responder, packet, wire, request);
	if (peal_responder_valid(responder, packet, wire, request)) {
		peal_responder_execute(responder, packet);
		return;
	}
	peal_responder_close_gap(responder);
	peal_responder_owe_fatal_nak(responder, PEAL_NAK_INVALID_REQUEST);
	request->what = PEAL_REQUEST_ANSWERED;
	request->fatal = true;
}

/*
 * A repetition of a READ, or of the rest of a READ from any packet on. Its address, key and
 * length must lie within the saved request, at the offset that its PSN stands for (9.7.5.1).
 */
static bool peal_responder_replay_read(struct peal_responder *responder, struct peal_resource *res,
				       const struct peal_packet *packet)
{
	u32 from = peal_psn_distance(res->psn, packet->psn);
	u64 offset = (u64)from << responder->config.mtu_shift;

	if (packet->rkey != res->rkey || packet->remote_addr != res->remote_addr + offset)
		return false;
	if (packet->length > res->length - offset || !packet->length != !res->length)
		return false;
	/* These responses are due anyway, because they were never sent. */
	if (from >= res->sent)
		return true;
	/*
	 * Finish the run that was requested before. Otherwise a requester that repeats two
	 * requests in turn would always get the second run, and never the first.
	 */
	if (res->replying && from >= res->to)
		return true;
	peal_responder_start_reply(responder, res, from,
				   from + peal_responder_packets(responder, packet->length),
				   offset + packet->length);
	return true;
}

/* An atomic is never executed twice. The response carries the saved value (9.7.5.1). */
static bool peal_responder_replay_atomic(struct peal_responder *responder,
					 struct peal_resource *res,
					 const struct peal_packet *packet)
{
	if (packet->rkey != res->rkey || packet->remote_addr != res->remote_addr)
		return false;
	peal_responder_start_reply(responder, res, 0, 1, 0);
	return true;
}

static bool peal_responder_replay(struct peal_responder *responder,
				  const struct peal_packet *packet, u8 operation)
{
	struct peal_resource *res = peal_responder_find(responder, packet->psn);

	if (!res || res->operation != operation)
		return false;
	return operation == PEAL_OP_READ ? peal_responder_replay_read(responder, res, packet) :
					   peal_responder_replay_atomic(responder, res, packet);
}

/* A duplicate SEND or WRITE gets the newest acknowledgment once more (9.7.5.1, C9-105). */
static void peal_responder_duplicate(struct peal_responder *responder,
				     const struct peal_packet *packet,
				     const struct peal_wire_opcode *wire,
				     struct peal_request *request)
{
	request->duplicate = true;
	request->what = PEAL_REQUEST_ANSWERED;
	if (wire->has & (PEAL_HAS_SEND | PEAL_HAS_WRITE))
		responder->ack_now = true;
	else if (!peal_responder_replay(responder, packet, wire->operation))
		peal_responder_drop(request, PEAL_DROP_stale);
}

static void peal_responder_reorder(struct peal_responder *responder,
				   const struct peal_packet *packet, u64 now, void *handle,
				   struct peal_request *request)
{
	if (peal_reorder_has(&responder->reorder, packet->psn)) {
		peal_responder_copy(responder, packet->psn, request);
		return;
	}
	/* After an RNR NAK the requester starts again with the expected packet (9.7.5.2). */
	if (responder->rnr) {
		peal_responder_drop(request, PEAL_DROP_sequence);
		return;
	}
	/* There is no gap if the expected packet is kept and the caller has yet to take it. */
	if (!peal_reorder_has(&responder->reorder, responder->psn)) {
		responder->gap_packets++;
		peal_responder_watch_gap(responder, now);
	}
	if (handle && peal_reorder_insert(&responder->reorder, responder->psn, packet->psn, handle,
					  now, responder->config.reorder_ns)) {
		request->what = PEAL_REQUEST_KEPT;
		return;
	}
	/* The peer must retransmit this packet anyway, so do not wait. */
	peal_responder_owe_sequence_nak(responder);
	peal_responder_drop(request, PEAL_DROP_sequence);
}

static void peal_responder_receive_rc(struct peal_responder *responder,
				      const struct peal_packet *packet,
				      const struct peal_wire_opcode *wire, u64 now, void *handle,
				      struct peal_request *request)
{
	s32 distance = peal_psn_distance(responder->psn, packet->psn);

	if (distance < 0)
		peal_responder_duplicate(responder, packet, wire, request);
	else if (distance > 0)
		peal_responder_reorder(responder, packet, now, handle, request);
	else
		peal_responder_expected(responder, packet, wire, now, request);
}

/* ---- unreliable connections ---- */

static void peal_responder_lose_message(struct peal_responder *responder)
{
	responder->operation = 0;
}

/*
 * A packet that continues a message must have the expected PSN. A packet that begins one may have
 * any (9.8), because the end of the message before it may be lost, and the requester may have given
 * that message up before it sent the end. A packet with another PSN than the expected one may be
 * forged, so it changes no state unless it is executed.
 */
static void peal_responder_receive_uc(struct peal_responder *responder,
				      const struct peal_packet *packet,
				      const struct peal_wire_opcode *wire,
				      struct peal_request *request)
{
	s32 distance = peal_psn_distance(responder->psn, packet->psn);

	if (peal_responder_is_late_uc(responder->psn, packet->psn)) {
		request->duplicate = true;
		peal_responder_drop(request, PEAL_DROP_sequence);
		return;
	}
	peal_responder_describe(responder, packet, wire, request);
	if ((wire->has & PEAL_HAS_FIRST ||
	     (!distance && peal_request_continues(wire, responder->operation))) &&
	    peal_request_fits(request, packet, wire->has, peal_responder_mtu(responder))) {
		peal_responder_execute(responder, packet);
		return;
	}
	if (!distance)
		peal_responder_lose_message(responder);
	peal_responder_drop(request, PEAL_DROP_order);
}

/* ---- a request, and the verdict on it ---- */

void peal_responder_receive(struct peal_responder *responder, const struct peal_packet *packet,
			    u64 now, void *handle, struct peal_request *request)
{
	const struct peal_wire_opcode *wire = peal_packet_opcode(packet);

	memset(request, 0, sizeof(*request));
	if (responder->fatal)
		peal_responder_drop(request, PEAL_DROP_state);
	else if (!(wire->has & PEAL_HAS_REQUEST) ||
		 peal_opcode_transport(packet->opcode) != responder->config.transport)
		peal_responder_drop(request, PEAL_DROP_opcode);
	else if (peal_responder_reliable(responder))
		peal_responder_receive_rc(responder, packet, wire, now, handle, request);
	else
		peal_responder_receive_uc(responder, packet, wire, request);
}

/* Move the position in the message behind the packet that was executed. */
static void peal_responder_advance_message(struct peal_responder *responder,
					   const struct peal_wire_opcode *wire)
{
	const struct peal_packet *packet = &responder->packet;

	if (wire->has & PEAL_HAS_FIRST) {
		responder->operation = wire->operation;
		responder->offset = 0;
		responder->length = packet->length;
		responder->rkey = packet->rkey;
		responder->srqn = packet->srqn;
		responder->remote_addr = packet->remote_addr;
	}
	responder->offset += packet->payload_bytes;
	if (wire->has & PEAL_HAS_LAST) {
		responder->operation = 0;
		/* This counts READs and atomics, too (C9-148). */
		responder->msn = peal_psn_add(responder->msn, 1);
	}
}

/* READs and atomics are answered by their responses. Other packets are answered if they ask. */
static void peal_responder_owe_answer(struct peal_responder *responder,
				      const struct peal_wire_opcode *wire, u64 original)
{
	if (wire->has & (PEAL_HAS_READ | PEAL_HAS_ATOMIC)) {
		peal_responder_save(responder, wire->operation, original);
		return;
	}
	responder->trailing = 0;
	responder->unanswered++;
	if (responder->packet.ack_request || responder->unanswered >= ACK_AT_LEAST_EVERY)
		responder->ack_now = true;
}

static void peal_responder_executed(struct peal_responder *responder, u64 original, u64 now)
{
	const struct peal_packet *packet = &responder->packet;
	const struct peal_wire_opcode *wire = peal_packet_opcode(packet);

	peal_responder_advance_message(responder, wire);
	if (!peal_responder_reliable(responder)) {
		responder->psn = peal_psn_add(packet->psn, 1);
		return;
	}
	peal_responder_owe_answer(responder, wire, original);
	responder->recovering |= responder->nak_sent;
	peal_responder_close_gap(responder);
	responder->psn = peal_psn_add(responder->psn, wire->has & PEAL_HAS_READ ?
				      peal_responder_packets(responder, packet->length) : 1);
	peal_responder_next_gap(responder, now);
}

/* The packet stays the expected one, and the position in the message does not change. */
static void peal_responder_not_ready(struct peal_responder *responder)
{
	peal_responder_close_gap(responder);
	responder->rnr = true;
	peal_responder_owe_nak(responder, PEAL_SYNDROME_RNR |
			       (responder->config.rnr_timer & PEAL_SYNDROME_VALUE));
}

static void peal_responder_refused(struct peal_responder *responder, enum peal_verdict verdict)
{
	static const u8 codes[] = {
		[PEAL_VERDICT_INVALID_REQUEST] = PEAL_NAK_INVALID_REQUEST,
		[PEAL_VERDICT_ACCESS] = PEAL_NAK_REMOTE_ACCESS,
		[PEAL_VERDICT_OPERATION] = PEAL_NAK_REMOTE_OPERATION,
	};

	peal_responder_close_gap(responder);
	peal_responder_owe_fatal_nak(responder, codes[verdict]);
}

static void peal_responder_refused_unreliable(struct peal_responder *responder)
{
	if (responder->packet.psn == responder->psn)
		peal_responder_lose_message(responder);
}

void peal_responder_done(struct peal_responder *responder, enum peal_verdict verdict, u64 original,
			 u64 now)
{
	if (!responder->executing)
		return;
	responder->executing = false;
	if (verdict == PEAL_VERDICT_DONE)
		peal_responder_executed(responder, original, now);
	else if (!peal_responder_reliable(responder))
		peal_responder_refused_unreliable(responder);
	else if (verdict == PEAL_VERDICT_NOT_READY)
		peal_responder_not_ready(responder);
	else
		peal_responder_refused(responder, verdict);
}

void *peal_responder_take_reordered(struct peal_responder *responder)
{
	void *handle = peal_reorder_take(&responder->reorder, responder->psn);

	responder->again = handle;
	return handle;
}

/* If the PSN is the expected one, no late packet is to be waited for, so send the NAK at once. */
void *peal_responder_contradict(struct peal_responder *responder, u32 psn)
{
	if (psn == responder->psn)
		peal_responder_owe_sequence_nak(responder);
	peal_responder_request_again(responder, psn);
	return peal_reorder_take(&responder->reorder, psn);
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

static void peal_responder_answer_read(struct peal_responder *responder, struct peal_resource *res,
				       struct peal_reply *reply)
{
	struct peal_packet *header = &reply->header;
	u64 offset = (u64)res->from << responder->config.mtu_shift;
	u64 rest = res->end - offset;
	u32 mtu = peal_responder_mtu(responder);

	header->payload_bytes = rest < mtu ? rest : mtu;
	header->pad = -header->payload_bytes & 3;
	reply->read = true;
	reply->rkey = res->rkey;
	reply->srqn = res->srqn;
	reply->remote_addr = res->remote_addr + offset;
}

static u8 peal_responder_answer_opcode(const struct peal_responder *responder,
				       const struct peal_resource *res)
{
	if (res->operation == PEAL_OP_CMP_SWAP || res->operation == PEAL_OP_FETCH_ADD)
		return peal_opcode_of(responder->config.transport, PEAL_WIRE_ATOMIC_ACK);
	return peal_opcode_read_response(responder->config.transport, res->from == res->begin,
					 res->from + 1 == res->to);
}

/* A response acknowledges every request up to its PSN (9.7.5.1). */
static void peal_responder_acknowledged(struct peal_responder *responder, u32 psn)
{
	if (peal_psn_add(psn, 1) != responder->psn)
		return;
	responder->unanswered = 0;
	responder->ack_now = false;
}

/* After a replay, go on with the responses that were never sent. */
static void peal_responder_end_reply(struct peal_responder *responder, struct peal_resource *res)
{
	if (res->sent < res->packets)
		peal_responder_start_reply(responder, res, res->sent, res->packets, res->length);
	else
		peal_responder_stop_reply(responder, res);
}

static void peal_responder_answer(struct peal_responder *responder, struct peal_resource *res,
				  struct peal_reply *reply)
{
	u32 psn = peal_psn_add(res->psn, res->from);

	peal_responder_head(responder, reply, peal_responder_answer_opcode(responder, res), psn,
			    PEAL_SYNDROME_ACK | PEAL_CREDITS_UNLIMITED);
	reply->header.msn = res->msn;
	reply->header.original = res->original;
	reply->again = res->from < res->sent;
	if (res->operation == PEAL_OP_READ)
		peal_responder_answer_read(responder, res, reply);

	responder->reply_psn = psn;
	res->from++;
	if (res->sent < res->from)
		res->sent = res->from;
	if (res->from == res->to)
		peal_responder_end_reply(responder, res);
	peal_responder_acknowledged(responder, psn);
}

static struct peal_resource *peal_responder_oldest_reply(struct peal_responder *responder)
{
	u32 age = responder->replying ? responder->saved : 0;

	while (age--) {
		struct peal_resource *res = peal_responder_resource(responder, age);

		if (res->replying)
			return res;
	}
	return NULL;
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
bool peal_responder_next(struct peal_responder *responder, struct peal_reply *reply)
{
	struct peal_resource *res = peal_responder_oldest_reply(responder);
	u8 ack = peal_opcode_of(responder->config.transport, PEAL_WIRE_ACK);

	if (res) {
		peal_responder_answer(responder, res, reply);
		return true;
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

void peal_responder_skip(struct peal_responder *responder, u32 psn, u32 msn)
{
	while (responder->saved)
		peal_responder_forget_oldest(responder);
	peal_responder_close_gap(responder);
	responder->contradicted = false;
	responder->operation = 0;
	responder->ack_now = false;
	responder->unanswered = 0;
	responder->psn = psn;
	responder->msn = msn;
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
