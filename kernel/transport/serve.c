// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See serve.h. Every function wants rq.lock, inside the guard, if not said
 * otherwise.
 */
#include <linux/ktime.h>
#include <linux/mm.h>

#include "base/compat.h"
#include "base/trace.h"
#include "transport/keep.h"
#include "transport/place.h"
#include "transport/responder.h"
#include "transport/serve.h"

static struct peal_qp *peal_serve_qp(const struct peal_serve *s)
{
	return s->line->qp;
}

/* Sleeps. Return: 0 or -ENOMEM. */
int peal_serve_init(struct peal_serve *s, struct peal_line *line)
{
	s->line = line;
	s->deadline = U64_MAX;
	s->resource = kvcalloc(PEAL_MAX_RD_ATOMIC, sizeof(*s->resource), GFP_KERNEL_ACCOUNT);
	if (!s->resource)
		return -ENOMEM;
	peal_inbound_init(&s->in, s->resource, PEAL_MAX_RD_ATOMIC);
	return 0;
}

/* No lock: nobody can find it any more. */
void peal_serve_free(struct peal_serve *s)
{
	peal_serve_forget_early(s);
	kvfree(s->resource);
}

void peal_serve_configure(struct peal_serve *s)
{
	const struct peal_qp *qp = peal_serve_qp(s);
	struct peal_inbound_config config = {
		.transport = qp->ib.qp_type == IB_QPT_UC ? PEAL_UC : PEAL_RC,
		.mtu_shift = qp->attr.path_mtu + 7,	/* IB_MTU_256 is 1 */
		.rd_atomic = qp->attr.max_dest_rd_atomic,
		.rnr_timer = qp->attr.min_rnr_timer,
		.keep_ns = peal_keep_ns(qp),
	};

	peal_inbound_configure(&s->in, &config);
}

void peal_serve_set_psn(struct peal_serve *s, u32 psn)
{
	peal_inbound_set_psn(&s->in, psn);
}

void peal_serve_forget_early(struct peal_serve *s)
{
	struct sk_buff *skb;

	while ((skb = peal_inbound_drop_early(&s->in)))
		peal_keep_lose(peal_serve_qp(s), skb);
}

void peal_serve_reset(struct peal_serve *s)
{
	peal_serve_forget_early(s);
	peal_inbound_reset(&s->in);
	WRITE_ONCE(s->due, false);
	WRITE_ONCE(s->deadline, U64_MAX);
}

/* The direct carrier delivers the next message: rq says where it stands. */
void peal_serve_lend(struct peal_serve *s)
{
	struct peal_rq *rq = &peal_serve_qp(s)->rq;

	peal_rq_set_psn(rq, s->in.psn);
	peal_rq_set_msn(rq, s->in.msn);
	peal_rq_set_patient(rq, false);
}

/* Packets that were early before it delivered whole messages are late now. */
void peal_serve_take_back(struct peal_serve *s)
{
	struct peal_rq *rq = &peal_serve_qp(s)->rq;

	peal_rq_set_patient(rq, true);
	if (rq->psn == s->in.psn)
		return;
	peal_serve_forget_early(s);
	peal_inbound_skip(&s->in, rq->psn, rq->msn);
}

/* ---- requests ---- */

static void peal_serve_describe(struct peal_serve *s, const struct peal_request *request)
{
	s->ask.opcode = request->operation;
	s->ask.flags = request->solicited ? PEAL_WQE_SOLICITED : 0;
	s->ask.imm_or_rkey = request->imm_or_rkey;
	s->ask.rkey = request->rkey;
	s->ask.remote_addr = request->remote_addr;
	s->ask.length = request->length;
	s->ask.atomic = request->atomic;
	if (peal_op(request->operation)->atomic)
		s->ask.length = sizeof(u64);
}

/* What the checks said, as the protocol says it (IBTA 9.9.3, table 58). */
static enum peal_verdict peal_serve_verdict(const struct peal_outcome *outcome)
{
	if (likely(outcome->what == PEAL_CARRIED))
		return PEAL_VERDICT_DONE;
	if (outcome->what == PEAL_NOT_READY)
		return PEAL_VERDICT_NOT_READY;
	switch (outcome->status) {
	case IB_WC_REM_ACCESS_ERR:
		return PEAL_VERDICT_ACCESS;
	case IB_WC_REM_OP_ERR:
		return PEAL_VERDICT_OPERATION;
	default:
		return PEAL_VERDICT_INVALID_REQUEST;
	}
}

