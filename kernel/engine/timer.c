// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See timer.h.
 */
#include <linux/percpu.h>

#include "base/epoch.h"
#include "engine/schedule.h"
#include "engine/timer.h"
#include "engine/turn.h"

/*
 * Budget of all timers of one CPU in a jiffy. The worker does the rest. There is a limit
 * because all timers that are due run in one softirq, and a program's queue pairs may all
 * wait for the same moment.
 */
#define PEAL_TIMERS_BUDGET	(16 * PEAL_TURN_BUDGET)

/* Only timers use it, because otherwise packets could keep them from running. */
static DEFINE_PER_CPU(struct peal_allowance, peal_timer_allowance);

/*
 * Inside the epoch and in softirq, so no other timer of ours interrupts. Return: true when work is
 * left, because the turn did not finish or because there was no budget.
 */
static bool peal_timer_turn(struct peal_qp *qp)
{
	struct peal_budget *budget = peal_allowance_at(this_cpu_ptr(&peal_timer_allowance),
						       get_jiffies_64(), PEAL_TIMERS_BUDGET);

	peal_epoch_assert_held();
	if (unlikely(!peal_budget_is_left(budget)))
		return true;
	peal_budget_spend(budget, PEAL_COST_PIECE);
	return peal_turn(qp, budget);
}

enum hrtimer_restart peal_timer_expired(struct hrtimer *timer)
{
	struct peal_qp *qp = container_of(timer, struct peal_qp, run.timer);

	peal_epoch_enter();
	smp_mb();	/* J: pairs with peal_schedule_timer() */
	if (peal_timer_turn(qp))
		peal_defer(qp);
	peal_epoch_exit();
	return HRTIMER_NORESTART;
}

