// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See requester.h. Clauses are those of the IBTA specification, volume 1.
 */
#include <linux/kernel.h>
#include <linux/limits.h>
#include <linux/minmax.h>
#include <linux/string.h>
#include <rdma/ib_verbs.h>

#include "proto/packet.h"
#include "proto/requester.h"
#include "proto/timers.h"

/*
 * A READ takes one PSN for each response, other messages one for each request packet (9.7.2). A
 * malformed WQE has no operation. It is posted as a local one, so that it fails in its turn.
 */
static void peal_message_init(struct peal_message *message, const struct peal_wqe *wqe,
			      u8 transport, u8 mtu_shift, u32 psn)
{
	const struct peal_op *op = peal_op(wqe->opcode);
	u64 last = wqe->length ? wqe->length - 1 : 0;

	message->wqe = *wqe;
	message->op = op;
	message->transport = transport;
	message->mtu_shift = mtu_shift;
	message->psn = psn;
	message->piece = PEAL_READ_PIECE;
	message->old_piece = 0;
	message->pieces_from = 0;
	message->old_from = 0;
	message->local = op->local || !op->transports;
	message->done = false;
	message->status = 0;
	message->reason = 0;
	message->packets = message->local ? 0 : op->atomic ? 1 : (last >> mtu_shift) + 1;
}

static bool peal_message_is_read(const struct peal_message *message)
{
	return message->wqe.opcode == PEAL_OP_READ;
}

/* PSNs of a READ from number @at (0 is the first) to the end of the piece that has it. */
static u32 peal_message_piece(const struct peal_message *message, u32 at)
{
	u32 from = message->pieces_from, piece = message->piece, end = message->packets;

	if (at < from) {
		end = from;
		from = message->old_from;
		piece = message->old_piece;
	}
	return min(piece - (at - from) % piece, end - at);
}

static u64 peal_message_offset(const struct peal_message *message, u32 at)
{
	return (u64)at << message->mtu_shift;
}

/* Payload bytes of @packets PSNs from number @at on. */
static u32 peal_message_bytes(const struct peal_message *message, u32 at, u32 packets)
{
	return min_t(u64, (u64)packets << message->mtu_shift,
		     message->wqe.length - peal_message_offset(message, at));
}

/* The RETH of a READ request names only the part that is requested (9.7.5.1.1). */
void peal_message_build(const struct peal_message *message, u32 at, u32 packets,
			struct peal_packet *header)
{
	const struct peal_wqe *wqe = &message->wqe;
	const struct peal_op *op = message->op;
	bool read = peal_message_is_read(message);
	bool last = at + 1 == message->packets;

	*header = (struct peal_packet) {
		.opcode = peal_opcode_request(message->transport, op, read || !at, read || last),
		.psn = peal_psn_add(message->psn, at),
		.rkey = wqe->rkey,
		.srqn = wqe->srqn,
		.remote_addr = wqe->remote_addr,
		.length = wqe->length,
		.migrated = true,	/* always set without path migration (9.2, 17.2.8) */
	};
	switch (wqe->opcode) {
	case PEAL_OP_READ:
		header->remote_addr += peal_message_offset(message, at);
		header->length = peal_message_bytes(message, at, packets);
		break;
	case PEAL_OP_CMP_SWAP:
		header->compare = wqe->atomic.compare_add;
		header->swap_add = wqe->atomic.swap;
		break;
	case PEAL_OP_FETCH_ADD:
		header->swap_add = wqe->atomic.compare_add;
		break;
	case PEAL_OP_FLUSH:
		header->length = wqe->flush.length;
		header->placement = wqe->flush.placement;
		header->selectivity = wqe->flush.selectivity;
		break;
	}
	if (op->immediate)
		header->imm = wqe->imm_or_rkey;
	else if (op->invalidates)
		header->inv_rkey = wqe->imm_or_rkey;
	if (op->sends) {
		header->payload_bytes = peal_message_bytes(message, at, 1);
		header->pad = -header->payload_bytes & 3;
	}
	header->solicited = last && wqe->flags & PEAL_WQE_SOLICITED && op->receives;
	header->header_bytes = peal_packet_opcode(header)->header_bytes;
}

/*
 * Has @packet, a response with a PSN of this message, the kind and the length that the message
 * waits for? A READ response must carry exactly the bytes that its PSN stands for (9.7.5.1.1). The
 * response to ATOMIC_WRITE and FLUSH is that of a READ of no bytes (A19).
 */
static bool peal_message_fits(const struct peal_message *message, const struct peal_packet *packet)
{
	bool read = peal_packet_opcode(packet)->has & PEAL_HAS_READ;

	if (message->op->placement)
		return packet->opcode ==
			       peal_opcode_read_response(message->transport, true, true) &&
		       !packet->payload_bytes;
	if (message->op->atomic)
		return !read;
	if (!peal_message_is_read(message))
		return false;
	return read && packet->payload_bytes ==
		       peal_message_bytes(message, peal_psn_ahead(message->psn, packet->psn), 1);
}

/* Turn the packet of number @at, which is not the last one, into a run of @packets packets. */
static void peal_message_extend(const struct peal_message *message, u32 at, u32 packets,
				struct peal_packet *header)
{
	header->more = packets - 1;
	if (at + packets < message->packets)
		return;
	header->last = peal_opcode_request(message->transport, message->op, false, true);
	header->last_bytes = peal_message_bytes(message, message->packets - 1, 1);
	header->solicited = message->wqe.flags & PEAL_WQE_SOLICITED && message->op->receives;
}

/*
 * Take the credits from the AETH of an acknowledgment. The limit only rises, because an older
 * acknowledgment may arrive later (9.7.7.2.4). Return: true if the limit changed.
 */
static bool peal_credit_learn(struct peal_credit *credit, u8 syndrome, u32 msn)
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

/* Do the credits cover message number @ssn? */
static bool peal_credit_covers(const struct peal_credit *credit, u32 ssn)
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

