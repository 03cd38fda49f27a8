// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See responder.h. Clauses are those of the IBTA specification, volume 1.
 */
#include <linux/limits.h>
#include <linux/minmax.h>
#include <linux/string.h>

#include "proto/psn.h"
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

static bool peal_responder_reliable(const struct peal_responder *in)
{
	return peal_transport_is_reliable(in->config.transport);
}

static u32 peal_responder_mtu(const struct peal_responder *in)
{
	return 1U << in->config.mtu_shift;
}

/* ---- responder resources: READs and atomics, saved for replay ---- */

/* @age: 0 is the newest resource; less than `saved`. */
static struct peal_resource *peal_responder_resource(struct peal_responder *in, u32 age)
{
	return &in->resource[(in->head + in->resources - 1 - age) % in->resources];
}

static void peal_responder_stop_reply(struct peal_responder *in, struct peal_resource *res)
{
	if (res->replying)
		in->replying--;
	res->replying = false;
}

/*
 * Send responses @from to @to (exclusive) of @res. Their payload ends at offset @end. This
 * replaces a run that is not finished.
 */
static void peal_responder_start_reply(struct peal_responder *in, struct peal_resource *res,
				       u32 from, u32 to, u64 end)
{
	if (!res->replying)
		in->replying++;
	res->replying = true;
	res->from = from;
	res->begin = from;
	res->to = to;
	res->end = end;
}

static void peal_responder_forget_oldest(struct peal_responder *in)
{
	peal_responder_stop_reply(in, peal_responder_resource(in, in->saved - 1));
	in->saved--;
}

/*
 * Does the requester respect the negotiated number of resources (9.7.4.1)? At most so many READs
 * and atomics may lack a response. A new one may replace a resource whose responses were all sent,
 * even during a replay, because a requester that sends a new READ or atomic has received them.
 */
static bool peal_responder_resource_free(struct peal_responder *in)
{
	const struct peal_resource *oldest;

	if (in->saved < in->config.rd_atomic)
		return true;
	if (!in->saved)
		return false;
	oldest = peal_responder_resource(in, in->saved - 1);
	return oldest->sent >= oldest->packets;
}

/* A READ takes one PSN for each response (9.7.2). */
static u32 peal_responder_packets(const struct peal_responder *in, u64 length)
{
	return length ? (length + peal_responder_mtu(in) - 1) >> in->config.mtu_shift : 1;
}

static void peal_responder_save(struct peal_responder *in, u8 operation, u64 original)
{
	const struct peal_packet *packet = &in->packet;
	struct peal_resource *res;

	if (in->saved == in->config.rd_atomic)
		peal_responder_forget_oldest(in);
	res = &in->resource[in->head];
	in->head = (in->head + 1) % in->resources;
	in->saved++;
	in->trailing = min_t(u32, in->trailing + 1, in->saved);

	*res = (struct peal_resource) {
		.psn = packet->psn,
		.packets = operation == PEAL_OP_READ ? peal_responder_packets(in,
									      packet->length) : 1,
		.operation = operation,
		.rkey = packet->rkey,
		.srqn = packet->srqn,
		.remote_addr = packet->remote_addr,
		.length = operation == PEAL_OP_READ ? packet->length : 0,
		.original = original,
		.msn = in->msn,
	};
	peal_responder_start_reply(in, res, 0, res->packets, res->length);
}

/* The saved READ or atomic that has @psn; NULL: it is no longer saved, or @psn is of neither. */
static struct peal_resource *peal_responder_find(struct peal_responder *in, u32 psn)
{
	u32 age;

	for (age = 0; age < in->saved; age++) {
		struct peal_resource *res = peal_responder_resource(in, age);
		s32 distance = peal_psn_distance(res->psn, psn);

		if (distance >= 0 && distance < res->packets)
			return res;
	}
	return NULL;
}

/* ---- pending acknowledgments ---- */

