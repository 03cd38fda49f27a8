// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See requester.h. Every function wants sq->lock, inside the guard.
 */
#include "base/trace.h"
#include "mem/mw.h"
#include "transport/direct.h"
#include "transport/requester.h"

/* How often to look when the program set no timeout; that counts no retries. */
#define PEAL_NO_TIMEOUT_NS	(100 * NSEC_PER_MSEC)

/* A step of the direct carrier copies at most that much. */
#define PEAL_CHUNK_BYTES	(64 << 10)

/* The WQE is done: complete it, and make room for the next. */
static void peal_requester_finish(struct peal_qp *qp, struct peal_burst *burst, u8 status,
				  enum peal_reason reason)
{
	struct peal_sq *sq = &qp->sq;

	peal_qp_complete_send(qp, burst, status, reason);
	peal_sq_finish(sq, status || peal_op(sq->wqe.opcode)->local ? 0 :
			   peal_qp_packets(qp, sq->wqe.length));
}

/* A WQE failed: the queue pair, or its send queue, goes into error; the rest is flushed. */
void peal_requester_fail(struct peal_qp *qp, struct peal_burst *burst, u8 status,
			 enum peal_reason reason)
{
	peal_requester_finish(qp, burst, status, reason);
	spin_lock(&qp->rq.lock);
	peal_qp_fail_send_locked(qp);
	spin_unlock(&qp->rq.lock);
}

/*
 * The window is of type 2, and used by requests to this queue pair alone. They check
 * the key and move the bytes under rq.lock: with it, none that has passed the check
 * is still at work when the program is told that the key is invalid.
 */
static enum peal_reason peal_requester_invalidate(struct peal_qp *qp)
{
	enum peal_reason reason;

	spin_lock(&qp->rq.lock);
	reason = peal_mw_invalidate(qp->table, qp->ib.pd, qp->ib.qp_num,
				    qp->sq.wqe.imm_or_rkey);
	spin_unlock(&qp->rq.lock);
	return reason;
}

/* Execute the local operation in sq.wqe. */
struct peal_outcome peal_requester_local(struct peal_qp *qp)
{
	const struct peal_send *send = &qp->sq.wqe;
	enum peal_reason reason;

	if (send->opcode == PEAL_OP_BIND_MW)
		reason = peal_mw_bind(qp->table, qp->ib.pd, qp->ib.qp_num, send);
	else
		reason = peal_requester_invalidate(qp);
	if (!reason)
		return (struct peal_outcome){ .what = PEAL_CARRIED };
	return peal_failed(send->opcode == PEAL_OP_BIND_MW ? IB_WC_MW_BIND_ERR :
							     IB_WC_LOC_QP_OP_ERR, reason);
}

/* A READ or atomic needs a depth; it was negotiated, so 0 is a program's error. */
static bool peal_requester_may_read(const struct peal_qp *qp, const struct peal_op *op)
{
	return !(op->access & (IB_ACCESS_REMOTE_READ | IB_ACCESS_REMOTE_ATOMIC)) ||
	       qp->attr.max_rd_atomic;
}

static struct peal_outcome peal_requester_execute(struct peal_qp *qp, struct peal_burst *burst)
{
	const struct peal_op *op = peal_op(qp->sq.wqe.opcode);

	if (op->local)
		return peal_requester_local(qp);
	if (unlikely(!peal_requester_may_read(qp, op)))
		return peal_failed(IB_WC_LOC_QP_OP_ERR, PEAL_REASON_RD_ATOMIC_LIMIT);
	return peal_direct_carry(qp, burst, PEAL_CHUNK_BYTES);
}

static void peal_requester_carried(struct peal_qp *qp, struct peal_burst *burst)
{
	if (!peal_op(qp->sq.wqe.opcode)->local) {
		peal_count(qp->table, messages);
		peal_count(qp->table, direct_messages);
		peal_count_by(qp->table, bytes, qp->sq.wqe.length);
	}
	peal_requester_finish(qp, burst, IB_WC_SUCCESS, PEAL_REASON_NONE);
}

/* IBTA 9.7.5.2.8: the peer named the time, the attribute the number of tries. */
static void peal_requester_not_ready(struct peal_qp *qp, struct peal_burst *burst,
				     const struct peal_outcome *outcome)
{
	peal_count(qp->table, rnr_waits);
	trace_peal_wait(qp->ib.qp_num, qp->sq.wqe.index, outcome->reason, outcome->ns);
	if (!peal_sq_wait_receive(&qp->sq, outcome->ns))
		peal_requester_fail(qp, burst, IB_WC_RNR_RETRY_EXC_ERR, outcome->reason);
}

/* The timeout is 4.096 us * 2^timeout; 0 means none, which we only poll for. */
static void peal_requester_silence(struct peal_qp *qp, const struct peal_outcome *outcome)
{
	u64 ns = qp->attr.timeout ? 4096ULL << qp->attr.timeout : PEAL_NO_TIMEOUT_NS;

	peal_count(qp->table, silence_waits);
	trace_peal_wait(qp->ib.qp_num, qp->sq.wqe.index, outcome->reason, ns);
	peal_sq_wait_answer(&qp->sq, ns, outcome->reason);
}

