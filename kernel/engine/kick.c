// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See kick.h.
 */
#include <linux/irqflags.h>
#include <linux/preempt.h>
#include <linux/sched/signal.h>

#include "base/epoch.h"
#include "engine/kick.h"
#include "engine/poller.h"
#include "engine/engine.h"
#include "object/context.h"

/* The budget of one kick. The worker does the rest, so that a program's call stays short. */
#define PEAL_KICK_BUDGET	(2 * PEAL_TURN_BUDGET)

/*
 * How far a kick overdraws its budget while nothing else wants its CPU. A worker would have to be
 * scheduled first, and its time is not the program's.
 */
#define PEAL_KICK_ALONE		(14 * PEAL_TURN_BUDGET)

/* ---- a program's kick ---- */

static bool peal_kick_may_go_on(const struct peal_budget *budget)
{
	return peal_budget_is_left(budget) ||
	       (budget->left > -PEAL_KICK_ALONE && !need_resched() && !signal_pending(current));
}

/*
 * Run the send queue of queue pair @index in the caller. The epoch is left between turns,
 * because destroyers of objects wait for the end of a section.
 */
static int peal_kick_send(struct peal_context *ctx, unsigned long index,
			  struct peal_budget *budget)
{
	struct peal_engine *e = ctx->engine;
	struct peal_qp *qp;
	bool more = true;

	while (more) {
		peal_epoch_enter();
		qp = peal_context_qp(ctx, index);
		more = qp && peal_turn(qp, budget);
		if (unlikely(more && !peal_kick_may_go_on(budget))) {
			peal_defer_overdue(qp);
			more = false;
		}
		if (!more)
			peal_poller_note_kick(&e->poller);
		peal_epoch_exit();
	}
	return qp ? 0 : -ENOENT;
}

/*
 * Inside the epoch. Receives were posted to @qp. Run the sender that waits for them.
 * Flush them if @qp is in error.
 */
static void peal_kick_received(struct peal_qp *qp, struct peal_budget *budget)
{
	struct peal_qp *sender = NULL;

	peal_epoch_assert_held();
	if (qp->direct)
		sender = qp->direct->ops->waiting_sender(qp->direct);
	if (sender && peal_turn(sender, budget))
		peal_defer_overdue(sender);
	if (READ_ONCE(qp->state) == IB_QPS_ERR && peal_turn(qp, budget))
		peal_defer_overdue(qp);
}

static int peal_kick_recv(struct peal_context *ctx, unsigned long index,
			  struct peal_budget *budget)
{
	struct peal_qp *qp;

	peal_epoch_enter();
	qp = peal_context_qp(ctx, index);
	if (qp)
		peal_kick_received(qp, budget);
	peal_epoch_exit();
	return qp ? 0 : -ENOENT;
}

/*
 * Inside the epoch. Run the sender that has waited longest for a receive of @srq. It may wait
 * again, at the end of the list, if a queue pair that did not wait has taken the receive.
 * Return: false when no sender waits, or there is no receive.
 */
static bool peal_kick_next_waiter(struct peal_srq *srq, struct peal_budget *budget)
{
	struct list_head *waiter = peal_srq_ring_next_waiter(&srq->ring);
	struct peal_qp *qp;

	peal_epoch_assert_held();
	if (!waiter)
		return false;
	peal_budget_spend(budget, PEAL_COST_WQE);
	qp = container_of(waiter, struct peal_qp, rq.waiter);
	peal_kick_received(qp, budget);
	return true;
}

/*
 * Inside the epoch. Serve one waiting sender. When @budget is used up, the work item serves the
 * rest. Return: whether to serve another one here.
 */
static bool peal_kick_waiters_step(struct peal_srq *srq, struct peal_budget *budget)
{
	peal_epoch_assert_held();
	if (!peal_kick_next_waiter(srq, budget))
		return false;
	if (likely(peal_budget_is_left(budget)))
		return true;
	peal_workers_queue(&srq->work);
	return false;
}

static int peal_kick_srq(struct peal_context *ctx, unsigned long index,
			 struct peal_budget *budget)
{
	struct peal_srq *srq;
	bool more = true;

	while (more) {
		peal_epoch_enter();
		srq = peal_context_srq(ctx, index);
		more = srq && peal_kick_waiters_step(srq, budget);
		peal_epoch_exit();
	}
	return srq ? 0 : -ENOENT;
}

/*
 * @srq stays valid, because the caller is its work item, for which destruction waits, or its user.
 */
