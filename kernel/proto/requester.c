// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See requester.h. Clauses are those of the IBTA specification, volume 1.
 */
#include <linux/limits.h>
#include <linux/minmax.h>
#include <linux/string.h>
#include <rdma/ib_verbs.h>

#include "proto/packet.h"
#include "proto/requester.h"
#include "proto/timers.h"

static bool peal_message_opcode_is_local(u8 opcode)
{
	switch (opcode) {
	case PEAL_OP_INVALID:
	case PEAL_OP_BIND_MW:
	case PEAL_OP_LOCAL_INV:
	case PEAL_OP_REG_MR:
		return true;
	default:
		return opcode >= PEAL_OP_COUNT;
	}
}

/* A READ takes one PSN for each response, other messages one for each request packet (9.7.2). */
static u32 peal_message_packets(const struct peal_message *message)
{
	u64 last = message->wr.length ? message->wr.length - 1 : 0;

	if (message->local)
		return 0;
	if (peal_message_is_atomic(message) || message->transport == PEAL_UD)
		return 1;
	return (last >> message->mtu_shift) + 1;
}

void peal_message_init(struct peal_message *message, const struct peal_wr *wr, u8 transport,
		       u8 mtu_shift, u32 psn)
{
	*message = (struct peal_message) {
		.wr = *wr,
		.transport = transport,
		.mtu_shift = mtu_shift,
		.psn = psn,
		.local = peal_message_opcode_is_local(wr->opcode),
	};
	message->packets = peal_message_packets(message);
}

void peal_message_executed(struct peal_message *message)
{
	message->done = true;
}

void peal_message_fail(struct peal_message *message, u8 status, u32 reason)
{
	message->status = status;
	message->reason = reason;
}

void peal_message_describe(const struct peal_message *message, struct peal_completion *completion)
{
	*completion = (struct peal_completion) {
		.index = message->wr.index,
		.opcode = message->wr.opcode,
		.flags = message->wr.flags,
		.status = message->status,
		.reason = message->reason,
		.length = message->wr.length,
	};
}

/* 9.8. UC has no READ and atomics, UD has only SEND. Neither has SEND with invalidate. */
bool peal_message_is_carried(const struct peal_message *message)
{
	switch (message->wr.opcode) {
	case PEAL_OP_SEND:
	case PEAL_OP_SEND_IMM:
		return true;
	case PEAL_OP_WRITE:
	case PEAL_OP_WRITE_IMM:
		return message->transport != PEAL_UD;
	default:
		return peal_transport_is_reliable(message->transport);
	}
}

u32 peal_message_piece(const struct peal_message *message, u32 at)
{
	return min_t(u32, PEAL_READ_PIECE - at % PEAL_READ_PIECE, message->packets - at);
}

u32 peal_message_bytes(const struct peal_message *message, u32 at, u32 packets)
{
	return min_t(u64, (u64)packets << message->mtu_shift,
		     message->wr.length - peal_message_offset(message, at));
}

static void peal_message_build_operands(const struct peal_wr *wr, struct peal_packet *header)
{
	switch (wr->opcode) {
	case PEAL_OP_CMP_SWAP:
		header->compare = wr->atomic.compare_add;
		header->swap_add = wr->atomic.swap;
		break;
	case PEAL_OP_FETCH_ADD:
		header->swap_add = wr->atomic.compare_add;
		break;
	case PEAL_OP_SEND_IMM:
	case PEAL_OP_WRITE_IMM:
		header->imm = wr->imm_or_rkey;
		break;
	case PEAL_OP_SEND_INV:
		header->inv_rkey = wr->imm_or_rkey;
		break;
	case PEAL_OP_FLUSH:
		header->length = wr->flush.length;
		header->placement = wr->flush.placement;
		header->selectivity = wr->flush.selectivity;
		break;
	}
}

/* The RETH of a READ request names only the part that is requested (9.7.5.1.1). */
static void peal_message_build_read(const struct peal_message *message, u32 at, u32 packets,
				    struct peal_packet *header)
{
	header->opcode = peal_opcode_of(message->transport, PEAL_WIRE_READ_REQUEST);
	header->remote_addr = message->wr.remote_addr + peal_message_offset(message, at);
	header->length = peal_message_bytes(message, at, packets);
}

static void peal_message_build_request(const struct peal_message *message, u32 at,
				       struct peal_packet *header)
{
	const struct peal_wr *wr = &message->wr;
	bool last = at + 1 == message->packets;

	header->opcode = peal_opcode_request(message->transport, wr->opcode, at == 0, last);
	header->remote_addr = wr->remote_addr;
	header->length = wr->length;
	peal_message_build_operands(wr, header);
	if (peal_message_is_atomic(message))
		return;
	header->payload_bytes =
		message->transport == PEAL_UD ? wr->length : peal_message_bytes(message, at, 1);
	header->pad = -header->payload_bytes & 3;
	header->solicited =
		last && wr->flags & PEAL_WQE_SOLICITED && peal_message_takes_receive(message);
}

void peal_message_build(const struct peal_message *message, u32 at, u32 packets,
			struct peal_packet *header)
{
	memset(header, 0, sizeof(*header));
	header->psn = peal_psn_add(message->psn, at);
	header->rkey = message->wr.rkey;
	header->srqn = message->wr.srqn;
	header->migrated = true;	/* always set without path migration (9.2, 17.2.8) */
	if (peal_message_is_read(message))
		peal_message_build_read(message, at, packets, header);
	else
		peal_message_build_request(message, at, header);
	header->header_bytes = peal_packet_opcode(header)->header_bytes;
}

/*
 * A READ response must carry exactly the bytes that its PSN stands for (9.7.5.1.1). The response to
 * ATOMIC_WRITE and FLUSH is that of a READ of no bytes (A19).
 */
bool peal_message_fits(const struct peal_message *message, const struct peal_packet *packet)
{
	bool read = peal_packet_opcode(packet)->has & PEAL_HAS_READ;

	if (peal_message_is_atomic(message))
		return !read;
	if (peal_message_is_placement(message))
		return packet->opcode ==
			       peal_opcode_read_response(message->transport, true, true) &&
		       !packet->payload_bytes;
	if (!peal_message_is_read(message))
		return false;
	return read && packet->payload_bytes ==
		       peal_message_bytes(message, peal_psn_ahead(message->psn, packet->psn), 1);
}

void peal_credit_reset(struct peal_credit *credit)
{
	*credit = (struct peal_credit) { .limited = false };
}

/* The limit only rises, because an older acknowledgment may arrive later (9.7.7.2.4). */
bool peal_credit_learn(struct peal_credit *credit, u8 syndrome, u32 msn)
{
	u32 code = syndrome & PEAL_SYNDROME_VALUE;
	bool was_limited = credit->limited;
	u32 limit;

	credit->limited = code != PEAL_CREDITS_UNLIMITED;
	if (!credit->limited)
		return was_limited;
	limit = peal_psn_add(msn, peal_rnr_credits(code));
	if (was_limited && peal_psn_distance(credit->limit, limit) <= 0)
		return false;
	credit->limit = limit;
	return true;
}

void peal_credit_use(struct peal_credit *credit)
{
	credit->ssn = peal_psn_add(credit->ssn, 1);
}

bool peal_credit_covers(const struct peal_credit *credit, u32 ssn)
{
	return !credit->limited || peal_psn_distance(credit->limit, ssn) <= 0;
}

void peal_inflight_init(struct peal_inflight *inflight, struct peal_message *message, u32 entries)
{
	*inflight = (struct peal_inflight) { .message = message, .mask = entries - 1 };
}

