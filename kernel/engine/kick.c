// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See kick.h.
 */
#include <linux/irqflags.h>
#include <linux/preempt.h>

#include "base/guard.h"
#include "engine/kick.h"
#include "engine/poller.h"
#include "engine/schedule.h"
#include "engine/turn.h"
#include "queue/context.h"

/* What the caller of a kick does in turns before the worker takes over. */
#define PEAL_KICK_BUDGET	(4 * PEAL_TURN_BUDGET)

/* ---- a program's kick ---- */

/* Run @index's send queue here and now. The guard is left between turns. */
static int peal_kick_send(struct peal_context *ctx, unsigned long index,
			  struct peal_budget *budget)
{
	struct peal_engine *e = ctx->engine;
	struct peal_qp *qp;
	bool more = true;

	while (more) {
		peal_guard_enter();
		qp = peal_context_qp(ctx, index);
		more = qp && peal_turn(qp, budget);
		if (unlikely(more && !peal_budget_is_left(budget))) {
			peal_defer_overdue(qp);
			more = false;
		}
		if (!more)
			peal_poller_note_kick(e);
		peal_guard_exit();
	}
	return qp ? 0 : -ENOENT;
}

/* Inside the guard. Receives were posted: run who waits, and flush if in error. */
static void peal_kick_received(struct peal_qp *qp, struct peal_budget *budget)
{
	struct peal_qp *sender = NULL;

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

	peal_guard_enter();
	qp = peal_context_qp(ctx, index);
	if (qp)
		peal_kick_received(qp, budget);
	peal_guard_exit();
	return qp ? 0 : -ENOENT;
}

/* Packets that leave from another CPU than those before them overtake, which costs more. */
static bool peal_kick_is_elsewhere(const struct peal_qp *qp)
{
	return peal_qp_is_on_wire(qp) && READ_ONCE(qp->run.home) != smp_processor_id();
}

/* A turn. Inside the guard. Return: false when there is nothing that this CPU may do. */
static bool peal_kick_serve_overdue(struct peal_context *ctx, struct peal_budget *budget)
{
	struct peal_engine *e = ctx->engine;
	struct peal_qp *qp = peal_runlist_pop_overdue(&e->run, ctx);

	if (!qp)
		return false;
	if (peal_kick_is_elsewhere(qp)) {
		peal_runlist_owe(&e->run, qp);
		return false;
	}
	peal_count(e->table, overdue_turns);
	peal_budget_spend(budget, PEAL_COST_WQE);
	if (peal_turn(qp, budget))
		peal_defer_overdue(qp);
	return true;
}

/*
 * What earlier calls of this context have left to the worker, as far as the worker has
 * not begun with it and this kick's budget goes. The queue pairs take turns.
 */
static void peal_kick_overdue(struct peal_context *ctx, struct peal_budget *budget)
{
	bool more = true;

	while (more && peal_budget_is_left(budget)) {
		peal_guard_enter();
		more = peal_kick_serve_overdue(ctx, budget);
		peal_guard_exit();
	}
}

static int peal_kick_knock(void *owner, unsigned int cmd, unsigned long arg)
{
	struct peal_budget budget = { .left = PEAL_KICK_BUDGET };
	struct peal_context *ctx = owner;
	struct peal_engine *e = ctx->engine;
	int ret;

	peal_count(e->table, kicks);
	if (likely(cmd == PEAL_IOC_KICK_SEND))
		ret = peal_kick_send(ctx, arg, &budget);
	else if (cmd == PEAL_IOC_KICK_RECV)
		ret = peal_kick_recv(ctx, arg, &budget);
	else
		return -ENOTTY;
	if (unlikely(!list_empty(&ctx->overdue)))
		peal_kick_overdue(ctx, &budget);
	return ret;
}

const struct peal_door_ops peal_kick_door_ops = { .knock = peal_kick_knock };

/* ---- the kernel's kick ---- */

/*
 * May a queue be run right here? Not with interrupts off, and not from a handler
 * that we have called: it posts, that completes, it is called again, and the
 * stack is finite.
 */
static bool peal_kick_may_run_here(void)
{
	return !irqs_disabled() && !in_hardirq() && !peal_guard_held();
}

/* Something changed: there may be something to send or to flush. Any context. */
void peal_kick(struct peal_qp *qp)
{
	if (!peal_kick_may_run_here()) {
		peal_defer(qp);
		return;
	}
	peal_guard_enter();
	if (peal_turn_once(qp))
		peal_defer_overdue(qp);
	peal_guard_exit();
}

/*
 * A kernel user posted receives that somebody waits for. From where nothing can
 * be run the sender's timer has to do.
 */
void peal_kick_receives(struct peal_qp *qp)
{
	struct peal_budget budget = { .left = PEAL_KICK_BUDGET };

	if (!peal_kick_may_run_here()) {
		peal_defer(qp);
		return;
	}
	peal_guard_enter();
	peal_kick_received(qp, &budget);
	peal_guard_exit();
}