static void peal_responder_owe_nak(struct peal_responder *in, u8 syndrome)
{
	in->nak = syndrome;
	in->nak_psn = in->psn;
}

/* After such a NAK the connection is in error (9.9.3). */
static void peal_responder_owe_fatal_nak(struct peal_responder *in, enum peal_nak code)
{
	peal_responder_owe_nak(in, PEAL_SYNDROME_NAK | code);
	in->fatal = true;
}

/* Send one NAK for each gap. If it is lost, the requester's timeout helps (9.7.5.2). */
static void peal_responder_owe_sequence_nak(struct peal_responder *in)
{
	in->nak_at = 0;
	if (in->nak_sent)
		return;
	in->nak_sent = true;
	peal_responder_owe_nak(in, PEAL_SYNDROME_NAK | PEAL_NAK_SEQUENCE);
}

static bool peal_responder_gap(const struct peal_responder *in)
{
	return in->nak_at || in->nak_sent;
}

/* The expected packet has arrived, so a pending NAK about it is void. */
static void peal_responder_close_gap(struct peal_responder *in)
{
	in->nak = 0;
	in->nak_sent = false;
	in->nak_at = 0;
	in->gap_packets = 0;
	in->rnr = false;
}

/* The peer is known to have sent a packet with the expected PSN or a later one. */
static bool peal_responder_knows_more(struct peal_responder *in)
{
	if (in->contradicted && peal_psn_before(in->contradicted_psn, in->psn))
		in->contradicted = false;
	return in->reorder.count || in->contradicted;
}

/* Packets behind the expected one have arrived, and the expected one has not. */
static void peal_responder_watch_gap(struct peal_responder *in, u64 now)
{
	if (!peal_responder_gap(in))
		in->nak_at = now + NAK_PATIENCE_NS;
	if (in->gap_packets >= NAK_EARLY_PACKETS)
		peal_responder_owe_sequence_nak(in);
}

/*
 * After progress the next packet may be missing, too. If the gap before was a loss, this gap
 * belongs to the same burst of losses, so send the NAK now instead of after another wait.
 */
static void peal_responder_next_gap(struct peal_responder *in, u64 now)
{
	if (!in->reorder.count)
		in->recovering = false;
	if (!peal_responder_knows_more(in) || peal_reorder_has(&in->reorder, in->psn))
		return;
	in->gap_packets = in->reorder.count;
	peal_responder_watch_gap(in, now);
	if (in->recovering)
		peal_responder_owe_sequence_nak(in);
}

/* ---- set-up ---- */

void peal_responder_init(struct peal_responder *in, struct peal_resource *resource, u32 entries)
{
	memset(in, 0, sizeof(*in));
	in->resource = resource;
	in->resources = entries;
}

void peal_responder_reset(struct peal_responder *in)
{
	struct peal_responder_config config = in->config;

	peal_responder_init(in, in->resource, in->resources);
	in->config = config;
}

void peal_responder_configure(struct peal_responder *in, const struct peal_responder_config *config)
{
	in->config = *config;
	if (in->config.rd_atomic > in->resources)
		in->config.rd_atomic = in->resources;
	while (in->saved > in->config.rd_atomic)
		peal_responder_forget_oldest(in);
}

void peal_responder_set_psn(struct peal_responder *in, u32 psn)
{
	in->psn = psn & PEAL_PSN_MASK;
}

/* ---- checks of the expected packet; false: an invalid request (9.7.4.1) ---- */

/* All packets of a message name one shared receive queue. Without XRC the numbers are 0. */
static bool peal_responder_same_srq(const struct peal_responder *in,
				    const struct peal_packet *packet,
				    const struct peal_wire_opcode *wire)
{
	return wire->has & PEAL_HAS_FIRST || packet->srqn == in->srqn;
}