static void peal_inflight_acknowledge_psns(struct peal_inflight *inflight)
{
	inflight->una = inflight->top;
	inflight->seen = inflight->top;
	inflight->executed = inflight->top;
}

void peal_inflight_set_psn(struct peal_inflight *inflight, u32 psn)
{
	inflight->top = psn & PEAL_PSN_MASK;
	inflight->posted = inflight->top;
	peal_inflight_acknowledge_psns(inflight);
}

void peal_inflight_post(struct peal_inflight *inflight, const struct peal_wr *wr, u8 transport,
			u8 mtu_shift)
{
	struct peal_message *message = peal_inflight_at(inflight, inflight->head++);

	peal_message_init(message, wr, transport, mtu_shift, inflight->posted);
	inflight->posted = peal_psn_add(inflight->posted, message->packets);
}

void peal_inflight_sent(struct peal_inflight *inflight, u32 span)
{
	inflight->top = peal_psn_add(inflight->top, span);
	inflight->packet += span;
	if (inflight->packet < peal_inflight_at(inflight, inflight->sending)->packets)
		return;
	inflight->sending++;
	inflight->packet = 0;
}

void peal_inflight_local_begun(struct peal_inflight *inflight)
{
	inflight->sending++;
	inflight->locals++;
	peal_inflight_follow(inflight);
}

void peal_inflight_acknowledge_all(struct peal_inflight *inflight)
{
	peal_inflight_acknowledge_psns(inflight);
	inflight->acking = inflight->sending;
	inflight->locals = 0;
}

/*
 * Messages take consecutive PSNs and local operations take none, so the end PSNs of the messages
 * never decrease from `acking` on. A bisection is needed because there may be as many local
 * operations between two READs as the queue has slots.
 */
u32 peal_inflight_find(const struct peal_inflight *inflight, u32 psn)
{
	u32 base = peal_inflight_at(inflight, inflight->acking)->psn;
	u32 ahead = peal_psn_ahead(base, psn);
	u32 left = inflight->sending - inflight->acking;
	u32 index = inflight->acking;

	while (left) {
		u32 half = left / 2;
		const struct peal_message *message = peal_inflight_at(inflight, index + half);

		if (peal_psn_ahead(base, message->psn) + message->packets > ahead) {
			left = half;
		} else {
			index += half + 1;
			left -= half + 1;
		}
	}
	return index;
}

void peal_inflight_execute(struct peal_inflight *inflight, u32 psn)
{
	peal_psn_raise(&inflight->executed, psn);
}

void peal_inflight_see(struct peal_inflight *inflight, u32 psn)
{
	peal_psn_raise(&inflight->seen, psn);
	peal_psn_raise(&inflight->executed, psn);
}

void peal_inflight_follow(struct peal_inflight *inflight)
{
	while (inflight->acking != inflight->head) {
		const struct peal_message *message = peal_inflight_at(inflight, inflight->acking);
		u32 left = message->packets - peal_psn_ahead(message->psn, inflight->una);
		u32 step = min_t(u32, left, peal_psn_ahead(inflight->una, inflight->executed));

		if (left && (!step || peal_message_wants_data(message)))
			break;
		if (!left && inflight->acking == inflight->sending)
			break;
		inflight->una = peal_psn_add(inflight->una, step);
		if (step < left)
			continue;
		inflight->acking++;
		inflight->locals -= message->local;
	}
	peal_inflight_see(inflight, inflight->una);
}

void peal_inflight_placed(struct peal_inflight *inflight)
{
	const struct peal_message *message = peal_inflight_at(inflight, inflight->acking);

	inflight->una = peal_psn_add(inflight->una, 1);
	if (peal_psn_ahead(message->psn, inflight->una) == message->packets)
		inflight->acking++;
	peal_inflight_see(inflight, inflight->una);
	peal_inflight_follow(inflight);
}

/* 9.9.2. The messages before @index still complete in order. */
void peal_inflight_fail(struct peal_inflight *inflight, u32 index, u8 status, u32 reason)
{
	if (peal_inflight_before(index, inflight->tail) ||
	    !peal_inflight_before(index, inflight->head) || peal_inflight_is_lost(inflight, index))
		return;
	inflight->failed = true;
	inflight->bad = index;
	peal_message_fail(peal_inflight_at(inflight, index), status, reason);
}

const struct peal_message *peal_inflight_complete(struct peal_inflight *inflight)
{
	const struct peal_message *message = peal_inflight_at(inflight, inflight->tail);

	if (peal_inflight_is_lost(inflight, inflight->tail)) {
		if (inflight->tail != inflight->bad)
			return NULL;
	} else if (!peal_inflight_before(inflight->tail, inflight->acking) ||
		   (message->local && !message->done)) {
		return NULL;
	}
	inflight->tail++;
	return message;
}

const struct peal_message *peal_inflight_flush(struct peal_inflight *inflight)
{
	if (!peal_inflight_is_lost(inflight, inflight->tail)) {
		inflight->failed = true;
		inflight->bad = inflight->tail;
	}
	inflight->sending = inflight->head;
	inflight->acking = inflight->head;
	inflight->locals = 0;
	return inflight->tail == inflight->head ? NULL :
						  peal_inflight_at(inflight, inflight->tail++);
}

/* After so many lone probes a peer is no longer believed to keep out-of-order packets. */
#define LONE_PROBES	2
/* Each lone probe doubles the packets of the next one, up to 2^LONE_SHIFT. */
#define LONE_SHIFT	5

void peal_retransmit_reset(struct peal_retransmit *r, const struct peal_inflight *inflight)
{
	*r = (struct peal_retransmit) { .probe = PEAL_PROBE_NONE };
	peal_retransmit_stop(r, inflight);
}

static void peal_retransmit_from_una(struct peal_retransmit *r,
				     const struct peal_inflight *inflight, u32 end)
{
	r->next = inflight->una;
	r->end = end;
	r->index = inflight->acking;
}

void peal_retransmit_stop(struct peal_retransmit *r, const struct peal_inflight *inflight)
{
	r->probe = PEAL_PROBE_NONE;
	peal_retransmit_from_una(r, inflight, inflight->una);
}

void peal_retransmit_go_back(struct peal_retransmit *r, const struct peal_inflight *inflight)
{
	r->probe = PEAL_PROBE_NONE;
	peal_retransmit_from_una(r, inflight, inflight->top);
}

/*
 * A READ that the peer has not executed must be requested as it was. Of an executed READ, only
 * the missing responses up to the first kept one are requested, and at most @limit of them.
 */
static u32 peal_retransmit_span_at(const struct peal_inflight *inflight,
				   const struct peal_reorder *reorder,
				   const struct peal_message *message, u32 psn, u32 limit)
{
	u32 span, kept;

	if (!peal_message_is_read(message))
		return 1;
	span = peal_message_piece(message, peal_psn_ahead(message->psn, psn));
	if (!peal_psn_before(psn, inflight->executed))
		return span;
	kept = peal_reorder_first(reorder, psn);
	if (kept != psn)
		span = min_t(u32, span, peal_psn_ahead(psn, kept));
	return min_t(u32, span, limit);
}

/* After silence request one response only, because the others may be on their way. */
static u32 peal_retransmit_enough(enum peal_probe why)
{
	return why == PEAL_PROBE_SILENCE ? 1 : U32_MAX;
}

void peal_retransmit_request_missing(struct peal_retransmit *r,
				     const struct peal_inflight *inflight,
				     const struct peal_reorder *reorder)
{
	const struct peal_message *message = peal_inflight_at(inflight, inflight->acking);
	u32 span = peal_retransmit_span_at(inflight, reorder, message, inflight->una, U32_MAX);

	peal_retransmit_from_una(r, inflight, peal_psn_add(inflight->una, span));
}

