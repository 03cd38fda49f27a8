// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See flush.h.
 */
#include <linux/sched.h>

#include "base/compat.h"
#include "base/epoch.h"
#include "engine/flush.h"
#include "engine/turn.h"

/* How many turns flush a full ring. */
static u32 peal_flush_turns(const struct peal_wq *wq)
{
	return 1 + (u64)peal_wq_entries(wq) * PEAL_COST_WQE / PEAL_TURN_BUDGET;
}

/* Inside the epoch. Return: true when @budget ended before the WQEs of @wq. */
bool peal_flush_wq(struct peal_wq *wq, struct peal_budget *budget)
{
	struct peal_notify notify PEAL_UNINITIALIZED;
	bool more;

	peal_epoch_assert_held();
	peal_notify_begin(&notify);
	more = peal_wq_flush(wq, &notify, budget);
	peal_turn_end(&notify);
	return more;
}

/*
 * Flush @wq if it is in error. It ends after as many turns as a full ring needs, because a program
 * that goes on posting must not keep the caller here. A later kick flushes what is posted later.
 * @wq cannot be destroyed meanwhile, because the caller is its work item or a verb on it. Sleeps.
 */
void peal_flush_failed_wq(struct peal_wq *wq)
{
	u32 turns = peal_flush_turns(wq);
	struct peal_budget budget;
	bool more = true;

	for (; more && turns; turns--) {
		budget = (struct peal_budget){ .left = PEAL_TURN_BUDGET };
		peal_epoch_enter();
		more = peal_flush_wq(wq, &budget);
		peal_epoch_exit();
		cond_resched();
	}
}

/*
 * The device is being removed. Flush the first work queue whose number is @number or above, a
 * turn's worth of it. @turns counts the turns that it has had.
 * Return: false when there is none.
 */
bool peal_flush_abandoned_wq(struct peal_table *table, unsigned long *number, u32 *turns)
{
	struct peal_budget budget = { .left = PEAL_TURN_BUDGET };
	struct peal_wq *wq;
	bool more = false;

	peal_epoch_enter();
	wq = xa_find(&table->wqs, number, ULONG_MAX, XA_PRESENT);
	if (wq) {
		peal_wq_abandon(wq);
		more = peal_flush_wq(wq, &budget) && ++*turns < peal_flush_turns(wq);
	}
	peal_epoch_exit();
	if (!more) {
		++*number;
		*turns = 0;
	}
	return wq;
}

void peal_flush_wq_work(struct work_struct *work)
{
	peal_flush_failed_wq(container_of(work, struct peal_wq, work));
}
