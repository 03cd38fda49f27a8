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
#include "engine/worker.h"

/*
 * Kicks on one CPU, none later than this after the one before, that make the
 * thread worth a wake-up; a wake-up costs as much as a hundred of them.
 */
#define PEAL_STREAK_GAP_NS	(20 * NSEC_PER_USEC)
#define PEAL_STREAK_LENGTH	64

/* Sections of the last scan before the thread sleeps that preemption is off for. */
#define PEAL_LAST_SECTIONS	2

/* Spin that long without work, then sleep. */
#define PEAL_IDLE_NS		(50 * NSEC_PER_USEC)
/* Give way to RCU and the scheduler's bookkeeping at least that often. */
#define PEAL_BREATH_NS		NSEC_PER_MSEC
/* No CPU was idle: leave it alone for that long. */
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

/* Inside the guard: the CPU does not change. */
void peal_poller_note_kick(struct peal_engine *e)
{
	struct peal_streak *streak = this_cpu_ptr(&peal_streak);
	u64 now;

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

static void peal_poller_rung(void *owner, struct peal_qp *qp)
{
	struct peal_engine *e = owner;

	peal_count(e->table, doorbells);
	peal_runlist_add(&e->run, qp);
}

/* From doorbells to run list. Return: false when the pass is not at its end. */
static bool peal_poller_scan(struct peal_engine *e)
{
	return peal_roster_scan(&e->roster, peal_poller_rung, e);
}

/*
 * B: "asleep" is visible before the last scan. The programs' half sits between
 * their doorbell bit and their second look at the word, the kernel's other half in
 * peal_defer().
 */
static void peal_poller_announce(struct peal_engine *e, bool awake)
{
	WRITE_ONCE(e->awake, awake);
	peal_roster_announce(&e->roster, awake);
	smp_mb();	/* B */
}

/* May sleep: kernels 5.3 to 6.4 take a percpu rwsem here, unless they have the fix. */
static void peal_poller_set_policy(struct peal_engine *e, int policy)
{
	struct sched_attr attr = { .size = sizeof(attr), .sched_policy = policy };

	might_sleep();
	sched_setattr_nocheck(e->thread, &attr);
}

static void peal_poller_leave_work(struct peal_engine *e)
{
	if (!peal_runlist_is_empty(&e->run))
		peal_workers_queue(&e->work);
}

/*
 * Preemption is off while programs are told that we are awake: see the rule. The
 * last pass sees every doorbell that was rung because of that. Return: false when a
 * work does the rest of it, which the thread must wait for before its next scan.
 * Programs wait for the rest, so a thread of SCHED_IDLE must not do it.
 */
static bool peal_poller_fall_asleep(struct peal_engine *e)
{
	bool done = false;
	u32 i;

	peal_poller_announce(e, false);
	peal_roster_begin_pass(&e->roster);
	for (i = 0; i < PEAL_LAST_SECTIONS && !done; i++)
		done = peal_poller_scan(e);
	peal_poller_leave_work(e);
	if (unlikely(!done))
		peal_workers_queue(&e->last_pass);
	return done;
}

/* The rest of the last pass, of more contexts than preemption can be off for. */
static void peal_poller_end_pass(struct work_struct *work)
{
	struct peal_engine *e = container_of(work, struct peal_engine, last_pass);

	while (!peal_poller_scan(e)) {
		peal_poller_leave_work(e);
		cond_resched();
	}
	peal_poller_leave_work(e);
}

/* Is this CPU idle but for us? Otherwise every pass would steal from somebody. */
static bool peal_poller_may_spin(void)
{
	return single_task_running() && !need_resched();
}

/* Until there was no work for a while, somebody wants the CPU, or it is time. */
static bool peal_poller_spin_for(struct peal_engine *e, u64 *idle_since)
{
	u64 begin = local_clock();
	u64 now = begin;

	while (peal_poller_may_spin() && now - begin < PEAL_BREATH_NS) {
		peal_poller_scan(e);
		if (peal_worker_serve_next(e))
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
 * The rule that keeps programs from waiting for a thread that does not run:
 * while the doorbell words say AWAKE, preemption is off on this CPU and
 * need_resched() is looked at after each turn. So the thread is never scheduled
 * out with the words up, whatever the kernel's preemption model.
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

/* The state is set before each look, so that no wake-up falls between the two. */
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

/* SCHED_IDLE: the scheduler counts the CPU as idle and preempts us at once. */
int peal_poller_start(struct peal_engine *e, const char *name)
{
	peal_roster_init(&e->roster);
	INIT_WORK(&e->last_pass, peal_poller_end_pass);
	e->thread = kthread_create(peal_poller_thread, e, "%s-engine", name);
	if (IS_ERR(e->thread))
		return PTR_ERR(e->thread);
	peal_poller_set_policy(e, SCHED_IDLE);
	wake_up_process(e->thread);
	return 0;
}

/*
 * To end, the thread must run, and at SCHED_IDLE busy CPUs would let it wait for a second.
 */
void peal_poller_stop(struct peal_engine *e)
{
	peal_poller_set_policy(e, SCHED_NORMAL);
	kthread_stop(e->thread);
}