void peal_retransmit_probe(struct peal_retransmit *r, const struct peal_inflight *inflight,
			   const struct peal_reorder *reorder, enum peal_probe why, u32 psn)
{
	const struct peal_message *message =
		peal_inflight_at(inflight, peal_inflight_find(inflight, psn));
	u32 packets = min_t(u32, 1U << r->lone, peal_psn_ahead(psn, inflight->top));

	packets = max_t(u32, packets,
			peal_retransmit_span_at(inflight, reorder, message, psn,
						peal_retransmit_enough(why)));
	r->probe = why;
	r->probe_psn = psn;
	r->probe_end = peal_psn_add(psn, packets);
	r->sent = false;
	r->heard = false;
	r->doubted = false;
	peal_retransmit_from_una(r, inflight, r->probe_end);
}

void peal_retransmit_advance(struct peal_retransmit *r, const struct peal_inflight *inflight)
{
	if (peal_psn_before(r->next, inflight->una)) {
		r->next = inflight->una;
		r->index = inflight->acking;
	}
	peal_psn_raise(&r->end, r->next);
}

/*
 * After silence the data of a READ or atomic behind the probe is missing. That the peer has
 * executed the request does not help, only its responses do.
 */
static bool peal_retransmit_lacks_data(const struct peal_retransmit *r,
				       const struct peal_inflight *inflight)
{
	return r->probe == PEAL_PROBE_SILENCE && inflight->una == r->probe_end &&
	       inflight->una != inflight->top &&
	       peal_message_wants_data(peal_inflight_at(inflight, inflight->acking));
}

enum peal_probe_verdict peal_retransmit_judge(const struct peal_retransmit *r,
					      const struct peal_inflight *inflight)
{
	if (peal_retransmit_lacks_data(r, inflight))
		return PEAL_PROBE_VERDICT_LONE;
	if (peal_psn_before(r->probe_end, inflight->executed))
		return PEAL_PROBE_VERDICT_OVER;
	if (inflight->una != r->probe_end)
		return PEAL_PROBE_VERDICT_OPEN;
	return inflight->una == inflight->top ? PEAL_PROBE_VERDICT_OVER : PEAL_PROBE_VERDICT_LONE;
}

/*
 * After silence no packet was known to be missing, so packets behind the probe do not prove that
 * the peer kept them out of order.
 */
void peal_retransmit_conclude(struct peal_retransmit *r, const struct peal_inflight *inflight)
{
	if (r->probe != PEAL_PROBE_SILENCE && peal_psn_before(r->probe_end, inflight->executed))
		r->peer_reorders = true;
	r->lone = 0;
	r->probe = PEAL_PROBE_NONE;
}

/* A peer that sends a NAK must have received a later packet, otherwise it would see no gap. */
void peal_retransmit_continue(struct peal_retransmit *r, const struct peal_inflight *inflight,
			      const struct peal_reorder *reorder, bool nak)
{
	bool keeps = r->probe == PEAL_PROBE_NAK && (nak || r->peer_reorders);

	if (r->lone < LONE_SHIFT)
		r->lone++;
	if (keeps && (nak || r->lone < LONE_PROBES)) {
		peal_retransmit_probe(r, inflight, reorder, PEAL_PROBE_NAK, inflight->una);
		return;
	}
	if (keeps)
		r->peer_reorders = false;
	r->lone = 0;
	peal_retransmit_go_back(r, inflight);
}

/* PSNs from `next` on, within one message, that need no retransmission. */
static u32 peal_retransmit_skippable(const struct peal_retransmit *r,
				     const struct peal_inflight *inflight,
				     const struct peal_reorder *reorder,
				     const struct peal_message *message)
{
	u32 left = message->packets - peal_psn_ahead(message->psn, r->next);

	if (!peal_psn_before(r->next, inflight->executed))
		return 0;
	if (peal_message_wants_data(message))
		return peal_reorder_has(reorder, r->next) ? 1 : 0;
	return min_t(u32, left, peal_psn_ahead(r->next, inflight->executed));
}

bool peal_retransmit_seek(struct peal_retransmit *r, const struct peal_inflight *inflight,
			  const struct peal_reorder *reorder)
{
	while (r->next != r->end && !peal_inflight_is_lost(inflight, r->index)) {
		const struct peal_message *message = peal_inflight_at(inflight, r->index);
		u32 skip;

		if (peal_psn_ahead(message->psn, r->next) >= message->packets) {
			r->index = peal_inflight_find(inflight, r->next);
			continue;
		}
		skip = peal_retransmit_skippable(r, inflight, reorder, message);
		if (!skip)
			return true;
		r->next = peal_psn_add(r->next, min_t(u32, skip, peal_psn_ahead(r->next, r->end)));
	}
	r->end = r->next;
	return false;
}

u32 peal_retransmit_span(const struct peal_retransmit *r, const struct peal_inflight *inflight,
			 const struct peal_reorder *reorder)
{
	u32 limit = r->probe == PEAL_PROBE_SILENCE ? peal_psn_ahead(r->next, r->end) : U32_MAX;

	return peal_retransmit_span_at(inflight, reorder, peal_inflight_at(inflight, r->index),
				       r->next, limit);
}

bool peal_retransmit_probe_is_needless(struct peal_retransmit *r,
				       const struct peal_inflight *inflight,
				       const struct peal_reorder *reorder)
{
	return r->probe && !r->sent && !peal_retransmit_seek(r, inflight, reorder);
}

void peal_retransmit_sent(struct peal_retransmit *r, const struct peal_inflight *inflight,
			  const struct peal_reorder *reorder, u32 span, u64 now)
{
	r->next = peal_psn_add(r->next, span);
	peal_psn_raise(&r->end, r->next);
	if (!r->probe || r->sent)
		return;
	peal_psn_raise(&r->probe_end, r->end);
	if (peal_retransmit_seek(r, inflight, reorder))
		return;
	r->sent = true;
	r->sent_at = now;
}

bool peal_retransmit_hear(struct peal_retransmit *r)
{
	if (!r->sent || r->heard)
		return false;
	r->heard = true;
	return true;
}

bool peal_retransmit_doubt(struct peal_retransmit *r)
{
	bool first = !r->doubted;

	r->doubted = true;
	return first;
}

/* The longest wait of the estimate, also if there is no timeout. */
#define LONGEST_RTO_NS		1000000000ULL
/*
 * The timeout after a failure if the attribute sets none. After a fatal NAK the peer may be
 * gone, so the messages before the failed one must not wait for ever.
 */
#define LAST_TIMEOUT_NS		1000000000ULL

/* ---- set-up ---- */

static void peal_requester_stop_timers(struct peal_requester *requester)
{
	requester->probe_at = U64_MAX;
	requester->give_up_at = U64_MAX;
	requester->gap_at = U64_MAX;
}

void peal_requester_init(struct peal_requester *requester, struct peal_message *message,
			 u32 entries)
{
	memset(requester, 0, sizeof(*requester));
	peal_inflight_init(&requester->inflight, message, entries);
	peal_requester_reset(requester);
}

void peal_requester_reset(struct peal_requester *requester)
{
	struct peal_requester_config config = requester->config;
	struct peal_inflight inflight = requester->inflight;

	memset(requester, 0, sizeof(*requester));
	peal_inflight_init(&requester->inflight, inflight.message, inflight.mask + 1);
	peal_requester_configure(requester, &config);
	peal_window_reset(&requester->window);
	peal_credit_reset(&requester->credit);
	peal_rto_reset(&requester->rto);
	peal_requester_stop_timers(requester);
	peal_requester_set_psn(requester, 0);
}