/* Nobody is told that a message of an unreliable connection is lost: count it. */
static void peal_serve_note_loss(struct peal_serve *s, const struct peal_packet *packet,
				 const struct peal_outcome *outcome)
{
	const struct peal_qp *qp = peal_serve_qp(s);
	enum peal_drop drop = PEAL_DROP_rights;

	if (qp->ib.qp_type != IB_QPT_UC || outcome->what == PEAL_CARRIED)
		return;
	if (outcome->what == PEAL_NOT_READY)
		drop = PEAL_DROP_receive;
	else if (outcome->reason == PEAL_REASON_RECV_TOO_SHORT)
		drop = PEAL_DROP_length;
	peal_count_drop(qp->table, drop);
	trace_peal_drop(packet, drop);
}

/* Do what the packet asks; *original is the old value of an atomic. */
static noinline struct peal_outcome peal_serve_carry(struct peal_serve *s,
						     const struct peal_datagram *dg,
						     const struct peal_request *request,
						     struct peal_burst *burst, u64 *original)
{
	struct peal_qp *qp = peal_serve_qp(s);
	u32 src_qpn = qp->attr.dest_qp_num;
	struct peal_cursor cursor PEAL_UNINITIALIZED;
	struct peal_outcome outcome;

	outcome = peal_responder_accept(qp, &s->ask, src_qpn, burst, &cursor);
	if (unlikely(outcome.what != PEAL_CARRIED))
		return outcome;
	if (peal_op(s->ask.opcode)->atomic)
		outcome = peal_responder_atomic(qp, &s->ask, src_qpn, burst, &cursor, original);
	if (unlikely(outcome.what != PEAL_CARRIED))
		return outcome;
	if (request->bytes) {
		peal_cursor_skip(&cursor, request->offset);
		peal_place(dg, &cursor, request->bytes);
	}
	if (request->last)
		outcome = peal_responder_finish(qp, &s->ask, src_qpn, burst);
	return outcome;
}

static void peal_serve_execute(struct peal_serve *s, const struct peal_datagram *dg,
			       const struct peal_request *request, struct peal_burst *burst,
			       u64 now)
{
	struct peal_outcome outcome;
	u64 original = 0;

	peal_serve_describe(s, request);
	outcome = peal_serve_carry(s, dg, request, burst, &original);
	peal_serve_note_loss(s, &dg->packet, &outcome);
	peal_inbound_done(&s->in, peal_serve_verdict(&outcome), original, now);
}

/* The packets make no sense: a fatal NAK is on its way. */
static void peal_serve_invalid(struct peal_serve *s, const struct peal_request *request,
			       struct peal_burst *burst)
{
	struct peal_qp *qp = peal_serve_qp(s);

	peal_serve_describe(s, request);
	peal_responder_invalid(qp, &s->ask, qp->attr.dest_qp_num, burst);
}

static void peal_serve_drop(struct peal_serve *s, const struct peal_packet *packet,
			    const struct peal_request *request)
{
	peal_count_drop(peal_serve_qp(s)->table, request->drop);
	trace_peal_drop(packet, request->drop);
}

/* A packet with the PSN of one that is kept. When they differ, one of them is forged. */
static noinline void peal_serve_compare(struct peal_serve *s, const struct peal_datagram *dg,
					struct peal_request *request)
{
	if (!peal_receive_same(request->kept, dg)) {
		request->drop = PEAL_DROP_conflict;
		peal_keep_lose(peal_serve_qp(s), peal_inbound_contradict(&s->in, dg->packet.psn));
	}
	peal_serve_drop(s, &dg->packet, request);
}

/* One request. Consumes dg->skb. @again: it had been kept for its turn. */
static void peal_serve_take(struct peal_serve *s, struct peal_datagram *dg,
			    struct peal_burst *burst, bool again)
{
	struct peal_qp *qp = peal_serve_qp(s);
	struct peal_request request;
	u64 now = ktime_get_ns();