static bool peal_responder_valid(struct peal_responder *in, const struct peal_packet *packet,
				 const struct peal_wire_opcode *wire,
				 const struct peal_request *request)
{
	if (!peal_request_continues(wire, in->operation))
		return false;
	if (!peal_responder_same_srq(in, packet, wire))
		return false;
	if (!peal_request_fits(request, packet, wire->has, peal_responder_mtu(in)))
		return false;
	if (wire->has & (PEAL_HAS_READ | PEAL_HAS_ATOMIC))
		return peal_responder_resource_free(in);
	return true;
}

/* ---- what a packet asks for ---- */

static void peal_responder_drop(struct peal_request *request, enum peal_drop drop)
{
	request->what = PEAL_REQUEST_DROPPED;
	request->drop = drop;
}

/* Fill in what the first packet said about the message. */
static void peal_responder_describe_message(const struct peal_responder *in,
					    struct peal_request *request)
{
	request->offset = in->offset;
	request->rkey = in->rkey;
	request->remote_addr = in->remote_addr;
	request->length = in->length;
}

static void peal_responder_describe(const struct peal_responder *in,
				    const struct peal_packet *packet,
				    const struct peal_wire_opcode *wire,
				    struct peal_request *request)
{
	peal_request_describe(request, packet, wire);
	if (!request->first)
		peal_responder_describe_message(in, request);
	if (wire->has & PEAL_HAS_SEND)
		request->length = request->offset + packet->payload_bytes;
}

static void peal_responder_execute(struct peal_responder *in, const struct peal_packet *packet)
{
	in->packet = *packet;
	in->executing = true;
}

/* ---- reliable connections ---- */

/* The caller compares the two packets, because only the caller has the payload. */
static void peal_responder_copy(const struct peal_responder *in, u32 psn,
				struct peal_request *request)
{
	request->what = PEAL_REQUEST_COPY;
	request->drop = PEAL_DROP_sequence;
	request->kept = peal_reorder_find(&in->reorder, psn);
}

/*
 * A packet with this PSN arrived and was dropped as suspect. Remember the PSN to report a gap
 * there, because its sender may believe that the packet was received.
 */
static void peal_responder_ask_again(struct peal_responder *in, u32 psn)
{
	in->contradicted = true;
	in->contradicted_psn = psn;
}

/*
 * The packet was kept out of order, and the packet in front of it has another flow. Drop it and ask
 * the peer for it. If the true peer changed its flow in between, it gets the NAK and retransmits;
 * a forger does not get the NAK.
 */
static void peal_responder_mistrust(struct peal_responder *in, u64 now,
				    struct peal_request *request)
{
	peal_responder_ask_again(in, in->psn);
	peal_responder_next_gap(in, now);
	peal_responder_drop(request, PEAL_DROP_conflict);
}

static void peal_responder_expected(struct peal_responder *in, const struct peal_packet *packet,
				    const struct peal_wire_opcode *wire, u64 now,
				    struct peal_request *request)
{
	bool again = in->again;

	in->again = false;
	if (again && packet->flow != in->flow) {
		peal_responder_mistrust(in, now, request);
		return;
	}
	/* A packet with this PSN is kept, and the caller has yet to take it. */
	if (peal_reorder_has(&in->reorder, packet->psn)) {
		peal_responder_copy(in, packet->psn, request);
		return;
	}
	in->flow = packet->flow;
	peal_responder_describe(in, packet, wire, request);
	if (peal_responder_valid(in, packet, wire, request)) {
		peal_responder_execute(in, packet);
		return;
	}
	peal_responder_close_gap(in);
	peal_responder_owe_fatal_nak(in, PEAL_NAK_INVALID_REQUEST);
	request->what = PEAL_REQUEST_ANSWERED;
	request->fatal = true;
}

/*
 * A repetition of a READ, or of the rest of a READ from any packet on. Its address, key and
 * length must lie within the saved request, at the offset that its PSN stands for (9.7.5.1).
 */