static u64 peal_requester_timeout(const struct peal_requester *requester)
{
	return requester->config.timeout_ns ?: (requester->inflight.failed ? LAST_TIMEOUT_NS : 0);
}

void peal_requester_configure(struct peal_requester *requester,
			      const struct peal_requester_config *config)
{
	requester->config = *config;
	if (!peal_requester_timeout(requester))
		requester->give_up_at = U64_MAX;
	peal_window_limit(&requester->window, config->window);
	peal_rto_limit(&requester->rto, min_t(u64, config->timeout_ns ?: U64_MAX, LONGEST_RTO_NS));
}

void peal_requester_set_psn(struct peal_requester *requester, u32 psn)
{
	peal_inflight_set_psn(&requester->inflight, psn);
	peal_retransmit_reset(&requester->retransmit, &requester->inflight);
	peal_window_recover(&requester->window);
	requester->gap_psn = peal_psn_add(psn, PEAL_PSN_MASK);
	requester->rnr_psn = requester->gap_psn;
}

void peal_requester_post(struct peal_requester *requester, const struct peal_wr *wr)
{
	peal_inflight_post(&requester->inflight, wr, requester->config.transport,
			   requester->config.mtu_shift);
}

void peal_requester_fail_message(struct peal_requester *requester, u32 message, u8 status,
				 u32 reason)
{
	peal_inflight_fail(&requester->inflight, message, status, reason);
}

void peal_requester_local_done(struct peal_requester *requester, u32 message, u8 status, u32 reason)
{
	peal_message_executed(peal_inflight_at(&requester->inflight, message));
	if (status)
		peal_requester_fail_message(requester, message, status, reason);
}

/* ---- timers ---- */

/* Packets are in flight. Arm the timers that are not armed. */
static void peal_requester_arm(struct peal_requester *requester, u64 now)
{
	u64 timeout = peal_requester_timeout(requester);

	if (requester->probe_at == U64_MAX) {
		requester->probe_at = now + requester->rto.ns;
		requester->silent_since = now;
	}
	if (requester->give_up_at == U64_MAX && timeout)
		requester->give_up_at = now + timeout;
}

/*
 * A stale response shows that the peer is still busy with earlier packets. Postpone the timers,
 * because a retransmission would only add to its work.
 */
static void peal_requester_postpone_timers(struct peal_requester *requester, u64 now)
{
	u64 since = requester->silent_since;

	peal_retry_postpone(&requester->probe_at, now, since, requester->rto.ns);
	peal_retry_postpone(&requester->give_up_at, now, since, peal_requester_timeout(requester));
}

void peal_requester_excuse_silence(struct peal_requester *requester, u64 now)
{
	u64 from = requester->probe_at == U64_MAX ? now : max_t(u64, now, requester->probe_at);

	peal_retry_heard(&requester->retry);
	/* After the next probe, because that may find the memory still missing. */
	if (requester->give_up_at != U64_MAX)
		requester->give_up_at = from + peal_requester_timeout(requester);
}

void peal_requester_too_long(struct peal_requester *requester, u32 psn)
{
	if (requester->too_long && peal_psn_before(requester->too_long_psn, psn))
		return;
	requester->too_long = true;
	requester->too_long_psn = psn;
}

/* After progress all timers start anew. */
static void peal_requester_rearm(struct peal_requester *requester, u64 now)
{
	peal_requester_stop_timers(requester);
	if (requester->inflight.una != requester->inflight.top)
		peal_requester_arm(requester, now);
}

/* ---- retransmission ---- */

static void peal_requester_build(const struct peal_requester *requester, u32 index, u32 at,
				 u32 span, struct peal_outgoing *out)
{
	const struct peal_message *message = peal_inflight_at(&requester->inflight, index);

	out->local = false;
	out->again = false;
	out->message = index;
	out->offset = peal_message_offset(message, at);
	peal_message_build(message, at, span, &out->header);
}

/*
 * A probe ignores the window, because it is small and its answer is needed to go on. Every
 * retransmission carries AckReq, unless data answers it, because the answer decides what else is
 * retransmitted.
 */
static enum peal_blocked peal_requester_resend(struct peal_requester *requester, u64 now,
					       struct peal_outgoing *out)
{
	const struct peal_message *message =
		peal_inflight_at(&requester->inflight, requester->retransmit.index);
	u32 span = peal_retransmit_span(&requester->retransmit, &requester->inflight,
					&requester->reorder);
	u32 ahead = peal_psn_ahead(requester->inflight.una, requester->retransmit.next);

	if (!requester->retransmit.probe && ahead && ahead + span > requester->window.size)
		return PEAL_BLOCKED_WINDOW;
	peal_requester_build(requester, requester->retransmit.index,
			     peal_psn_ahead(message->psn, requester->retransmit.next), span, out);
	out->again = true;
	out->header.ack_request = !peal_message_wants_data(message);
	if (out->header.psn == requester->too_long_psn)
		requester->too_long = false;	/* the caller says so again if it still is */
	peal_retransmit_sent(&requester->retransmit, &requester->inflight, &requester->reorder,
			     span, now);
	if (requester->retransmit.probe == PEAL_PROBE_SILENCE)
		peal_retry_copied(&requester->retry);
	peal_rto_sent_again(&requester->rto, out->header.psn, peal_psn_add(out->header.psn, span));
	peal_window_ack_requested(&requester->window);
	peal_requester_arm(requester, now);
	return PEAL_BLOCKED_NONE;
}

static void peal_requester_probe(struct peal_requester *requester, enum peal_probe why, u32 psn,
				 u64 now)
{
	peal_retransmit_probe(&requester->retransmit, &requester->inflight, &requester->reorder,
			      why, psn);
	if (why != PEAL_PROBE_NAK)
		peal_rto_forget(&requester->rto);
	requester->probe_at = now + requester->rto.ns;
}

/*
 * A response that arrives sooner after the probe than any answer to the probe can, answers an
 * earlier packet.
 */
static bool peal_requester_answers_probe(struct peal_requester *requester, u64 now)
{
	if (!requester->retransmit.sent)
		return false;
	if (peal_rto_plausible(&requester->rto, requester->retransmit.sent_at, now))
		return true;
	if (peal_retransmit_doubt(&requester->retransmit))
		peal_rto_doubt(&requester->rto);
	return false;
}

static void peal_requester_lone_probe(struct peal_requester *requester, bool nak, u64 now)
{
	peal_retransmit_continue(&requester->retransmit, &requester->inflight, &requester->reorder,
				 nak);
	requester->probe_at = now + requester->rto.ns;
}

/*
 * Progress came while a probe was in flight. @ack: the progress came from an ACK packet, which
 * names all that the peer has executed. READ responses do not; an ACK may follow them.
 */
static void peal_requester_judge_probe(struct peal_requester *requester, bool ack, u64 now)
{
	enum peal_probe_verdict verdict =
		peal_retransmit_judge(&requester->retransmit, &requester->inflight);
	/* A peer that sent an RNR NAK has surely dropped all later packets. */
	bool sure = requester->retransmit.probe == PEAL_PROBE_RNR;

	if (verdict == PEAL_PROBE_VERDICT_OPEN)
		return;
	if (verdict == PEAL_PROBE_VERDICT_OVER ||
	    (ack && !sure && !peal_requester_answers_probe(requester, now)))
		peal_retransmit_conclude(&requester->retransmit, &requester->inflight);
	else if (ack)
		peal_requester_lone_probe(requester, false, now);
	else
		requester->probe_at = now + peal_rto_patience(&requester->rto);
}