	trace_peal_packet_received(qp->ib.qp_num, &dg->packet, again);
	peal_inbound_receive(&s->in, &dg->packet, now,
			     peal_keep_may(qp, dg, s->in.early.count), &request);
	if (request.duplicate)
		peal_count(qp->table, duplicates);
	switch (request.what) {
	case PEAL_REQUEST_KEPT:
		peal_keep_add(qp, dg->skb);
		return;
	case PEAL_REQUEST_DROPPED:
		peal_serve_drop(s, &dg->packet, &request);
		break;
	case PEAL_REQUEST_COPY:
		peal_serve_compare(s, dg, &request);
		break;
	case PEAL_REQUEST_ANSWERED:
		if (request.fatal)
			peal_serve_invalid(s, &request, burst);
		break;
	case PEAL_REQUEST_EXECUTE:
		peal_serve_execute(s, dg, &request, burst, now);
		break;
	}
	consume_skb(dg->skb);
}

/*
 * Those that are kept and whose turn it is. When the budget ends first, there is none
 * for peal_serve_reply() either: the rest is due with the replies. Another carrier may
 * have refused something in the meantime.
 */
static void peal_serve_take_early(struct peal_serve *s, struct peal_burst *burst,
				  struct peal_budget *budget)
{
	struct peal_qp *qp = peal_serve_qp(s);
	struct peal_datagram early;
	struct sk_buff *skb;

	while (!qp->rq.refusing && peal_budget_is_left(budget) &&
	       (skb = peal_inbound_take_early(&s->in))) {
		peal_keep_take(qp, skb);
		peal_budget_spend(budget, PEAL_COST_PACKET + skb->len);
		peal_receive_again(skb, &early);
		peal_serve_take(s, &early, burst, true);
	}
	WRITE_ONCE(s->deadline, peal_inbound_deadline(&s->in));
}

/**
 * peal_serve_request() - a request has arrived, and with it perhaps the turn of
 * others that are kept
 *
 * In RTR or later. Consumes dg->skb. peal_serve_reply() afterwards.
 */
void peal_serve_request(struct peal_serve *s, struct peal_datagram *dg, struct peal_burst *burst,
			struct peal_budget *budget)
{
	peal_serve_take(s, dg, burst, false);
	peal_serve_take_early(s, burst, budget);
}

/* ---- replies ---- */

static void peal_serve_count_nak(struct peal_qp *qp, const struct peal_packet *packet)
{
	if (!(peal_packet_opcode(packet)->has & PEAL_HAS_AETH))
		return;
	if ((packet->syndrome & PEAL_SYNDROME_KIND) == PEAL_SYNDROME_RNR)
		peal_count(qp->table, naks_sent_rnr);
	switch (packet->syndrome) {
	case PEAL_SYNDROME_NAK | PEAL_NAK_SEQUENCE:
		peal_count(qp->table, naks_sent_sequence);
		break;
	case PEAL_SYNDROME_NAK | PEAL_NAK_INVALID_REQUEST:
		peal_count(qp->table, naks_sent_invalid);
		break;
	case PEAL_SYNDROME_NAK | PEAL_NAK_REMOTE_ACCESS:
		peal_count(qp->table, naks_sent_access);
		break;
	case PEAL_SYNDROME_NAK | PEAL_NAK_REMOTE_OPERATION:
		peal_count(qp->table, naks_sent_operation);
		break;
	}
}

/* The bytes of a READ response; the key may have gone since the request. */
static noinline bool peal_serve_read(struct peal_serve *s, const struct peal_reply *reply,
				     void *payload, struct peal_burst *burst)
{
	struct peal_qp *qp = peal_serve_qp(s);
	struct peal_cursor from PEAL_UNINITIALIZED;
	struct peal_cursor to PEAL_UNINITIALIZED;
	u32 bytes = reply->header.payload_bytes;
	bool found;

	s->ask.opcode = PEAL_OP_READ;
	s->ask.rkey = reply->rkey;
	s->ask.remote_addr = reply->remote_addr;
	s->ask.length = bytes;
	if (reply->again)
		found = peal_responder_read_again(qp, &s->ask, &from);
	else
		found = peal_responder_read(qp, &s->ask, qp->attr.dest_qp_num, burst,
					    &from).what == PEAL_CARRIED;
	if (!found)
		return false;
	peal_cursor_inline(&to, payload, bytes);
	peal_cursor_copy(&to, &from, bytes);
	return true;
}