static bool peal_responder_replay_read(struct peal_responder *in, struct peal_resource *res,
				       const struct peal_packet *packet)
{
	u32 from = peal_psn_distance(res->psn, packet->psn);
	u64 offset = (u64)from << in->config.mtu_shift;

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
	peal_responder_start_reply(in, res, from, from + peal_responder_packets(in, packet->length),
				   offset + packet->length);
	return true;
}

/* An atomic is never executed twice. The response carries the saved value (9.7.5.1). */
static bool peal_responder_replay_atomic(struct peal_responder *in, struct peal_resource *res,
					 const struct peal_packet *packet)
{
	if (packet->rkey != res->rkey || packet->remote_addr != res->remote_addr)
		return false;
	peal_responder_start_reply(in, res, 0, 1, 0);
	return true;
}

static bool peal_responder_replay(struct peal_responder *in, const struct peal_packet *packet,
				  u8 operation)
{
	struct peal_resource *res = peal_responder_find(in, packet->psn);

	if (!res || res->operation != operation)
		return false;
	return operation == PEAL_OP_READ ? peal_responder_replay_read(in, res, packet) :
					   peal_responder_replay_atomic(in, res, packet);
}

/* A duplicate SEND or WRITE gets the newest acknowledgment once more (9.7.5.1, C9-105). */
static void peal_responder_duplicate(struct peal_responder *in, const struct peal_packet *packet,
				     const struct peal_wire_opcode *wire,
				     struct peal_request *request)
{
	request->duplicate = true;
	request->what = PEAL_REQUEST_ANSWERED;
	if (wire->has & (PEAL_HAS_SEND | PEAL_HAS_WRITE))
		in->ack_now = true;
	else if (!peal_responder_replay(in, packet, wire->operation))
		peal_responder_drop(request, PEAL_DROP_stale);
}

static void peal_responder_reorder(struct peal_responder *in, const struct peal_packet *packet,
				   u64 now,
				   void *handle, struct peal_request *request)
{
	if (peal_reorder_has(&in->reorder, packet->psn)) {
		peal_responder_copy(in, packet->psn, request);
		return;
	}
	/* After an RNR NAK the requester starts again with the expected packet (9.7.5.2). */
	if (in->rnr) {
		peal_responder_drop(request, PEAL_DROP_sequence);
		return;
	}
	/* There is no gap if the expected packet is kept and the caller has yet to take it. */
	if (!peal_reorder_has(&in->reorder, in->psn)) {
		in->gap_packets++;
		peal_responder_watch_gap(in, now);
	}
	if (handle && peal_reorder_insert(&in->reorder, in->psn, packet->psn, handle, now,
					  in->config.reorder_ns)) {
		request->what = PEAL_REQUEST_KEPT;
		return;
	}
	/* The peer must retransmit this packet anyway, so do not wait. */
	peal_responder_owe_sequence_nak(in);
	peal_responder_drop(request, PEAL_DROP_sequence);
}

static void peal_responder_receive_rc(struct peal_responder *in, const struct peal_packet *packet,
				      const struct peal_wire_opcode *wire, u64 now, void *handle,
				      struct peal_request *request)
{
	s32 distance = peal_psn_distance(in->psn, packet->psn);

	if (distance < 0)
		peal_responder_duplicate(in, packet, wire, request);
	else if (distance > 0)
		peal_responder_reorder(in, packet, now, handle, request);
	else
		peal_responder_expected(in, packet, wire, now, request);
}

/* ---- unreliable connections ---- */

static void peal_responder_lose_message(struct peal_responder *in)
{
	in->operation = 0;
}

/*
 * A packet that continues a message must have the expected PSN. A packet that begins one may have
 * any other (9.8), because the end of the message before it may be lost. A packet with another
 * PSN than the expected one may be forged, so it changes no state unless it is executed.
 */
static void peal_responder_receive_uc(struct peal_responder *in, const struct peal_packet *packet,
				      const struct peal_wire_opcode *wire,
				      struct peal_request *request)
{
	s32 distance = peal_psn_distance(in->psn, packet->psn);