void peal_inflight_post(struct peal_inflight *inflight, const struct peal_wqe *wqe, u8 transport,
			u8 mtu_shift)
{
	struct peal_message *message = peal_inflight_at(inflight, inflight->head++);

	peal_message_init(message, wqe, transport, mtu_shift, inflight->posted);
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

/* A response was about the PSN before @psn. */
static void peal_inflight_see(struct peal_inflight *inflight, u32 psn)
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

		if (left && (!step || message->op->resource))
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

/*
 * Fail message @index. Only the first failure in the order of messages counts. The messages before
 * it still complete in order (9.9.2).
 */
static void peal_inflight_fail(struct peal_inflight *inflight, u32 index, u8 status, u32 reason)
{
	if (peal_inflight_before(index, inflight->tail) ||
	    !peal_inflight_before(index, inflight->head) || peal_inflight_is_lost(inflight, index))
		return;
	inflight->failed = true;
	inflight->bad = index;
	peal_inflight_at(inflight, index)->status = status;
	peal_inflight_at(inflight, index)->reason = reason;
}

/* ---- retransmission ---- */

/* After so many lone probes a peer is no longer believed to keep out-of-order packets. */
#define LONE_PROBES	2
/* Each lone probe doubles the packets of the next one, up to 2^LONE_SHIFT. */
#define LONE_SHIFT	5

static void peal_retransmit_from_una(struct peal_retransmit *r,
				     const struct peal_inflight *inflight, u32 end)
{
	r->next = inflight->una;
	r->end = end;
	r->index = inflight->acking;
	r->asks = false;
}

/* End the retransmission and the probe. */
void peal_retransmit_stop(struct peal_retransmit *r, const struct peal_inflight *inflight)
{
	r->probe = PEAL_PROBE_NONE;
	peal_retransmit_from_una(r, inflight, inflight->una);
}

/* @psn is yet to be retransmitted. */
static bool peal_retransmit_covers(const struct peal_retransmit *r, u32 psn)
{
	return r->next != r->end && !peal_psn_before(psn, r->next) && peal_psn_before(psn, r->end);
}

/*
 * PSNs that the packet at @psn takes. A READ that the peer has not executed must be requested as
 * it was. Of an executed READ, only the missing responses up to the first kept one are requested,
 * and at most @limit of them.
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

/*
 * Retransmit what is missing before @psn, and @psn, as a probe. After silence request one response
 * only, because the others may be on their way.
 */
static void peal_retransmit_probe(struct peal_retransmit *r, const struct peal_inflight *inflight,
				  const struct peal_reorder *reorder, enum peal_probe why, u32 psn)
{
	const struct peal_message *message =
		peal_inflight_at(inflight, peal_inflight_find(inflight, psn));
	u32 packets = min_t(u32, 1U << r->lone, peal_psn_ahead(psn, inflight->top));

	packets = max_t(u32, packets,
			peal_retransmit_span_at(inflight, reorder, message, psn,
						why == PEAL_PROBE_SILENCE ? 1 : U32_MAX));
	r->probe = why;
	r->probe_psn = psn;
	r->probe_end = peal_psn_add(psn, packets);
	/*
	 * A peer that keeps out-of-order packets has PEAL_REORDER_SLOTS, as peal has. It has
	 * dropped what was sent behind these.
	 */
	r->dropped = peal_psn_ahead(psn, inflight->top) > PEAL_REORDER_SLOTS ? inflight->top : psn;
	r->sent = false;
	r->heard = false;
	r->doubted = false;
	peal_retransmit_from_una(r, inflight, r->probe_end);
}

/*
 * What do the acknowledgments say about the probe? After silence the data of a READ or atomic
 * behind the probe is missing. That the peer has executed the request does not help, only its
 * responses do.
 */
static enum peal_probe_verdict peal_retransmit_judge(const struct peal_retransmit *r,
						     const struct peal_inflight *inflight)
{
	if (r->probe == PEAL_PROBE_SILENCE && inflight->una == r->probe_end &&
	    inflight->una != inflight->top &&
	    peal_inflight_at(inflight, inflight->acking)->op->resource)
		return PEAL_PROBE_VERDICT_LONE;
	if (peal_psn_before(r->probe_end, inflight->executed))
		return PEAL_PROBE_VERDICT_OVER;
	if (inflight->una != r->probe_end)
		return PEAL_PROBE_VERDICT_OPEN;
	return inflight->una == inflight->top ? PEAL_PROBE_VERDICT_OVER : PEAL_PROBE_VERDICT_LONE;
}

/*
 * Move `next` to the next PSN to retransmit. Packets that the peer is known to have, and responses
 * that are kept, need no retransmission. Return: false if there is none.
 */
static bool peal_retransmit_seek(struct peal_retransmit *r, const struct peal_inflight *inflight,
				 const struct peal_reorder *reorder)
{
	while (r->next != r->end && !peal_inflight_is_lost(inflight, r->index)) {
		const struct peal_message *message = peal_inflight_at(inflight, r->index);
		u32 at = peal_psn_ahead(message->psn, r->next);
		u32 skip;

		if (at >= message->packets) {
			r->index = peal_inflight_find(inflight, r->next);
			continue;
		}
		if (!peal_psn_before(r->next, inflight->executed))
			return true;
		if (message->op->resource)
			skip = peal_reorder_has(reorder, r->next) ? 1 : 0;
		else
			skip = min_t(u32, message->packets - at,
				     peal_psn_ahead(r->next, inflight->executed));
		if (!skip)
			return true;
		r->next = peal_psn_add(r->next, min_t(u32, skip, peal_psn_ahead(r->next, r->end)));
	}
	r->end = r->next;
	return false;
}

/* The probe was not sent yet, and is no longer needed because its packets were answered. */
static bool peal_retransmit_probe_is_needless(struct peal_retransmit *r,
					      const struct peal_inflight *inflight,
					      const struct peal_reorder *reorder)
{
	return r->probe && !r->sent && !peal_retransmit_seek(r, inflight, reorder);
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
	requester->cork_until = U64_MAX;
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
	peal_rto_reset(&requester->rto);
	peal_requester_stop_timers(requester);
	peal_requester_set_psn(requester, 0);
}

/*
 * How long a try lasts. The peer has one to four times the attribute to answer (9.7.6.1.3). Probes
 * leave far earlier, so the program does not wait longer for a lost packet. But a try counts
 * late, because a host that is busy, or emulated, may need longer than it promised.
 */
static u64 peal_requester_try_ns(const struct peal_requester *requester)
{
	if (requester->config.timeout_ns)
		return 2 * requester->config.timeout_ns;
	return requester->inflight.failed ? LAST_TIMEOUT_NS : 0;
}

void peal_requester_configure(struct peal_requester *requester,
			      const struct peal_requester_config *config)
{
	requester->config = *config;
	requester->reliable = peal_transport_is_reliable(config->transport);
	if (!peal_requester_try_ns(requester))
		requester->give_up_at = U64_MAX;
	peal_window_configure(&requester->window, config->window, config->mtu_shift,
			      config->route_mtu);
	peal_rto_limit(&requester->rto, min_t(u64, config->timeout_ns ?: U64_MAX, LONGEST_RTO_NS));
}

void peal_requester_set_psn(struct peal_requester *requester, u32 psn)
{
	peal_inflight_set_psn(&requester->inflight, psn);
	memset(&requester->retransmit, 0, sizeof(requester->retransmit));
	peal_retransmit_stop(&requester->retransmit, &requester->inflight);
	peal_window_set_psn(&requester->window, psn);
	requester->gap_psn = peal_psn_add(psn, PEAL_PSN_MASK);
	requester->gap_end = psn & PEAL_PSN_MASK;
	requester->gap_seen = requester->gap_end;
	requester->rnr_psn = requester->gap_psn;
}

void peal_requester_post(struct peal_requester *requester, const struct peal_wqe *wqe)
{
	peal_inflight_post(&requester->inflight, wqe, requester->config.transport,
			   requester->config.mtu_shift);
}

void peal_requester_fail_message(struct peal_requester *requester, u32 message, u8 status,
				 u32 reason)
{
	peal_inflight_fail(&requester->inflight, message, status, reason);
}

void peal_requester_local_done(struct peal_requester *requester, u32 message, u8 status, u32 reason)
{
	peal_inflight_at(&requester->inflight, message)->done = true;
	if (status)
		peal_requester_fail_message(requester, message, status, reason);
}

/* ---- timers ---- */

/*
 * Packets are in flight. Arm the timers that are not armed. No try begins before an answer is due.
 */
static void peal_requester_arm(struct peal_requester *requester, u64 now)
{
	u64 ns = peal_requester_try_ns(requester);

	if (requester->probe_at == U64_MAX) {
		requester->probe_at = now + requester->rto.ns;
		requester->silent_since = now;
	}
	if (requester->give_up_at == U64_MAX && ns && !peal_requester_is_unasked(requester))
		requester->give_up_at = now + ns;
}

void peal_requester_excuse_silence(struct peal_requester *requester, u64 now)
{
	u64 from = requester->probe_at == U64_MAX ? now : max_t(u64, now, requester->probe_at);

	peal_retry_heard(&requester->retry);
	/* After the next probe, because that may find the memory still missing. */
	if (requester->give_up_at != U64_MAX)
		requester->give_up_at = from + peal_requester_try_ns(requester);
}

void peal_requester_too_long(struct peal_requester *requester, u32 psn)
{
	if (requester->too_long && peal_psn_before(requester->too_long_psn, psn))
		return;
	requester->too_long = true;
	requester->too_long_psn = psn;
}

/* ---- probes ---- */

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
	struct peal_retransmit *r = &requester->retransmit;

	if (!r->sent)
		return false;
	if (peal_rto_plausible(&requester->rto, r->sent_at, now))
		return true;
	if (!r->doubted)
		peal_rto_doubt(&requester->rto);
	r->doubted = true;
	return false;
}

