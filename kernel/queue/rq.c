// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See rq.h. The caller of each function but peal_rq_init() and peal_rq_share() holds rq->lock.
 */
#include "queue/rq.h"

void peal_rq_init(struct peal_rq *rq, void *ctl, void *slots, u32 entries, u32 stride,
		  const struct peal_wqe_limits *limits)
{
	spin_lock_init(&rq->lock);
	rq->ring = (struct peal_ring){
		.ctl = ctl, .slots = slots, .mask = entries - 1, .stride = stride,
	};
	rq->limits = *limits;
	INIT_LIST_HEAD(&rq->starving);
}

/*
 * Take the WQEs from @shared. Call before others can find the queue, so nothing asserts the lock.
 */
void peal_rq_share(struct peal_rq *rq, struct peal_srq_ring *shared)
{
	rq->shared = shared;
}

/*
 * XRC: the own ring is never used, because each message names one, or because there are no
 * messages. Nothing in the own ring may be completed, whatever the program writes there. Call
 * before others can find the queue, so nothing asserts the lock.
 */
void peal_rq_set_srq_by_message(struct peal_rq *rq)
{
	rq->srq_by_message = true;
}

/* No sender waits for a receive of this queue any more. */
static void peal_rq_end_wait(struct peal_rq *rq)
{
	lockdep_assert_held(&rq->lock);
	if (rq->shared)
		peal_srq_ring_leave(rq->shared, &rq->starving);
}

/*
 * XRC. The next WQEs come from @shared, or from nowhere if it is NULL. A WQE that is held is
 * forgotten, so the caller completes it first if its queue still exists.
 */
void peal_rq_change_shared(struct peal_rq *rq, struct peal_srq_ring *shared)
{
	lockdep_assert_held(&rq->lock);
	peal_rq_end_wait(rq);
	rq->holding = false;
	rq->shared = shared;
}

void peal_rq_reset(struct peal_rq *rq)
{
	lockdep_assert_held(&rq->lock);
	peal_rq_end_wait(rq);
	peal_ring_discard(&rq->ring);
	peal_rq_want_kick(rq, false);
	rq->last_told = false;
	rq->holding = false;
	rq->refusing = false;
	rq->established = false;
	rq->routine = false;
}

/*
 * On the wire a kick is useless, because an RNR NAK has told the peer when to send again. Set
 * @no_kicks to ask for none.
 */
void peal_rq_set_no_kicks(struct peal_rq *rq, bool no_kicks)
{
	lockdep_assert_held(&rq->lock);
	rq->no_kicks = no_kicks;
	if (no_kicks)
		peal_rq_end_wait(rq);
}

static int peal_rq_pending(struct peal_rq *rq)
{
	int pending = peal_ring_pending(&rq->ring);

	lockdep_assert_held(&rq->lock);
	if (pending || rq->no_kicks)
		return pending;
	peal_rq_want_kick(rq, true);
	return peal_ring_pending(&rq->ring);	/* after barrier C */
}

/* Without a WQE that could be named, nothing is held. */
static enum peal_rq_taken peal_rq_take_shared(struct peal_rq *rq, enum peal_reason *reason)
{
	struct list_head *waiter = rq->no_kicks ? NULL : &rq->starving;

	lockdep_assert_held(&rq->lock);
	if (!peal_srq_ring_take(rq->shared, waiter, &rq->wqe, reason))
		return PEAL_RQ_EMPTY;
	rq->holding = *reason != PEAL_REASON_SRQ_RING;
	return *reason ? PEAL_RQ_MALFORMED : PEAL_RQ_TAKEN;
}

/**
 * peal_rq_take() - take the next receive WQE, unless one is held already
 * @reason: set to the fault of a malformed WQE, otherwise to PEAL_REASON_NONE
 *
 * If the queue is empty, the program's next post kicks, unless no_kicks is set. A malformed WQE is
 * taken too, because the caller completes it in error. If a shared receive queue is in error, there
 * is none to complete, and rq->holding is false.
 */
enum peal_rq_taken peal_rq_take(struct peal_rq *rq, enum peal_reason *reason)
{
	int pending;

	lockdep_assert_held(&rq->lock);
	*reason = PEAL_REASON_NONE;
	if (rq->holding)
		return PEAL_RQ_TAKEN;
	if (rq->shared)
		return peal_rq_take_shared(rq, reason);
	pending = peal_rq_pending(rq);
	if (!pending)
		return PEAL_RQ_EMPTY;
	rq->wqe.index = rq->ring.next;
	if (unlikely(pending < 0))
		*reason = PEAL_REASON_RECV_RING_INDEX;
	else
		*reason = peal_wqe_parse_recv(peal_ring_slot(&rq->ring), &rq->limits, &rq->wqe);
	peal_ring_take(&rq->ring);
	rq->holding = true;
	if (rq->kicked && !rq->refusing)
		peal_rq_want_kick(rq, false);
	return *reason ? PEAL_RQ_MALFORMED : PEAL_RQ_TAKEN;
}

/*
 * In error. Take the next WQE that must be flushed. Those of a shared receive queue are left to
 * other queue pairs, and so are those of a ring whose producer index is invalid, because they
 * cannot be named. Return: false if none is left.
 */
bool peal_rq_take_flushed(struct peal_rq *rq)
{
	enum peal_reason reason;

	lockdep_assert_held(&rq->lock);
	return rq->holding || (!rq->shared && !rq->srq_by_message &&
			       peal_ring_pending(&rq->ring) > 0 &&
			       peal_rq_take(rq, &reason) != PEAL_RQ_EMPTY);
}

/*
 * In error, when nothing is left to flush. Return: true once, if the WQEs were taken from a shared
 * receive queue, because the event "last WQE reached" is due then. An XRC queue pair belongs to no
 * shared receive queue.
 */
bool peal_rq_is_last(struct peal_rq *rq)
{
	bool first = rq->shared && !rq->srq_by_message && !rq->last_told;

	lockdep_assert_held(&rq->lock);
	rq->last_told |= first;
	return first;
}

/* The held WQE was completed. */
void peal_rq_done(struct peal_rq *rq)
{
	lockdep_assert_held(&rq->lock);
	rq->holding = false;
	if (!rq->shared)
		peal_ring_show(&rq->ring);
}

/*
 * The held WQE ends without a CQE. It goes back to the shared receive queue that it was taken from.
 * Return: whether receive queues wait there.
 */
bool peal_rq_repost(struct peal_rq *rq)
{
	lockdep_assert_held(&rq->lock);
	rq->holding = false;
	return peal_srq_ring_repost(rq->shared, &rq->wqe);
}

/* Accept nothing more. Ask for kicks, because receives posted from now on must be flushed. */
void peal_rq_refuse(struct peal_rq *rq)
{
	lockdep_assert_held(&rq->lock);
	rq->refusing = true;
	peal_rq_end_wait(rq);
	peal_rq_want_kick(rq, true);
}

/* Return: true for the first message since the queue pair went to RTR. */
bool peal_rq_establish(struct peal_rq *rq)
{
	bool first = !rq->established;

	lockdep_assert_held(&rq->lock);
	rq->established = true;
	rq->routine = !rq->srq_by_message;
	return first;
}

void peal_rq_want_kick(struct peal_rq *rq, bool want)
{
	lockdep_assert_held(&rq->lock);
	rq->kicked = want;
	peal_ring_want_kick(&rq->ring, want);
}
