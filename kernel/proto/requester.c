// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See requester.h. Clauses are those of the IBTA specification, volume 1.
 */
#include <linux/limits.h>
#include <linux/minmax.h>
#include <linux/string.h>
#include <rdma/ib_verbs.h>

#include "proto/requester.h"
#include "proto/rnr.h"

/* The longest wait of the estimate, also if there is no timeout. */
#define LONGEST_RTO_NS		1000000000ULL
/*
 * The timeout after a failure if the attribute sets none. After a fatal NAK the peer may be
 * gone, so the messages before the failed one must not wait for ever.
 */
#define LAST_TIMEOUT_NS		1000000000ULL

/* ---- set-up ---- */

static void peal_requester_stop_timers(struct peal_requester *o)
{
	o->probe_at = U64_MAX;
	o->give_up_at = U64_MAX;
	o->gap_at = U64_MAX;
}

void peal_requester_init(struct peal_requester *o, struct peal_message *message, u32 entries)
{
	memset(o, 0, sizeof(*o));
	peal_inflight_init(&o->inflight, message, entries);
	peal_requester_reset(o);
}

void peal_requester_reset(struct peal_requester *o)
{
	struct peal_requester_config config = o->config;
	struct peal_inflight inflight = o->inflight;

	memset(o, 0, sizeof(*o));
	peal_inflight_init(&o->inflight, inflight.message, inflight.mask + 1);
	peal_requester_configure(o, &config);
	peal_window_reset(&o->window);
	peal_credit_reset(&o->credit);
	peal_rto_reset(&o->rto);
	peal_requester_stop_timers(o);
	peal_requester_set_psn(o, 0);
}

static u64 peal_requester_timeout(const struct peal_requester *o)
{
	return o->config.timeout_ns ?: (o->inflight.failed ? LAST_TIMEOUT_NS : 0);
}

void peal_requester_configure(struct peal_requester *o, const struct peal_requester_config *config)
{
	o->config = *config;
	if (!peal_requester_timeout(o))
		o->give_up_at = U64_MAX;
	peal_window_limit(&o->window, config->window);
	peal_rto_limit(&o->rto, min_t(u64, config->timeout_ns ?: U64_MAX, LONGEST_RTO_NS));
}

void peal_requester_set_psn(struct peal_requester *o, u32 psn)
{
	peal_inflight_set_psn(&o->inflight, psn);
	peal_retransmit_reset(&o->retransmit, &o->inflight);
	peal_window_recover(&o->window);
	o->gap_psn = peal_psn_add(psn, PEAL_PSN_MASK);
	o->rnr_psn = o->gap_psn;
}

void peal_requester_post(struct peal_requester *o, const struct peal_wr *wr)
{
	peal_inflight_post(&o->inflight, wr, o->config.transport, o->config.mtu_shift);
}

void peal_requester_spoil(struct peal_requester *o, u32 message, u8 status, u32 reason)
{
	peal_inflight_fail(&o->inflight, message, status, reason);
}

void peal_requester_local_done(struct peal_requester *o, u32 message, u8 status, u32 reason)
{
	peal_message_executed(peal_inflight_at(&o->inflight, message));
	if (status)
		peal_requester_spoil(o, message, status, reason);
}

/* ---- timers ---- */

/* Packets are in flight. Arm the timers that are not armed. */
static void peal_requester_arm(struct peal_requester *o, u64 now)
{
	u64 timeout = peal_requester_timeout(o);

	if (o->probe_at == U64_MAX) {
		o->probe_at = now + o->rto.ns;
		o->silent_since = now;
	}
	if (o->give_up_at == U64_MAX && timeout)
		o->give_up_at = now + timeout;
}

/*
 * A stale response shows that the peer is still busy with earlier packets. Postpone the timers,
 * because a retransmission would only add to its work.
 */
static void peal_requester_be_patient(struct peal_requester *o, u64 now)
{
	u64 since = o->silent_since;

	peal_retry_put_off(&o->probe_at, now, since, o->rto.ns);
	peal_retry_put_off(&o->give_up_at, now, since, peal_requester_timeout(o));
}

/* After progress all timers start anew. */
static void peal_requester_rearm(struct peal_requester *o, u64 now)
{
	peal_requester_stop_timers(o);
	if (o->inflight.una != o->inflight.top)
		peal_requester_arm(o, now);
}

/* ---- retransmission ---- */