/*
 * What is missing from una to @end is sent or requested again from @now on. Only later responses to
 * that show a gap before @end.
 */
static void peal_requester_request_gap(struct peal_requester *requester, u32 end, u64 now)
{
	const struct peal_inflight *inflight = &requester->inflight;

	peal_retransmit_from_una(&requester->retransmit, inflight, end);
	requester->gap_end = end;
	requester->gap_seen = inflight->una;
	requester->gap_since = now;
	requester->gap_psn = peal_psn_add(inflight->una, PEAL_PSN_MASK);
}

/*
 * The packet after the probe is missing, too. Go on with another probe, or with go-back-N. @nak: a
 * sequence NAK for the PSN after the probe said so. A peer that sends a NAK must have received a
 * later packet, otherwise it would see no gap.
 */
static void peal_requester_lone_probe(struct peal_requester *requester, bool nak, u64 now)
{
	const struct peal_inflight *inflight = &requester->inflight;
	struct peal_retransmit *r = &requester->retransmit;
	bool keeps = r->probe == PEAL_PROBE_NAK && (nak || r->peer_reorders);

	if (r->lone < LONE_SHIFT)
		r->lone++;
	if (keeps && (nak || r->lone < LONE_PROBES)) {
		peal_retransmit_probe(r, inflight, &requester->reorder, PEAL_PROBE_NAK,
				      inflight->una);
	} else {
		if (keeps)
			r->peer_reorders = false;
		r->lone = 0;
		/* Everything from una on, except what the peer is known to have. */
		r->probe = PEAL_PROBE_NONE;
		peal_requester_request_gap(requester, inflight->top, now);
	}
	requester->probe_at = now + requester->rto.ns;
}

/* ---- new packets ---- */

/*
 * Most local operations between una and the next new packet. They take no PSN, so the response
 * to one packet ends all local operations behind it. This limit bounds that work.
 */
#define MOST_LOCALS	256

/*
 * Let the last packet be sent again, so that it asks for an ACK. This is no sign of a loss, so
 * neither window nor estimate change. What is being sent again for a loss asks for one anyway.
 * Return: true if the last packet is due. @probe_at is the next deadline then.
 */
static bool peal_requester_ask(struct peal_requester *requester, u64 probe_at)
{
	const struct peal_inflight *inflight = &requester->inflight;
	struct peal_retransmit *r = &requester->retransmit;
	u32 end = inflight->top, bad;

	if (r->probe || r->next != r->end)
		return false;
	/* Nothing of a failed message is sent any more. */
	bad = inflight->failed ? peal_inflight_at(inflight, inflight->bad)->psn : end;
	if (peal_psn_before(bad, end))
		end = bad;
	if (end == inflight->una)
		return false;
	r->next = peal_psn_add(end, PEAL_PSN_MASK);
	r->end = end;
	r->index = peal_inflight_find(inflight, r->next);
	r->asks = true;
	requester->probe_at = probe_at;
	return true;
}

/* No later packet will carry AckReq, and the last one does not carry it. */
static bool peal_requester_lacks_ack_request(const struct peal_requester *requester)
{
	return requester->window.since_ack_request && peal_inflight_waits(&requester->inflight);
}

void peal_requester_request_ack(struct peal_requester *requester, u64 now)
{
	if (peal_requester_lacks_ack_request(requester))
		peal_requester_ask(requester, now);
}

/* A stream: so many messages in a row have begun within so many ns of the one before. */
#define STREAM_LEAST	8
#define STREAM_NS	50000

static void peal_requester_begin_message(struct peal_requester *requester, u64 now)
{
	if (now - requester->began_at >= STREAM_NS)
		requester->stream = 0;
	else if (requester->stream < STREAM_LEAST)
		requester->stream++;
	requester->began_at = now;
}

/*
 * The message is the last one that is posted, and its program waits for no completion. In a stream
 * another message soon follows, so its ACK can wait for that. If none follows, expire() asks. While
 * many messages are in flight, each asks, because others may wait for the answer.
 */
static bool peal_requester_is_in_stream(const struct peal_requester *requester,
					const struct peal_message *message)
{
	return message->wqe.end && requester->stream == STREAM_LEAST &&
	       !peal_requester_may_cork(requester);
}

/* Messages wait for others until so many wait, and at most for this time. */
#define CORK_MOST	16
#define CORK_NS	50000

bool peal_requester_corks(struct peal_requester *requester, u32 pending, u64 now)
{
	const struct peal_inflight *inflight = &requester->inflight;
	const struct peal_message *last = peal_inflight_at(inflight, inflight->head - 1);
	bool wait = pending < CORK_MOST && peal_requester_may_cork(requester) &&
		    peal_requester_reliable(requester) && last->op->sends && last->packets == 1;

	/* No answer is under way if the last packet asks for none. */
	if (wait && !requester->window.since_ack_request) {
		if (requester->cork_until == U64_MAX)
			requester->cork_until = now + CORK_NS;
		if (now < requester->cork_until)
			return true;
	}
	requester->cork_until = U64_MAX;
	return false;
}

/* The least length of a READ's piece. So many fill the window, if they may be in flight. */
#define READ_PIECES	16

static u32 peal_requester_least_piece(const struct peal_requester *requester)
{
	return DIV_ROUND_UP(requester->window.size,
			    clamp_t(u32, requester->config.max_rd_atomic, 1, READ_PIECES));
}

/*
 * The next piece of the READ @message takes the room that there is in the window, or the least
 * length. The length changes only when no piece of an earlier length is in flight.
 */
static void peal_requester_size_piece(struct peal_requester *requester,
				      struct peal_message *message)
{
	const struct peal_inflight *inflight = &requester->inflight;
	u32 size = requester->window.size, outstanding = peal_inflight_outstanding(inflight);
	u32 room = max(peal_requester_least_piece(requester), size - min(size, outstanding));
	u32 piece = clamp_t(u32, room, 1, PEAL_READ_PIECE);
	u32 at = inflight->packet;

