/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The operations on a send queue that every transport needs: take WQEs off it, execute local
 * operations, complete and fail them, drain (SQD) and flush.
 *
 * Owns: nothing; acts on the queue pair.
 * Does not know: how messages travel, when it is called and by which code.
 */
#ifndef PEAL_SENDER_H
#define PEAL_SENDER_H

#include "base/budget.h"
#include "base/trace.h"
#include "object/cursor.h"
#include "net/tx_quota.h"
#include "object/qp.h"
#include "transport/exec.h"

void peal_sender_drain(struct peal_qp *qp, struct peal_notify *notify);

/*
 * May the next WQE be taken from the ring? In SQD this also raises SQ_DRAINED
 * once the queue is drained.
 */
static inline bool peal_sender_may_begin(struct peal_qp *qp, struct peal_notify *notify)
{
	lockdep_assert_held(&qp->sq.lock);
	if (likely(qp->state == IB_QPS_RTS))
		return true;
	peal_sender_drain(qp, notify);
	return false;
}

/* May the queue pair send? In SQD it still finishes the WQE that has started. */
static inline bool peal_sender_works(const struct peal_qp *qp)
{
	lockdep_assert_held(&qp->sq.lock);
	return qp->state == IB_QPS_RTS || (qp->state == IB_QPS_SQD && qp->sq.busy);
}

/* May the next WQE be taken, or may one that has started go on? */
static inline bool peal_sender_may_run(struct peal_qp *qp, struct peal_notify *notify)
{
	return peal_sender_may_begin(qp, notify) || peal_sender_works(qp);
}

struct peal_outcome peal_sender_local(struct peal_qp *qp);

/* The message in sq.wqe has ended. A failed one gets a CQE even if it is unsignaled. */
static inline void peal_sender_finish(struct peal_qp *qp, struct peal_notify *notify, u8 status,
				      enum peal_reason reason)
{
	lockdep_assert_held(&qp->sq.lock);
	if (status || qp->sq.wqe.flags & PEAL_WQE_SIGNALED)
		peal_qp_complete_message(qp, notify, &qp->sq.wqe, status, reason);
	peal_sq_finish(&qp->sq);
}

void peal_sender_fail(struct peal_qp *qp, struct peal_notify *notify, u8 status,
		      enum peal_reason reason);
u8 peal_sender_find_fault(struct peal_qp *qp);
bool peal_sender_finds_no_memory(const struct peal_qp *qp, const u8 *peer);

/*
 * Does an administrator want the WQE in sq.wqe to fail? The caller holds sq.lock. Return: the
 * status, or 0.
 */
static inline u8 peal_sender_fault(struct peal_qp *qp)
{
	lockdep_assert_held(&qp->sq.lock);
	return peal_faults_exist(&qp->table->faults) ? peal_sender_find_fault(qp) : 0;
}

bool peal_sender_flush(struct peal_qp *qp, struct peal_notify *notify, struct peal_budget *budget);

/**
 * peal_sender_fetch() - fetch the next WQE into sq.wqe
 * @psn: PSN of its first packet
 *
 * Return: false when the queue is empty. True without sq.busy means that the WQE was malformed, or
 * that an administrator wants it to fail. It is completed already.
 */
static inline bool peal_sender_fetch(struct peal_qp *qp, struct peal_notify *notify, u32 psn)
{
	struct peal_sq *sq = &qp->sq;
	enum peal_reason reason;
	u8 status;

	lockdep_assert_held(&sq->lock);
	switch (peal_sq_fetch(sq, &reason)) {
	case PEAL_SQ_EMPTY:
		return false;
	case PEAL_SQ_MALFORMED:
		peal_sender_fail(qp, notify, peal_wqe_status(reason), reason);
		break;
	case PEAL_SQ_FETCHED:
		trace_peal_execute(qp->ib.qp_num, sq->wqe.index, sq->wqe.opcode,
				   sq->wqe.length, psn);
		status = peal_sender_fault(qp);
		if (unlikely(status))
			peal_sender_fail(qp, notify, status, PEAL_REASON_FAULT);
		break;
	}
	peal_count(qp, posts);
	return true;
}

/*
 * A fast path has delivered the message of the WQE that peal_sq_peek() has put into sq.wqe. Take
 * the WQE from the ring, count the message, and complete it.
 */
static __always_inline void peal_sender_take_delivered(struct peal_qp *qp,
						       struct peal_notify *notify)
{
	const struct peal_wqe *wqe = &qp->sq.wqe;
	struct peal_cq *cq = peal_cq(qp->ib.send_cq);

	lockdep_assert_held(&qp->sq.lock);
	peal_ring_take(&qp->sq.ring);
	peal_count(qp, posts);
	peal_count(qp, direct_messages);
	peal_qp_count_message(qp, wqe->opcode, wqe->length);
	if (!(wqe->flags & PEAL_WQE_SIGNALED))
		return;
	peal_notify_cq(notify, cq);
	if (unlikely(!peal_cq_push_sent(cq, qp->index, qp->ib.qp_num, wqe)))
		peal_qp_complete_message(qp, notify, wqe, IB_WC_SUCCESS, PEAL_REASON_NONE);
}