static void peal_requester_build(const struct peal_requester *o, u32 index, u32 at, u32 span,
				 struct peal_outgoing *out)
{
	const struct peal_message *message = peal_inflight_at(&o->inflight, index);

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
static enum peal_blocked peal_requester_resend(struct peal_requester *o, u64 now,
					       struct peal_outgoing *out)
{
	const struct peal_message *message = peal_inflight_at(&o->inflight, o->retransmit.index);
	u32 span = peal_retransmit_span(&o->retransmit, &o->inflight, &o->reorder);
	u32 ahead = peal_psn_ahead(o->inflight.una, o->retransmit.next);

	if (!o->retransmit.probe && ahead && ahead + span > o->window.size)
		return PEAL_BLOCKED_WINDOW;
	peal_requester_build(o, o->retransmit.index,
			     peal_psn_ahead(message->psn, o->retransmit.next), span, out);
	out->again = true;
	out->header.ack_request = !peal_message_wants_data(message);
	peal_retransmit_left(&o->retransmit, &o->inflight, &o->reorder, span, now);
	if (o->retransmit.probe == PEAL_PROBE_SILENCE)
		peal_retry_copied(&o->retry);
	peal_rto_sent_again(&o->rto, out->header.psn, peal_psn_add(out->header.psn, span));
	peal_window_asked(&o->window);
	peal_requester_arm(o, now);
	return PEAL_BLOCKED_NONE;
}

static void peal_requester_probe(struct peal_requester *o, enum peal_probe why, u32 psn, u64 now)
{
	peal_retransmit_probe(&o->retransmit, &o->inflight, &o->reorder, why, psn);
	if (why != PEAL_PROBE_NAK)
		peal_rto_forget(&o->rto);
	o->probe_at = now + o->rto.ns;
}

/*
 * A response that arrives sooner after the probe than any answer to the probe can, answers an
 * earlier packet.
 */
static bool peal_requester_answers_probe(struct peal_requester *o, u64 now)
{
	if (!o->retransmit.left)
		return false;
	if (peal_rto_plausible(&o->rto, o->retransmit.left_at, now))
		return true;
	if (peal_retransmit_doubt(&o->retransmit))
		peal_rto_doubt(&o->rto);
	return false;
}

static void peal_requester_lone_probe(struct peal_requester *o, bool nak, u64 now)
{
	peal_retransmit_continue(&o->retransmit, &o->inflight, &o->reorder, nak);
	o->probe_at = now + o->rto.ns;
}

/*
 * There was progress while a probe is in flight. @ack: the progress came from an ACK packet,
 * which names all that the peer has executed. READ responses do not; an ACK may follow them.
 */
static void peal_requester_judge_probe(struct peal_requester *o, bool ack, u64 now)
{
	enum peal_verdict_of_probe verdict = peal_retransmit_judge(&o->retransmit, &o->inflight);
	/* A peer that sent an RNR NAK has surely dropped all later packets. */
	bool sure = o->retransmit.probe == PEAL_PROBE_RNR;

	if (verdict == PEAL_PROBE_OPEN)
		return;
	if (verdict == PEAL_PROBE_OVER || (ack && !sure && !peal_requester_answers_probe(o, now)))
		peal_retransmit_conclude(&o->retransmit, &o->inflight);
	else if (ack)
		peal_requester_lone_probe(o, false, now);
	else
		o->probe_at = now + peal_rto_patience(&o->rto);
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
static bool peal_requester_has_credit(const struct peal_requester *o,
				      const struct peal_message *message)
{
	const struct peal_inflight *inflight = &o->inflight;
	bool first = !inflight->packet;
	u32 ssn = peal_psn_add(o->credit.ssn, first ? 1 : 0);

	if (!peal_message_takes_receive(message) || peal_credit_covers(&o->credit, ssn))
		return true;
	return inflight->una == inflight->top ||
	       (!first && inflight->una != message->psn && inflight->acking == inflight->sending);
}

static enum peal_blocked peal_requester_may_begin(const struct peal_requester *o,
						  const struct peal_message *message)
{
	if (!o->inflight.packet && message->wr.flags & PEAL_WQE_FENCE && o->rd_atomic)
		return PEAL_BLOCKED_FENCE;
	if (message->wr.last && o->inflight.una != o->inflight.top)
		return PEAL_BLOCKED_LAST;
	if (message->local)
		return o->inflight.locals < MOST_LOCALS ? PEAL_BLOCKED_NONE : PEAL_BLOCKED_WINDOW;
	if (!peal_requester_reliable(o))
		return PEAL_BLOCKED_NONE;
	if (peal_message_wants_data(message) && o->rd_atomic >= o->config.max_rd_atomic)
		return PEAL_BLOCKED_RD_ATOMIC;
	if (!peal_requester_has_credit(o, message))
		return PEAL_BLOCKED_CREDIT;
	return PEAL_BLOCKED_NONE;
}

/* After a loss, send no more than the peer may be able to keep as out-of-order packets. */
static bool peal_requester_window_is_open(const struct peal_requester *o, u32 span)
{
	u32 outstanding = peal_inflight_outstanding(&o->inflight);
	u32 size = o->window.size;

	if (o->retransmit.probe || o->retransmit.peer_reorders)
		size = min_t(u32, size, PEAL_REORDER_SLOTS);
	return !outstanding || outstanding + span <= size;
}

/* PSNs that the next packet of @f takes. A READ request takes one for each response. */
static u32 peal_requester_span(const struct peal_requester *o, const struct peal_message *message)
{
	return peal_message_is_read(message) ? peal_message_piece(message, o->inflight.packet) : 1;
}

/*
 * @f: the message whose turn it is. Return: PEAL_BLOCKED_NONE if its next packet may be sent now.
 */
static enum peal_blocked peal_requester_may_leave(const struct peal_requester *o,
						  const struct peal_message *message)
{
	enum peal_blocked blocked = peal_requester_may_begin(o, message);

	if (!blocked && !message->local &&
	    !peal_requester_window_is_open(o, peal_requester_span(o, message)))
		blocked = PEAL_BLOCKED_WINDOW;
	return blocked;
}

/* A message that can never be sent fails when its turn comes. */
static bool peal_requester_refuses(struct peal_requester *o, const struct peal_message *message)
{
	u32 reason = 0;

	if (message->local)
		return false;
	if (!peal_message_is_carried(message))
		reason = PEAL_REASON_WQE_OPCODE;
	else if (peal_message_wants_data(message) && !o->config.max_rd_atomic)
		reason = PEAL_REASON_RD_ATOMIC_LIMIT;
	if (reason)
		peal_requester_spoil(o, o->inflight.sending, IB_WC_LOC_QP_OP_ERR, reason);
	return reason;
}

static enum peal_blocked peal_requester_may_send(struct peal_requester *o)
{
	const struct peal_message *message = peal_inflight_at(&o->inflight, o->inflight.sending);

	if (peal_inflight_is_lost(&o->inflight, o->inflight.sending))
		return PEAL_BLOCKED_FAILED;
	if (peal_retransmit_is_lone(&o->retransmit))
		return PEAL_BLOCKED_ANSWER;
	if (!peal_requester_unsent(o))
		return PEAL_BLOCKED_EMPTY;
	if (peal_requester_refuses(o, message))
		return PEAL_BLOCKED_FAILED;
	return peal_requester_may_leave(o, message);
}

/*
 * A packet must carry AckReq if it is sent without credit, or if it ends a message that is
 * signaled or that no other message follows at once.
 */
static bool peal_requester_must_ask(const struct peal_requester *o,
				    const struct peal_message *message)
{
	bool last = o->inflight.packet + 1 == message->packets;
	bool followed = message->wr.more && peal_requester_has_room(o) &&
			peal_credit_covers(&o->credit, peal_psn_add(o->credit.ssn, 1));

	if (last && (message->wr.flags & PEAL_WQE_SIGNALED || !followed))
		return true;
	return peal_message_takes_receive(message) &&
	       !peal_credit_covers(&o->credit, o->credit.ssn);
}

/*
 * READs and atomics are always answered, so they need no AckReq. Other packets carry it where the
 * requester would otherwise have to wait, and at intervals.
 */
static bool peal_requester_asks(struct peal_requester *o, const struct peal_message *message)
{
	u32 outstanding = peal_inflight_outstanding(&o->inflight) + 1;
	bool ask = peal_window_ask(&o->window, outstanding) || peal_requester_must_ask(o, message);

	if (ask || peal_message_wants_data(message))
		peal_window_asked(&o->window);
	return ask && !peal_message_wants_data(message);
}

static void peal_requester_leave(struct peal_requester *o, const struct peal_message *message,
				 u64 now, struct peal_packet *header)
{
	bool wants_data = peal_message_wants_data(message);

	if (!o->inflight.packet || peal_message_is_read(message))
		peal_credit_use(&o->credit);
	o->rd_atomic += wants_data;
	header->ack_request = peal_requester_asks(o, message);
	if (header->ack_request || wants_data)
		peal_rto_start(&o->rto, header->psn, now);
	peal_requester_arm(o, now);
}

static void peal_requester_send(struct peal_requester *o, u64 now, struct peal_outgoing *out)
{
	const struct peal_message *message = peal_inflight_at(&o->inflight, o->inflight.sending);
	u32 span = peal_requester_span(o, message);

	peal_requester_build(o, o->inflight.sending, o->inflight.packet, span, out);
	if (peal_requester_reliable(o))
		peal_requester_leave(o, message, now, &out->header);
	peal_inflight_left(&o->inflight, span);
	if (!peal_requester_reliable(o))
		peal_inflight_forget(&o->inflight);
}

static void peal_requester_name_local(struct peal_requester *o, struct peal_outgoing *out)
{
	memset(out, 0, sizeof(*out));
	out->local = true;
	out->message = o->inflight.sending;
	peal_inflight_named(&o->inflight);
}

/* A probe that is due at once takes the place of the AckReq that no later packet will carry. */
void peal_requester_hurry(struct peal_requester *o, u64 now)
{
	if (!o->window.unasked || o->inflight.una == o->inflight.top)
		return;
	peal_window_asked(&o->window);
	o->probe_at = now;
}

enum peal_blocked peal_requester_next(struct peal_requester *o, u64 now, struct peal_outgoing *out)
{
	enum peal_blocked blocked;

	if (o->rnr_until)
		return PEAL_BLOCKED_RNR;
	if (peal_retransmit_is_moot(&o->retransmit, &o->inflight, &o->reorder))
		peal_retransmit_stop(&o->retransmit, &o->inflight);
	if (peal_retransmit_seek(&o->retransmit, &o->inflight, &o->reorder))
		return peal_requester_resend(o, now, out);
	blocked = peal_requester_may_send(o);
	if (blocked == PEAL_BLOCKED_FAILED || blocked == PEAL_BLOCKED_LAST)
		peal_requester_hurry(o, now);
	if (blocked)
		return blocked;
	if (peal_inflight_at(&o->inflight, o->inflight.sending)->local)
		peal_requester_name_local(o, out);
	else
		peal_requester_send(o, now, out);
	return PEAL_BLOCKED_NONE;
}

/* ---- responses ---- */

static void peal_requester_drop(struct peal_landing *landing, enum peal_drop drop, bool duplicate)
{
	landing->what = PEAL_LANDING_DROPPED;
	landing->drop = drop;
	landing->duplicate = duplicate;
}

/* una has moved on from @from. Progress restores all retries (9.7.6.1.3). */
static void peal_requester_progress(struct peal_requester *o, u32 from, bool ack, u64 now)
{
	u32 una = o->inflight.una;

	if (una == from)
		return;
	peal_retry_progress(&o->retry);
	if (peal_psn_before(o->rnr_psn, una)) {
		peal_retry_received(&o->retry);
		o->rnr_until = 0;
	}
	peal_window_follow(&o->window, peal_psn_ahead(from, una), una, o->inflight.top,
			   peal_rto_slow(&o->rto));
	peal_retransmit_advance(&o->retransmit, &o->inflight);
	peal_requester_rearm(o, now);
	if (peal_retransmit_is_moot(&o->retransmit, &o->inflight, &o->reorder))
		peal_retransmit_stop(&o->retransmit, &o->inflight);
	if (o->retransmit.probe)
		peal_requester_judge_probe(o, ack, now);
}

/*
 * A response behind una has arrived, so the READ or atomic response at una is late or lost
 * (9.7.5.2, implied NAK). Request it again soon, but only once for each gap. If that is lost too,
 * the probe timer repeats it.
 */
static void peal_requester_watch_gap(struct peal_requester *o, u64 now)
{
	if (o->inflight.una == o->inflight.seen) {
		o->gap_at = U64_MAX;
		return;
	}
	if (o->gap_psn == o->inflight.una)
		return;
	o->gap_psn = o->inflight.una;
	o->gap_at = now + peal_rto_patience(&o->rto);
}

/* A response was about the PSN before @psn. If that is new, the peer is not silent. */
static void peal_requester_see(struct peal_requester *o, u32 psn, u64 now)
{
	if (peal_psn_before(o->inflight.seen, psn)) {
		peal_retry_heard(&o->retry);
		o->give_up_at = U64_MAX;
	}
	peal_inflight_see(&o->inflight, psn);
	peal_rto_answered(&o->rto, o->inflight.seen, now);
}

/* The peer has executed everything before @psn. */
static void peal_requester_acknowledge(struct peal_requester *o, u32 psn, bool ack, u64 now)
{
	u32 from = o->inflight.una;

	peal_requester_see(o, psn, now);
	peal_inflight_follow(&o->inflight);
	peal_requester_progress(o, from, ack, now);
}

/*
 * A NAK is stale if the peer has executed the packet since, or if it answers an earlier packet
 * and repeats the NAK that the probe is for.
 */
static bool peal_requester_nak_is_old(struct peal_requester *o, u32 psn, u64 now)
{
	if (peal_psn_before(psn, o->inflight.executed))
		return true;
	return o->retransmit.probe && psn == o->retransmit.probe_psn &&
	       !peal_requester_answers_probe(o, now);
}

/*
 * Unlike for a sequence NAK, the time since the probe proves nothing here. A peer that lacks a
 * receive answers faster than one that executes, and each RNR NAK must be counted. An RNR NAK for
 * the probed packet is stale only until this packet is retransmitted, even if later packets of
 * the probe are not sent yet.
 */
static bool peal_requester_rnr_is_old(const struct peal_requester *o, u32 psn)
{
	if (o->rnr_until || peal_psn_before(psn, o->inflight.executed))
		return true;
	return o->retransmit.probe && psn == o->retransmit.probe_psn &&
	       peal_retransmit_covers(&o->retransmit, psn);
}

/*
 * Use one retry, after silence or after a NAK that answers a retransmission of the same packet
 * (9.7.6.1.3). Return: false if there was none left; the message of @psn has failed.
 */
static bool peal_requester_use_retry(struct peal_requester *o, u32 psn)
{
	if (peal_retry_use(&o->retry, o->config.retry_limit))
		return true;
	peal_inflight_fail(&o->inflight, peal_inflight_find(&o->inflight, psn), IB_WC_RETRY_EXC_ERR,
			   o->retry.naked ? PEAL_REASON_NAK_SEQUENCE : PEAL_REASON_PEER_SILENT);
	return false;
}

/*
 * 9.7.5.2.2. A NAK for the packet behind a probe continues the probe. A NAK that repeats the probed
 * PSN uses a retry. Any NAK for a packet that is not being retransmitted starts a new probe.
 */
static void peal_requester_receive_nak_sequence(struct peal_requester *o, u32 psn, u64 now)
{
	bool again = o->retransmit.probe && psn == o->retransmit.probe_psn;
	bool lone = o->retransmit.probe == PEAL_PROBE_NAK && psn == o->retransmit.probe_end;

	peal_requester_acknowledge(o, psn, false, now);
	peal_retry_naked(&o->retry);
	if (lone && o->inflight.una == psn) {
		peal_requester_lone_probe(o, true, now);
		return;
	}
	if (again && !peal_requester_use_retry(o, psn))
		return;
	if (peal_retransmit_covers(&o->retransmit, psn))
		return;
	peal_window_shrink(&o->window, o->inflight.top);
	peal_requester_probe(o, PEAL_PROBE_NAK, psn, now);
}

static void peal_requester_wait_receive(struct peal_requester *o, u32 psn, u8 timer, u64 now)
{
	peal_retry_heard(&o->retry);
	o->rnr_psn = psn;
	o->rnr_until = now + peal_retry_rnr_ns(&o->retry, timer);
	peal_retransmit_stop(&o->retransmit, &o->inflight);
	peal_requester_stop_timers(o);
	peal_rto_forget(&o->rto);
}

/* 9.7.5.2.8. An RNR NAK acknowledges all packets before its PSN. */
static void peal_requester_receive_rnr(struct peal_requester *o, u32 psn, u8 timer, u64 now)
{
	peal_requester_acknowledge(o, psn, false, now);
	/*
	 * Each message has its own RNR retries. rnr_psn is compared with `executed` and not with
	 * una, because una may still wait for the data of READs in front of that message.
	 */
	if (peal_psn_before(o->rnr_psn, o->inflight.executed))
		peal_retry_received(&o->retry);
	if (peal_retry_use_rnr(&o->retry, o->config.rnr_limit))
		peal_requester_wait_receive(o, psn, timer, now);
	else
		peal_inflight_fail(&o->inflight, peal_inflight_find(&o->inflight, psn),
				   IB_WC_RNR_RETRY_EXC_ERR, PEAL_REASON_RNR_EXHAUSTED);
}

/* 9.7.5.2.3 to 9.7.5.2.6. The message fails; the messages before it still complete. */
static void peal_requester_receive_fatal(struct peal_requester *o, u32 psn, u8 code, u64 now)
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

	peal_requester_acknowledge(o, psn, false, now);
	peal_inflight_fail(&o->inflight, peal_inflight_find(&o->inflight, psn), naks[code].status,
			   naks[code].reason);
}

static void peal_requester_receive_nak(struct peal_requester *o, u32 psn, u8 code, u64 now,
				       struct peal_landing *landing)
{
	if (code > PEAL_NAK_REMOTE_OPERATION)
		peal_requester_drop(landing, PEAL_DROP_opcode, false);
	else if (code != PEAL_NAK_SEQUENCE)
		peal_requester_receive_fatal(o, psn, code, now);
	else if (peal_requester_nak_is_old(o, psn, now))
		peal_requester_drop(landing, PEAL_DROP_stale, true);
	else
		peal_requester_receive_nak_sequence(o, psn, now);
}

static void peal_requester_receive_ack(struct peal_requester *o, const struct peal_packet *packet,
				       u64 now, struct peal_landing *landing)
{
	u8 value = packet->syndrome & PEAL_SYNDROME_VALUE;

	switch (packet->syndrome & PEAL_SYNDROME_KIND) {
	case PEAL_SYNDROME_ACK:
		peal_requester_acknowledge(o, peal_psn_add(packet->psn, 1), true, now);
		break;
	case PEAL_SYNDROME_RNR:
		if (peal_requester_rnr_is_old(o, packet->psn))
			peal_requester_drop(landing, PEAL_DROP_stale, true);
		else
			peal_requester_receive_rnr(o, packet->psn, value, now);
		break;
	case PEAL_SYNDROME_NAK:
		peal_requester_receive_nak(o, packet->psn, value, now, landing);
		break;
	default:
		peal_requester_drop(landing, PEAL_DROP_opcode, false);
		break;
	}
	peal_requester_watch_gap(o, now);
}

/* The caller compares the two packets, because only the caller has the payload. */
static void peal_requester_copy(const struct peal_requester *o, u32 psn,
				struct peal_landing *landing)
{
	landing->what = PEAL_LANDING_COPY;
	landing->drop = PEAL_DROP_sequence;
	landing->duplicate = true;
	landing->kept = peal_reorder_find(&o->reorder, psn);
}

/* The response at una arrived and was dropped as suspect. Request it again soon. */
static void peal_requester_ask_again(struct peal_requester *o, u64 now)
{
	o->gap_psn = o->inflight.una;
	o->gap_at = now + peal_rto_patience(&o->rto);
}

static void peal_requester_reorder(struct peal_requester *o, u32 psn, u64 now, void *handle,
				   struct peal_landing *landing)
{
	if (peal_reorder_has(&o->reorder, psn))
		peal_requester_copy(o, psn, landing);
	else if (handle && peal_reorder_insert(&o->reorder, o->inflight.una, psn, handle, now,
					       o->config.reorder_ns))
		landing->what = PEAL_LANDING_KEPT;
	else
		peal_requester_drop(landing, PEAL_DROP_sequence, false);
}

static void peal_requester_land(const struct peal_requester *o, const struct peal_message *message,
				const struct peal_packet *packet, struct peal_landing *landing)
{
	landing->what = PEAL_LANDING_ATOMIC;
	landing->message = o->inflight.acking;
	landing->original = packet->original;
	landing->bytes = sizeof(u64);
	if (peal_message_is_atomic(message))
		return;
	landing->what = PEAL_LANDING_READ;
	landing->offset = peal_message_offset(message, peal_psn_ahead(message->psn, packet->psn));
	landing->bytes = packet->payload_bytes;
}

/* A response proves that its whole request piece was executed, and everything before it. */
static void peal_requester_acknowledge_data(struct peal_requester *o,
					    const struct peal_message *message, u32 psn, u64 now)
{
	u32 at = peal_psn_ahead(message->psn, psn);

	peal_inflight_execute(&o->inflight, peal_psn_add(psn, peal_message_piece(message, at)));
	peal_requester_acknowledge(o, psn, false, now);
	peal_requester_see(o, peal_psn_add(psn, 1), now);
}

/* The response to a READ or atomic (9.7.5.1.1, 9.7.5.1.2). */
static void peal_requester_receive_data(struct peal_requester *o, const struct peal_packet *packet,
					u64 now, void *handle, struct peal_landing *landing)
{
	u32 index = peal_inflight_find(&o->inflight, packet->psn);
	const struct peal_message *message = peal_inflight_at(&o->inflight, index);
	bool again = o->again;

	o->again = false;
	/*
	 * The response was kept out of order, and the response in front of it has another flow. One
	 * of them may be forged.
	 */
	if (again && packet->flow != o->flow) {
		peal_requester_ask_again(o, now);
		peal_requester_drop(landing, PEAL_DROP_conflict, false);
		return;
	}
	if (!peal_message_fits(message, packet)) {
		peal_inflight_fail(&o->inflight, index, IB_WC_BAD_RESP_ERR,
				   PEAL_REASON_BAD_RESPONSE);
		return;
	}
	peal_requester_acknowledge_data(o, message, packet->psn, now);
	if (packet->psn != o->inflight.una) {
		peal_requester_reorder(o, packet->psn, now, handle, landing);
		peal_requester_watch_gap(o, now);
	} else if (peal_reorder_has(&o->reorder, packet->psn)) {
		peal_requester_copy(o, packet->psn, landing);
	} else {
		o->flow = packet->flow;
		peal_requester_land(o, message, packet, landing);
	}
}

static void peal_requester_receive_fresh(struct peal_requester *o, const struct peal_packet *packet,
					 u64 now, void *handle, struct peal_landing *landing)
{
	if (o->retransmit.probe == PEAL_PROBE_SILENCE && peal_retransmit_hear(&o->retransmit))
		peal_rto_heard(&o->rto, o->retransmit.left_at, now);
	if (peal_packet_opcode(packet)->has & (PEAL_HAS_READ | PEAL_HAS_ATOMIC))
		peal_requester_receive_data(o, packet, now, handle, landing);
	else
		peal_requester_receive_ack(o, packet, now, landing);
	if (o->inflight.una != o->inflight.top && !o->rnr_until)
		peal_requester_arm(o, now);
}

/* A repetition of the newest acknowledgment may bring new credits, too (9.7.7.2.4). */
static bool peal_requester_learn(struct peal_requester *o, const struct peal_packet *packet,
				 bool fresh)
{
	if (!(peal_packet_opcode(packet)->has & PEAL_HAS_AETH) ||
	    (packet->syndrome & PEAL_SYNDROME_KIND) != PEAL_SYNDROME_ACK)
		return false;
	if (!fresh && peal_psn_add(packet->psn, 1) != o->inflight.una)
		return false;
	return peal_credit_learn(&o->credit, packet->syndrome, packet->msn);
}

void peal_requester_receive(struct peal_requester *o, const struct peal_packet *packet, u64 now,
			    void *handle, struct peal_landing *landing)
{
	bool fresh = peal_inflight_waits(&o->inflight) &&
		     peal_psn_ahead(o->inflight.una, packet->psn) <
			     peal_inflight_outstanding(&o->inflight);
	bool learned;

	memset(landing, 0, sizeof(*landing));
	landing->what = PEAL_LANDING_TAKEN;
	if (!(peal_packet_opcode(packet)->has & PEAL_HAS_RESPONSE) || !peal_requester_reliable(o)) {
		peal_requester_drop(landing, PEAL_DROP_opcode, false);
		return;
	}
	learned = peal_requester_learn(o, packet, fresh);
	if (fresh)
		peal_requester_receive_fresh(o, packet, now, handle, landing);
	if (fresh || learned)
		return;
	/* A duplicate response or a ghost acknowledge (9.7.5.1). */
	peal_requester_drop(landing, PEAL_DROP_stale,
			    peal_psn_before(packet->psn, o->inflight.una));
	peal_requester_be_patient(o, now);
}

/* Ignores a landing that is not the one that receive() named last. */
void peal_requester_landed(struct peal_requester *o, const struct peal_landing *landing, u64 now)
{
	const struct peal_message *message = peal_inflight_at(&o->inflight, o->inflight.acking);
	u32 from = o->inflight.una;
	u32 at = peal_psn_ahead(message->psn, from);

	if (!peal_inflight_waits(&o->inflight) || landing->message != o->inflight.acking ||
	    landing->offset != peal_message_offset(message, at))
		return;
	o->rd_atomic -= peal_message_piece(message, at) == 1;
	peal_inflight_land(&o->inflight);
	peal_requester_progress(o, from, false, now);
	peal_requester_watch_gap(o, now);
}

void *peal_requester_take_reordered(struct peal_requester *o)
{
	void *handle = NULL;

	if (peal_inflight_waits(&o->inflight))
		handle = peal_reorder_take(&o->reorder, o->inflight.una);
	o->again = handle;
	return handle;
}

void *peal_requester_contradict(struct peal_requester *o, u32 psn, u64 now)
{
	if (psn == o->inflight.una)
		peal_requester_ask_again(o, now);
	return peal_reorder_take(&o->reorder, psn);
}

void *peal_requester_drop_reordered(struct peal_requester *o)
{
	return peal_reorder_drop(&o->reorder);
}

/* ---- completions ---- */

bool peal_requester_complete(struct peal_requester *o, struct peal_completion *completion)
{
	const struct peal_message *message = peal_inflight_complete(&o->inflight);

	if (!message)
		return false;
	peal_message_describe(message, completion);
	return true;
}

bool peal_requester_flush(struct peal_requester *o, struct peal_completion *completion)
{
	const struct peal_message *message = peal_inflight_flush(&o->inflight);

	o->rnr_until = 0;
	if (!message)
		return false;
	peal_message_describe(message, completion);
	completion->status = IB_WC_WR_FLUSH_ERR;
	completion->reason = PEAL_REASON_FLUSHED;
	return true;
}

/* ---- time ---- */

u64 peal_requester_deadline(const struct peal_requester *o)
{
	if (!peal_inflight_waits(&o->inflight))
		return U64_MAX;
	if (o->rnr_until)
		return o->rnr_until;
	return min_t(u64, min_t(u64, o->probe_at, o->give_up_at),
		     min_t(u64, o->gap_at, peal_reorder_deadline(&o->reorder)));
}

/*
 * The peer was silent for longer than the estimate, which lies below the timeout of 9.7.6.1.3.
 * Probe. This counts as no retry.
 */
static void peal_requester_suspect(struct peal_requester *o, u64 now)
{
	o->probe_at = now + o->rto.ns;
	if (o->retransmit.probe && !o->retransmit.left)
		return;
	if (o->retransmit.probe &&
	    peal_retransmit_judge(&o->retransmit, &o->inflight) == PEAL_PROBE_LONE) {
		peal_requester_lone_probe(o, false, now);
		return;
	}
	peal_rto_back_off(&o->rto);
	peal_window_halve(&o->window, o->inflight.top);
	peal_requester_probe(o, PEAL_PROBE_SILENCE, o->inflight.una, now);
}

/* The timeout (9.7.6.1.3). It uses no retry while the last probe could not be sent yet. */
static void peal_requester_give_up(struct peal_requester *o, u64 now)
{
	o->give_up_at = now + peal_requester_timeout(o);
	o->silent_since = now;
	if (o->retransmit.probe && !o->retransmit.left)
		return;
	if (!peal_requester_use_retry(o, o->inflight.una))
		return;
	peal_window_halve(&o->window, o->inflight.top);
	peal_requester_probe(o, PEAL_PROBE_SILENCE, o->inflight.una, now);
}

static void peal_requester_ask_gap(struct peal_requester *o)
{
	o->gap_at = U64_MAX;
	if (o->retransmit.next != o->retransmit.end ||
	    peal_reorder_has(&o->reorder, o->inflight.una))
		return;
	peal_retransmit_ask(&o->retransmit, &o->inflight, &o->reorder);
	peal_window_shrink(&o->window, o->inflight.top);
}

/* Return: true while an RNR wait is running. */
static bool peal_requester_expire_rnr(struct peal_requester *o, u64 now)
{
	if (!o->rnr_until)
		return false;
	if (now < o->rnr_until)
		return true;
	o->rnr_until = 0;
	peal_requester_probe(o, PEAL_PROBE_RNR, o->rnr_psn, now);
	return false;
}

void peal_requester_expire(struct peal_requester *o, u64 now)
{
	if (!peal_inflight_waits(&o->inflight) || peal_requester_expire_rnr(o, now))
		return;
	peal_requester_arm(o, now);
	if (now >= o->give_up_at)
		peal_requester_give_up(o, now);
	else if (now >= o->probe_at)
		peal_requester_suspect(o, now);
	if (now >= o->gap_at)
		peal_requester_ask_gap(o);
}

void *peal_requester_take_expired(struct peal_requester *o, u64 now)
{
	return peal_reorder_expire(&o->reorder, now, o->config.reorder_ns);
}
