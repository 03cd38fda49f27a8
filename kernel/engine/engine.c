// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See engine.h.
 */
#include <linux/irqflags.h>
#include <linux/kthread.h>
#include <linux/preempt.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/sched/clock.h>
#include <linux/sched/signal.h>
#include <linux/sched/stat.h>
#include <uapi/linux/sched/types.h>

#include "base/compat.h"
#include "base/guard.h"
#include "base/workers.h"
#include "engine/engine.h"
#include "transport/requester.h"

/* One turn of a queue pair: locks are held and softirqs are off this long (budget.h). */
#define PEAL_TURN_BUDGET	(64 << 10)

/* What the caller of a kick does in turns before the worker takes over. */
#define PEAL_KICK_BUDGET	(4 * PEAL_TURN_BUDGET)

/*
 * Kicks on one CPU, none later than this after the one before, that make the
 * thread worth a wake-up; a wake-up costs as much as a hundred of them.
 */
#define PEAL_STREAK_GAP_NS	(20 * NSEC_PER_USEC)
#define PEAL_STREAK_LENGTH	64

/* The same for a work: behind it wait those of other queue pairs. */
#define PEAL_WORK_BUDGET	(4 * PEAL_TURN_BUDGET)

/*
 * What timers do on one CPU in a jiffy, the rest is the worker's: all that are due run in
 * one softirq, and a program's queue pairs can all wait for the same moment.
 */
#define PEAL_TIMERS_BUDGET	(16 * PEAL_TURN_BUDGET)

/* Sections of the last scan before the thread sleeps that preemption is off for. */
#define PEAL_LAST_SECTIONS	2

/* Packets have left a CPU's queue by then, also where its ksoftirqd had to wait. */
#define PEAL_HOME_JIFFIES	(HZ / 10)

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

/* What is left to a CPU's timers; they alone use it. */
struct peal_allowance {
	u64 jiffy;			/* in which it was given */
	struct peal_budget budget;
};

static DEFINE_PER_CPU(struct peal_allowance, peal_allowance);

/* Hardly ever offline; then the work runs anywhere, which is as good as it gets. */
static void peal_engine_send_home(struct peal_engine *e, struct peal_qp *qp)
{
	queue_work_on(READ_ONCE(qp->run.home), e->homes, &qp->run.work);
}

/*
 * May packets be sent from here? UC loses what is overtaken, so that it stays on
 * one CPU while some may be on their way from there. Under sq.lock.
 */
static bool peal_engine_is_home(struct peal_qp *qp)
{
	struct peal_run *run = &qp->run;

	if (likely(!qp->on_wire))
		return true;
	if (qp->ib.qp_type == IB_QPT_UC && qp->state == IB_QPS_RTS &&
	    run->home != smp_processor_id() && cpu_online(run->home) &&
	    time_before(jiffies, run->home_at + PEAL_HOME_JIFFIES))
		return false;
	WRITE_ONCE(run->home, smp_processor_id());
	run->home_at = jiffies;
	return true;
}

/*
 * Leave work to somebody else. Any context. Barrier B, here between the run list and
 * `awake`: either the thread finds the entry in its last look before it sleeps,
 * or we see that it is asleep and call the worker.
 */
void peal_engine_defer(struct peal_engine *e, struct peal_qp *qp)
{
	peal_count(e->table, deferrals);
	if (qp->on_wire) {
		peal_engine_send_home(e, qp);
		return;
	}
	peal_runlist_add(&e->run, qp);
	smp_mb();	/* B */
	if (!READ_ONCE(e->awake))
		peal_workers_queue(&e->work);
}

/* Inside the guard, in a program's call. */
static void peal_engine_leave(struct peal_engine *e, struct peal_qp *qp)
{
	peal_runlist_owe(&e->run, qp);
	peal_engine_defer(e, qp);
}

/* Whoever a burst wants in error goes there now that no lock is held. Inside the guard. */
void peal_engine_settle(struct peal_engine *e, struct peal_burst *burst)
{
	struct peal_qp *qp;
	u32 i;

	for (i = 0; i < burst->num_failed; i++) {
		qp = burst->failed[i].qp;
		peal_qp_end(qp, burst->failed[i].life);
		peal_engine_defer(qp->run.engine, qp);
	}
	peal_burst_raise(burst);
}