/* ---- new packets ---- */

/*
 * Most local operations between una and the next new packet. They take no PSN, so the response
 * to one packet ends all local operations behind it. This limit bounds that work.
 */
#define MOST_LOCALS	256

/*
 * Without credit one packet may be sent if no other is in flight, otherwise a lost credit update
 * could stop the connection. Its acknowledgment proves that there was a receive, so the rest of
 * the message follows (9.7.7.2.5).
 */
static bool peal_requester_has_credit(const struct peal_requester *requester,
				      const struct peal_message *message)
{
	const struct peal_inflight *inflight = &requester->inflight;
	bool first = !inflight->packet;
	u32 ssn = peal_psn_add(requester->credit.ssn, first ? 1 : 0);

	if (!peal_message_takes_receive(message) || peal_credit_covers(&requester->credit, ssn))
		return true;
	return inflight->una == inflight->top ||
	       (!first && inflight->una != message->psn && inflight->acking == inflight->sending);
}

static enum peal_blocked peal_requester_may_begin(const struct peal_requester *requester,
						  const struct peal_message *message)
{
	if (!requester->inflight.packet && message->wr.flags & PEAL_WQE_FENCE &&
	    requester->rd_atomic)
		return PEAL_BLOCKED_FENCE;
	if (message->wr.last && requester->inflight.una != requester->inflight.top)
		return PEAL_BLOCKED_LAST;
	if (message->local)
		return requester->inflight.locals < MOST_LOCALS ? PEAL_BLOCKED_NONE :
								  PEAL_BLOCKED_WINDOW;
	if (!peal_requester_reliable(requester))
		return PEAL_BLOCKED_NONE;
	if (peal_message_wants_data(message) &&
	    requester->rd_atomic >= requester->config.max_rd_atomic)
		return PEAL_BLOCKED_RD_ATOMIC;
	if (!peal_requester_has_credit(requester, message))
		return PEAL_BLOCKED_CREDIT;
	return PEAL_BLOCKED_NONE;
}

/* After a loss, send no more than the peer may be able to keep as out-of-order packets. */
static bool peal_requester_window_is_open(const struct peal_requester *requester, u32 span)
{
	u32 outstanding = peal_inflight_outstanding(&requester->inflight);
	u32 size = requester->window.size;

	if (requester->retransmit.probe || requester->retransmit.peer_reorders)
		size = min_t(u32, size, PEAL_REORDER_SLOTS);
	return !outstanding || outstanding + span <= size;
}

/* PSNs that the next packet of @f takes. A READ request takes one for each response. */
static u32 peal_requester_span(const struct peal_requester *requester,
			       const struct peal_message *message)
{
	return peal_message_is_read(message) ?
	       peal_message_piece(message, requester->inflight.packet) : 1;
}

/*
 * @f: the message whose turn it is. Return: PEAL_BLOCKED_NONE if its next packet may be sent now.
 */
static enum peal_blocked peal_requester_may_send_packet(const struct peal_requester *requester,
							const struct peal_message *message)
{
	enum peal_blocked blocked = peal_requester_may_begin(requester, message);

	if (!blocked && !message->local &&
	    !peal_requester_window_is_open(requester, peal_requester_span(requester, message)))
		blocked = PEAL_BLOCKED_WINDOW;
	return blocked;
}

/* A message that can never be sent fails when its turn comes. */
static bool peal_requester_refuses(struct peal_requester *requester,
				   const struct peal_message *message)
{
	u32 reason = 0;

	if (message->local)
		return false;
	if (!peal_message_is_carried(message))
		reason = PEAL_REASON_WQE_OPCODE;
	else if (peal_message_wants_data(message) && !requester->config.max_rd_atomic)
		reason = PEAL_REASON_RD_ATOMIC_LIMIT;
	if (reason)
		peal_requester_fail_message(requester, requester->inflight.sending,
					    IB_WC_LOC_QP_OP_ERR, reason);
	return reason;
}

static enum peal_blocked peal_requester_may_send(struct peal_requester *requester)
{
	const struct peal_message *message =
		peal_inflight_at(&requester->inflight, requester->inflight.sending);

	if (peal_inflight_is_lost(&requester->inflight, requester->inflight.sending))
		return PEAL_BLOCKED_FAILED;
	if (peal_retransmit_is_lone(&requester->retransmit))
		return PEAL_BLOCKED_ANSWER;
	if (!peal_requester_unsent(requester))
		return PEAL_BLOCKED_EMPTY;
	if (peal_requester_refuses(requester, message))
		return PEAL_BLOCKED_FAILED;
	return peal_requester_may_send_packet(requester, message);
}

/*
 * A packet must carry AckReq if it is sent without credit, or if it ends a message that is
 * signaled or that no other message follows at once.
 */
static bool peal_requester_must_request_ack(const struct peal_requester *requester,
					    const struct peal_message *message)
{
	bool last = requester->inflight.packet + 1 == message->packets;
	bool followed =
		message->wr.more && peal_requester_has_room(requester) &&
		peal_credit_covers(&requester->credit, peal_psn_add(requester->credit.ssn, 1));

	if (last && (message->wr.flags & PEAL_WQE_SIGNALED || !followed))
		return true;
	return peal_message_takes_receive(message) &&
	       !peal_credit_covers(&requester->credit, requester->credit.ssn);
}

/*
 * READs and atomics are always answered, so they need no AckReq. Other packets carry it where the
 * requester would otherwise have to wait, and at intervals.
 */
static bool peal_requester_wants_ack(struct peal_requester *requester,
				     const struct peal_message *message)
{
	u32 outstanding = peal_inflight_outstanding(&requester->inflight) + 1;
	bool wants = peal_window_wants_ack(&requester->window, outstanding) ||
		     peal_requester_must_request_ack(requester, message);

	if (wants || peal_message_wants_data(message))
		peal_window_ack_requested(&requester->window);
	return wants && !peal_message_wants_data(message);
}

/*
 * A new packet of a reliable connection is sent. Decide whether it carries AckReq, count it, and
 * start the timers.
 */
static void peal_requester_note_sent(struct peal_requester *requester,
				     const struct peal_message *message, u64 now,
				     struct peal_packet *header)
{
	bool wants_data = peal_message_wants_data(message);

	if (!requester->inflight.packet || peal_message_is_read(message))
		peal_credit_use(&requester->credit);
	requester->rd_atomic += wants_data;
	header->ack_request = peal_requester_wants_ack(requester, message);
	if (header->ack_request || wants_data)
		peal_rto_start(&requester->rto, header->psn, now);
	peal_requester_arm(requester, now);
}

static void peal_requester_send(struct peal_requester *requester, u64 now,
				struct peal_outgoing *out)
{
	const struct peal_message *message =
		peal_inflight_at(&requester->inflight, requester->inflight.sending);
	u32 span = peal_requester_span(requester, message);

	peal_requester_build(requester, requester->inflight.sending, requester->inflight.packet,
			     span, out);
	if (peal_requester_reliable(requester))
		peal_requester_note_sent(requester, message, now, &out->header);
	peal_inflight_sent(&requester->inflight, span);
	if (!peal_requester_reliable(requester))
		peal_inflight_acknowledge_all(&requester->inflight);
}

static void peal_requester_begin_local(struct peal_requester *requester, struct peal_outgoing *out)
{
	memset(out, 0, sizeof(*out));
	out->local = true;
	out->message = requester->inflight.sending;
	peal_inflight_local_begun(&requester->inflight);
}

