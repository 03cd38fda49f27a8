// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See poller.h.
 */
#include <linux/bitops.h>
#include <linux/kthread.h>
#include <linux/percpu.h>
#include <linux/preempt.h>
#include <linux/rculist.h>
#include <linux/sched.h>
#include <linux/sched/clock.h>
#include <linux/sched/signal.h>
#include <linux/sched/stat.h>
#include <uapi/linux/sched/types.h>

#include "base/epoch.h"
#include "engine/poller.h"
#include "engine/engine.h"

/* The thread sleeps after it has spun for so long without work. */
#define PEAL_IDLE_NS		(50 * NSEC_PER_USEC)
/* Enable preemption at least this often, because RCU and the scheduler's bookkeeping need it. */
#define PEAL_BREATH_NS		NSEC_PER_MSEC
/* When its CPU is not idle, the thread does not try to spin again for so long. */
#define PEAL_BACKOFF_NS		(10 * NSEC_PER_MSEC)

/*
 * A program may open any number of contexts, so each walk of the list ends after this many. When
 * the engine wakes up, this many contexts are told, and the programs of the others still kick,
 * which is only slower. One section of the epoch scans this many contexts and doorbell words,
 * together.
 */
#define PEAL_SCAN_PART		512

DEFINE_PER_CPU(struct peal_streak, peal_streak);

/* There were PEAL_STREAK_KICKS kicks in this jiffy. Let the thread try to spin. */
void peal_poller_want(struct peal_poller *poller)
{
	peal_epoch_assert_held();
	if (num_online_cpus() == 1 || READ_ONCE(poller->awake) || READ_ONCE(poller->wanted) ||
	    local_clock() < READ_ONCE(poller->not_before))
		return;
	WRITE_ONCE(poller->wanted, true);
	wake_up_process(poller->thread);
}

/* ---- contexts, and what their pages say ---- */

void peal_poller_add(struct peal_poller *poller, struct peal_context *ctx)
{
	spin_lock(&poller->lock);
	list_add_tail_rcu(&ctx->node, &poller->contexts);
	peal_context_set_listed(ctx, true);
	if (poller->gone)
		peal_context_set_state(ctx, PEAL_ENGINE_GONE);
	spin_unlock(&poller->lock);
}

/* The scanner may still use @ctx until the caller has waited for the epoch. */
void peal_poller_remove(struct peal_poller *poller, struct peal_context *ctx)
{
	spin_lock(&poller->lock);
	list_del_rcu(&ctx->node);
	list_del_init(&ctx->awake);
	peal_context_set_listed(ctx, false);
	spin_unlock(&poller->lock);
}

/* Only pages on the list `told` say AWAKE. */
static void peal_poller_say_asleep(struct peal_poller *poller)
{
	struct peal_context *ctx, *next;

	lockdep_assert_held(&poller->lock);
	list_for_each_entry_safe(ctx, next, &poller->told, awake) {
		peal_context_set_state(ctx, PEAL_ENGINE_ASLEEP);
		list_del_init(&ctx->awake);
	}
}

/*
 * The device is being removed, or has moved to another network namespace, where programs that have
 * opened it meanwhile may post. While it is gone, all pages say so. The length of the list is
 * acceptable here, because this is rare.
 */
void peal_poller_set_gone(struct peal_poller *poller, bool gone)
{
	struct peal_context *ctx;

	spin_lock(&poller->lock);
	poller->gone = gone;
	peal_poller_say_asleep(poller);
	list_for_each_entry(ctx, &poller->contexts, node)
		peal_context_set_state(ctx, gone ? PEAL_ENGINE_GONE : PEAL_ENGINE_ASLEEP);
	spin_unlock(&poller->lock);
}

/*
 * Tell programs the engine's state. Of the contexts those at the front are told AWAKE. A long pass
 * moves contexts that it has scanned to the end, so the next announcement tells others.
 *
 * B: ASLEEP is visible before the last scan. The programs' half is between their doorbell bit
 * and their second look at the word. The other half in the kernel is in peal_defer_anywhere().
 */
static void peal_poller_announce(struct peal_poller *poller, bool awake)
{
	struct peal_context *ctx;
	u32 told = 0;

	WRITE_ONCE(poller->awake, awake);
	spin_lock(&poller->lock);
	if (!awake) {
		peal_poller_say_asleep(poller);
	} else if (!poller->gone) {
		list_for_each_entry(ctx, &poller->contexts, node) {
			if (told++ == PEAL_SCAN_PART)
				break;
			peal_context_set_state(ctx, PEAL_ENGINE_AWAKE);
			list_move(&ctx->awake, &poller->told);
		}
	}
	spin_unlock(&poller->lock);
	smp_mb();	/* B */
}

/* ---- scanning ---- */

