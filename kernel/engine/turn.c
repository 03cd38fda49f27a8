// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See turn.h. Every function runs inside the epoch.
 */
#include "base/compat.h"
#include "engine/engine.h"
#include "engine/schedule.h"
#include "engine/turn.h"

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
	if (qp->ib.qp_type == IB_QPT_UC && qp->state == IB_QPS_RTS &&
	    run->cpu != smp_processor_id() && cpu_online(run->cpu) &&
	    time_before(jiffies, run->cpu_at + PEAL_TURN_CPU_JIFFIES))
		return false;
	WRITE_ONCE(run->cpu, smp_processor_id());
	run->cpu_at = jiffies;
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
	for (i = 0; i < notify->num_failed; i++) {
		qp = notify->failed[i].qp;
		peal_qp_end(qp, notify->failed[i].generation);
		peal_defer(qp);
	}
	peal_notify_raise(notify);
}

/*
 * Under sq.lock. Run the queue, and set the timer for the next turn.
 * Return: true when @budget ended before the work.
 */
bool peal_turn_locked(struct peal_qp *qp, struct peal_notify *notify, struct peal_budget *budget)
{
	struct peal_transport *transport = qp->transport;
	bool more;

	peal_epoch_assert_held();
	lockdep_assert_held(&qp->sq.lock);
	if (unlikely(!transport))
		return false;	/* the queue pair is being destroyed */
	more = transport->ops->run(transport, notify, budget);
	peal_ring_show(&qp->sq.ring);
	if (transport->ops->deadline)
		peal_schedule_at(qp, transport->ops->deadline(transport));
	return more;
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