static void peal_kick_waiters(struct peal_srq *srq)
{
	struct peal_budget budget = { .left = PEAL_KICK_BUDGET };
	bool more = true;

	while (more) {
		peal_epoch_enter();
		more = peal_kick_waiters_step(srq, &budget);
		peal_epoch_exit();
	}
}

void peal_kick_srq_work(struct work_struct *work)
{
	peal_kick_waiters(container_of(work, struct peal_srq, work));
}

/*
 * Was the last turn of @qp on another CPU? Packets that leave from two CPUs overtake each
 * other, which costs more than to leave the turn to the worker on that CPU.
 */
static bool peal_kick_is_elsewhere(const struct peal_qp *qp)
{
	return peal_qp_sends_packets(qp) && READ_ONCE(qp->run.cpu) != smp_processor_id();
}

/*
 * Inside the epoch. Give the queue pair that has been overdue longest a turn.
 * Return: false when none is overdue, or when that one must run on another CPU.
 */
static bool peal_kick_serve_overdue(struct peal_context *ctx, struct peal_budget *budget)
{
	struct peal_engine *e = ctx->engine;
	struct peal_qp *qp = peal_runlist_pop_overdue(&e->run, ctx);

	peal_epoch_assert_held();
	if (!qp)
		return false;
	if (peal_kick_is_elsewhere(qp)) {
		peal_defer_overdue(qp);
		return false;
	}
	peal_count(e->table, overdue_turns);
	peal_budget_spend(budget, PEAL_COST_WQE);
	if (peal_turn(qp, budget))
		peal_defer_overdue(qp);
	return true;
}

/*
 * Continue the work that earlier calls of this context have left to the worker, as far as the
 * worker has not started it and this kick's budget lasts. The queue pairs take turns.
 */
static void peal_kick_overdue(struct peal_context *ctx, struct peal_budget *budget)
{
	bool more = true;

	while (more && peal_budget_is_left(budget)) {
		peal_epoch_enter();
		more = peal_kick_serve_overdue(ctx, budget);
		peal_epoch_exit();
	}
}

static int peal_kick_by_program(void *owner, unsigned int kick, unsigned long index)
{
	struct peal_budget budget = { .left = PEAL_KICK_BUDGET };
	struct peal_context *ctx = owner;
	struct peal_engine *e = ctx->engine;
	int ret;

	RCU_LOCKDEP_WARN(!rcu_read_lock_held(), "a kick is no RCU reader");
	peal_count(e->table, kicks);
	if (likely(kick == PEAL_KICK_SEND))
		ret = peal_kick_send(ctx, index, &budget);
	else if (kick == PEAL_KICK_RECV)
		ret = peal_kick_recv(ctx, index, &budget);
	else if (kick == PEAL_KICK_SRQ)
		ret = peal_kick_srq(ctx, index, &budget);
	else
		return -EINVAL;
	if (unlikely(!list_empty(&ctx->overdue)))
		peal_kick_overdue(ctx, &budget);
	return ret;
}

const struct peal_kick_file_ops peal_kick_ops = { .kick = peal_kick_by_program };

/* ---- the kernel's kick ---- */

/*
 * May the caller run a queue pair? Not with interrupts off, because the epoch and the locks
 * only disable softirqs. Not inside the epoch either, because there the caller was called from a
 * turn, and a turn for its post could call it again, and so on until the stack overflows.
 */
static bool peal_kick_may_run_here(void)
{
	return !irqs_disabled() && !in_hardirq() && !peal_epoch_held();
}

/* Run @qp because there may be something to send or to flush. Any context may call. */
void peal_kick(struct peal_qp *qp)
{
	if (!peal_kick_may_run_here()) {
		peal_defer(qp);
		return;
	}
	peal_epoch_enter();
	if (peal_turn_once(qp))
		peal_defer_overdue(qp);
	peal_epoch_exit();
}

/*
 * A kernel user posted receives that a sender waits for. Where the caller may not run queue
 * pairs, the sender goes on when its timer expires.
 */
void peal_kick_receives(struct peal_qp *qp)
{
	struct peal_budget budget = { .left = PEAL_KICK_BUDGET };

	if (!peal_kick_may_run_here()) {
		peal_defer(qp);
		return;
	}
	peal_epoch_enter();
	peal_kick_received(qp, &budget);
	peal_epoch_exit();
}

/* The same for receives of a shared receive queue. The work may run the senders anywhere. */
void peal_kick_srq_receives(struct peal_srq *srq)
{
	if (peal_kick_may_run_here())
		peal_kick_waiters(srq);
	else
		peal_workers_queue(&srq->work);
}
