// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See worker.h.
 */
#include "base/guard.h"
#include "engine/schedule.h"
#include "engine/turn.h"
#include "engine/worker.h"

/* For one queue pair: behind its work wait those of others. */
#define PEAL_WORK_BUDGET	(4 * PEAL_TURN_BUDGET)

/* A turn for the first on the run list; unfinished, it goes to the end. */
bool peal_worker_serve_next(struct peal_engine *e)
{
	struct peal_qp *qp;

	if (peal_runlist_is_empty(&e->run))
		return false;
	peal_guard_enter();
	qp = peal_runlist_pop(&e->run);
	if (qp && peal_turn_once(qp)) {
		peal_runlist_owe(&e->run, qp);
		peal_runlist_add(&e->run, qp);
	}
	peal_guard_exit();
	return qp;
}

void peal_worker_work(struct work_struct *work)
{
	struct peal_engine *e = container_of(work, struct peal_engine, work);

	while (peal_worker_serve_next(e))
		cond_resched();
}

/*
 * Some turns; others of this CPU run in between. What is left then goes behind
 * the works that wait, of which a CPU runs only so many at a time.
 */
void peal_worker_work_home(struct work_struct *work)
{
	struct peal_qp *qp = container_of(work, struct peal_qp, run.work);
	struct peal_budget budget = { .left = PEAL_WORK_BUDGET };
	struct peal_engine *e = qp->engine;
	bool more = true;

	if (peal_runlist_is_overdue(qp))
		peal_runlist_remove(&e->run, qp);
	while (more && peal_budget_is_left(&budget)) {
		peal_guard_enter();
		more = peal_turn(qp, &budget);
		peal_guard_exit();
		cond_resched();
	}
	if (more) {
		peal_runlist_owe(&e->run, qp);
		peal_defer_home(qp);
	}
}