/* One turn of @whole. Inside the guard. Return: true when there is more to do now. */
static bool peal_engine_turn_of(struct peal_engine *e, struct peal_qp *qp,
				struct peal_budget *whole)
{
	struct peal_budget budget = { .left = PEAL_TURN_BUDGET };
	struct peal_burst burst PEAL_UNINITIALIZED;
	bool more = false;

	peal_burst_begin(&burst);
	spin_lock(&qp->sq.lock);
	if (likely(peal_engine_is_home(qp))) {
		more = peal_requester_run(qp, &burst, &budget);
		peal_engine_remind(qp, peal_requester_deadline(qp));
	} else {
		peal_engine_send_home(e, qp);
	}
	spin_unlock(&qp->sq.lock);
	peal_engine_settle(e, &burst);
	peal_budget_spend(whole, PEAL_TURN_BUDGET - budget.left);
	return more;
}

static bool peal_engine_turn(struct peal_engine *e, struct peal_qp *qp)
{
	struct peal_budget whole = { .left = PEAL_TURN_BUDGET };

	return peal_engine_turn_of(e, qp, &whole);
}

/* A turn for the first on the run list; unfinished, it goes to the end. */
static bool peal_engine_serve_next(struct peal_engine *e)
{
	struct peal_qp *qp;

	if (peal_runlist_is_empty(&e->run))
		return false;
	peal_guard_enter();
	qp = peal_runlist_pop(&e->run);
	if (qp && peal_engine_turn(e, qp)) {
		peal_runlist_owe(&e->run, qp);
		peal_runlist_add(&e->run, qp);
	}
	peal_guard_exit();
	return qp;
}

static void peal_engine_work(struct work_struct *work)
{
	struct peal_engine *e = container_of(work, struct peal_engine, work);

	while (peal_engine_serve_next(e))
		cond_resched();
}

/*
 * Some turns; others of this CPU run in between. What is left then goes behind
 * the works that wait, of which a CPU runs only so many at a time.
 */
static void peal_engine_work_home(struct work_struct *work)
{
	struct peal_qp *qp = container_of(work, struct peal_qp, run.work);
	struct peal_budget budget = { .left = PEAL_WORK_BUDGET };
	struct peal_engine *e = qp->run.engine;
	bool more = true;

	if (peal_runlist_is_overdue(qp))
		peal_runlist_remove(&e->run, qp);
	while (more && peal_budget_is_left(&budget)) {
		peal_guard_enter();
		more = peal_engine_turn_of(e, qp, &budget);
		peal_guard_exit();
		cond_resched();
	}
	if (more) {
		peal_runlist_owe(&e->run, qp);
		peal_engine_send_home(e, qp);
	}
}

/* Inside the guard, in softirq: no other timer of ours comes in between. */
static struct peal_budget *peal_engine_timers_budget(void)
{
	struct peal_allowance *allowance = this_cpu_ptr(&peal_allowance);
	u64 now = get_jiffies_64();

	if (allowance->jiffy != now)
		*allowance = (struct peal_allowance){
			.jiffy = now, .budget.left = PEAL_TIMERS_BUDGET,
		};
	return &allowance->budget;
}

/* Return: true when there is more to do, or all of it. */
static bool peal_engine_timer_turn(struct peal_engine *e, struct peal_qp *qp)
{
	struct peal_budget *budget = peal_engine_timers_budget();

	if (unlikely(!peal_budget_is_left(budget)))
		return true;
	peal_budget_spend(budget, PEAL_COST_PIECE);
	return peal_engine_turn_of(e, qp, budget);
}

static enum hrtimer_restart peal_engine_timer(struct hrtimer *timer)
{
	struct peal_qp *qp = container_of(timer, struct peal_qp, run.alarm.timer);
	struct peal_engine *e = qp->run.engine;

	peal_guard_enter();
	smp_mb();	/* J: pairs with peal_alarm_set_to() */
	if (peal_engine_timer_turn(e, qp))
		peal_engine_defer(e, qp);
	peal_guard_exit();
	return HRTIMER_NORESTART;
}

/* ---- the kick ---- */

