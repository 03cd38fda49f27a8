// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See sender.h.
 */
#include "base/trace.h"
#include "engine/engine.h"
#include "object/errors.h"
#include "object/mr.h"
#include "transport/sender.h"

/* A WQE failed. Put the queue pair or its send queue into error, so that the rest is flushed. */
void peal_sender_fail(struct peal_qp *qp, struct peal_notify *notify, u8 status,
		      enum peal_reason reason)
{
	lockdep_assert_held(&qp->sq.lock);
	peal_errors_add_failed(qp, &qp->sq.wqe, qp->sq.sge, status, reason);
	peal_sender_finish(qp, notify, status, reason);
	spin_lock(&qp->rq.lock);
	peal_qp_fail_send_locked(qp);
	spin_unlock(&qp->rq.lock);
}

/*
 * The device has rules. They do not hit the connection manager, because no program could connect
 * then.
 */
u8 peal_sender_find_fault(struct peal_qp *qp)
{
	const struct peal_fault_message message = {
		.kinds = 1 << PEAL_NL_FAULT_KIND_STATUS, .qpn = qp->ib.qp_num,
		.peer = qp->attr.ah_attr.grh.dgid.raw, .opcode = qp->sq.wqe.opcode,
	};
	struct peal_fault fault;

	lockdep_assert_held(&qp->sq.lock);
	if (qp->ib.qp_type == IB_QPT_GSI || !peal_faults_hit(&qp->table->faults, &message, &fault))
		return 0;
	return fault.status;
}

/*
 * The device has rules for faults. Does an administrator want a packet of @qp to the GID @peer to
 * find no memory? Under sq.lock or rq.lock.
 */
bool peal_sender_finds_no_memory(const struct peal_qp *qp, const u8 *peer)
{
	const struct peal_fault_message message = {
		.kinds = 1 << PEAL_NL_FAULT_KIND_UNSENT, .qpn = qp->ib.qp_num, .peer = peer,
	};
	struct peal_fault fault;

	peal_qp_assert_either_held(qp);
	if (qp->ib.qp_type == IB_QPT_GSI || !peal_faults_hit(&qp->table->faults, &message, &fault))
		return false;
	peal_count(qp->table, packets_unsent);
	return true;
}

/*
 * A window that can be invalidated is of type 2, so only requests to this queue pair use
 * it. Such requests take rq.lock, check the key and move the bytes. Taking rq.lock here
 * makes sure that no request that has passed the check is still at work when the program is
 * told that the key is invalid. A fast registration counts its users instead.
 */
static enum peal_reason peal_sender_invalidate(struct peal_qp *qp)
{
	enum peal_reason reason;

	lockdep_assert_held(&qp->sq.lock);
	spin_lock(&qp->rq.lock);
	reason = peal_rkey_invalidate(qp->table, qp->ib.pd, qp->ib.qp_num,
				      qp->sq.wqe.imm_or_rkey);
	spin_unlock(&qp->rq.lock);
	return reason;
}

struct peal_outcome peal_sender_local(struct peal_qp *qp)
{
	const struct peal_wqe *send = &qp->sq.wqe;
	enum peal_reason reason;

	lockdep_assert_held(&qp->sq.lock);
	if (send->opcode == PEAL_OP_BIND_MW)
		reason = peal_mw_bind(qp->table, qp->ib.pd, qp->ib.qp_num, send);
	else if (send->opcode == PEAL_OP_REG_MR)
		reason = peal_mr_fast_register(qp->table, qp->ib.pd, &send->bind);
	else
		reason = peal_sender_invalidate(qp);
	if (!reason)
		return (struct peal_outcome){ .what = PEAL_DONE };
	return peal_failed(send->opcode == PEAL_OP_LOCAL_INV ? IB_WC_LOC_QP_OP_ERR :
			   IB_WC_MW_BIND_ERR, reason);
}

/*
 * In error, complete the WQE that has started and all others as flushed, in order and once
 * each. A ring with an invalid producer index holds no WQE that could be named.
 */
static bool peal_sender_flush_send(struct peal_qp *qp, struct peal_notify *notify)
{
	enum peal_reason reason;

	lockdep_assert_held(&qp->sq.lock);
	if (qp->transport->ops->flush && qp->transport->ops->flush(qp->transport, notify))
		return true;
	if (!qp->sq.busy) {
		if (peal_ring_pending(&qp->sq.ring) <= 0 ||
		    peal_sq_fetch(&qp->sq, &reason) == PEAL_SQ_EMPTY)
			return false;
		peal_count(qp, posts);
	}
	peal_sender_finish(qp, notify, IB_WC_WR_FLUSH_ERR, peal_qp_flush_reason(qp));
	return true;
}