	if (peal_responder_is_late_uc(in->psn, packet->psn)) {
		request->duplicate = true;
		peal_responder_drop(request, PEAL_DROP_sequence);
		return;
	}
	peal_responder_describe(in, packet, wire, request);
	if ((distance ? wire->has & PEAL_HAS_FIRST : peal_request_continues(wire, in->operation)) &&
	    peal_request_fits(request, packet, wire->has, peal_responder_mtu(in))) {
		peal_responder_execute(in, packet);
		return;
	}
	if (!distance)
		peal_responder_lose_message(in);
	peal_responder_drop(request, PEAL_DROP_order);
}

/* ---- a request, and the verdict on it ---- */

void peal_responder_receive(struct peal_responder *in, const struct peal_packet *packet, u64 now,
			    void *handle, struct peal_request *request)
{
	const struct peal_wire_opcode *wire = peal_packet_opcode(packet);

	memset(request, 0, sizeof(*request));
	if (in->fatal)
		peal_responder_drop(request, PEAL_DROP_state);
	else if (!(wire->has & PEAL_HAS_REQUEST) ||
		 peal_opcode_transport(packet->opcode) != in->config.transport)
		peal_responder_drop(request, PEAL_DROP_opcode);
	else if (peal_responder_reliable(in))
		peal_responder_receive_rc(in, packet, wire, now, handle, request);
	else
		peal_responder_receive_uc(in, packet, wire, request);
}

/* Move the position in the message behind the packet that was executed. */
static void peal_responder_advance_message(struct peal_responder *in,
					   const struct peal_wire_opcode *wire)
{
	const struct peal_packet *packet = &in->packet;

	if (wire->has & PEAL_HAS_FIRST) {
		in->operation = wire->operation;
		in->offset = 0;
		in->length = packet->length;
		in->rkey = packet->rkey;
		in->srqn = packet->srqn;
		in->remote_addr = packet->remote_addr;
	}
	in->offset += packet->payload_bytes;
	if (wire->has & PEAL_HAS_LAST) {
		in->operation = 0;
		in->msn = peal_psn_add(in->msn, 1);	/* also for READ and atomic: C9-148 */
	}
}

/* READs and atomics are answered by their responses. Other packets are answered if they ask. */
static void peal_responder_owe_answer(struct peal_responder *in,
				      const struct peal_wire_opcode *wire,
				      u64 original)
{
	if (wire->has & (PEAL_HAS_READ | PEAL_HAS_ATOMIC)) {
		peal_responder_save(in, wire->operation, original);
		return;
	}
	in->trailing = 0;
	in->unanswered++;
	if (in->packet.ack_request || in->unanswered >= ACK_AT_LEAST_EVERY)
		in->ack_now = true;
}

static void peal_responder_executed(struct peal_responder *in, u64 original, u64 now)
{
	const struct peal_wire_opcode *wire = peal_packet_opcode(&in->packet);

	peal_responder_advance_message(in, wire);
	if (!peal_responder_reliable(in)) {
		in->psn = peal_psn_add(in->packet.psn, 1);
		return;
	}
	peal_responder_owe_answer(in, wire, original);
	in->recovering |= in->nak_sent;
	peal_responder_close_gap(in);
	in->psn = peal_psn_add(in->psn, wire->has & PEAL_HAS_READ ?
			       peal_responder_packets(in, in->packet.length) : 1);
	peal_responder_next_gap(in, now);
}

/* The packet stays the expected one, and the position in the message does not change. */
static void peal_responder_not_ready(struct peal_responder *in)
{
	peal_responder_close_gap(in);
	in->rnr = true;
	peal_responder_owe_nak(in,
			       PEAL_SYNDROME_RNR | (in->config.rnr_timer & PEAL_SYNDROME_VALUE));
}

