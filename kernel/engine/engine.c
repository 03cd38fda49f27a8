// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See engine.h.
 */
#include <linux/cpumask.h>
#include <linux/percpu.h>

#include "base/compat.h"
#include "base/epoch.h"
#include "engine/engine.h"

static void peal_runlist_init(struct peal_runlist *list, struct peal_engine *engine,
			      work_func_t work)
{
	INIT_LIST_HEAD(&list->qps);
	list->looks = PEAL_RUNLIST_SERVED;
	list->engine = engine;
	INIT_WORK(&list->work, work);
}

/* Return: 0 or -ENOMEM. */
int peal_runlists_init(struct peal_runlists *lists, struct peal_engine *engine, work_func_t work)
{
	int cpu;

	lists->cpu = alloc_percpu(struct peal_runlist);
	if (!lists->cpu)
		return -ENOMEM;
	spin_lock_init(&lists->lock);
	peal_runlist_init(&lists->any, engine, work);
	for_each_possible_cpu(cpu)
		peal_runlist_init(per_cpu_ptr(lists->cpu, cpu), engine, work);
	return 0;
}

/* The works have ended. */
void peal_runlists_free(struct peal_runlists *lists)
{
	free_percpu(lists->cpu);
}

void peal_runlist_init_qp(struct peal_qp *qp)
{
	INIT_LIST_HEAD(&qp->run.node);
	INIT_LIST_HEAD(&qp->run.overdue);
}

static void peal_runlist_add_locked(struct peal_runlists *lists, struct peal_runlist *list,
				    struct peal_qp *qp)
{
	lockdep_assert_held(&lists->lock);
	if (list->looks == PEAL_RUNLIST_WAITS && list_empty(&list->qps))
		WRITE_ONCE(list->looks, PEAL_RUNLIST_SERVED);	/* it begins to wait */
	if (list_empty(&qp->run.node))
		list_add_tail(&qp->run.node, &list->qps);
}

static void peal_runlist_mark_locked(struct peal_runlists *lists, struct peal_qp *qp)
{
	lockdep_assert_held(&lists->lock);
	if (qp->context && list_empty(&qp->run.overdue))
		list_add_tail(&qp->run.overdue, &qp->context->overdue);
}

/* If @qp is on another run list already, it stays there. */
void peal_runlist_add(struct peal_runlists *lists, struct peal_runlist *list, struct peal_qp *qp)
{
	unsigned long flags;

	spin_lock_irqsave(&lists->lock, flags);
	peal_runlist_add_locked(lists, list, qp);
	spin_unlock_irqrestore(&lists->lock, flags);
}

/* The turn that followed peal_runlist_pop() ended before the work of @qp. */
void peal_runlist_return(struct peal_runlists *lists, struct peal_runlist *list,
			 struct peal_qp *qp)
{
	unsigned long flags;

	spin_lock_irqsave(&lists->lock, flags);
	peal_runlist_add_locked(lists, list, qp);
	peal_runlist_mark_locked(lists, qp);
	spin_unlock_irqrestore(&lists->lock, flags);
}

/* A turn of @qp ended before its work. The next kick of its context may go on with it. */
void peal_runlist_mark_overdue(struct peal_runlists *lists, struct peal_qp *qp)
{
	unsigned long flags;

	if (!qp->context)
		return;
	spin_lock_irqsave(&lists->lock, flags);
	peal_runlist_mark_locked(lists, qp);
	spin_unlock_irqrestore(&lists->lock, flags);
}

static void peal_runlist_take(struct peal_runlists *lists, struct peal_qp *qp)
{
	lockdep_assert_held(&lists->lock);
	list_del_init(&qp->run.node);
	list_del_init(&qp->run.overdue);
}

void peal_runlist_remove(struct peal_runlists *lists, struct peal_qp *qp)
{
	unsigned long flags;

	spin_lock_irqsave(&lists->lock, flags);
	peal_runlist_take(lists, qp);
	spin_unlock_irqrestore(&lists->lock, flags);
}

/* Return: the first queue pair on @list, or NULL. */
struct peal_qp *peal_runlist_pop(struct peal_runlists *lists, struct peal_runlist *list)
{
	struct peal_qp *qp;
	unsigned long flags;

	spin_lock_irqsave(&lists->lock, flags);
	WRITE_ONCE(list->looks, PEAL_RUNLIST_SERVED);
	qp = list_first_entry_or_null(&list->qps, struct peal_qp, run.node);
	if (qp)
		peal_runlist_take(lists, qp);
	spin_unlock_irqrestore(&lists->lock, flags);
	return qp;
}

/* Return: the queue pair of @ctx that has been overdue for the longest time, or NULL. */
struct peal_qp *peal_runlist_pop_overdue(struct peal_runlists *lists, struct peal_context *ctx)
{
	struct peal_qp *qp;
	unsigned long flags;