static void peal_engine_want_thread(struct peal_engine *e, u64 now)
{
	if (READ_ONCE(e->awake) || READ_ONCE(e->wanted) || now < READ_ONCE(e->not_before))
		return;
	WRITE_ONCE(e->wanted, true);
	wake_up_process(e->thread);
}

/* Inside the guard: the CPU does not change. */
static void peal_engine_note_kick(struct peal_engine *e)
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
		peal_engine_want_thread(e, now);
	}
}

/* Run @index's send queue here and now. The guard is left between turns. */
static int peal_engine_kick_send(struct peal_context *ctx, unsigned long index,
				 struct peal_budget *budget)
{
	struct peal_engine *e = ctx->engine;
	struct peal_qp *qp;
	bool more = true;

	while (more) {
		peal_guard_enter();
		qp = peal_context_qp(ctx, index);
		more = qp && peal_engine_turn_of(e, qp, budget);
		if (unlikely(more && !peal_budget_is_left(budget))) {
			peal_engine_leave(e, qp);
			more = false;
		}
		if (!more)
			peal_engine_note_kick(e);
		peal_guard_exit();
	}
	return qp ? 0 : -ENOENT;
}

/*
 * Under @sender's sq.lock. A program names any queue pair as its peer; who does
 * not send to it must not be disturbed, since each try in vain costs a retry.
 */
static bool peal_engine_sends_to(const struct peal_qp *sender, const struct peal_qp *qp)
{
	if (sender->ib.qp_type != IB_QPT_RC || sender->attr.dest_qp_num != qp->ib.qp_num)
		return false;
	if (sender->on_wire)
		return sender->reach.direct && sender->reach.proven == qp->reach.home->number;
	return sender->table == qp->table;
}

/*
 * Worth locking @sender for? Not when it names another queue pair as its peer, so that
 * a program cannot disturb those of others by naming them. The answer is a hint;
 * peal_engine_sends_to() decides.
 */
static bool peal_engine_may_send_to(const struct peal_qp *sender, const struct peal_qp *qp)
{
	return sender->ib.qp_type == IB_QPT_RC &&
	       READ_ONCE(sender->attr.dest_qp_num) == qp->ib.qp_num;
}

/* The one sender that can be waiting for this queue pair's receives. */
static struct peal_qp *peal_engine_sender(struct peal_engine *e, struct peal_qp *qp)
{
	struct peal_qp *sender = NULL;
	struct peal_table *table;
	bool waited;
	u32 home;

	smp_rmb();	/* K: the flag was seen, pairs with peal_rq_note_waiter() */
	home = READ_ONCE(qp->rq.waiter);
	table = home ? peal_reach_home_table(home) : e->table;
	if (table)
		sender = peal_table_qp(table, READ_ONCE(qp->attr.dest_qp_num));
	if (!sender || !peal_engine_may_send_to(sender, qp))
		return NULL;
	spin_lock(&sender->sq.lock);
	waited = peal_engine_sends_to(sender, qp) && peal_requester_wake(sender);
	spin_unlock(&sender->sq.lock);
	return waited ? sender : NULL;
}

/* Inside the guard. Receives were posted: run who waits, and flush if in error. */
static void peal_engine_received(struct peal_engine *e, struct peal_qp *qp,
				 struct peal_budget *budget)
{
	struct peal_qp *sender = peal_engine_sender(e, qp);

	if (sender && peal_engine_turn_of(sender->run.engine, sender, budget))
		peal_engine_leave(sender->run.engine, sender);
	if (READ_ONCE(qp->state) == IB_QPS_ERR && peal_engine_turn_of(e, qp, budget))
		peal_engine_leave(e, qp);
}

static int peal_engine_kick_recv(struct peal_context *ctx, unsigned long index,
				 struct peal_budget *budget)
{
	struct peal_qp *qp;

	peal_guard_enter();
	qp = peal_context_qp(ctx, index);
	if (qp)
		peal_engine_received(ctx->engine, qp, budget);
	peal_guard_exit();
	return qp ? 0 : -ENOENT;
}

/* Packets that leave from another CPU than those before them overtake, which costs more. */
static bool peal_engine_is_elsewhere(const struct peal_qp *qp)
{
	return qp->on_wire && READ_ONCE(qp->run.home) != smp_processor_id();
}