static void peal_responder_refused(struct peal_responder *in, enum peal_verdict verdict)
{
	static const u8 codes[] = {
		[PEAL_VERDICT_INVALID_REQUEST] = PEAL_NAK_INVALID_REQUEST,
		[PEAL_VERDICT_ACCESS] = PEAL_NAK_REMOTE_ACCESS,
		[PEAL_VERDICT_OPERATION] = PEAL_NAK_REMOTE_OPERATION,
	};

	peal_responder_close_gap(in);
	peal_responder_owe_fatal_nak(in, codes[verdict]);
}

static void peal_responder_refused_unreliable(struct peal_responder *in)
{
	if (in->packet.psn == in->psn)
		peal_responder_lose_message(in);
}

void peal_responder_done(struct peal_responder *in, enum peal_verdict verdict, u64 original,
			 u64 now)
{
	if (!in->executing)
		return;
	in->executing = false;
	if (verdict == PEAL_VERDICT_DONE)
		peal_responder_executed(in, original, now);
	else if (!peal_responder_reliable(in))
		peal_responder_refused_unreliable(in);
	else if (verdict == PEAL_VERDICT_NOT_READY)
		peal_responder_not_ready(in);
	else
		peal_responder_refused(in, verdict);
}

void *peal_responder_take_reordered(struct peal_responder *in)
{
	void *handle = peal_reorder_take(&in->reorder, in->psn);

	in->again = handle;
	return handle;
}

/* If the PSN is the expected one, no late packet is to be waited for, so send the NAK at once. */
void *peal_responder_contradict(struct peal_responder *in, u32 psn)
{
	if (psn == in->psn)
		peal_responder_owe_sequence_nak(in);
	peal_responder_ask_again(in, psn);
	return peal_reorder_take(&in->reorder, psn);
}

/* ---- replies ---- */

static void peal_responder_head(const struct peal_responder *in, struct peal_reply *reply,
				u8 opcode,
				u32 psn, u8 syndrome)
{
	memset(reply, 0, sizeof(*reply));
	reply->header.opcode = opcode;
	reply->header.migrated = true;	/* always set without path migration (9.2, 17.2.8) */
	reply->header.header_bytes = peal_wire_opcode(opcode)->header_bytes;
	reply->header.psn = psn;
	reply->header.syndrome = syndrome;
	reply->header.msn = in->msn;
}

static void peal_responder_answer_read(struct peal_responder *in, struct peal_resource *res,
				       struct peal_reply *reply)
{
	struct peal_packet *header = &reply->header;
	u64 offset = (u64)res->from << in->config.mtu_shift;
	u64 rest = res->end - offset;
	u32 mtu = peal_responder_mtu(in);

	header->payload_bytes = rest < mtu ? rest : mtu;
	header->pad = -header->payload_bytes & 3;
	reply->read = true;
	reply->rkey = res->rkey;
	reply->srqn = res->srqn;
	reply->remote_addr = res->remote_addr + offset;
}

static u8 peal_responder_answer_opcode(const struct peal_responder *in,
				       const struct peal_resource *res)
{
	if (res->operation == PEAL_OP_CMP_SWAP || res->operation == PEAL_OP_FETCH_ADD)
		return peal_opcode_of(in->config.transport, PEAL_WIRE_ATOMIC_ACK);
	return peal_opcode_read_response(in->config.transport, res->from == res->begin,
					 res->from + 1 == res->to);
}

/* A response acknowledges every request up to its PSN (9.7.5.1). */
static void peal_responder_acknowledged(struct peal_responder *in, u32 psn)
{
	if (peal_psn_add(psn, 1) != in->psn)
		return;
	in->unanswered = 0;
	in->ack_now = false;
}

/* After a replay, go on with the responses that were never sent. */
static void peal_responder_end_reply(struct peal_responder *in, struct peal_resource *res)
{
	if (res->sent < res->packets)
		peal_responder_start_reply(in, res, res->sent, res->packets, res->length);
	else
		peal_responder_stop_reply(in, res);
}

