// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See schedule.h.
 */
#include "base/compat.h"
#include "base/workers.h"
#include "engine/engine.h"
#include "engine/schedule.h"

/*
 * Shortest time until the timer of a queue pair expires. It limits how often the timer runs the
 * queue pair, because other tasks need the CPU, too.
 */
#define PEAL_TIMER_LEAST_NS	(5 * NSEC_PER_USEC)

void peal_schedule_init(struct peal_qp *qp, struct peal_engine *e,
			enum hrtimer_restart (*expired)(struct hrtimer *timer))
{
	struct peal_run *run = &qp->run;

	peal_qp_set_engine(qp, e);
	peal_runlist_init_qp(qp);
	spin_lock_init(&run->timer_lock);
	peal_hrtimer_setup(&run->timer, expired, CLOCK_MONOTONIC, HRTIMER_MODE_ABS_SOFT);
}

/*
 * No code may ask for a turn of @qp any more. A worker may have taken it from its list and be
 * giving it the last one, so the caller waits for the epoch afterwards. Sleeps.
 */
void peal_schedule_cancel(struct peal_qp *qp)
{
	hrtimer_cancel(&qp->run.timer);
	peal_runlist_remove(&qp->engine->run, qp);
}

/*
 * Leave the turn to the worker that runs anywhere, or to the poller.
 *
 * Barrier B is between the run list and `awake` here. Either the thread finds the
 * entry in its last look before it sleeps, or this function sees that the thread is
 * asleep and queues the worker.
 */
static void peal_defer_anywhere(struct peal_qp *qp)
{
	struct peal_engine *e = qp->engine;

	peal_runlist_add(&e->run, &e->run.any, qp);
	smp_mb();	/* B */
	if (!READ_ONCE(e->awake))
		peal_workers_queue(&e->run.any.work);
}

/*
 * Leave the turn to the worker of the CPU of the last turn. If that CPU is offline, the workqueue
 * picks another one. This is rare, so the reordering that it may cause is acceptable. UC stays with
 * a CPU that does not run its worker until peal_turn_may_send() allows another one.
 */
void peal_defer_on_cpu(struct peal_qp *qp)
{
	struct peal_engine *e = qp->engine;
	int cpu = READ_ONCE(qp->run.cpu);
	struct peal_runlist *list = per_cpu_ptr(e->run.cpu, cpu);

	if (unlikely(peal_runlist_starves(list)) && qp->ib.qp_type != IB_QPT_UC) {
		peal_defer_anywhere(qp);
		return;
	}
	peal_runlist_add(&e->run, list, qp);
	queue_work_on(cpu, e->cpu_wq, &list->work);
	peal_workers_queue_later(&e->watch, PEAL_WATCH_JIFFIES);
}

/* Leave the turn to another context. Any context may call. */
void peal_defer(struct peal_qp *qp)
{
	peal_count(qp->engine->table, deferrals);
	if (peal_qp_sends_packets(qp))
		peal_defer_on_cpu(qp);
	else
		peal_defer_anywhere(qp);
}

/*
 * Inside the epoch, when the budget ended before everything that a packet for @qp causes. The
 * worker of this CPU does the rest, because the first part has left from here. sq.lock is not held,
 * because the CPU is only a hint, except for UC. UC keeps its CPU, because packets that it receives
 * cause no packets.
 */
void peal_defer_here(struct peal_qp *qp)
{
	peal_epoch_assert_held();
	if (qp->ib.qp_type != IB_QPT_UC)
		WRITE_ONCE(qp->run.cpu, smp_processor_id());
	peal_defer(qp);
}

/* Inside the epoch, when the budget ended before the work of @qp. */
void peal_defer_overdue(struct peal_qp *qp)
{
	peal_epoch_assert_held();
	peal_runlist_mark_overdue(&qp->engine->run, qp);
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
 * peal_schedule_timer() - let @qp's timer expire at @when at the latest
 *
 * The caller holds sq.lock or rq.lock, inside the epoch. The requester and the responder hold
 * different locks and have different times, so timer_lock makes sure that the later time does
 * not replace the earlier one.
 *
 * Barrier J: the caller's new deadline is visible before this function looks whether the
 * timer is still queued. The timer's half is at the beginning of peal_timer_expired().
 * So either this function sees that the timer has expired, and sets it, or the timer's
 * turn sees the new deadline.
 */
void peal_schedule_timer(struct peal_qp *qp, ktime_t when)
{
	struct peal_run *run = &qp->run;

	peal_epoch_assert_held();
	peal_qp_assert_either_held(qp);
	smp_mb();	/* J */
	if (likely(peal_schedule_is_earlier(&run->timer, when)))
		return;
	spin_lock(&run->timer_lock);
	peal_schedule_start(&run->timer, when);
	spin_unlock(&run->timer_lock);
}