/*
 * The sending side of a transport whose messages are single packets that are not acknowledged:
 * datagrams and Ethernet frames.
 *
 * Owns: the loop over the WQEs, the wait for room in the transmit queue, and the wait for pages.
 *
 * A WQE completes as soon as its message is carried, so nothing is ever in flight.
 */

struct peal_packet_sender {
	struct peal_transport base;
	struct peal_tx_quota *tx_quota;
	struct peal_waiter waiter;

	/* Guarded by sq.lock: */
	u32 psn;			/* PSN of the next packet; 0 for frames, which have none */
	u32 page_waits;			/* for pages of sq.wqe, in a row */
};

void peal_packet_sender_init(struct peal_packet_sender *sender, struct peal_qp *qp,
			     const struct peal_transport_ops *ops, struct peal_tx_quota *tx_quota);
/* The `reset` of struct peal_transport_ops. */
void peal_packet_sender_reset(struct peal_transport *transport);
bool peal_packet_sender_stop(struct peal_packet_sender *sender, struct peal_notify *notify,
			     struct peal_outcome outcome);
struct peal_outcome peal_packet_sender_look(const struct peal_qp *qp, struct peal_cursor *local);

static inline struct peal_packet_sender *
peal_packet_sender(const struct peal_transport *transport)
{
	return container_of(transport, struct peal_packet_sender, base);
}

/*
 * Begin a cursor over the bytes of the message. Under sq.lock, inside the epoch. Return:
 * PEAL_DONE when the bytes can be read; PEAL_ABSENT or PEAL_FAILED without a cursor.
 */
static inline struct peal_outcome peal_packet_sender_begin(const struct peal_qp *qp,
							   struct peal_cursor *local)
{
	const struct peal_wqe *send = &qp->sq.wqe;
	enum peal_reason reason;

	peal_epoch_assert_held();
	lockdep_assert_held(&qp->sq.lock);
	if (send->inline_data) {
		peal_cursor_inline(local, send->inline_data, send->length);
		return (struct peal_outcome){ .what = PEAL_DONE };
	}
	reason = peal_cursor_local(local, qp->table, qp->ib.pd, qp->sq.sge, send->num_sge,
				   PEAL_GATHER);
	if (unlikely(reason))
		return peal_failed(IB_WC_LOC_PROT_ERR, reason);
	if (unlikely(local->counted))
		return peal_packet_sender_look(qp, local);
	return (struct peal_outcome){ .what = PEAL_DONE };
}

/* A full transmit queue is back-pressure, so the WQE stays in its ring. */
static inline bool peal_packet_sender_has_room(struct peal_packet_sender *sender)
{
	return peal_tx_quota_is_left(sender->tx_quota) ||
	       !peal_tx_quota_wait(sender->tx_quota, &sender->waiter);
}

/**
 * peal_packet_sender_run() - the `run` of struct peal_transport_ops
 * @fast: takes the next message from its WQE to its CQE, or returns false; NULL: there is no
 *	fast path
 * @carry: carries the message in sq.wqe
 *
 * Each message may have another receiver, so the turn also ends when there is no room for more
 * notifications. This is inlined so that the calls of @fast and @carry are direct.
 */
static __always_inline bool
peal_packet_sender_run(struct peal_transport *transport, struct peal_notify *notify,
		       struct peal_budget *budget,
		       bool (*fast)(struct peal_packet_sender *sender, struct peal_notify *notify,
				    struct peal_budget *budget),
		       struct peal_outcome (*carry)(struct peal_packet_sender *sender,
						    struct peal_notify *notify))
{
	struct peal_packet_sender *sender = peal_packet_sender(transport);
	struct peal_qp *qp = transport->qp;
	struct peal_outcome outcome;

	peal_epoch_assert_held();
	lockdep_assert_held(&qp->sq.lock);
	while (peal_budget_is_left(budget)) {
		if (unlikely(!peal_notify_has_room(notify)))
			return true;
		if (fast && likely(fast(sender, notify, budget))) {
			if (!peal_ring_pending(&qp->sq.ring))
				return false;
			continue;
		}
		if (unlikely(peal_qp_send_failed(qp)))
			return peal_sender_flush(qp, notify, budget);
		if (!peal_sender_may_run(qp, notify) || !peal_packet_sender_has_room(sender))
			return false;
		/* A WQE that waited for a page is still here. */
		if (likely(!qp->sq.busy) && !peal_sender_fetch(qp, notify, sender->psn))
			return false;
		peal_budget_spend(budget, PEAL_COST_WQE);
		if (unlikely(!qp->sq.busy))
			continue;	/* malformed, and completed already */
		peal_budget_spend(budget, PEAL_COST_PACKET + qp->sq.wqe.length);
		outcome = carry(sender, notify);
		if (unlikely(outcome.what != PEAL_DONE)) {
			if (!peal_packet_sender_stop(sender, notify, outcome))
				return false;
			continue;
		}
		sender->page_waits = 0;
		peal_budget_spend(budget, outcome.pieces * PEAL_COST_PIECE);
		peal_qp_count_message(qp, qp->sq.wqe.opcode, qp->sq.wqe.length);
		peal_sender_finish(qp, notify, IB_WC_SUCCESS, PEAL_REASON_NONE);
	}
	return true;
}

#endif