/*
 * What cannot be built for want of memory is a lost packet. When the key of a READ is
 * gone, a repetition turns into a NAK, and the NAK of a first answer is due later.
 */
static struct sk_buff *peal_serve_build(struct peal_serve *s, struct peal_reply *reply,
					struct peal_burst *burst)
{
	void *payload;
	struct sk_buff *skb = peal_line_prepare(s->line, &reply->header, &payload);

	if (!skb || !reply->read || likely(peal_serve_read(s, reply, payload, burst)))
		return skb;
	kfree_skb(skb);
	if (!reply->again) {
		peal_inbound_refuse_read(&s->in);
		return NULL;
	}
	peal_inbound_refuse_again(&s->in, reply);
	return peal_line_prepare(s->line, &reply->header, &payload);
}

static void peal_serve_send(struct peal_serve *s, struct peal_reply *reply,
			    struct peal_burst *burst)
{
	struct sk_buff *skb = peal_serve_build(s, reply, burst);

	if (unlikely(!skb))
		return;
	peal_serve_count_nak(peal_serve_qp(s), &reply->header);
	peal_line_send(s->line, &reply->header, skb, reply->again);
}

/*
 * All that was due has left. So has the NAK of a request that was refused: now
 * the queue pair goes into error, which ends its answers.
 */
static bool peal_serve_finish(struct peal_serve *s, struct peal_burst *burst)
{
	struct peal_qp *qp = peal_serve_qp(s);

	WRITE_ONCE(s->due, false);
	if (unlikely(qp->rq.refusing))
		peal_burst_fail(burst, qp, qp->life);
	return false;
}

/**
 * peal_serve_reply() - send what is due, within a budget
 *
 * Return: true when the budget ended first.
 */
bool peal_serve_reply(struct peal_serve *s, struct peal_burst *burst,
		      struct peal_budget *budget)
{
	struct peal_reply reply;

	/* Before we look for room: who frees some gives us a turn, which looks at this. */
	WRITE_ONCE(s->due, true);
	while (peal_budget_is_left(budget)) {
		if (!peal_line_has_room(s->line))
			return false;
		if (!peal_inbound_next(&s->in, &reply))
			return peal_serve_finish(s, burst);
		peal_serve_send(s, &reply, burst);
		peal_budget_spend(budget, PEAL_COST_PACKET + reply.header.payload_bytes);
	}
	return true;
}

/* ---- turns ---- */

/* No lock. When peal_serve_run() is due at the latest; KTIME_MAX: by packets only. */
ktime_t peal_serve_deadline(const struct peal_serve *s)
{
	u64 deadline = READ_ONCE(s->deadline);

	return deadline < KTIME_MAX ? ns_to_ktime(deadline) : KTIME_MAX;
}

/* No lock. Would peal_serve_run() find something to do? */
bool peal_serve_is_due(const struct peal_serve *s)
{
	u64 deadline = READ_ONCE(s->deadline);

	return READ_ONCE(s->due) || (deadline != U64_MAX && ktime_get_ns() >= deadline);
}

static void peal_serve_expire(struct peal_serve *s)
{
	u64 now = ktime_get_ns();
	struct sk_buff *skb;

	peal_inbound_expire(&s->in, now);
	while ((skb = peal_inbound_take_expired(&s->in, now)))
		peal_keep_lose(peal_serve_qp(s), skb);
}

/* What was left, and timers. Return: true when the budget ended first. */
bool peal_serve_run(struct peal_serve *s, struct peal_burst *burst, struct peal_budget *budget)
{
	if (s->deadline != U64_MAX)
		peal_serve_expire(s);
	peal_serve_take_early(s, burst, budget);
	return peal_serve_reply(s, burst, budget);
}
