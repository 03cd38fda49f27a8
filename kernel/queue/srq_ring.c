// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See srq_ring.h.
 */
#include <linux/nospec.h>

#include "queue/srq_ring.h"

void peal_srq_ring_init(struct peal_srq_ring *srq, void *ctl, u32 *numbers, void *slots,
			u32 entries, u32 stride, const struct peal_wqe_limits *limits)
{
	spin_lock_init(&srq->lock);
	INIT_LIST_HEAD(&srq->starving);
	srq->ring = (struct peal_ring){
		.ctl = ctl, .slots = slots, .mask = entries - 1, .stride = stride,
	};
	srq->numbers = numbers;
	srq->limits = *limits;
}

/* Ask for kicks as long as a receive queue waits. */
static void peal_srq_ring_ask(struct peal_srq_ring *srq)
{
	lockdep_assert_held(&srq->lock);
	peal_ring_want_kick(&srq->ring, !list_empty(&srq->starving));
}

/* A receive queue that waits already keeps its place. */
static void peal_srq_ring_enter(struct peal_srq_ring *srq, struct list_head *waiter)
{
	lockdep_assert_held(&srq->lock);
	if (!list_empty(waiter))
		return;
	list_add_tail(waiter, &srq->starving);
	peal_srq_ring_ask(srq);
}

static void peal_srq_ring_remove(struct peal_srq_ring *srq, struct list_head *waiter)
{
	lockdep_assert_held(&srq->lock);
	if (list_empty(waiter))
		return;
	list_del_init(waiter);
	peal_srq_ring_ask(srq);
}

/* The program stored an invalid value, so its later words cannot be trusted either. */
static void peal_srq_ring_break(struct peal_srq_ring *srq)
{
	lockdep_assert_held(&srq->lock);
	if (!srq->broken)
		srq->due |= PEAL_SRQ_DUE_ERROR;
	srq->broken = true;
}

/* Is the limit reached with @left WQEs? It is armed for one event. */
static void peal_srq_ring_check_limit(struct peal_srq_ring *srq, u32 left)
{
	lockdep_assert_held(&srq->lock);
	if (likely(left >= srq->limit))
		return;
	srq->limit = 0;
	srq->due |= PEAL_SRQ_DUE_LIMIT;
}

/*
 * Take the WQE at the head of the ring. The number of the slot is read once and then checked.
 * Return: the reason to refuse the WQE. After SRQ_RING no WQE was taken.
 */
static enum peal_reason peal_srq_ring_pop(struct peal_srq_ring *srq, struct peal_recv *recv)
{
	u32 entries = srq->ring.mask + 1;
	u32 number = READ_ONCE(srq->numbers[srq->ring.next & srq->ring.mask]);

	lockdep_assert_held(&srq->lock);
	if (unlikely(number >= entries)) {
		peal_srq_ring_break(srq);
		return PEAL_REASON_SRQ_RING;
	}
	number = array_index_nospec(number, entries);
	peal_ring_take(&srq->ring);
	peal_ring_show(&srq->ring);
	recv->index = number;
	return peal_wqe_parse_recv(srq->ring.slots + (size_t)number * srq->ring.stride,
				   &srq->limits, recv);
}

/* Return: the number of WQEs, or a negative number if the queue is in error. */
static int peal_srq_ring_pending(struct peal_srq_ring *srq)
{
	int pending = srq->broken ? -EOVERFLOW : peal_ring_pending(&srq->ring);

	lockdep_assert_held(&srq->lock);
	if (unlikely(pending < 0))
		peal_srq_ring_break(srq);
	return pending;
}

/* The same, but if there is none, @waiter is on the list when the program's next post looks. */
static int peal_srq_ring_pending_or_wait(struct peal_srq_ring *srq, struct list_head *waiter)
{
	int pending = peal_srq_ring_pending(srq);

	lockdep_assert_held(&srq->lock);
	if (pending || !waiter)
		return pending;
	peal_srq_ring_enter(srq, waiter);
	return peal_srq_ring_pending(srq);	/* after barrier C */
}

/**
 * peal_srq_ring_take() - take the next receive WQE
 * @waiter: list head of the receive queue. It is put on the list of those that wait if there is
 *	no WQE. NULL: its senders retry by their RNR timers and need no kick
 * @recv: set to the WQE; its index is the number of the slot
 * @reason: set to the fault of a malformed WQE, to PEAL_REASON_SRQ_RING if the queue is in error
 *	and no WQE was taken, otherwise to PEAL_REASON_NONE
 *
 * The caller has softirqs off. Return: false if there is no WQE.
 */
bool peal_srq_ring_take(struct peal_srq_ring *srq, struct list_head *waiter,
			struct peal_recv *recv, enum peal_reason *reason)
{
	int pending;

	lockdep_assert(softirq_count());
	*reason = PEAL_REASON_NONE;
	spin_lock(&srq->lock);
	pending = peal_srq_ring_pending_or_wait(srq, waiter);
	if (unlikely(pending < 0))
		*reason = PEAL_REASON_SRQ_RING;
	else if (likely(pending))
		*reason = peal_srq_ring_pop(srq, recv);
	if (pending && waiter)
		peal_srq_ring_remove(srq, waiter);
	if (pending > 0)
		peal_srq_ring_check_limit(srq, pending - 1);
	spin_unlock(&srq->lock);
	return pending;
}