/* A turn. Inside the guard. Return: false when there is nothing that this CPU may do. */
static bool peal_engine_serve_overdue(struct peal_context *ctx, struct peal_budget *budget)
{
	struct peal_engine *e = ctx->engine;
	struct peal_qp *qp = peal_runlist_pop_overdue(&e->run, ctx);

	if (!qp)
		return false;
	if (peal_engine_is_elsewhere(qp)) {
		peal_runlist_owe(&e->run, qp);
		return false;
	}
	peal_count(e->table, overdue_turns);
	peal_budget_spend(budget, PEAL_COST_WQE);
	if (peal_engine_turn_of(e, qp, budget))
		peal_engine_leave(e, qp);
	return true;
}

/*
 * What earlier calls of this context have left to the worker, as far as the worker has
 * not begun with it and this kick's budget goes. The queue pairs take turns.
 */
static void peal_engine_kick_overdue(struct peal_context *ctx, struct peal_budget *budget)
{
	bool more = true;

	while (more && peal_budget_is_left(budget)) {
		peal_guard_enter();
		more = peal_engine_serve_overdue(ctx, budget);
		peal_guard_exit();
	}
}

static int peal_engine_knock(void *owner, unsigned int cmd, unsigned long arg)
{
	struct peal_budget budget = { .left = PEAL_KICK_BUDGET };
	struct peal_context *ctx = owner;
	struct peal_engine *e = ctx->engine;
	int ret;

	peal_count(e->table, kicks);
	if (likely(cmd == PEAL_IOC_KICK_SEND))
		ret = peal_engine_kick_send(ctx, arg, &budget);
	else if (cmd == PEAL_IOC_KICK_RECV)
		ret = peal_engine_kick_recv(ctx, arg, &budget);
	else
		return -ENOTTY;
	if (unlikely(!list_empty(&ctx->overdue)))
		peal_engine_kick_overdue(ctx, &budget);
	return ret;
}

const struct peal_door_ops peal_engine_door_ops = { .knock = peal_engine_knock };

/* ---- the thread ---- */

static void peal_engine_rung(void *owner, struct peal_qp *qp)
{
	struct peal_engine *e = owner;

	peal_count(e->table, doorbells);
	peal_runlist_add(&e->run, qp);
}

/* From doorbells to run list. Return: false when the pass is not at its end. */
static bool peal_engine_scan(struct peal_engine *e)
{
	return peal_roster_scan(&e->roster, peal_engine_rung, e);
}

/*
 * B: "asleep" is visible before the last scan. The programs' half sits between
 * their doorbell bit and their second look at the word, the kernel's other half in
 * peal_engine_defer().
 */
static void peal_engine_announce(struct peal_engine *e, bool awake)
{
	WRITE_ONCE(e->awake, awake);
	peal_roster_announce(&e->roster, awake);
	smp_mb();	/* B */
}

/* May sleep: kernels 5.3 to 6.4 take a percpu rwsem here, unless they have the fix. */
static void peal_engine_set_policy(struct peal_engine *e, int policy)
{
	struct sched_attr attr = { .size = sizeof(attr), .sched_policy = policy };

	might_sleep();
	sched_setattr_nocheck(e->thread, &attr);
}

static void peal_engine_leave_work(struct peal_engine *e)
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
static bool peal_engine_fall_asleep(struct peal_engine *e)
{
	bool done = false;
	u32 i;

	peal_engine_announce(e, false);
	peal_roster_begin_pass(&e->roster);
	for (i = 0; i < PEAL_LAST_SECTIONS && !done; i++)
		done = peal_engine_scan(e);
	peal_engine_leave_work(e);
	if (unlikely(!done))
		peal_workers_queue(&e->last_pass);
	return done;
}

/* The rest of the last pass, of more contexts than preemption can be off for. */
static void peal_engine_end_pass(struct work_struct *work)
{
	struct peal_engine *e = container_of(work, struct peal_engine, last_pass);

	while (!peal_engine_scan(e)) {
		peal_engine_leave_work(e);
		cond_resched();
	}
	peal_engine_leave_work(e);
}

/* Is this CPU idle but for us? Otherwise every pass would steal from somebody. */
static bool peal_engine_may_spin(void)
{
	return single_task_running() && !need_resched();
}

