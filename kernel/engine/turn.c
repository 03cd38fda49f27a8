// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See turn.h. Every function runs inside the guard.
 */
#include "base/compat.h"
#include "engine/engine.h"
#include "engine/schedule.h"
#include "engine/turn.h"

/* Packets have left a CPU's queue by then, also where its ksoftirqd had to wait. */
#define PEAL_HOME_JIFFIES	(HZ / 10)

/*
 * May packets be sent from here? UC loses what is overtaken, so that it stays on
 * one CPU while some may be on their way from there.
 */
static bool peal_turn_is_home(struct peal_qp *qp)
{
	struct peal_run *run = &qp->run;

	lockdep_assert_held(&qp->sq.lock);
	if (likely(!peal_qp_is_on_wire(qp)))
		return true;
	if (qp->ib.qp_type == IB_QPT_UC && qp->state == IB_QPS_RTS &&
	    run->home != smp_processor_id() && cpu_online(run->home) &&
	    time_before(jiffies, run->home_at + PEAL_HOME_JIFFIES))
		return false;
	WRITE_ONCE(run->home, smp_processor_id());
	run->home_at = jiffies;
	return true;
}

/* A queue pair that a turn wants in error goes there now that no lock is held. */
void peal_turn_end(struct peal_burst *burst)
{
	struct peal_qp *qp;
	u32 i;

	for (i = 0; i < burst->num_failed; i++) {
		qp = burst->failed[i].qp;
		peal_qp_end(qp, burst->failed[i].life);
		peal_defer(qp);
	}
	peal_burst_raise(burst);
}

/*
 * Run the queue, and ask for the next turn in time. sq.lock. Return: true when @budget ended
 * before the work.
 */
bool peal_turn_locked(struct peal_qp *qp, struct peal_burst *burst, struct peal_budget *budget)
{
	struct peal_transport *transport = qp->transport;
	bool more;

	lockdep_assert_held(&qp->sq.lock);
	if (unlikely(!transport))
		return false;	/* it is being destroyed */
	more = transport->ops->run(transport, burst, budget);
	peal_ring_show(&qp->sq.ring);
	if (transport->ops->deadline)
		peal_schedule_at(qp, transport->ops->deadline(transport));
	return more;
}

/* One turn of @whole. Return: true when there is more to do now. */
bool peal_turn(struct peal_qp *qp, struct peal_budget *whole)
{
	struct peal_budget budget = { .left = PEAL_TURN_BUDGET };
	struct peal_burst burst PEAL_UNINITIALIZED;
	bool more = false;

	peal_burst_begin(&burst);
	spin_lock(&qp->sq.lock);
	if (likely(peal_turn_is_home(qp)))
		more = peal_turn_locked(qp, &burst, &budget);
	else
		peal_defer_home(qp);
	spin_unlock(&qp->sq.lock);
	peal_turn_end(&burst);
	peal_budget_spend(whole, PEAL_TURN_BUDGET - budget.left);
	return more;
}

/* A turn whose cost counts for nothing else. */
bool peal_turn_once(struct peal_qp *qp)
{
	struct peal_budget whole = { .left = PEAL_TURN_BUDGET };

	return peal_turn(qp, &whole);
}