	spin_lock_irqsave(&lists->lock, flags);
	qp = list_first_entry_or_null(&ctx->overdue, struct peal_qp, run.overdue);
	if (qp)
		peal_runlist_take(lists, qp);
	spin_unlock_irqrestore(&lists->lock, flags);
	return qp;
}

/*
 * Look whether the worker of @list serves it. If two looks in a row find queue pairs, and none was
 * taken in between, move them to the list of those that run on any CPU. @list starves
 * until its own worker takes from it again.
 * Return: what this look found.
 */
enum peal_runlist_looks peal_runlist_look(struct peal_runlists *lists, struct peal_runlist *list)
{
	enum peal_runlist_looks looks = PEAL_RUNLIST_SERVED;
	unsigned long flags;

	spin_lock_irqsave(&lists->lock, flags);
	if (!list_empty(&list->qps)) {
		looks = list->looks ? PEAL_RUNLIST_STARVES : PEAL_RUNLIST_WAITS;
		WRITE_ONCE(list->looks, looks);
		if (looks == PEAL_RUNLIST_STARVES)
			list_splice_tail_init(&list->qps, &lists->any.qps);
	}
	spin_unlock_irqrestore(&lists->lock, flags);
	return looks;
}

/* ---- turns; every function runs inside the epoch ---- */

/*
 * Packets have left a CPU's queue after this time, even if its ksoftirqd had to
 * wait for the CPU.
 */
#define PEAL_TURN_CPU_JIFFIES	(HZ / 10)

/*
 * May this CPU send packets of @qp? Packets from two CPUs overtake each other, and UC loses a
 * message whose packets are reordered. A UC queue pair therefore stays on one CPU while packets
 * may be on their way from there.
 */
static bool peal_turn_may_send(struct peal_qp *qp)
{
	struct peal_run *run = &qp->run;

	lockdep_assert_held(&qp->sq.lock);
	if (likely(!peal_qp_is_on_wire(qp)))
		return true;
	if (qp->ib.qp_type == IB_QPT_UC && qp->state == IB_QPS_RTS && peal_qp_sends_packets(qp) &&
	    run->cpu != smp_processor_id() && cpu_online(run->cpu) &&
	    time_before(jiffies, run->cpu_at + PEAL_TURN_CPU_JIFFIES))
		return false;
	WRITE_ONCE(run->cpu, smp_processor_id());
	run->cpu_at = jiffies;
	return true;
}

/*
 * Leave what @qp has to send to another CPU, @cpu, because its last packets left from there and may
 * not have arrived. The caller asks for the turn. Return: false when this CPU may go on, because
 * @cpu is offline or does not run its worker.
 */
bool peal_turn_leave_to(struct peal_qp *qp, int cpu)
{
	lockdep_assert_held(&qp->sq.lock);
	if (!cpu_online(cpu) || peal_runlist_starves(per_cpu_ptr(qp->engine->run.cpu, cpu)))
		return false;
	WRITE_ONCE(qp->run.cpu, cpu);
	return true;
}

/*
 * No lock is held any more. Put the queue pairs into error that the turn has collected, then
 * raise its completions and events.
 */
void peal_turn_end(struct peal_notify *notify)
{
	struct peal_qp *qp;
	u32 i;

	peal_epoch_assert_held();
	if (!notify->counts)
		return;
	for (i = 0; i < notify->num_failed; i++) {
		qp = notify->failed[i].qp;
		peal_qp_end(qp, notify->failed[i].generation);
		peal_defer(qp);
	}
	peal_notify_raise(notify);
}

/* Give @qp one turn and charge it to @whole. Return: true when there is more to do now. */
bool peal_turn(struct peal_qp *qp, struct peal_budget *whole)
{
	struct peal_budget budget = { .left = PEAL_TURN_BUDGET };
	struct peal_notify notify PEAL_UNINITIALIZED;
	bool more = false;

	peal_epoch_assert_held();
	peal_notify_begin(&notify);
	spin_lock(&qp->sq.lock);
	if (likely(peal_turn_may_send(qp)))
		more = peal_turn_locked(qp, &notify, &budget);
	else
		peal_defer_on_cpu(qp);
	spin_unlock(&qp->sq.lock);
	peal_turn_end(&notify);
	peal_budget_spend(whole, PEAL_TURN_BUDGET - budget.left);
	return more;
}

/* Give @qp one turn that no larger budget limits. Return: as peal_turn(). */
bool peal_turn_once(struct peal_qp *qp)
{
	struct peal_budget whole = { .left = PEAL_TURN_BUDGET };

	peal_epoch_assert_held();
	return peal_turn(qp, &whole);
}

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
	if (!READ_ONCE(e->poller.awake))
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