static void peal_responder_answer(struct peal_responder *in, struct peal_resource *res,
				  struct peal_reply *reply)
{
	u32 psn = peal_psn_add(res->psn, res->from);

	peal_responder_head(in, reply, peal_responder_answer_opcode(in, res), psn,
			    PEAL_SYNDROME_ACK | PEAL_CREDITS_UNLIMITED);
	reply->header.msn = res->msn;
	reply->header.original = res->original;
	reply->again = res->from < res->sent;
	if (res->operation == PEAL_OP_READ)
		peal_responder_answer_read(in, res, reply);

	in->reply_psn = psn;
	res->from++;
	if (res->sent < res->from)
		res->sent = res->from;
	if (res->from == res->to)
		peal_responder_end_reply(in, res);
	peal_responder_acknowledged(in, psn);
}

static struct peal_resource *peal_responder_oldest_reply(struct peal_responder *in)
{
	u32 age = in->replying ? in->saved : 0;

	while (age--) {
		struct peal_resource *res = peal_responder_resource(in, age);

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
static u32 peal_responder_ack_psn(struct peal_responder *in)
{
	u32 psn = peal_psn_add(in->psn, PEAL_PSN_MASK);
	u32 age;

	for (age = 0; age < min_t(u32, in->trailing, in->saved); age++) {
		const struct peal_resource *res = peal_responder_resource(in, age);

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
bool peal_responder_next(struct peal_responder *in, struct peal_reply *reply)
{
	struct peal_resource *res = peal_responder_oldest_reply(in);
	u8 ack = peal_opcode_of(in->config.transport, PEAL_WIRE_ACK);

	if (res) {
		peal_responder_answer(in, res, reply);
		return true;
	}
	if (in->nak)
		peal_responder_head(in, reply, ack, in->nak_psn, in->nak);
	else if (in->ack_now)
		peal_responder_head(in, reply, ack, peal_responder_ack_psn(in),
				    PEAL_SYNDROME_ACK | PEAL_CREDITS_UNLIMITED);
	else
		return false;
	in->nak = 0;
	in->ack_now = false;
	in->unanswered = 0;
	return true;
}

void peal_responder_skip(struct peal_responder *in, u32 psn, u32 msn)
{
	while (in->saved)
		peal_responder_forget_oldest(in);
	peal_responder_close_gap(in);
	in->contradicted = false;
	in->operation = 0;
	in->ack_now = false;
	in->unanswered = 0;
	in->psn = psn;
	in->msn = msn;
}

void peal_responder_refuse_read(struct peal_responder *in)
{
	while (in->saved)
		peal_responder_forget_oldest(in);
	peal_responder_close_gap(in);
	peal_responder_owe_fatal_nak(in, PEAL_NAK_REMOTE_ACCESS);
	in->nak_psn = in->reply_psn;
}

/* Skip only the rest of the replay. Responses that were never sent stay due. */
void peal_responder_refuse_again(struct peal_responder *in, struct peal_reply *reply)
{
	u32 psn = reply->header.psn;
	struct peal_resource *res = peal_responder_find(in, psn);

	peal_responder_head(in, reply, peal_opcode_of(in->config.transport, PEAL_WIRE_ACK), psn,
			    PEAL_SYNDROME_NAK | PEAL_NAK_REMOTE_ACCESS);
	reply->again = true;
	if (res && res->replying && res->from < res->sent)
		peal_responder_end_reply(in, res);
}

/* ---- time ---- */

u64 peal_responder_deadline(const struct peal_responder *in)
{
	return min_t(u64, in->nak_at ? in->nak_at : U64_MAX, peal_reorder_deadline(&in->reorder));
}

void peal_responder_expire(struct peal_responder *in, u64 now)
{
	if (in->nak_at && now >= in->nak_at)
		peal_responder_owe_sequence_nak(in);
}

void *peal_responder_take_expired(struct peal_responder *in, u64 now)
{
	return peal_reorder_expire(&in->reorder, now, in->config.reorder_ns);
}