static void peal_requester_settle(struct peal_qp *qp, struct peal_burst *burst,
				  const struct peal_outcome *outcome)
{
	switch (outcome->what) {
	case PEAL_CARRIED:
		peal_requester_carried(qp, burst);
		break;
	case PEAL_PROGRESS:
		peal_sq_advance(&qp->sq, outcome->bytes);
		break;
	case PEAL_NOT_READY:
		peal_requester_not_ready(qp, burst, outcome);
		break;
	case PEAL_SILENT:
		peal_requester_silence(qp, outcome);
		break;
	case PEAL_FAILED:
		peal_requester_fail(qp, burst, outcome->status, outcome->reason);
		break;
	}
}

/**
 * peal_requester_fetch() - the next WQE into sq.wqe
 *
 * Return: false when the queue is empty. True without sq.busy: it was malformed,
 * and is completed already.
 */
bool peal_requester_fetch(struct peal_qp *qp, struct peal_burst *burst)
{
	struct peal_sq *sq = &qp->sq;
	enum peal_reason reason;

	if (sq->busy)
		return true;
	switch (peal_sq_fetch(sq, &reason)) {
	case PEAL_SQ_EMPTY:
		return false;
	case PEAL_SQ_MALFORMED:
		peal_requester_fail(qp, burst, reason == PEAL_REASON_WQE_LENGTH ?
				    IB_WC_LOC_LEN_ERR : IB_WC_LOC_QP_OP_ERR, reason);
		break;
	case PEAL_SQ_FETCHED:
		trace_peal_execute(qp->ib.qp_num, sq->wqe.index, sq->wqe.opcode,
				   sq->wqe.length, sq->psn);
		break;
	}
	peal_count(qp->table, posts);
	return true;
}

/* The next WQE or chunk. Return: false when there is nothing to do now. */
static bool peal_requester_step(struct peal_qp *qp, struct peal_burst *burst,
				struct peal_budget *budget)
{
	struct peal_outcome outcome;

	if (!peal_requester_fetch(qp, burst))
		return false;
	peal_budget_spend(budget, PEAL_COST_WQE);
	if (unlikely(!qp->sq.busy))
		return true;	/* malformed: it is completed already */
	outcome = peal_requester_execute(qp, burst);
	if (likely(outcome.what <= PEAL_PROGRESS))
		peal_budget_spend(budget, outcome.bytes + outcome.pieces * PEAL_COST_PIECE);
	peal_requester_settle(qp, burst, &outcome);
	return !qp->sq.wait;
}

/*
 * In error: the WQE under way and all others come back, in order, once. A ring
 * whose index makes no sense holds nothing that could be named.
 */
static bool peal_requester_flush_send(struct peal_qp *qp, struct peal_burst *burst)
{
	enum peal_reason reason;

	if (qp->on_wire && qp->carrier_ops->flush(qp, burst))
		return true;
	if (!qp->sq.busy) {
		if (peal_ring_pending(&qp->sq.ring) <= 0 ||
		    peal_sq_fetch(&qp->sq, &reason) == PEAL_SQ_EMPTY)
			return false;
		peal_count(qp->table, posts);
	}
	peal_requester_finish(qp, burst, IB_WC_WR_FLUSH_ERR, peal_qp_flush_reason(qp));
	return true;
}

static bool peal_requester_flush_recv(struct peal_qp *qp, struct peal_burst *burst)
{
	struct peal_cqe cqe = {
		.status = IB_WC_WR_FLUSH_ERR, .vendor_err = peal_qp_flush_reason(qp),
	};
	enum peal_reason reason;
	bool found;

	spin_lock(&qp->rq.lock);
	found = qp->rq.holding || (peal_ring_pending(&qp->rq.ring) > 0 &&
				   peal_rq_take(&qp->rq, &reason) != PEAL_RQ_EMPTY);
	if (found)
		peal_qp_complete_recv(qp, burst, &cqe);
	spin_unlock(&qp->rq.lock);
	return found;
}

static bool peal_requester_flush(struct peal_qp *qp, struct peal_burst *burst,
				 struct peal_budget *budget)
{
	while (peal_budget_is_left(budget)) {
		if (!peal_requester_flush_send(qp, burst) &&
		    (qp->state == IB_QPS_SQE || !peal_requester_flush_recv(qp, burst)))
			return false;
		peal_budget_spend(budget, PEAL_COST_WQE);
	}
	return true;
}

/* A wait whose time is over ends: with another try, or with the last retry. */
static void peal_requester_expire(struct peal_qp *qp, struct peal_burst *burst)
{
	struct peal_sq *sq = &qp->sq;

	if (likely(!sq->wait) || ktime_before(ktime_get(), sq->until))
		return;
	if (!qp->attr.timeout)
		peal_sq_resume(sq);
	else if (!peal_sq_expire(sq))
		peal_requester_fail(qp, burst, IB_WC_RETRY_EXC_ERR, sq->why);
}