	if (piece == message->piece ||
	    (at && (inflight->acking != inflight->sending ||
		    peal_psn_ahead(message->psn, inflight->una) < message->pieces_from)))
		return;
	message->old_piece = message->piece;
	message->old_from = message->pieces_from;
	message->piece = piece;
	message->pieces_from = at;
}

/* PSNs that the next new packet takes. A READ request takes one for each response. */
static u32 peal_requester_span(const struct peal_requester *requester,
			       const struct peal_message *message)
{
	return peal_message_is_read(message) ?
	       peal_message_piece(message, requester->inflight.packet) : 1;
}

/*
 * Return: PEAL_BLOCKED_NONE if the next new packet, or local operation, may start now. A message
 * that can never be sent fails when its turn comes.
 */
static enum peal_blocked peal_requester_may_send(struct peal_requester *requester)
{
	const struct peal_retransmit *r = &requester->retransmit;
	struct peal_inflight *inflight = &requester->inflight;
	struct peal_message *message = peal_inflight_at(inflight, inflight->sending);
	const struct peal_op *op = message->op;
	u32 outstanding, size, ssn;

	if (peal_inflight_is_lost(inflight, inflight->sending))
		return PEAL_BLOCKED_FAILED;
	/* Unless the peer is known to keep packets, no new one is sent before the answer. */
	if (r->probe && !(r->probe == PEAL_PROBE_NAK && r->peer_reorders))
		return PEAL_BLOCKED_ANSWER;
	if (!peal_requester_unsent(requester))
		return PEAL_BLOCKED_EMPTY;
	if (!message->local && !(op->transports & 1 << message->transport)) {
		peal_inflight_fail(inflight, inflight->sending, IB_WC_LOC_QP_OP_ERR,
				   PEAL_REASON_WQE_OPCODE);
		return PEAL_BLOCKED_FAILED;
	}
	if (op->resource && !requester->config.max_rd_atomic) {
		peal_inflight_fail(inflight, inflight->sending, IB_WC_LOC_QP_OP_ERR,
				   PEAL_REASON_RD_ATOMIC_LIMIT);
		return PEAL_BLOCKED_FAILED;
	}
	if (!requester->inflight.packet && message->wqe.flags & PEAL_WQE_FENCE &&
	    requester->rd_atomic)
		return PEAL_BLOCKED_FENCE;
	if (message->wqe.last && inflight->una != inflight->top)
		return PEAL_BLOCKED_LAST;
	if (message->local)
		return inflight->locals < MOST_LOCALS ? PEAL_BLOCKED_NONE : PEAL_BLOCKED_WINDOW;
	if (!peal_requester_reliable(requester))
		goto window;
	if (op->resource &&
	    requester->rd_atomic >= requester->config.max_rd_atomic)
		return PEAL_BLOCKED_RD_ATOMIC;
	if (peal_message_is_read(message)) {
		/* There is no memory to keep more responses behind the gap. */
		if (requester->unkept)
			return PEAL_BLOCKED_ANSWER;
		peal_requester_size_piece(requester, message);
	}
	/*
	 * Without credit one packet may be sent if no other is in flight, otherwise a lost credit
	 * update could stop the connection. Its acknowledgment proves that there was a receive, so
	 * the rest of the message follows (9.7.7.2.5).
	 */
	ssn = peal_psn_add(requester->credit.ssn, inflight->packet ? 0 : 1);
	if (op->receives && !peal_credit_covers(&requester->credit, ssn) &&
	    inflight->una != inflight->top &&
	    (!inflight->packet || inflight->una == message->psn ||
	     inflight->acking != inflight->sending))
		return PEAL_BLOCKED_CREDIT;
window:
	/* After a loss, send no more than the peer may be able to keep as out-of-order packets. */
	outstanding = peal_inflight_outstanding(inflight);
	size = requester->window.size;
	/*
	 * A piece of a READ may begin when half of the least length is missing. If all of it had to
	 * fit, half a piece less than the window would be in flight on average.
	 */
	if (r->probe)
		size = min_t(u32, size, PEAL_REORDER_SLOTS);
	else if (peal_message_is_read(message))
		size = min(size + peal_requester_least_piece(requester) / 2,
			   requester->window.limit);
	if (outstanding && outstanding + peal_requester_span(requester, message) > size)
		return PEAL_BLOCKED_WINDOW;
	return PEAL_BLOCKED_NONE;
}

/*
 * Must the last of the next @packets new packets carry AckReq? READs and atomics are always
 * answered, so they need none. Other packets carry it where the requester would otherwise have to
 * wait, and at intervals: if the packet is sent without credit, or ends a message that is signaled
 * or that no other message follows at once or soon.
 */
static bool peal_requester_wants_ack(struct peal_requester *requester,
				     const struct peal_message *message, u32 packets)
{
	u32 outstanding = peal_inflight_outstanding(&requester->inflight) + packets;
	const struct peal_credit *credit = &requester->credit;
	u32 rest = message->packets - requester->inflight.packet - packets;
	bool last = !rest;
	bool followed =
		(message->wqe.more || peal_requester_is_in_stream(requester, message)) &&
		peal_requester_has_room(requester) &&
		peal_credit_covers(credit, peal_psn_add(credit->ssn, 1));
	bool wants = peal_window_wants_ack(&requester->window, packets, outstanding, rest) ||
		     (last && (message->wqe.flags & PEAL_WQE_SIGNALED || !followed)) ||
		     (message->op->receives && !peal_credit_covers(credit, credit->ssn));

	if (wants || message->op->resource)
		peal_window_ack_requested(&requester->window);
	return wants && !message->op->resource;
}

static void peal_requester_build(const struct peal_requester *requester, u32 index, u32 at,
				 u32 span, struct peal_outgoing *out)
{
	const struct peal_message *message = peal_inflight_at(&requester->inflight, index);

	out->local = false;
	out->again = false;
	out->asks = false;
	out->message = index;
	out->offset = peal_message_offset(message, at);
	peal_message_build(message, at, span, &out->header);
}

/*
 * How many packets of a SEND or WRITE may leave as one run, from the next new one on? The run ends
 * with the first packet that must carry AckReq. Without credit each packet is looked at by itself.
 */
static u32 peal_requester_run(const struct peal_requester *requester,
			      const struct peal_message *message, u32 most)
{
	const struct peal_inflight *inflight = &requester->inflight;
	u32 size = requester->window.size, outstanding = peal_inflight_outstanding(inflight);
	u32 ssn = peal_psn_add(requester->credit.ssn, inflight->packet ? 0 : 1);
	u32 rest = message->packets - inflight->packet;

	most = min(most, rest);
	if (!peal_requester_reliable(requester))
		return most;
	if (message->op->receives && !peal_credit_covers(&requester->credit, ssn))
		return 1;
	if (requester->retransmit.probe)
		size = min_t(u32, size, PEAL_REORDER_SLOTS);
	if (outstanding >= size)
		return 1;
	most = min(most, size - outstanding);
	return min(most, peal_window_room(&requester->window, outstanding, rest));
}

