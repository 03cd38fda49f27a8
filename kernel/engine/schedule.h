/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Requests for a turn of a queue pair, at once or at a given time.
 *
 * Owns: the choice of the context that gives the turn, the queue pair's timer, and the rule
 * that a later time never replaces an earlier one.
 * Does not know: what a turn does, and what happens when the timer expires (timer.c).
 */
#ifndef PEAL_SCHEDULE_H
#define PEAL_SCHEDULE_H

#include <linux/ktime.h>

#include "queue/qp.h"

void peal_schedule_init(struct peal_qp *qp, struct peal_engine *e,
			enum hrtimer_restart (*expired)(struct hrtimer *timer));
void peal_schedule_cancel(struct peal_qp *qp);

void peal_defer(struct peal_qp *qp);
void peal_defer_here(struct peal_qp *qp);
void peal_defer_overdue(struct peal_qp *qp);
void peal_defer_on_cpu(struct peal_qp *qp);

void peal_schedule_timer(struct peal_qp *qp, ktime_t when);

/*
 * Ask for a turn of @qp at @when at the latest. KTIME_MAX asks for none. The caller holds
 * sq.lock or rq.lock, inside the epoch.
 */
static inline void peal_schedule_at(struct peal_qp *qp, ktime_t when)
{
	peal_epoch_assert_held();
	peal_qp_assert_either_held(qp);
	if (unlikely(when != KTIME_MAX))
		peal_schedule_timer(qp, when);
}

#endif