/* A probe that is due at once takes the place of the AckReq that no later packet will carry. */
void peal_requester_request_ack(struct peal_requester *requester, u64 now)
{
	if (!requester->window.since_ack_request ||
	    requester->inflight.una == requester->inflight.top)
		return;
	peal_window_ack_requested(&requester->window);
	requester->probe_at = now;
}

enum peal_blocked peal_requester_next(struct peal_requester *requester, u64 now,
				      struct peal_outgoing *out)
{
	enum peal_blocked blocked;

	if (requester->rnr_until)
		return PEAL_BLOCKED_RNR;
	if (peal_retransmit_probe_is_needless(&requester->retransmit, &requester->inflight,
					      &requester->reorder))
		peal_retransmit_stop(&requester->retransmit, &requester->inflight);
	if (peal_retransmit_seek(&requester->retransmit, &requester->inflight, &requester->reorder))
		return peal_requester_resend(requester, now, out);
	blocked = peal_requester_may_send(requester);
	if (blocked == PEAL_BLOCKED_FAILED || blocked == PEAL_BLOCKED_LAST)
		peal_requester_request_ack(requester, now);
	if (blocked)
		return blocked;
	if (peal_inflight_at(&requester->inflight, requester->inflight.sending)->local)
		peal_requester_begin_local(requester, out);
	else
		peal_requester_send(requester, now, out);
	return PEAL_BLOCKED_NONE;
}

/* ---- responses ---- */

static void peal_requester_drop(struct peal_response *response, enum peal_drop drop, bool duplicate)
{
	response->what = PEAL_RESPONSE_DROPPED;
	response->drop = drop;
	response->duplicate = duplicate;
}

/* una has moved on from @from. Progress restores all retries (9.7.6.1.3). */
static void peal_requester_progress(struct peal_requester *requester, u32 from, bool ack, u64 now)
{
	u32 una = requester->inflight.una;

	if (una == from)
		return;
	peal_retry_progress(&requester->retry);
	if (peal_psn_before(requester->too_long_psn, una))
		requester->too_long = false;
	if (peal_psn_before(requester->rnr_psn, una)) {
		peal_retry_received(&requester->retry);
		requester->rnr_until = 0;
	}
	peal_window_follow(&requester->window, peal_psn_ahead(from, una), una,
			   requester->inflight.top, peal_rto_slow(&requester->rto));
	peal_retransmit_advance(&requester->retransmit, &requester->inflight);
	peal_requester_rearm(requester, now);
	if (peal_retransmit_probe_is_needless(&requester->retransmit, &requester->inflight,
					      &requester->reorder))
		peal_retransmit_stop(&requester->retransmit, &requester->inflight);
	if (requester->retransmit.probe)
		peal_requester_judge_probe(requester, ack, now);
}

/*
 * A response behind una has arrived, so the READ or atomic response at una is late or lost
 * (9.7.5.2, implied NAK). Request it again soon, but only once for each gap. If that is lost too,
 * the probe timer repeats it.
 */
static void peal_requester_watch_gap(struct peal_requester *requester, u64 now)
{
	if (requester->inflight.una == requester->inflight.seen) {
		requester->gap_at = U64_MAX;
		return;
	}
	if (requester->gap_psn == requester->inflight.una)
		return;
	requester->gap_psn = requester->inflight.una;
	requester->gap_at = now + peal_rto_patience(&requester->rto);
}

/* A response was about the PSN before @psn. If that is new, the peer is not silent. */
static void peal_requester_see(struct peal_requester *requester, u32 psn, u64 now)
{
	if (peal_psn_before(requester->inflight.seen, psn)) {
		peal_retry_heard(&requester->retry);
		requester->give_up_at = U64_MAX;
	}
	peal_inflight_see(&requester->inflight, psn);
	peal_rto_answered(&requester->rto, requester->inflight.seen, now);
}

/* The peer has executed everything before @psn. */
static void peal_requester_acknowledge(struct peal_requester *requester, u32 psn, bool ack, u64 now)
{
	u32 from = requester->inflight.una;

	peal_requester_see(requester, psn, now);
	peal_inflight_follow(&requester->inflight);
	peal_requester_progress(requester, from, ack, now);
}

/*
 * A NAK is stale if the peer has executed the packet since, or if it answers an earlier packet
 * and repeats the NAK that the probe is for.
 */
static bool peal_requester_nak_is_old(struct peal_requester *requester, u32 psn, u64 now)
{
	if (peal_psn_before(psn, requester->inflight.executed))
		return true;
	return requester->retransmit.probe && psn == requester->retransmit.probe_psn &&
	       !peal_requester_answers_probe(requester, now);
}

/*
 * Unlike for a sequence NAK, the time since the probe proves nothing here. A peer that lacks a
 * receive answers faster than one that executes, and each RNR NAK must be counted. An RNR NAK for
 * the probed packet is stale only until this packet is retransmitted, even if later packets of
 * the probe are not sent yet.
 */
static bool peal_requester_rnr_is_old(const struct peal_requester *requester, u32 psn)
{
	if (requester->rnr_until || peal_psn_before(psn, requester->inflight.executed))
		return true;
	return requester->retransmit.probe && psn == requester->retransmit.probe_psn &&
	       peal_retransmit_covers(&requester->retransmit, psn);
}

/*
 * Use one retry, after silence or after a NAK that answers a retransmission of the same packet
 * (9.7.6.1.3). Return: false if there was none left; the message of @psn has failed.
 */
static bool peal_requester_use_retry(struct peal_requester *requester, u32 psn)
{
	u32 reason = PEAL_REASON_PEER_SILENT;

	if (peal_retry_use(&requester->retry, requester->config.retry_limit))
		return true;
	/* The peer sends a NAK for a packet that never left if a shorter one follows. */
	if (requester->too_long && psn == requester->too_long_psn)
		reason = PEAL_REASON_ROUTE_MTU;
	else if (requester->retry.nak_seen)
		reason = PEAL_REASON_NAK_SEQUENCE;
	peal_inflight_fail(&requester->inflight, peal_inflight_find(&requester->inflight, psn),
			   IB_WC_RETRY_EXC_ERR, reason);
	return false;
}

/*
 * 9.7.5.2.2. A NAK for the packet behind a probe continues the probe. A NAK that repeats the probed
 * PSN uses a retry. Any NAK for a packet that is not being retransmitted starts a new probe.
 */
static void peal_requester_receive_nak_sequence(struct peal_requester *requester, u32 psn, u64 now)
{
	bool again = requester->retransmit.probe && psn == requester->retransmit.probe_psn;
	bool lone = requester->retransmit.probe == PEAL_PROBE_NAK &&
		    psn == requester->retransmit.probe_end;

	peal_requester_acknowledge(requester, psn, false, now);
	peal_retry_nak_seen(&requester->retry);
	if (lone && requester->inflight.una == psn) {
		peal_requester_lone_probe(requester, true, now);
		return;
	}
	if (again && !peal_requester_use_retry(requester, psn))
		return;
	if (peal_retransmit_covers(&requester->retransmit, psn))
		return;
	peal_window_shrink(&requester->window, requester->inflight.top);
	peal_requester_probe(requester, PEAL_PROBE_NAK, psn, now);
}

static void peal_requester_wait_receive(struct peal_requester *requester, u32 psn, u8 timer,
					u64 now)
{
	peal_retry_heard(&requester->retry);
	requester->rnr_psn = psn;
	requester->rnr_until = now + peal_retry_rnr_ns(&requester->retry, timer);
	peal_retransmit_stop(&requester->retransmit, &requester->inflight);
	peal_requester_stop_timers(requester);
	peal_rto_forget(&requester->rto);
}