/* Send a new packet, or a run. The peer of an unreliable connection acknowledges nothing. */
static void peal_requester_send(struct peal_requester *requester, u64 now, u32 most,
				struct peal_outgoing *out)
{
	struct peal_inflight *inflight = &requester->inflight;
	const struct peal_message *message = peal_inflight_at(inflight, inflight->sending);
	u32 span = peal_requester_span(requester, message);
	bool unasked = peal_requester_is_unasked(requester);

	peal_requester_build(requester, inflight->sending, inflight->packet, span, out);
	if (message->op->sends && inflight->packet + 1 < message->packets) {
		span = peal_requester_run(requester, message, most);
		peal_message_extend(message, inflight->packet, span, &out->header);
	}
	if (peal_requester_reliable(requester)) {
		/* Messages of every kind count, because the peer's MSN counts all (9.7.7.1). */
		if (!inflight->packet || peal_message_is_read(message))
			requester->credit.ssn = peal_psn_add(requester->credit.ssn, 1);
		if (!inflight->packet)
			peal_requester_begin_message(requester, now);
		requester->rd_atomic += message->op->resource;
		out->header.ack_request =
			peal_requester_wants_ack(requester, message,
						 peal_packet_count(&out->header));
		if (out->header.ack_request || message->op->resource)
			peal_rto_start(&requester->rto,
				       peal_psn_add(out->header.psn, out->header.more), now);
	}
	peal_inflight_sent(inflight, span);
	if (!peal_requester_reliable(requester)) {
		peal_inflight_acknowledge_psns(inflight);
		inflight->acking = inflight->sending;
		inflight->locals = 0;
		return;
	}
	/* Silence begins when an answer is due. Until then, expire() asks after the last packet. */
	if (unasked)
		requester->probe_at = U64_MAX;
	peal_requester_arm(requester, now);
}

/*
 * Send the packet at retransmit.next again. A probe ignores the window, because it is small and
 * its answer is needed to go on. Every retransmission carries AckReq, unless data answers it,
 * because the answer decides what else is retransmitted.
 */
static enum peal_blocked peal_requester_resend(struct peal_requester *requester, u64 now,
					       struct peal_outgoing *out)
{
	struct peal_inflight *inflight = &requester->inflight;
	struct peal_retransmit *r = &requester->retransmit;
	const struct peal_message *message = peal_inflight_at(inflight, r->index);
	u32 limit = r->probe == PEAL_PROBE_SILENCE ? peal_psn_ahead(r->next, r->end) : U32_MAX;
	u32 span = peal_retransmit_span_at(inflight, &requester->reorder, message, r->next, limit);
	u32 ahead = peal_psn_ahead(inflight->una, r->next);

	if (!r->probe && !r->asks && ahead && ahead + span > requester->window.size)
		return PEAL_BLOCKED_WINDOW;
	peal_requester_build(requester, r->index, peal_psn_ahead(message->psn, r->next), span, out);
	out->again = true;
	out->asks = r->asks;
	out->header.ack_request = !message->op->resource;
	if (out->header.psn == requester->too_long_psn)
		requester->too_long = false;	/* the caller says so again if it still is */
	r->next = peal_psn_add(r->next, span);
	peal_psn_raise(&r->end, r->next);
	if (r->probe && !r->sent) {
		peal_psn_raise(&r->probe_end, r->end);
		if (!peal_retransmit_seek(r, inflight, &requester->reorder)) {
			r->sent = true;
			r->sent_at = now;
		}
	}
	if (r->probe == PEAL_PROBE_SILENCE)
		peal_retry_copied(&requester->retry);
	peal_rto_sent_again(&requester->rto, out->header.psn, peal_psn_add(out->header.psn, span));
	peal_window_ack_requested(&requester->window);
	peal_requester_arm(requester, now);
	return PEAL_BLOCKED_NONE;
}

enum peal_blocked peal_requester_next(struct peal_requester *requester, u64 now, u32 most,
				      struct peal_outgoing *out)
{
	struct peal_inflight *inflight = &requester->inflight;
	enum peal_blocked blocked;

	if (requester->rnr_until)
		return PEAL_BLOCKED_RNR;
	if (peal_retransmit_probe_is_needless(&requester->retransmit, inflight,
					      &requester->reorder))
		peal_retransmit_stop(&requester->retransmit, inflight);
	if (requester->retransmit.next != requester->retransmit.end &&
	    peal_retransmit_seek(&requester->retransmit, inflight, &requester->reorder))
		return peal_requester_resend(requester, now, out);
	blocked = peal_requester_may_send(requester);
	if ((blocked == PEAL_BLOCKED_FAILED || blocked == PEAL_BLOCKED_LAST) &&
	    peal_requester_lacks_ack_request(requester) &&
	    peal_requester_ask(requester, now + requester->rto.ns))
		return peal_requester_resend(requester, now, out);
	if (blocked)
		return blocked;
	if (!peal_inflight_at(inflight, inflight->sending)->local) {
		peal_requester_send(requester, now, most, out);
		return PEAL_BLOCKED_NONE;
	}
	memset(out, 0, sizeof(*out));
	out->local = true;
	out->message = inflight->sending;
	peal_inflight_local_begun(inflight);
	return PEAL_BLOCKED_NONE;
}

/* ---- responses ---- */

/*
 * After so many packets that were retransmitted into a silence, the path is taken for broken, and
 * the window starts anew.
 */
#define RESTART_AFTER	3

static void peal_requester_drop(struct peal_response *response, enum peal_drop drop, bool duplicate)
{
	response->what = PEAL_RESPONSE_DROPPED;
	response->drop = drop;
	response->duplicate = duplicate;
}

/*
 * una has moved on from @from. Progress restores all retries (9.7.6.1.3). @ack: the progress came
 * from an ACK packet, which names all that the peer has executed. READ responses do not; an ACK may
 * follow them.
 */