/*
 * Budget of all timers of one CPU in a jiffy. The worker does the rest. There is a limit
 * because all timers that are due run in one softirq, and a program's queue pairs may all
 * wait for the same moment.
 */
#define PEAL_TIMERS_BUDGET	(8 * PEAL_TURN_BUDGET)

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
	WRITE_ONCE(qp->run.expiries, qp->run.expiries + 1);
	smp_mb();	/* J: pairs with peal_schedule_timer() */
	if (peal_timer_turn(qp))
		peal_defer(qp);
	peal_epoch_exit();
	return HRTIMER_NORESTART;
}

/*
 * A turn of @qp, which came from @list, ended before its work. It goes to the end of the list. The
 * worker that runs anywhere leaves packets to the CPU on which it has run, so that a queue pair
 * that it took over does not stay with it. The poller goes on with what it has begun.
 */
static void peal_worker_return(struct peal_runlist *list, struct peal_qp *qp)
{
	struct peal_engine *e = list->engine;

	peal_epoch_assert_held();
	if (list == &e->run.any && peal_qp_sends_packets(qp) && !READ_ONCE(e->poller.awake)) {
		peal_runlist_mark_overdue(&e->run, qp);
		peal_defer_on_cpu(qp);
	} else {
		peal_runlist_return(&e->run, list, qp);
	}
}

/*
 * Give the first queue pair on @list a turn.
 * Return: false when the list was empty.
 */
bool peal_worker_serve_next(struct peal_runlist *list)
{
	struct peal_runlists *lists = &list->engine->run;
	struct peal_qp *qp;

	if (peal_runlist_is_empty(list) && !peal_runlist_starves(list))
		return false;
	peal_epoch_enter();
	qp = peal_runlist_pop(lists, list);
	if (qp && peal_turn_once(qp))
		peal_worker_return(list, qp);
	peal_epoch_exit();
	return qp;
}

/*
 * A work that lasts would stay with the thread that began it. That may be the rescuer of the
 * workqueue, whose nice value is -20, because a busy host is slow to make a worker. So after some
 * turns the work ends and queues itself again, for whichever worker there is now.
 */
#define PEAL_WORKER_TURNS	64

static void peal_worker_work(struct work_struct *work)
{
	struct peal_runlist *list = container_of(work, struct peal_runlist, work);
	struct peal_engine *e = list->engine;
	int turns;

	for (turns = 0; turns < PEAL_WORKER_TURNS; turns++) {
		if (!peal_worker_serve_next(list))
			return;
		cond_resched();
	}
	if (list == &e->run.any)
		peal_workers_queue(work);
	else
		queue_work(e->cpu_wq, work);
}

/*
 * A real-time thread may keep a CPU's worker from running for as long as it likes, also while it
 * polls for the completion of that work. So work that has waited is given to the worker that runs
 * anywhere. Packets of a reliable queue pair may then overtake each other once.
 */
static void peal_worker_watch(struct work_struct *work)
{
	struct peal_engine *e = container_of(to_delayed_work(work), struct peal_engine, watch);
	bool waits = false, starves = false;
	struct peal_runlist *list;
	int cpu;

	if (num_online_cpus() == 1)
		return;		/* no other CPU could help */
	for_each_possible_cpu(cpu) {
		list = per_cpu_ptr(e->run.cpu, cpu);
		if (peal_runlist_is_empty(list))
			continue;
		switch (peal_runlist_look(&e->run, list)) {
		case PEAL_RUNLIST_STARVES:
			starves = true;
			fallthrough;
		case PEAL_RUNLIST_WAITS:
			waits = true;
			break;
		case PEAL_RUNLIST_SERVED:
			break;
		}
	}
	if (starves)
		peal_workers_queue(&e->run.any.work);
	if (waits)
		peal_workers_queue_later(&e->watch, PEAL_WATCH_JIFFIES);
}

/* Return: 0 or -ENOMEM. */
int peal_worker_start(struct peal_engine *e, const char *name)
{
	int ret = peal_runlists_init(&e->run, e, peal_worker_work);

	if (ret)
		return ret;
	INIT_DELAYED_WORK(&e->watch, peal_worker_watch);
	e->cpu_wq = alloc_workqueue("peal-%s-cpu", PEAL_WQ_PERCPU | WQ_CPU_INTENSIVE |
				   WQ_MEM_RECLAIM, 0, name);
	if (e->cpu_wq)
		return 0;
	peal_runlists_free(&e->run);
	return -ENOMEM;
}

/* Nothing queues works any more. Wait for them. Sleeps. */
void peal_worker_stop(struct peal_engine *e)
{
	cancel_delayed_work_sync(&e->watch);
	cancel_work_sync(&e->run.any.work);
	destroy_workqueue(e->cpu_wq);
	peal_runlists_free(&e->run);
}
