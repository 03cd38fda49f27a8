// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See poller.h.
 */
#include <linux/kthread.h>
#include <linux/percpu.h>
#include <linux/preempt.h>
#include <linux/sched.h>
#include <linux/sched/clock.h>
#include <linux/sched/signal.h>
#include <linux/sched/stat.h>
#include <uapi/linux/sched/types.h>

#include "base/workers.h"
#include "engine/poller.h"
#include "engine/engine.h"

/*
 * A streak is so many kicks on one CPU, each at most the gap after the one before. The thread
 * is woken only for a streak, because a wake-up costs as much as a hundred kicks.
 */
#define PEAL_STREAK_GAP_NS	(20 * NSEC_PER_USEC)
#define PEAL_STREAK_LENGTH	64

/* The thread sleeps after it has spun for so long without work. */
#define PEAL_IDLE_NS		(50 * NSEC_PER_USEC)
/* Enable preemption at least this often, because RCU and the scheduler's bookkeeping need it. */
#define PEAL_BREATH_NS		NSEC_PER_MSEC
/* When its CPU is not idle, the thread does not try to spin again for so long. */
#define PEAL_BACKOFF_NS		(10 * NSEC_PER_MSEC)

struct peal_streak {
	u64 last;
	u32 length;
};

static DEFINE_PER_CPU(struct peal_streak, peal_streak);

static void peal_poller_want(struct peal_engine *e, u64 now)
{
	if (READ_ONCE(e->awake) || READ_ONCE(e->wanted) || now < READ_ONCE(e->not_before))
		return;
	WRITE_ONCE(e->wanted, true);
	wake_up_process(e->thread);
}

/* Inside the epoch, so the CPU does not change. */
void peal_poller_note_kick(struct peal_engine *e)
{
	struct peal_streak *streak = this_cpu_ptr(&peal_streak);
	u64 now;

	peal_epoch_assert_held();
	if (num_online_cpus() == 1)
		return;
	now = local_clock();
	streak->length = now - streak->last < PEAL_STREAK_GAP_NS ? streak->length + 1 : 0;
	streak->last = now;
	if (streak->length >= PEAL_STREAK_LENGTH) {
		streak->length = 0;
		peal_poller_want(e, now);
	}
}

/* ---- the thread ---- */

static void peal_poller_found(struct peal_poll_list *poll_list, struct peal_qp *qp)
{
	struct peal_engine *e = container_of(poll_list, struct peal_engine, poll_list);

	peal_count(e->table, doorbells);
	peal_runlist_add(&e->run, &e->run.any, qp);
}

/*
 * Put the queue pairs whose doorbells were rung on the run list.
 * Return: false when the pass has not ended.
 */
static bool peal_poller_scan(struct peal_engine *e)
{
	return peal_poll_list_scan(&e->poll_list, peal_poller_found);
}

/*
 * B: ASLEEP is visible before the last scan. The programs' half is between their doorbell bit
 * and their second look at the word. The other half in the kernel is in peal_defer_anywhere().
 */
static void peal_poller_announce(struct peal_engine *e, bool awake)
{
	WRITE_ONCE(e->awake, awake);
	peal_poll_list_announce(&e->poll_list, awake);
	smp_mb();	/* B */
}

/* May sleep, because kernels 5.3 to 6.4 take a percpu rwsem here unless they have the fix. */
static void peal_poller_set_policy(struct peal_engine *e, int policy)
{
	struct sched_attr attr = { .size = sizeof(attr), .sched_policy = policy };

	might_sleep();
	sched_setattr_nocheck(e->thread, &attr);
}

static void peal_poller_leave_work(struct peal_engine *e)
{
	if (!peal_runlist_is_empty(&e->run.any))
		peal_workers_queue(&e->run.any.work);
}

/*
 * Preemption is off while the pages say AWAKE, see peal_poller_spin(). The last pass sees every
 * doorbell that was rung because of that word. Only its first section runs here. A work does the
 * rest of a long pass, because programs wait for it and a thread of SCHED_IDLE must not keep them
 * waiting.
 * Return: false when that work was queued. The thread must wait for it before its next scan.
 */