static void peal_requester_progress(struct peal_requester *requester, u32 from, bool ack, u64 now)
{
	const struct peal_inflight *inflight = &requester->inflight;
	struct peal_retransmit *r = &requester->retransmit;
	enum peal_probe_verdict verdict;
	u32 una = inflight->una, dropped = 0;
	bool back = r->probe == PEAL_PROBE_SILENCE && requester->retry.copies >= RESTART_AFTER;
	bool sure;

	if (una == from)
		return;
	peal_retry_progress(&requester->retry);
	if (peal_psn_before(requester->too_long_psn, una))
		requester->too_long = false;
	if (peal_psn_before(requester->rnr_psn, una)) {
		peal_retry_received(&requester->retry);
		requester->rnr_until = 0;
	}
	if (r->probe && peal_psn_before(una, r->dropped))
		dropped = peal_psn_ahead(una, r->dropped);
	peal_window_follow(&requester->window, peal_psn_ahead(from, una), una, inflight->top,
			   dropped, peal_rto_slow(&requester->rto),
			   peal_rto_sees_queue(&requester->rto),
			   !ack && peal_rto_sees_long_queue(&requester->rto));
	/* Packets before una need no retransmission. */
	if (peal_psn_before(r->next, una)) {
		r->next = una;
		r->index = inflight->acking;
	}
	peal_psn_raise(&r->end, r->next);
	peal_psn_raise(&requester->gap_end, una);
	/* All timers start anew. */
	peal_requester_stop_timers(requester);
	if (una != inflight->top)
		peal_requester_arm(requester, now);
	if (peal_retransmit_probe_is_needless(r, inflight, &requester->reorder))
		peal_retransmit_stop(r, inflight);
	if (!r->probe)
		return;

	verdict = peal_retransmit_judge(r, inflight);
	/* A peer that sent an RNR NAK has surely dropped all later packets. */
	sure = r->probe == PEAL_PROBE_RNR;
	if (verdict == PEAL_PROBE_VERDICT_OPEN)
		return;
	if (r->sent && r->probe == PEAL_PROBE_NAK && !r->peer_reorders)
		requester->rto.latest = max(requester->rto.latest, now - r->sent_at);
	if (verdict == PEAL_PROBE_VERDICT_OVER ||
	    (ack && !sure && !peal_requester_answers_probe(requester, now))) {
		/*
		 * If the peer has packets behind the probe, it keeps out-of-order packets. After
		 * silence no packet was known to be missing, so this proves nothing.
		 */
		if (r->probe != PEAL_PROBE_SILENCE &&
		    peal_psn_before(r->probe_end, inflight->executed))
			r->peer_reorders = true;
		if (r->probe == PEAL_PROBE_NAK && r->peer_reorders &&
		    peal_psn_before(una, r->dropped))
			peal_retransmit_from_una(r, inflight, r->dropped);
		r->lone = 0;
		r->probe = PEAL_PROBE_NONE;
		/*
		 * The path is back. The packets that were in flight when it broke are lost. The
		 * NAK for them may be lost, too. So ask soon.
		 */
		if (back && una != inflight->top)
			requester->probe_at = now + peal_rto_patience(&requester->rto);
	} else if (ack) {
		peal_requester_lone_probe(requester, false, now);
	} else {
		requester->probe_at = now + peal_rto_patience(&requester->rto);
	}
}

/*
 * The PSN after the last response that shows whether the one at una is missing. If that was
 * requested again, only responses count that were requested after it.
 */
static u32 peal_requester_gap_shown(const struct peal_requester *requester)
{
	return peal_psn_before(requester->inflight.una, requester->gap_end) ?
	       requester->gap_seen : requester->inflight.seen;
}

/*
 * A response behind una has arrived, so the READ or atomic response at una is late or lost
 * (9.7.5.2, implied NAK). Request it again soon. If a response arrives then that was requested
 * later, the one at una is lost again. If none arrives, the probe timer repeats the request.
 */
static void peal_requester_watch_gap(struct peal_requester *requester, u64 now)
{
	if (requester->inflight.una == requester->inflight.seen) {
		requester->gap_at = U64_MAX;
		requester->unkept = false;
		return;
	}
	if (requester->gap_psn == requester->inflight.una ||
	    !peal_psn_before(requester->inflight.una, peal_requester_gap_shown(requester)))
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
 * PSN uses a retry. Any NAK for a packet that is not being retransmitted starts a new probe. A NAK
 * is stale if the peer has executed the packet since, or if it answers an earlier packet and
 * repeats the NAK that the probe is for. Return: false if it is stale.
 */
static bool peal_requester_receive_nak_sequence(struct peal_requester *requester, u32 psn, u64 now)
{
	struct peal_retransmit *r = &requester->retransmit;
	bool again = r->probe && psn == r->probe_psn;
	bool lone = r->probe == PEAL_PROBE_NAK && psn == r->probe_end;
	enum peal_loss loss = PEAL_LOSS_REQUEST;

	if (peal_psn_before(psn, requester->inflight.executed) ||
	    (again && !peal_requester_answers_probe(requester, now)))
		return false;
	peal_requester_acknowledge(requester, psn, false, now);
	peal_retry_nak_seen(&requester->retry);
	if (lone && requester->inflight.una == psn) {
		peal_requester_lone_probe(requester, true, now);
		return true;
	}
	if (again && !peal_requester_use_retry(requester, psn))
		return true;
	/* It is being sent again, or the rest of the probe, which is on its way, has it. */
	if (peal_retransmit_covers(r, psn) ||
	    (r->probe == PEAL_PROBE_NAK && !again && peal_psn_before(psn, r->next)))
		return true;
	/* A peer keeps PEAL_REORDER_SLOTS packets behind a loss at most. */
	if (!r->peer_reorders && (again || peal_psn_before(psn, r->next)))
		loss = PEAL_LOSS_AGAIN;
	else if (!r->peer_reorders)
		loss = PEAL_LOSS_GOES_BACK;
	else if (peal_psn_ahead(psn, requester->inflight.top) > PEAL_REORDER_SLOTS)
		loss = PEAL_LOSS_PART;
	peal_rto_lost(&requester->rto);
	peal_window_lose(&requester->window, requester->inflight.top,
			 peal_rto_sees_queue(&requester->rto), loss);
	peal_requester_probe(requester, PEAL_PROBE_NAK, psn, now);
	return true;
}

/*
 * 9.7.5.2.8. An RNR NAK acknowledges all packets before its PSN. Unlike for a sequence NAK, the
 * time since the probe does not tell a stale one, because a peer that lacks a receive answers
 * faster than one that executes, and each RNR NAK must be counted. An RNR NAK for the probed packet
 * is stale only until this packet is retransmitted, even if later packets of the probe are not sent
 * yet. Return: false if it is stale.
 */
static bool peal_requester_receive_rnr(struct peal_requester *requester, u32 psn, u8 timer, u64 now)
{
	struct peal_retransmit *r = &requester->retransmit;

	if (requester->rnr_until || peal_psn_before(psn, requester->inflight.executed) ||
	    (r->probe && psn == r->probe_psn && peal_retransmit_covers(r, psn)))
		return false;
	peal_requester_acknowledge(requester, psn, false, now);
	/*
	 * Each message has its own RNR retries. rnr_psn is compared with `executed` and not with
	 * una, because una may still wait for the data of READs in front of that message.
	 */
	if (peal_psn_before(requester->rnr_psn, requester->inflight.executed))
		peal_retry_received(&requester->retry);
	if (!peal_retry_use_rnr(&requester->retry, requester->config.rnr_limit)) {
		peal_inflight_fail(&requester->inflight,
				   peal_inflight_find(&requester->inflight, psn),
				   IB_WC_RNR_RETRY_EXC_ERR, PEAL_REASON_RNR_EXHAUSTED);
		return true;
	}
	peal_retry_heard(&requester->retry);
	requester->rnr_psn = psn;
	requester->rnr_until = now + peal_retry_rnr_ns(&requester->retry, timer);
	peal_retransmit_stop(r, &requester->inflight);
	peal_requester_stop_timers(requester);
	peal_rto_forget(&requester->rto);
	return true;
}

/* An acknowledgment, or a NAK. After a fatal one the message fails (9.7.5.2.3 to 9.7.5.2.6). */
static void peal_requester_receive_ack(struct peal_requester *requester,
				       const struct peal_packet *packet, u64 now,
				       struct peal_response *response)
{
	u8 code = packet->syndrome & PEAL_SYNDROME_VALUE;
	u32 psn = packet->psn;
	bool known = true;

	switch (packet->syndrome & PEAL_SYNDROME_KIND) {
	case PEAL_SYNDROME_ACK:
		peal_requester_acknowledge(requester, peal_psn_add(psn, 1), true, now);
		break;
	case PEAL_SYNDROME_RNR:
		if (!peal_requester_receive_rnr(requester, psn, code, now))
			peal_requester_drop(response, PEAL_DROP_stale, true);
		break;
	case PEAL_SYNDROME_NAK:
		known = code <= PEAL_NAK_REMOTE_OPERATION;
		if (!known)
			break;
		if (code == PEAL_NAK_SEQUENCE) {
			if (!peal_requester_receive_nak_sequence(requester, psn, now))
				peal_requester_drop(response, PEAL_DROP_stale, true);
			break;
		}
		peal_requester_acknowledge(requester, psn, false, now);
		peal_inflight_fail(&requester->inflight,
				   peal_inflight_find(&requester->inflight, psn),
				   peal_nak_meaning(code)->status, peal_nak_meaning(code)->reason);
		break;
	default:
		known = false;
		break;
	}
	if (!known)
		peal_requester_drop(response, PEAL_DROP_opcode, false);
	peal_requester_watch_gap(requester, now);
}

/* The response at una arrived and was dropped as suspect. Request it again soon. */
static void peal_requester_request_again(struct peal_requester *requester, u64 now)
{
	requester->gap_psn = requester->inflight.una;
	requester->gap_at = now + peal_rto_patience(&requester->rto);
}

/*
 * The response to a READ or atomic (9.7.5.1.1, 9.7.5.1.2). It proves that its whole request piece
 * was executed, and everything before it. A response whose PSN is kept already is returned as a
 * COPY, because only the caller has the payload and can compare the two.
 */
static void peal_requester_receive_data(struct peal_requester *requester,
					const struct peal_packet *packet, u64 now, void *handle,
					struct peal_response *response)
{
	struct peal_inflight *inflight = &requester->inflight;
	u32 index = peal_inflight_find(inflight, packet->psn);
	const struct peal_message *message = peal_inflight_at(inflight, index);
	u32 at = peal_psn_ahead(message->psn, packet->psn), end;
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
		peal_inflight_fail(inflight, index, IB_WC_BAD_RESP_ERR, PEAL_REASON_BAD_RESPONSE);
		return;
	}
	peal_inflight_execute(inflight,
			      peal_psn_add(packet->psn, peal_message_piece(message, at)));
	peal_requester_acknowledge(requester, packet->psn, false, now);
	end = peal_psn_add(packet->psn, peal_packet_count(packet));
	peal_requester_see(requester, end, now);
	if (peal_psn_before(packet->psn, requester->gap_end) &&
	    peal_rto_plausible(&requester->rto, requester->gap_since, now))
		peal_psn_raise(&requester->gap_seen,
			       peal_psn_before(end, requester->gap_end) ? end : requester->gap_end);

	if (peal_reorder_has(&requester->reorder, packet->psn)) {
		response->what = PEAL_RESPONSE_COPY;
		response->drop = PEAL_DROP_sequence;
		response->duplicate = true;
		response->kept = peal_reorder_find(&requester->reorder, packet->psn);
	} else if (packet->psn == inflight->una) {
		requester->flow = packet->flow;
		response->message = inflight->acking;
		if (message->op->atomic && !message->op->placement) {
			response->what = PEAL_RESPONSE_ATOMIC;
			response->original = packet->original;
			response->bytes = sizeof(u64);
		} else {
			response->what = PEAL_RESPONSE_READ;
			response->offset = peal_message_offset(message, at);
			response->bytes = peal_packet_bytes(packet);
		}
		response->packets = peal_packet_count(packet);
		return;
	} else if (handle && peal_reorder_insert(&requester->reorder, inflight->una, packet->psn,
						 handle, now, requester->config.reorder_ns)) {
		response->what = PEAL_RESPONSE_KEPT;
	} else {
		requester->unkept = true;
		peal_requester_drop(response, PEAL_DROP_sequence, false);
	}
	if (packet->psn != inflight->una)
		peal_requester_watch_gap(requester, now);
}