/* Until there was no work for a while, somebody wants the CPU, or it is time. */
static bool peal_engine_spin_for(struct peal_engine *e, u64 *idle_since)
{
	u64 begin = local_clock();
	u64 now = begin;

	while (peal_engine_may_spin() && now - begin < PEAL_BREATH_NS) {
		peal_engine_scan(e);
		if (peal_engine_serve_next(e))
			*idle_since = now;
		else
			cpu_relax();
		now = local_clock();
		if (now - *idle_since > PEAL_IDLE_NS)
			return false;
	}
	return peal_engine_may_spin();
}

/*
 * The rule that keeps programs from waiting for a thread that does not run:
 * while the doorbell words say AWAKE, preemption is off on this CPU and
 * need_resched() is looked at after each turn. So the thread is never scheduled
 * out with the words up, whatever the kernel's preemption model.
 */
static void peal_engine_spin(struct peal_engine *e)
{
	u64 idle_since = local_clock();
	bool on;

	peal_count(e->table, engine_wakeups);
	do {
		bool done = true;

		preempt_disable();
		on = peal_engine_may_spin();
		if (on) {
			peal_engine_announce(e, true);
			on = peal_engine_spin_for(e, &idle_since);
			done = peal_engine_fall_asleep(e);
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
static int peal_engine_thread(void *arg)
{
	struct peal_engine *e = arg;

	set_current_state(TASK_IDLE);
	while (!kthread_should_stop()) {
		if (READ_ONCE(e->wanted)) {
			__set_current_state(TASK_RUNNING);
			peal_engine_spin(e);
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
static int peal_engine_start_thread(struct peal_engine *e, const char *name)
{
	e->thread = kthread_create(peal_engine_thread, e, "%s-engine", name);
	if (IS_ERR(e->thread))
		return PTR_ERR(e->thread);
	peal_engine_set_policy(e, SCHED_IDLE);
	wake_up_process(e->thread);
	return 0;
}

/**
 * peal_engine_start() - make the engine of a device
 * @table: the device's
 * @name: the device's; names the thread
 *
 * Return: 0 or an error, all undone.
 */
int peal_engine_start(struct peal_engine *e, struct peal_table *table, const char *name)
{
	int ret;

	e->table = table;
	peal_runlist_init(&e->run);
	peal_roster_init(&e->roster);
	INIT_WORK(&e->work, peal_engine_work);
	INIT_WORK(&e->last_pass, peal_engine_end_pass);
	e->homes = alloc_workqueue("peal-%s-home", PEAL_WQ_PERCPU | WQ_CPU_INTENSIVE |
				   WQ_MEM_RECLAIM, 0, name);
	if (!e->homes)
		return -ENOMEM;
	ret = peal_engine_start_thread(e, name);
	if (ret)
		destroy_workqueue(e->homes);
	return ret;
}

/*
 * All queue pairs and contexts have been removed. Kicks that had passed a door before
 * it was revoked still count and wake the thread: one grace period ends them all, expedited
 * because an administrator waits. To end, the thread must run, and at SCHED_IDLE busy
 * CPUs would let it wait for a second.
 */
void peal_engine_stop(struct peal_engine *e)
{
	synchronize_rcu_expedited();
	peal_engine_set_policy(e, SCHED_NORMAL);
	kthread_stop(e->thread);
	cancel_work_sync(&e->work);
	destroy_workqueue(e->homes);
}

/* Return: a context whose door is still shut, ERR_PTR(-ENOMEM) or ERR_PTR(-EMFILE). */
struct peal_context *peal_engine_add_context(struct peal_engine *e, struct ib_ucontext *ib,
					     struct peal_quota *quota)
{
	struct peal_context *ctx = peal_context_create(ib, quota, &peal_engine_door_ops, e);

	if (!IS_ERR(ctx))
		peal_roster_add(&e->roster, ctx);
	return ctx;
}

/*
 * The door was revoked or discarded. The guard is for the thread, which may still look
 * at the doorbells; to wait for it takes no longer than a section of another CPU lasts.
 * Kicks may be under way until a grace period is over: see peal_engine_stop().
 */
void peal_engine_remove_context(struct peal_engine *e, struct peal_context *ctx)
{
	peal_roster_remove(&e->roster, ctx);
	peal_guard_wait();
	peal_context_destroy(ctx);
}

void peal_engine_add_qp(struct peal_engine *e, struct peal_qp *qp)
{
	qp->run.engine = e;
	peal_runlist_init_qp(qp);
	INIT_WORK(&qp->run.work, peal_engine_work_home);
	peal_alarm_init(&qp->run.alarm, peal_engine_timer);
}

/*
 * The queue pair is unpublished: it is in RESET and nobody can find it but who
 * has done so before. Those end with the first wait. What is left is the timer,
 * the work and the run list, and none of them finds anything to do.
 */
void peal_engine_remove_qp(struct peal_engine *e, struct peal_qp *qp)
{
	peal_guard_wait();
	peal_alarm_cancel(&qp->run.alarm);
	cancel_work_sync(&qp->run.work);
	peal_runlist_remove(&e->run, qp);
	peal_guard_wait();
}

/*
 * May a queue be run right here? Not with interrupts off, and not from a handler
 * that we have called: it posts, that completes, it is called again, and the
 * stack is finite.
 */
static bool peal_engine_may_run_here(void)
{
	return !irqs_disabled() && !in_hardirq() && !peal_guard_held();
}

/* Something changed: there may be something to send or to flush. Any context. */
void peal_engine_poke(struct peal_engine *e, struct peal_qp *qp)
{
	if (!peal_engine_may_run_here()) {
		peal_engine_defer(e, qp);
		return;
	}
	peal_guard_enter();
	if (peal_engine_turn(e, qp))
		peal_engine_leave(e, qp);
	peal_guard_exit();
}

/*
 * A kernel user posted receives that somebody waits for. From where nothing can
 * be run the sender's timer has to do.
 */
void peal_engine_poke_sender(struct peal_engine *e, struct peal_qp *qp)
{
	struct peal_budget budget = { .left = PEAL_KICK_BUDGET };

	if (!peal_engine_may_run_here()) {
		peal_engine_defer(e, qp);
		return;
	}
	peal_guard_enter();
	peal_engine_received(e, qp, &budget);
	peal_guard_exit();
}

/* So many turns flush whatever the rings hold, with one for messages under way. */
static u32 peal_engine_flush_turns(const struct peal_qp *qp)
{
	u64 wqes = 2ULL * (qp->sq.ring.mask + 1) + qp->rq.ring.mask + 1;

	return 2 + wqes * PEAL_COST_WQE / PEAL_TURN_BUDGET;
}

/* Where removal stands. */
struct peal_abandoned {
	unsigned long place;	/* in the table */
	u32 turns;		/* that this one has had */
};

/*
 * One turn of flushing. A program that goes on posting gets what fits into its
 * rings flushed, and removal does not wait for it. Return: false when there is no
 * queue pair left.
 */
static bool peal_engine_abandon_next(struct peal_engine *e, struct peal_abandoned *at)
{
	struct peal_qp *qp;
	bool more = false;

	peal_guard_enter();
	qp = xa_find(&e->table->qps, &at->place, ULONG_MAX, XA_PRESENT);
	if (qp && qp->ib.qp_type != IB_QPT_GSI) {
		peal_qp_mark_removed(qp);
		peal_qp_fail(qp);
		more = peal_engine_turn(e, qp) && ++at->turns < peal_engine_flush_turns(qp);
	}
	peal_guard_exit();
	if (!more)
		*at = (struct peal_abandoned){ .place = at->place + 1 };
	return qp;
}

/**
 * peal_engine_abandon() - the device goes, its programs stay
 *
 * Everything posted comes back flushed, while the programs' rings still exist.
 * The GSI is the core's: connections of kernel users end by it a little later.
 * Who posts looks at the word before it publishes, and kicks when it sees GONE
 * afterwards. What is published behind the flush, because the first look was before, is
 * flushed by that kick, or ends with its queue pair.
 */
void peal_engine_abandon(struct peal_engine *e)
{
	struct peal_abandoned at = { };

	peal_roster_leave(&e->roster);
	smp_mb();	/* B */
	while (peal_engine_abandon_next(e, &at))
		cond_resched();
}

/* The device moved to another namespace, and lives there. */
void peal_engine_return(struct peal_engine *e)
{
	peal_roster_return(&e->roster);
}