static bool peal_sender_flush_recv(struct peal_qp *qp, struct peal_notify *notify)
{
	struct peal_cqe cqe = {
		.status = IB_WC_WR_FLUSH_ERR, .vendor_err = peal_qp_flush_reason(qp),
	};
	bool found;

	lockdep_assert_held(&qp->sq.lock);
	spin_lock(&qp->rq.lock);
	found = peal_rq_take_flushed(&qp->rq);
	if (found)
		peal_qp_complete_recv(qp, notify, &cqe);
	else if (peal_rq_is_last(&qp->rq))
		peal_notify_event(notify, &qp->ib, IB_EVENT_QP_LAST_WQE_REACHED);
	spin_unlock(&qp->rq.lock);
	return found;
}

/**
 * peal_sender_flush() - complete everything that is posted as flushed
 *
 * In SQE only the send queue is flushed. Return: true when the budget ended before the work.
 */
bool peal_sender_flush(struct peal_qp *qp, struct peal_notify *notify,
		       struct peal_budget *budget)
{
	lockdep_assert_held(&qp->sq.lock);
	while (peal_budget_is_left(budget)) {
		if (!peal_sender_flush_send(qp, notify) &&
		    (qp->state == IB_QPS_SQE || !peal_sender_flush_recv(qp, notify)))
			return false;
		peal_budget_spend(budget, PEAL_COST_WQE);
	}
	return true;
}

/**
 * peal_sender_drain() - raise SQ_DRAINED when the send queue is drained
 *
 * Called in a state other than RTS. In SQD messages that have started are finished and no new
 * ones start (IBTA 10.3.1.7).
 */
void peal_sender_drain(struct peal_qp *qp, struct peal_notify *notify)
{
	lockdep_assert_held(&qp->sq.lock);
	if (qp->state == IB_QPS_SQD && peal_qp_idle(qp) && peal_sq_drain(&qp->sq) &&
	    qp->attr.en_sqd_async_notify)
		peal_notify_event(notify, &qp->ib, IB_EVENT_SQ_DRAINED);
}

/* There is room again. See struct peal_waiter for how this is called. */
static void peal_packet_sender_ready(struct peal_waiter *waiter)
{
	peal_defer(container_of(waiter, struct peal_packet_sender, waiter)->base.qp);
}

void peal_packet_sender_init(struct peal_packet_sender *sender, struct peal_qp *qp,
			     const struct peal_transport_ops *ops, struct peal_tx_quota *tx_quota)
{
	sender->base.ops = ops;
	sender->base.qp = qp;
	sender->tx_quota = tx_quota;
	sender->waiter.ready = peal_packet_sender_ready;
	INIT_LIST_HEAD(&sender->waiter.node);
}

/* Cancel the wait for room, because ready() must not find a queue pair that is being destroyed. */
void peal_packet_sender_reset(struct peal_transport *transport)
{
	struct peal_packet_sender *sender = peal_packet_sender(transport);

	peal_qp_assert_both_held(transport->qp);
	peal_tx_quota_cancel(sender->tx_quota, &sender->waiter);
}

/*
 * Are the bytes of the message in memory (on-demand paging)? Return: PEAL_DONE if they are. If
 * not, PEAL_ABSENT or PEAL_FAILED, and the use of @local is ended.
 */
struct peal_outcome peal_packet_sender_look(const struct peal_qp *qp, struct peal_cursor *local)
{
	enum peal_odp_state state = peal_cursor_look(local, 0, qp->sq.wqe.length, false);

	lockdep_assert_held(&qp->sq.lock);
	if (state == PEAL_ODP_PRESENT)
		return (struct peal_outcome){ .what = PEAL_DONE };
	peal_cursor_end(local);
	return state == PEAL_ODP_ABSENT ? peal_absent() :
	       peal_failed(IB_WC_LOC_PROT_ERR, peal_odp_reason(state, PEAL_REASON_LKEY_PAGE));
}

/* A page of sq.wqe is being brought in. The WQE stays, and the timer gives the next turn. */
static void peal_packet_sender_await_page(struct peal_packet_sender *sender)
{
	struct peal_qp *qp = sender->base.qp;
	u32 shift = min_t(u32, sender->page_waits, PEAL_ODP_RETRY_SHIFT);

	lockdep_assert_held(&qp->sq.lock);
	sender->page_waits++;
	peal_schedule_timer(qp, ktime_add_ns(ktime_get(), PEAL_ODP_RETRY_NS << shift));
}

/* The message was not carried. Return: false when it waits for a page. */
bool peal_packet_sender_stop(struct peal_packet_sender *sender, struct peal_notify *notify,
			     struct peal_outcome outcome)
{
	struct peal_qp *qp = sender->base.qp;

	lockdep_assert_held(&qp->sq.lock);
	if (outcome.what == PEAL_ABSENT) {
		peal_packet_sender_await_page(sender);
		return false;
	}
	peal_sender_fail(qp, notify, outcome.status, outcome.reason);
	return true;
}
