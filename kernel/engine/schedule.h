/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Asking for a turn of a queue pair, at once or at a time.
 *
 * Owns: which context is to give the turn, the queue pair's timer, and the rule that a later
 * time never replaces an earlier one.
 * Does not know: what a turn does, and what happens when the timer goes off (timer.c).
 */
#ifndef PEAL_SCHEDULE_H
#define PEAL_SCHEDULE_H

#include <linux/ktime.h>

#include "queue/qp.h"

void peal_schedule_init(struct peal_qp *qp, struct peal_engine *e, work_func_t work,
			enum hrtimer_restart (*expired)(struct hrtimer *timer));
void peal_schedule_cancel(struct peal_qp *qp);

void peal_defer(struct peal_qp *qp);
void peal_defer_overdue(struct peal_qp *qp);
void peal_defer_home(struct peal_qp *qp);

void peal_schedule_timer(struct peal_qp *qp, ktime_t when);

/*
 * A turn for this queue pair at @when at the latest; KTIME_MAX: no need to. Holds one of its
 * locks, inside the guard.
 */
static inline void peal_schedule_at(struct peal_qp *qp, ktime_t when)
{
	if (unlikely(when != KTIME_MAX))
		peal_schedule_timer(qp, when);
}

#endif
