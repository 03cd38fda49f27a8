// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See lifecycle.h.
 */
#include <linux/rcupdate.h>

#include "base/epoch.h"
#include "engine/kick.h"
#include "engine/lifecycle.h"
#include "engine/poller.h"
#include "engine/engine.h"

/**
 * peal_engine_start() - start the engine of a device
 * @table: the device's tables
 * @name: the device's name, which the thread and the workqueue carry
 *
 * Return: 0 or a negative error value, with everything undone.
 */
int peal_engine_start(struct peal_engine *e, struct peal_table *table, const char *name)
{
	int ret;

	e->table = table;
	ret = peal_worker_start(e, name);
	if (ret)
		return ret;
	ret = peal_poller_start(e, name);
	if (ret)
		peal_worker_stop(e);
	return ret;
}

/*
 * The caller has removed all queue pairs and contexts. Kicks that passed a kick file before it was
 * revoked may still count themselves and wake the thread. They are RCU readers, so one grace
 * period ends them all. It is expedited because an administrator waits for the removal.
 */
void peal_engine_stop(struct peal_engine *e)
{
	synchronize_rcu_expedited();
	peal_poller_stop(e);
	peal_worker_stop(e);
}

/* Return: a context whose kick file is not open yet, or an ERR_PTR: -ENOMEM, -EMFILE, -ENFILE. */
struct peal_context *peal_engine_add_context(struct peal_engine *e, struct ib_ucontext *ib,
					     struct peal_quota *quota)
{
	struct peal_context *ctx = peal_context_create(ib, quota, &peal_kick_ops, e);

	if (!IS_ERR(ctx))
		peal_poller_add(&e->poller, ctx);
	return ctx;
}

/*
 * The caller has revoked or discarded the kick file. The engine's thread may still look at the
 * doorbells of @ctx, so wait for the epoch. This takes no longer than a section of another CPU
 * lasts. Kicks may be under way until a grace period is over, see peal_engine_stop().
 */
void peal_engine_remove_context(struct peal_engine *e, struct peal_context *ctx)
{
	peal_poller_remove(&e->poller, ctx);
	peal_epoch_wait();
	peal_context_destroy(ctx);
}

void peal_engine_add_qp(struct peal_engine *e, struct peal_qp *qp)
{
	peal_schedule_init(qp, e, peal_timer_expired);
}

/*
 * The queue pair is unpublished and in RESET. Only code that found it earlier can still use it,
 * and the first wait ends that code. After it the timer and the run list may still give @qp a
 * turn, which finds nothing to do. The second wait ends the last such turn.
 */
void peal_engine_remove_qp(struct peal_qp *qp)
{
	peal_epoch_wait();
	peal_schedule_cancel(qp);
	peal_epoch_wait();
}

void peal_engine_add_srq(struct peal_srq *srq)
{
	peal_srq_set_work(srq, peal_kick_srq_work);
}

/*
 * No queue pair takes receives from @srq any more, and no later kick finds it. Wait for the kicks
 * that found it, for late notifications, and for the work that the kicks may have queued. Sleeps.
 */
void peal_engine_remove_srq(struct peal_srq *srq)
{
	peal_epoch_wait();
	cancel_work_sync(&srq->work);
}

/* Return: as many turns as it takes to flush full rings and the messages in flight. */
static u32 peal_engine_flush_turns(const struct peal_qp *qp)
{
	u64 wqes = 2ULL * (qp->sq.ring.mask + 1) + qp->rq.ring.mask + 1;

	return 2 + wqes * PEAL_COST_WQE / PEAL_TURN_BUDGET;
}

/* How far the removal of a device has come. */
struct peal_abandoned {
	unsigned long index;	/* index in the table of queue pairs */
	u32 turns;		/* turns that this queue has had */
};

/*
 * Give one queue pair a turn of flushing. It gets only as many turns as flush full rings, so
 * that removal does not wait for a program that goes on posting.
 * Return: false when no queue pair is left.
 */
static bool peal_engine_abandon_next(struct peal_engine *e, struct peal_abandoned *at)
{
	struct peal_qp *qp;
	bool more = false;

	peal_epoch_enter();
	qp = xa_find(&e->table->qps, &at->index, ULONG_MAX, XA_PRESENT);
	if (qp && qp->ib.qp_type != IB_QPT_GSI) {
		peal_qp_mark_removed(qp);
		peal_qp_fail(qp);
		more = peal_turn_once(qp) && ++at->turns < peal_engine_flush_turns(qp);
	}
	peal_epoch_exit();
	if (!more)
		*at = (struct peal_abandoned){ .index = at->index + 1 };
	return qp;
}

/**
 * peal_engine_abandon() - flush every queue pair of a device that is being removed
 *
 * Everything posted completes as flushed while the programs' rings still exist. The
 * GSI queue pair is left to the core, because kernel users end their connections
 * through it a little later.
 *
 * A program reads the engine's word before it publishes, and kicks when it sees GONE
 * afterwards. A program whose first look was before GONE may publish after the flush. That WQE
 * is flushed by the program's kick or ends with its queue pair.
 */
void peal_engine_abandon(struct peal_engine *e)
{
	struct peal_abandoned at = { };

	peal_poller_set_gone(&e->poller, true);
	smp_mb();	/* B: GONE is visible before the flush reads the rings */
	while (peal_engine_abandon_next(e, &at))
		cond_resched();
}

/* The device has moved to another network namespace, where programs may use it again. */
void peal_engine_return(struct peal_engine *e)
{
	peal_poller_set_gone(&e->poller, false);
}