/**
 * peal_requester_may_begin() - may the next WQE be taken from the ring?
 *
 * SQD: what is under way is finished, nothing new is begun (IBTA 10.3.1.7).
 */
bool peal_requester_may_begin(struct peal_qp *qp, struct peal_burst *burst)
{
	if (likely(qp->state == IB_QPS_RTS))
		return true;
	if (qp->state == IB_QPS_SQD && peal_qp_idle(qp) && peal_sq_drain(&qp->sq) &&
	    qp->attr.en_sqd_async_notify)
		peal_burst_event(burst, &qp->ib, IB_EVENT_SQ_DRAINED);
	return false;
}

/* What is under way is ended in SQD, too. */
static bool peal_requester_works(const struct peal_qp *qp)
{
	return qp->state == IB_QPS_RTS || (qp->state == IB_QPS_SQD && qp->sq.busy);
}

static bool peal_requester_may_run(struct peal_qp *qp, struct peal_burst *burst)
{
	return peal_requester_may_begin(qp, burst) || peal_requester_works(qp);
}

/* Packets: also a responder that never sends has replies. */
static bool peal_requester_run_wire(struct peal_qp *qp, struct peal_burst *burst,
				    struct peal_budget *budget)
{
	bool more = !peal_qp_send_failed(qp) && qp->carrier_ops->run(qp, burst, budget);

	if (unlikely(peal_qp_send_failed(qp)))
		more = peal_requester_flush(qp, burst, budget);
	peal_ring_show(&qp->sq.ring);
	return more;
}

static bool peal_requester_run_direct(struct peal_qp *qp, struct peal_burst *burst,
				      struct peal_budget *budget)
{
	while (peal_budget_is_left(budget)) {
		peal_requester_expire(qp, burst);
		if (unlikely(qp->state == IB_QPS_ERR))
			return peal_requester_flush(qp, burst, budget);
		if (!peal_requester_may_run(qp, burst) || qp->sq.wait ||
		    !peal_requester_step(qp, burst, budget)) {
			peal_ring_show(&qp->sq.ring);
			return false;
		}
	}
	return true;
}

/*
 * A queue pair on the wire whose peer is proven to be in this kernel: between
 * two messages, when all that left as packets is answered, the direct carrier
 * may take over, and it gives back when there is no proof any more.
 */
static bool peal_requester_is_near(struct peal_qp *qp)
{
	bool near;

	if (qp->ib.qp_type != IB_QPT_RC || !peal_requester_works(qp))
		return qp->reach.direct;
	if (unlikely(peal_reach_is_due(&qp->reach)))
		qp->carrier_ops->ask_reach(qp);
	near = peal_reach_look(qp);
	if (!qp->reach.direct && !peal_qp_idle(qp))
		return false;
	near |= qp->sq.busy;
	if (near && !qp->reach.direct)
		qp->carrier_ops->lend_send(qp);
	if (!near && qp->reach.direct)
		qp->carrier_ops->take_back_send(qp);
	peal_reach_go(&qp->reach, near);
	return near;
}

/* Messages waited in the ring for all packets to be answered, and now they are. */
static bool peal_requester_may_change(struct peal_qp *qp)
{
	return qp->reach.wanted && !qp->reach.direct && peal_qp_idle(qp);
}

/**
 * peal_requester_run() - work on a send queue
 * @budget: is used up
 *
 * Who finds the last answer changes the carrier: nobody else comes any more. Return:
 * true when the budget ended before the work.
 */
bool peal_requester_run(struct peal_qp *qp, struct peal_burst *burst, struct peal_budget *budget)
{
	bool near = !qp->on_wire || peal_requester_is_near(qp);
	bool more = qp->on_wire && peal_requester_run_wire(qp, burst, budget);

	if (qp->on_wire && !near && !more && peal_requester_may_change(qp)) {
		near = peal_requester_is_near(qp);
		more = !near && peal_requester_run_wire(qp, burst, budget);
	}
	return near ? peal_requester_run_direct(qp, burst, budget) || more : more;
}

/* A receive was posted at the peer. Return: true when @qp waited for that. */
bool peal_requester_wake(struct peal_qp *qp)
{
	bool waited = qp->sq.wait == PEAL_SQ_WAITS_RECEIVE;

	if (waited)
		peal_sq_resume(&qp->sq);
	return waited;
}

/* Packets get through again. Return: true when @qp waited for that. */
bool peal_requester_reached(struct peal_qp *qp)
{
	bool waited = qp->sq.wait == PEAL_SQ_WAITS_ANSWER &&
		      qp->sq.why == PEAL_REASON_PEER_UNREACHABLE;

	if (waited)
		peal_sq_resume(&qp->sq);
	return waited;
}

/* When the queue wants to be run again although nothing happens; KTIME_MAX: never. */
ktime_t peal_requester_deadline(struct peal_qp *qp)
{
	ktime_t wait = qp->sq.wait ? qp->sq.until : KTIME_MAX;

	if (!qp->on_wire || qp->state == IB_QPS_ERR)
		return wait;
	return min(wait, qp->carrier_ops->deadline(qp));
}
