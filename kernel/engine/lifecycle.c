// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See lifecycle.h.
 */
#include <linux/rcupdate.h>

#include "base/compat.h"
#include "base/guard.h"
#include "engine/kick.h"
#include "engine/lifecycle.h"
#include "engine/poller.h"
#include "engine/schedule.h"
#include "engine/timer.h"
#include "engine/turn.h"
#include "engine/worker.h"

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
	INIT_WORK(&e->work, peal_worker_work);
	e->homes = alloc_workqueue("peal-%s-home", PEAL_WQ_PERCPU | WQ_CPU_INTENSIVE |
				   WQ_MEM_RECLAIM, 0, name);
	if (!e->homes)
		return -ENOMEM;
	ret = peal_poller_start(e, name);
	if (ret)
		destroy_workqueue(e->homes);
	return ret;
}

/*
 * All queue pairs and contexts have been removed. Kicks that had passed a door before
 * it was revoked still count and wake the thread: one grace period ends them all, expedited
 * because an administrator waits.
 */
void peal_engine_stop(struct peal_engine *e)
{
	synchronize_rcu_expedited();
	peal_poller_stop(e);
	cancel_work_sync(&e->work);
	destroy_workqueue(e->homes);
}

/* Return: a context whose door is still shut, ERR_PTR(-ENOMEM) or ERR_PTR(-EMFILE). */
struct peal_context *peal_engine_add_context(struct peal_engine *e, struct ib_ucontext *ib,
					     struct peal_quota *quota)
{
	struct peal_context *ctx = peal_context_create(ib, quota, &peal_kick_door_ops, e);

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
	peal_schedule_init(qp, e, peal_worker_work_home, peal_timer_expired);
}

/*
 * The queue pair is unpublished: it is in RESET and nobody can find it but who
 * has done so before. Those end with the first wait. What is left is the timer,
 * the work and the run list, and none of them finds anything to do.
 */
void peal_engine_remove_qp(struct peal_qp *qp)
{
	peal_guard_wait();
	peal_schedule_cancel(qp);
	peal_guard_wait();
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
		more = peal_turn_once(qp) && ++at->turns < peal_engine_flush_turns(qp);
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