/*
 * A run of READ responses is taken only where its packets would be taken one after the other, which
 * is in one piece of the READ. The last response is in no run, because it has a header more.
 */
u32 peal_requester_takes(const struct peal_requester *requester, const struct peal_packet *packet)
{
	const struct peal_inflight *inflight = &requester->inflight;
	const struct peal_message *message = peal_inflight_at(inflight, inflight->acking);
	u32 piece;

	/* A probe is judged by each packet that is answered. */
	if (!peal_inflight_waits(inflight) || requester->again || requester->reorder.count ||
	    requester->retransmit.probe || packet->psn != inflight->una ||
	    packet->payload_bytes != 1U << message->mtu_shift || !peal_packet_is_middle(packet) ||
	    !peal_message_is_read(message))
		return 0;
	piece = peal_message_piece(message, peal_psn_ahead(message->psn, packet->psn));
	return max_t(u32, piece - 1, 1);
}

void peal_requester_receive(struct peal_requester *requester, const struct peal_packet *packet,
			    u64 now, void *handle, struct peal_response *response)
{
	struct peal_inflight *inflight = &requester->inflight;
	struct peal_retransmit *r = &requester->retransmit;
	u32 has = peal_packet_opcode(packet)->has;
	bool fresh = peal_inflight_waits(inflight) &&
		     peal_psn_ahead(requester->inflight.una, packet->psn) <
			     peal_inflight_outstanding(&requester->inflight);
	bool learned = false;
	u64 try_ns = peal_requester_try_ns(requester);

	memset(response, 0, sizeof(*response));
	response->what = PEAL_RESPONSE_TAKEN;
	if (!(has & PEAL_HAS_RESPONSE) || !peal_requester_reliable(requester)) {
		peal_requester_drop(response, PEAL_DROP_opcode, false);
		return;
	}
	/* A repetition of the newest acknowledgment may bring new credits, too (9.7.7.2.4). */
	if (has & PEAL_HAS_AETH && (packet->syndrome & PEAL_SYNDROME_KIND) == PEAL_SYNDROME_ACK &&
	    (fresh || peal_psn_add(packet->psn, 1) == inflight->una))
		learned = peal_credit_learn(&requester->credit, packet->syndrome, packet->msn);
	if (fresh) {
		if (r->probe == PEAL_PROBE_SILENCE && r->sent && !r->heard) {
			r->heard = true;
			peal_rto_heard(&requester->rto, r->sent_at, now);
		}
		if (has & (PEAL_HAS_READ | PEAL_HAS_ATOMIC))
			peal_requester_receive_data(requester, packet, now, handle, response);
		else
			peal_requester_receive_ack(requester, packet, now, response);
		if (inflight->una != inflight->top && !requester->rnr_until)
			peal_requester_arm(requester, now);
	}
	if (fresh || learned)
		return;
	/*
	 * A duplicate response or a ghost acknowledge (9.7.5.1). It shows that the peer is still
	 * busy with earlier packets. Postpone the timers, because a retransmission would only add
	 * to its work.
	 */
	peal_requester_drop(response, PEAL_DROP_stale, peal_psn_before(packet->psn, inflight->una));
	peal_retry_postpone(&requester->probe_at, now, requester->silent_since, requester->rto.ns,
			    4 * requester->rto.ns);
	/* 9.7.6.1.3 bounds a try at four times the attribute. */
	peal_retry_postpone(&requester->give_up_at, now, requester->silent_since, try_ns,
			    2 * try_ns);
}