static bool peal_poller_fall_asleep(struct peal_engine *e)
{
	bool done;

	peal_poller_announce(e, false);
	peal_poll_list_begin_pass(&e->poll_list);
	done = peal_poller_scan(e);
	peal_poller_leave_work(e);
	if (unlikely(!done))
		peal_workers_queue(&e->last_pass);
	return done;
}

/* Finish a last pass that has more contexts than preemption may be off for. */
static void peal_poller_end_pass(struct work_struct *work)
{
	struct peal_engine *e = container_of(work, struct peal_engine, last_pass);

	while (!peal_poller_scan(e)) {
		peal_poller_leave_work(e);
		cond_resched();
	}
	peal_poller_leave_work(e);
}

/*
 * Is this CPU idle except for the thread? Otherwise every pass would take time
 * from another task.
 */
static bool peal_poller_may_spin(void)
{
	return single_task_running() && !need_resched();
}

/*
 * Spin until there was no work for PEAL_IDLE_NS, another task wants the CPU, or
 * PEAL_BREATH_NS is over.
 * Return: true when the thread may spin on.
 */
static bool peal_poller_spin_for(struct peal_engine *e, u64 *idle_since)
{
	u64 begin = local_clock();
	u64 now = begin;

	while (peal_poller_may_spin() && now - begin < PEAL_BREATH_NS) {
		peal_poller_scan(e);
		if (peal_worker_serve_next(&e->run.any))
			*idle_since = now;
		else
			cpu_relax();
		now = local_clock();
		if (now - *idle_since > PEAL_IDLE_NS)
			return false;
	}
	return peal_poller_may_spin();
}

/*
 * Programs must not wait for a thread that does not run. So while the doorbell words say
 * AWAKE, preemption is off on this CPU and the thread checks need_resched() after each
 * turn. The thread is never scheduled out before the words say ASLEEP, whatever the
 * kernel's preemption model.
 */
static void peal_poller_spin(struct peal_engine *e)
{
	u64 idle_since = local_clock();
	bool on;

	peal_count(e->table, engine_wakeups);
	do {
		bool done = true;

		preempt_disable();
		on = peal_poller_may_spin();
		if (on) {
			peal_poller_announce(e, true);
			on = peal_poller_spin_for(e, &idle_since);
			done = peal_poller_fall_asleep(e);
		} else {
			WRITE_ONCE(e->not_before, local_clock() + PEAL_BACKOFF_NS);
		}
		preempt_enable();
		if (unlikely(!done))
			flush_work(&e->last_pass);
		cond_resched();
	} while (on && !kthread_should_stop());
}

/*
 * Set the task state before each look at `wanted` and at the stop request, so that no
 * wake-up is lost in between.
 */
static int peal_poller_thread(void *arg)
{
	struct peal_engine *e = arg;

	set_current_state(TASK_IDLE);
	while (!kthread_should_stop()) {
		if (READ_ONCE(e->wanted)) {
			__set_current_state(TASK_RUNNING);
			peal_poller_spin(e);
			WRITE_ONCE(e->wanted, false);
		} else {
			schedule();
		}
		set_current_state(TASK_IDLE);
	}
	__set_current_state(TASK_RUNNING);
	return 0;
}

/*
 * The thread runs as SCHED_IDLE, so that the scheduler counts its CPU as idle
 * and preempts it at once.
 */
int peal_poller_start(struct peal_engine *e, const char *name)
{
	peal_poll_list_init(&e->poll_list);
	INIT_WORK(&e->last_pass, peal_poller_end_pass);
	e->thread = kthread_create(peal_poller_thread, e, "%s-engine", name);
	if (IS_ERR(e->thread))
		return PTR_ERR(e->thread);
	peal_poller_set_policy(e, SCHED_IDLE);
	wake_up_process(e->thread);
	return 0;
}

/* The thread must run in order to end. As SCHED_IDLE it could wait for a second on busy CPUs. */
void peal_poller_stop(struct peal_engine *e)
{
	peal_poller_set_policy(e, SCHED_NORMAL);
	kthread_stop(e->thread);
}