/* 9.7.5.2.8. An RNR NAK acknowledges all packets before its PSN. */
static void peal_requester_receive_rnr(struct peal_requester *requester, u32 psn, u8 timer, u64 now)
{
	peal_requester_acknowledge(requester, psn, false, now);
	/*
	 * Each message has its own RNR retries. rnr_psn is compared with `executed` and not with
	 * una, because una may still wait for the data of READs in front of that message.
	 */
	if (peal_psn_before(requester->rnr_psn, requester->inflight.executed))
		peal_retry_received(&requester->retry);
	if (peal_retry_use_rnr(&requester->retry, requester->config.rnr_limit))
		peal_requester_wait_receive(requester, psn, timer, now);
	else
		peal_inflight_fail(&requester->inflight,
				   peal_inflight_find(&requester->inflight, psn),
				   IB_WC_RNR_RETRY_EXC_ERR, PEAL_REASON_RNR_EXHAUSTED);
}

/* 9.7.5.2.3 to 9.7.5.2.6. The message fails; the messages before it still complete. */
static void peal_requester_receive_fatal(struct peal_requester *requester, u32 psn, u8 code,
					 u64 now)
{
	static const struct {
		u8 status;
		u32 reason;
	} naks[] = {
		[PEAL_NAK_INVALID_REQUEST] = {
			IB_WC_REM_INV_REQ_ERR, PEAL_REASON_NAK_INVALID_REQUEST },
		[PEAL_NAK_REMOTE_ACCESS] = { IB_WC_REM_ACCESS_ERR, PEAL_REASON_NAK_ACCESS },
		[PEAL_NAK_REMOTE_OPERATION] = { IB_WC_REM_OP_ERR, PEAL_REASON_NAK_OPERATION },
	};

	peal_requester_acknowledge(requester, psn, false, now);
	peal_inflight_fail(&requester->inflight, peal_inflight_find(&requester->inflight, psn),
			   naks[code].status, naks[code].reason);
}

static void peal_requester_receive_nak(struct peal_requester *requester, u32 psn, u8 code, u64 now,
				       struct peal_response *response)
{
	if (code > PEAL_NAK_REMOTE_OPERATION)
		peal_requester_drop(response, PEAL_DROP_opcode, false);
	else if (code != PEAL_NAK_SEQUENCE)
		peal_requester_receive_fatal(requester, psn, code, now);
	else if (peal_requester_nak_is_old(requester, psn, now))
		peal_requester_drop(response, PEAL_DROP_stale, true);
	else
		peal_requester_receive_nak_sequence(requester, psn, now);
}

static void peal_requester_receive_ack(struct peal_requester *requester,
				       const struct peal_packet *packet, u64 now,
				       struct peal_response *response)
{
	u8 value = packet->syndrome & PEAL_SYNDROME_VALUE;

	switch (packet->syndrome & PEAL_SYNDROME_KIND) {
	case PEAL_SYNDROME_ACK:
		peal_requester_acknowledge(requester, peal_psn_add(packet->psn, 1), true, now);
		break;
	case PEAL_SYNDROME_RNR:
		if (peal_requester_rnr_is_old(requester, packet->psn))
			peal_requester_drop(response, PEAL_DROP_stale, true);
		else
			peal_requester_receive_rnr(requester, packet->psn, value, now);
		break;
	case PEAL_SYNDROME_NAK:
		peal_requester_receive_nak(requester, packet->psn, value, now, response);
		break;
	default:
		peal_requester_drop(response, PEAL_DROP_opcode, false);
		break;
	}
	peal_requester_watch_gap(requester, now);
}

/* The caller compares the two packets, because only the caller has the payload. */
static void peal_requester_copy(const struct peal_requester *requester, u32 psn,
				struct peal_response *response)
{
	response->what = PEAL_RESPONSE_COPY;
	response->drop = PEAL_DROP_sequence;
	response->duplicate = true;
	response->kept = peal_reorder_find(&requester->reorder, psn);
}

/* The response at una arrived and was dropped as suspect. Request it again soon. */
static void peal_requester_request_again(struct peal_requester *requester, u64 now)
{
	requester->gap_psn = requester->inflight.una;
	requester->gap_at = now + peal_rto_patience(&requester->rto);
}

static void peal_requester_reorder(struct peal_requester *requester, u32 psn, u64 now, void *handle,
				   struct peal_response *response)
{
	if (peal_reorder_has(&requester->reorder, psn))
		peal_requester_copy(requester, psn, response);
	else if (handle && peal_reorder_insert(&requester->reorder, requester->inflight.una, psn,
					       handle, now, requester->config.reorder_ns))
		response->what = PEAL_RESPONSE_KEPT;
	else
		peal_requester_drop(response, PEAL_DROP_sequence, false);
}

static void peal_requester_describe_data(const struct peal_requester *requester,
					 const struct peal_message *message,
					 const struct peal_packet *packet,
					 struct peal_response *response)
{
	response->what = PEAL_RESPONSE_ATOMIC;
	response->message = requester->inflight.acking;
	response->original = packet->original;
	response->bytes = sizeof(u64);
	if (peal_message_is_atomic(message))
		return;
	response->what = PEAL_RESPONSE_READ;
	response->offset = peal_message_offset(message, peal_psn_ahead(message->psn, packet->psn));
	response->bytes = packet->payload_bytes;
}

/* A response proves that its whole request piece was executed, and everything before it. */
static void peal_requester_acknowledge_data(struct peal_requester *requester,
					    const struct peal_message *message, u32 psn, u64 now)
{
	u32 at = peal_psn_ahead(message->psn, psn);

	peal_inflight_execute(&requester->inflight,
			      peal_psn_add(psn, peal_message_piece(message, at)));
	peal_requester_acknowledge(requester, psn, false, now);
	peal_requester_see(requester, peal_psn_add(psn, 1), now);
}

/* The response to a READ or atomic (9.7.5.1.1, 9.7.5.1.2). */
static void peal_requester_receive_data(struct peal_requester *requester,
					const struct peal_packet *packet, u64 now, void *handle,
					struct peal_response *response)
{
	u32 index = peal_inflight_find(&requester->inflight, packet->psn);
	const struct peal_message *message = peal_inflight_at(&requester->inflight, index);
	bool again = requester->again;

	requester->again = false;
	/*
	 * The response was kept out of order, and the response in front of it has another flow. One
	 * of them may be forged.
	 */
	if (again && packet->flow != requester->flow) {
		peal_requester_request_again(requester, now);
		peal_requester_drop(response, PEAL_DROP_conflict, false);
		return;
	}
	if (!peal_message_fits(message, packet)) {
		peal_inflight_fail(&requester->inflight, index, IB_WC_BAD_RESP_ERR,
				   PEAL_REASON_BAD_RESPONSE);
		return;
	}
	peal_requester_acknowledge_data(requester, message, packet->psn, now);
	if (packet->psn != requester->inflight.una) {
		peal_requester_reorder(requester, packet->psn, now, handle, response);
		peal_requester_watch_gap(requester, now);
	} else if (peal_reorder_has(&requester->reorder, packet->psn)) {
		peal_requester_copy(requester, packet->psn, response);
	} else {
		requester->flow = packet->flow;
		peal_requester_describe_data(requester, message, packet, response);
	}
}

