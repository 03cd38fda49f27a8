// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See schedule.h.
 */
#include "base/compat.h"
#include "base/workers.h"
#include "engine/engine.h"
#include "engine/schedule.h"

/* A queue pair is run by its timer at most that often: others need the CPU, too. */
#define PEAL_TIMER_LEAST_NS	(5 * NSEC_PER_USEC)

void peal_schedule_init(struct peal_qp *qp, struct peal_engine *e, work_func_t work,
			enum hrtimer_restart (*expired)(struct hrtimer *timer))
{
	struct peal_run *run = &qp->run;

	peal_qp_set_engine(qp, e);
	peal_runlist_init_qp(qp);
	INIT_WORK(&run->work, work);
	spin_lock_init(&run->timer_lock);
	peal_hrtimer_setup(&run->timer, expired, CLOCK_MONOTONIC, HRTIMER_MODE_ABS_SOFT);
}

/* Nobody asks for a turn any more. Sleeps. */
void peal_schedule_cancel(struct peal_qp *qp)
{
	hrtimer_cancel(&qp->run.timer);
	cancel_work_sync(&qp->run.work);
	peal_runlist_remove(&qp->engine->run, qp);
}

/* Its CPU is hardly ever offline. Then the work runs anywhere. */
void peal_defer_home(struct peal_qp *qp)
{
	queue_work_on(READ_ONCE(qp->run.home), qp->engine->homes, &qp->run.work);
}

/*
 * Leave the turn to another context. Any context may call. Barrier B, here between the run
 * list and `awake`: either the thread finds the entry in its last look before it sleeps,
 * or we see that it is asleep and call the worker.
 */
void peal_defer(struct peal_qp *qp)
{
	struct peal_engine *e = qp->engine;

	peal_count(e->table, deferrals);
	if (peal_qp_is_on_wire(qp)) {
		peal_defer_home(qp);
		return;
	}
	peal_runlist_add(&e->run, qp);
	smp_mb();	/* B */
	if (!READ_ONCE(e->awake))
		peal_workers_queue(&e->work);
}

/* Inside the guard, in a program's call, which has used up its budget. */
void peal_defer_overdue(struct peal_qp *qp)
{
	peal_runlist_owe(&qp->engine->run, qp);
	peal_defer(qp);
}

static bool peal_schedule_is_earlier(const struct hrtimer *timer, ktime_t when)
{
	return hrtimer_is_queued((struct hrtimer *)timer) &&
	       !ktime_after(hrtimer_get_expires(timer), when);
}

/*
 * Never arm the timer for a time in the past, because its handler would run again at
 * once and nothing else would run on that CPU. Never move it later either, because a
 * queue pair that is due must not be postponed again and again.
 */
static void peal_schedule_start(struct hrtimer *timer, ktime_t when)
{
	ktime_t least = ktime_add_ns(ktime_get(), PEAL_TIMER_LEAST_NS);

	if (ktime_before(when, least))
		when = least;
	if (!peal_schedule_is_earlier(timer, when))
		hrtimer_start(timer, when, HRTIMER_MODE_ABS_SOFT);
}

/**
 * peal_schedule_timer() - go off at @when at the latest
 *
 * Holds one of the queue pair's locks, inside the guard. The requester and the responder
 * have different locks and times: timer_lock sees to it that the later one does not
 * replace the earlier.
 *
 * Barrier J: what is due is visible before we look whether the timer is still
 * queued; the timer's half stands at the beginning of peal_timer_expired(). So
 * either we see that it has gone off, and set it, or its turn sees what is due.
 */
void peal_schedule_timer(struct peal_qp *qp, ktime_t when)
{
	struct peal_run *run = &qp->run;

	smp_mb();	/* J */
	if (likely(peal_schedule_is_earlier(&run->timer, when)))
		return;
	spin_lock(&run->timer_lock);
	peal_schedule_start(&run->timer, when);
	spin_unlock(&run->timer_lock);
}