/*
 * Let the next section begin at @ctx. The scanner reads the list without the lock, so @ctx may have
 * been removed since. In that case the next section begins at the first context that this pass has
 * not scanned.
 */
static void peal_poller_continue_at(struct peal_poller *poller, struct peal_context *ctx)
{
	struct peal_context *other;

	spin_lock(&poller->lock);
	if (unlikely(!ctx->listed)) {
		ctx = NULL;
		list_for_each_entry(other, &poller->contexts, node) {
			if (!peal_context_was_scanned(other, poller->pass)) {
				ctx = other;
				break;
			}
		}
	}
	if (ctx)
		list_rotate_to_front(&ctx->node, &poller->contexts);
	spin_unlock(&poller->lock);
}

/*
 * Scan doorbells for one section of the epoch, and put the queue pairs whose doorbells were rung on
 * the run list. A section covers a limited number of contexts, because a program may open any
 * number of them.
 *
 * Contexts that were scanned are at the end of the list. Contexts behind those were opened during
 * this pass and need no scan, because they were not told that the engine is awake.
 *
 * Return: false when the pass has not ended.
 */
static bool peal_poller_scan(struct peal_engine *e)
{
	struct peal_poller *poller = &e->poller;
	struct peal_context *ctx, *next = NULL;
	u32 seen = 0, words, w;	/* contexts and doorbell words seen */
	struct peal_qp *qp;
	u64 bits;

	peal_epoch_enter();
	list_for_each_entry_rcu(ctx, &poller->contexts, node, peal_epoch_held()) {
		if (peal_context_was_scanned(ctx, poller->pass))
			break;
		if (seen >= PEAL_SCAN_PART) {
			next = ctx;
			break;
		}
		words = peal_context_begin_scan(ctx, poller->pass);
		seen += 1 + words;
		for (w = 0; w < words; w++) {
			for (bits = peal_context_take_bits(ctx, w); bits; bits &= bits - 1) {
				qp = peal_context_qp(ctx, w * 64 + __ffs64(bits));
				if (!qp)
					continue;
				peal_count(e->table, doorbells);
				peal_runlist_add(&e->run, &e->run.any, qp);
			}
		}
	}
	if (unlikely(next))
		peal_poller_continue_at(poller, next);
	peal_epoch_exit();
	poller->pass += !next;
	return !next;
}

/* ---- the thread ---- */

/* May sleep, because kernels 5.3 to 6.4 take a percpu rwsem here unless they have the fix. */
static void peal_poller_set_policy(struct peal_poller *poller, int policy)
{
	struct sched_attr attr = { .size = sizeof(attr), .sched_policy = policy };

	might_sleep();
	sched_setattr_nocheck(poller->thread, &attr);
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

	peal_poller_announce(&e->poller, false);
	e->poller.pass++;	/* scan every context again */
	done = peal_poller_scan(e);
	peal_poller_leave_work(e);
	if (unlikely(!done))
		peal_workers_queue(&e->poller.last_pass);
	return done;
}

/* Finish a last pass that has more contexts than preemption may be off for. */
static void peal_poller_end_pass(struct work_struct *work)
{
	struct peal_engine *e = container_of(work, struct peal_engine, poller.last_pass);

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
			peal_poller_announce(&e->poller, true);
			on = peal_poller_spin_for(e, &idle_since);
			done = peal_poller_fall_asleep(e);
		} else {
			WRITE_ONCE(e->poller.not_before, local_clock() + PEAL_BACKOFF_NS);
		}
		preempt_enable();
		if (unlikely(!done))
			flush_work(&e->poller.last_pass);
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
		if (READ_ONCE(e->poller.wanted)) {
			__set_current_state(TASK_RUNNING);
			peal_poller_spin(e);
			WRITE_ONCE(e->poller.wanted, false);
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
	struct peal_poller *poller = &e->poller;

	spin_lock_init(&poller->lock);
	INIT_LIST_HEAD(&poller->contexts);
	INIT_LIST_HEAD(&poller->told);
	poller->pass = 1;	/* a new context has pass 0, so it is not scanned yet */
	INIT_WORK(&poller->last_pass, peal_poller_end_pass);
	poller->thread = kthread_create(peal_poller_thread, e, "%s-engine", name);
	if (IS_ERR(poller->thread))
		return PTR_ERR(poller->thread);
	peal_poller_set_policy(poller, SCHED_IDLE);
	wake_up_process(poller->thread);
	return 0;
}

/* The thread must run in order to end. As SCHED_IDLE it could wait for a second on busy CPUs. */
void peal_poller_stop(struct peal_engine *e)
{
	peal_poller_set_policy(&e->poller, SCHED_NORMAL);
	kthread_stop(e->poller.thread);
}