/* Ignores a response that is not the one that receive() named last. */
void peal_requester_placed(struct peal_requester *requester, const struct peal_response *response,
			   u64 now)
{
	struct peal_inflight *inflight = &requester->inflight;
	const struct peal_message *message = peal_inflight_at(inflight, inflight->acking);
	u32 from = inflight->una;
	u32 at = peal_psn_ahead(message->psn, from);

	if (!peal_inflight_waits(inflight) || response->message != inflight->acking ||
	    response->offset != peal_message_offset(message, at))
		return;
	requester->rd_atomic -= peal_message_piece(message, at) == 1;
	/* Packets of a READ, or the response to an atomic. */
	inflight->una = peal_psn_add(inflight->una, response->packets);
	if (at + response->packets == message->packets)
		inflight->acking++;
	peal_inflight_see(inflight, inflight->una);
	peal_inflight_follow(inflight);
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

void *peal_requester_conflict(struct peal_requester *requester, u32 psn, u64 now)
{
	if (psn == requester->inflight.una)
		peal_requester_request_again(requester, now);
	return peal_reorder_take(&requester->reorder, psn);
}

/* ---- completions ---- */

const struct peal_message *peal_requester_complete(struct peal_requester *requester)
{
	struct peal_inflight *inflight = &requester->inflight;
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

struct peal_message *peal_requester_flush(struct peal_requester *requester)
{
	struct peal_inflight *inflight = &requester->inflight;
	struct peal_message *message;

	requester->rnr_until = 0;
	/* No packet is sent after this. */
	if (!peal_inflight_is_lost(inflight, inflight->tail)) {
		inflight->failed = true;
		inflight->bad = inflight->tail;
	}
	inflight->sending = inflight->head;
	inflight->acking = inflight->head;
	inflight->locals = 0;
	if (inflight->tail == inflight->head)
		return NULL;
	message = peal_inflight_at(inflight, inflight->tail++);
	message->status = IB_WC_WR_FLUSH_ERR;
	message->reason = PEAL_REASON_FLUSHED;
	return message;
}

/* ---- time ---- */

void peal_requester_notified(struct peal_requester *requester)
{
	struct peal_inflight *inflight = &requester->inflight;

	if (inflight->una != inflight->top)
		peal_window_mark(&requester->window, inflight->top);
}

u64 peal_requester_deadline(const struct peal_requester *requester)
{
	u64 deadline;

	if (!peal_inflight_waits(&requester->inflight))
		return U64_MAX;
	if (requester->rnr_until)
		return requester->rnr_until;
	deadline = min_t(u64, min_t(u64, requester->probe_at, requester->give_up_at),
			 min_t(u64, requester->gap_at, peal_reorder_deadline(&requester->reorder)));
	return requester->cork_until ? min(deadline, requester->cork_until) : deadline;
}

/* So many READ responses in a row are missing because a queue was full. */
#define QUEUE_DROPS	8

static void peal_requester_shrink_after_silence(struct peal_requester *requester)
{
	if (requester->retry.copies >= RESTART_AFTER)
		peal_window_restart(&requester->window);
	else
		peal_window_silence(&requester->window, requester->inflight.top,
				    peal_rto_sees_queue(&requester->rto));
}

/*
 * The peer was silent for longer than the estimate, which lies below the timeout of 9.7.6.1.3.
 * Probe. This counts as no retry.
 */
static void peal_requester_probe_silence(struct peal_requester *requester, u64 now)
{
	struct peal_retransmit *r = &requester->retransmit;

	if (r->probe && !r->sent)
		return;
	if (r->probe &&
	    peal_retransmit_judge(r, &requester->inflight) == PEAL_PROBE_VERDICT_LONE) {
		peal_requester_lone_probe(requester, false, now);
		return;
	}
	peal_rto_back_off(&requester->rto, now - requester->silent_since);
	peal_requester_shrink_after_silence(requester);
	peal_requester_probe(requester, PEAL_PROBE_SILENCE, requester->inflight.una, now);
}

void peal_requester_expire(struct peal_requester *requester, u64 now)
{
	struct peal_inflight *inflight = &requester->inflight;
	struct peal_retransmit *r = &requester->retransmit;
	bool queue;

	if (!peal_inflight_waits(inflight) || now < requester->rnr_until)
		return;
	if (requester->rnr_until) {
		requester->rnr_until = 0;
		peal_requester_probe(requester, PEAL_PROBE_RNR, requester->rnr_psn, now);
	}
	peal_requester_arm(requester, now);
	if (now >= requester->cork_until)
		requester->cork_until = 0;
	if (now >= requester->give_up_at) {
		/*
		 * The timeout (9.7.6.1.3). It uses no retry while the last probe could not be sent
		 * yet.
		 */
		requester->give_up_at = now + peal_requester_try_ns(requester);
		requester->silent_since = now;
		if ((!r->probe || r->sent) && peal_requester_use_retry(requester, inflight->una)) {
			peal_requester_shrink_after_silence(requester);
			peal_requester_probe(requester, PEAL_PROBE_SILENCE, inflight->una, now);
		}
	} else if (now >= requester->probe_at) {
		requester->probe_at = now + requester->rto.ns;
		if (peal_requester_only_asks(requester))
			peal_requester_ask(requester, requester->probe_at);
		else
			peal_requester_probe_silence(requester, now);
	}
	/* Request what is missing at una. A probe that was sent still waits for its answer. */
	if (now < requester->gap_at)
		return;
	requester->gap_at = U64_MAX;
	/* What a request for the gap has yet to ask for is found missing later. */
	if ((r->next == r->end || (peal_psn_before(inflight->una, requester->gap_end) &&
				   peal_psn_before(inflight->una, r->next))) &&
	    !peal_reorder_has(&requester->reorder, inflight->una)) {
		u32 span = peal_retransmit_span_at(inflight, &requester->reorder,
						   peal_inflight_at(inflight, inflight->acking),
						   inflight->una, U32_MAX);
		u32 shown = peal_requester_gap_shown(requester);

		/* Random loss rarely takes so many together. A queue that is full does. */
		queue = peal_rto_sees_queue(&requester->rto) || span >= QUEUE_DROPS;
		/* Later responses have arrived and were dropped, unless they are kept. */
		if (peal_psn_before(inflight->una, shown))
			span = max(span, peal_psn_ahead(inflight->una, shown));
		peal_requester_request_gap(requester, peal_psn_add(inflight->una, span), now);
		/* Give the peer the time to answer before a probe. */
		requester->probe_at = now + requester->rto.ns;
		peal_rto_lost(&requester->rto);
		peal_window_lose(&requester->window, inflight->top, queue, PEAL_LOSS_RESPONSE);
	}
}

void *peal_requester_take_expired(struct peal_requester *requester, u64 now)
{
	return peal_reorder_expire(&requester->reorder, now, requester->config.reorder_ns);
}