/**
 * peal_srq_ring_repost() - let a WQE be the next one again
 * @recv: as it was taken
 *
 * For a WQE that ends without a CQE. The program learns only from a CQE that a slot is free, so it
 * would never use this one again.
 *
 * The entry before the next one is free, because this slot is not posted; see peal-abi.h. If the
 * ring was replaced since the WQE was taken, the program has not copied the WQE to the new slot, so
 * it is written again. A smaller ring may not have the slot, which the program then does not use
 * again either. Such a WQE is forgotten. A program that has posted the slot twice may find more
 * WQEs than entries in its ring, which the next look reports as its error.
 *
 * The caller has softirqs off. Return: whether receive queues wait.
 */
bool peal_srq_ring_repost(struct peal_srq_ring *srq, const struct peal_recv *recv)
{
	bool waited = false;
	u32 number;

	lockdep_assert(softirq_count());
	spin_lock(&srq->lock);
	if (!srq->broken && recv->index <= srq->ring.mask) {
		number = array_index_nospec(recv->index, srq->ring.mask + 1);
		peal_wqe_restore_recv(srq->ring.slots + (size_t)number * srq->ring.stride, recv);
		peal_ring_untake(&srq->ring);
		WRITE_ONCE(srq->numbers[srq->ring.next & srq->ring.mask], number);
		peal_ring_show(&srq->ring);
		srq->reposted = true;
		waited = !list_empty(&srq->starving);
	}
	spin_unlock(&srq->lock);
	return waited;
}

/* @waiter waits no more. The caller has softirqs off. */
void peal_srq_ring_leave(struct peal_srq_ring *srq, struct list_head *waiter)
{
	lockdep_assert(softirq_count());
	spin_lock(&srq->lock);
	peal_srq_ring_remove(srq, waiter);
	spin_unlock(&srq->lock);
}

/*
 * Take the receive queue that has waited longest off the list, if there is a WQE for it, or an
 * error to learn of. The caller has softirqs off.
 *
 * Return: its list head, or NULL.
 */
struct list_head *peal_srq_ring_next_waiter(struct peal_srq_ring *srq)
{
	struct list_head *waiter = NULL;

	lockdep_assert(softirq_count());
	spin_lock(&srq->lock);
	if (!list_empty(&srq->starving) && peal_srq_ring_pending(srq)) {
		waiter = srq->starving.next;
		peal_srq_ring_remove(srq, waiter);
	}
	spin_unlock(&srq->lock);
	return waiter;
}

/*
 * Arm the limit, or disarm it with 0. If there are fewer WQEs already, the event is due at once,
 * because no later take might notice.
 */
void peal_srq_ring_arm(struct peal_srq_ring *srq, u32 limit)
{
	int pending;

	spin_lock_bh(&srq->lock);
	srq->limit = limit;
	pending = peal_srq_ring_pending(srq);
	if (pending >= 0)
		peal_srq_ring_check_limit(srq, pending);
	spin_unlock_bh(&srq->lock);
}

/* Return: the armed limit, or 0. */
u32 peal_srq_ring_limit(struct peal_srq_ring *srq)
{
	u32 limit;

	spin_lock_bh(&srq->lock);
	limit = srq->limit;
	spin_unlock_bh(&srq->lock);
	return limit;
}

u32 peal_srq_ring_entries(struct peal_srq_ring *srq)
{
	u32 entries;

	spin_lock_bh(&srq->lock);
	entries = srq->ring.mask + 1;
	spin_unlock_bh(&srq->lock);
	return entries;
}

/* The program copies the WQEs to another ring from now on. */
void peal_srq_ring_prepare(struct peal_srq_ring *srq)
{
	spin_lock_bh(&srq->lock);
	srq->reposted = false;
	spin_unlock_bh(&srq->lock);
}

/**
 * peal_srq_ring_replace() - take the next WQEs from another ring
 * @entries: the size of the new ring; a power of two. Its slots have the same stride
 * @taken: set to the index of the first WQE that is taken from the new ring
 *
 * The program has copied the WQEs. Each is checked when it is taken. No CPU reads the old ring
 * afterwards.
 *
 * Return: 0, -EINVAL (too small for the WQEs that were not taken, or for the limit that is armed;
 * or the queue is in error), or -EAGAIN (a WQE was reposted, so the program's copy may be wrong).
 */
int peal_srq_ring_replace(struct peal_srq_ring *srq, u32 *numbers, void *slots, u32 entries,
			  u32 *taken)
{
	int pending, ret = -EINVAL;

	spin_lock_bh(&srq->lock);
	pending = peal_srq_ring_pending(srq);
	*taken = srq->ring.next;
	if (pending >= 0 && srq->reposted) {
		ret = -EAGAIN;
	} else if (pending >= 0 && pending <= entries && srq->limit <= entries) {
		srq->numbers = numbers;
		srq->ring.slots = slots;
		srq->ring.mask = entries - 1;
		ret = 0;
	}
	spin_unlock_bh(&srq->lock);
	return ret;
}

/* The caller has softirqs off. Return: the events to raise, each once. */
u32 peal_srq_ring_take_due(struct peal_srq_ring *srq)
{
	u32 due;

	lockdep_assert(softirq_count());
	spin_lock(&srq->lock);
	due = srq->due;
	srq->due = 0;
	spin_unlock(&srq->lock);
	return due;
}