static void peal_requester_receive_fresh(struct peal_requester *requester,
					 const struct peal_packet *packet, u64 now, void *handle,
					 struct peal_response *response)
{
	if (requester->retransmit.probe == PEAL_PROBE_SILENCE &&
	    peal_retransmit_hear(&requester->retransmit))
		peal_rto_heard(&requester->rto, requester->retransmit.sent_at, now);
	if (peal_packet_opcode(packet)->has & (PEAL_HAS_READ | PEAL_HAS_ATOMIC))
		peal_requester_receive_data(requester, packet, now, handle, response);
	else
		peal_requester_receive_ack(requester, packet, now, response);
	if (requester->inflight.una != requester->inflight.top && !requester->rnr_until)
		peal_requester_arm(requester, now);
}

/* A repetition of the newest acknowledgment may bring new credits, too (9.7.7.2.4). */
static bool peal_requester_learn(struct peal_requester *requester, const struct peal_packet *packet,
				 bool fresh)
{
	if (!(peal_packet_opcode(packet)->has & PEAL_HAS_AETH) ||
	    (packet->syndrome & PEAL_SYNDROME_KIND) != PEAL_SYNDROME_ACK)
		return false;
	if (!fresh && peal_psn_add(packet->psn, 1) != requester->inflight.una)
		return false;
	return peal_credit_learn(&requester->credit, packet->syndrome, packet->msn);
}

void peal_requester_receive(struct peal_requester *requester, const struct peal_packet *packet,
			    u64 now, void *handle, struct peal_response *response)
{
	bool fresh = peal_inflight_waits(&requester->inflight) &&
		     peal_psn_ahead(requester->inflight.una, packet->psn) <
			     peal_inflight_outstanding(&requester->inflight);
	bool learned;

	memset(response, 0, sizeof(*response));
	response->what = PEAL_RESPONSE_TAKEN;
	if (!(peal_packet_opcode(packet)->has & PEAL_HAS_RESPONSE) ||
	    !peal_requester_reliable(requester)) {
		peal_requester_drop(response, PEAL_DROP_opcode, false);
		return;
	}
	learned = peal_requester_learn(requester, packet, fresh);
	if (fresh)
		peal_requester_receive_fresh(requester, packet, now, handle, response);
	if (fresh || learned)
		return;
	/* A duplicate response or a ghost acknowledge (9.7.5.1). */
	peal_requester_drop(response, PEAL_DROP_stale,
			    peal_psn_before(packet->psn, requester->inflight.una));
	peal_requester_postpone_timers(requester, now);
}

/* Ignores a response that is not the one that receive() named last. */
void peal_requester_placed(struct peal_requester *requester, const struct peal_response *response,
			   u64 now)
{
	const struct peal_message *message =
		peal_inflight_at(&requester->inflight, requester->inflight.acking);
	u32 from = requester->inflight.una;
	u32 at = peal_psn_ahead(message->psn, from);

	if (!peal_inflight_waits(&requester->inflight) ||
	    response->message != requester->inflight.acking ||
	    response->offset != peal_message_offset(message, at))
		return;
	requester->rd_atomic -= peal_message_piece(message, at) == 1;
	peal_inflight_placed(&requester->inflight);
	peal_requester_progress(requester, from, false, now);
	peal_requester_watch_gap(requester, now);
}

void *peal_requester_take_reordered(struct peal_requester *requester)
{
	void *handle = NULL;

	if (peal_inflight_waits(&requester->inflight))
		handle = peal_reorder_take(&requester->reorder, requester->inflight.una);
	requester->again = handle;
	return handle;
}

void *peal_requester_contradict(struct peal_requester *requester, u32 psn, u64 now)
{
	if (psn == requester->inflight.una)
		peal_requester_request_again(requester, now);
	return peal_reorder_take(&requester->reorder, psn);
}

void *peal_requester_drop_reordered(struct peal_requester *requester)
{
	return peal_reorder_drop(&requester->reorder);
}

/* ---- completions ---- */

bool peal_requester_complete(struct peal_requester *requester, struct peal_completion *completion)
{
	const struct peal_message *message = peal_inflight_complete(&requester->inflight);

	if (!message)
		return false;
	peal_message_describe(message, completion);
	return true;
}

bool peal_requester_flush(struct peal_requester *requester, struct peal_completion *completion)
{
	const struct peal_message *message = peal_inflight_flush(&requester->inflight);

	requester->rnr_until = 0;
	if (!message)
		return false;
	peal_message_describe(message, completion);
	completion->status = IB_WC_WR_FLUSH_ERR;
	completion->reason = PEAL_REASON_FLUSHED;
	return true;
}

/* ---- time ---- */

u64 peal_requester_deadline(const struct peal_requester *requester)
{
	if (!peal_inflight_waits(&requester->inflight))
		return U64_MAX;
	if (requester->rnr_until)
		return requester->rnr_until;
	return min_t(u64, min_t(u64, requester->probe_at, requester->give_up_at),
		     min_t(u64, requester->gap_at, peal_reorder_deadline(&requester->reorder)));
}

/*
 * The peer was silent for longer than the estimate, which lies below the timeout of 9.7.6.1.3.
 * Probe. This counts as no retry.
 */
static void peal_requester_probe_silence(struct peal_requester *requester, u64 now)
{
	requester->probe_at = now + requester->rto.ns;
	if (requester->retransmit.probe && !requester->retransmit.sent)
		return;
	if (requester->retransmit.probe &&
	    peal_retransmit_judge(&requester->retransmit, &requester->inflight) ==
		    PEAL_PROBE_VERDICT_LONE) {
		peal_requester_lone_probe(requester, false, now);
		return;
	}
	peal_rto_back_off(&requester->rto);
	peal_window_halve(&requester->window, requester->inflight.top);
	peal_requester_probe(requester, PEAL_PROBE_SILENCE, requester->inflight.una, now);
}

/* The timeout (9.7.6.1.3). It uses no retry while the last probe could not be sent yet. */
static void peal_requester_give_up(struct peal_requester *requester, u64 now)
{
	requester->give_up_at = now + peal_requester_timeout(requester);
	requester->silent_since = now;
	if (requester->retransmit.probe && !requester->retransmit.sent)
		return;
	if (!peal_requester_use_retry(requester, requester->inflight.una))
		return;
	peal_window_halve(&requester->window, requester->inflight.top);
	peal_requester_probe(requester, PEAL_PROBE_SILENCE, requester->inflight.una, now);
}

static void peal_requester_request_missing(struct peal_requester *requester)
{
	requester->gap_at = U64_MAX;
	if (requester->retransmit.next != requester->retransmit.end ||
	    peal_reorder_has(&requester->reorder, requester->inflight.una))
		return;
	peal_retransmit_request_missing(&requester->retransmit, &requester->inflight,
					&requester->reorder);
	peal_window_shrink(&requester->window, requester->inflight.top);
}

/* Return: true while an RNR wait is running. */
static bool peal_requester_expire_rnr(struct peal_requester *requester, u64 now)
{
	if (!requester->rnr_until)
		return false;
	if (now < requester->rnr_until)
		return true;
	requester->rnr_until = 0;
	peal_requester_probe(requester, PEAL_PROBE_RNR, requester->rnr_psn, now);
	return false;
}

void peal_requester_expire(struct peal_requester *requester, u64 now)
{
	if (!peal_inflight_waits(&requester->inflight) || peal_requester_expire_rnr(requester, now))
		return;
	peal_requester_arm(requester, now);
	if (now >= requester->give_up_at)
		peal_requester_give_up(requester, now);
	else if (now >= requester->probe_at)
		peal_requester_probe_silence(requester, now);
	if (now >= requester->gap_at)
		peal_requester_request_missing(requester);
}

void *peal_requester_take_expired(struct peal_requester *requester, u64 now)
{
	return peal_reorder_expire(&requester->reorder, now, requester->config.reorder_ns);
}
