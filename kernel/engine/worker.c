// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See worker.h.
 */
#include "base/compat.h"
#include "base/epoch.h"
#include "engine/schedule.h"
#include "engine/turn.h"
#include "engine/worker.h"

/*
 * Give the first queue pair on the run list a turn. If it is unfinished it goes
 * to the end of the list.
 * Return: false when the list was empty.
 */
bool peal_worker_serve_next(struct peal_engine *e)
{
	struct peal_qp *qp;

	if (peal_runlist_is_empty(&e->run))
		return false;
	peal_epoch_enter();
	qp = peal_runlist_pop(&e->run);
	if (qp && peal_turn_once(qp)) {
		peal_runlist_mark_overdue(&e->run, qp);
		peal_runlist_add(&e->run, qp);
	}
	peal_epoch_exit();
	return qp;
}

static void peal_worker_work(struct work_struct *work)
{
	struct peal_engine *e = container_of(work, struct peal_engine, work);

	while (peal_worker_serve_next(e))
		cond_resched();
}

/*
 * Give the queue pair a turn. The rest is queued again behind the works that wait, because a CPU
 * runs only a limited number of works at a time.
 */
void peal_worker_work_on_cpu(struct work_struct *work)
{
	struct peal_qp *qp = container_of(work, struct peal_qp, run.work);
	struct peal_engine *e = qp->engine;

	/* The work has started, so no kick needs to go on with @qp. */
	if (peal_runlist_is_overdue(qp))
		peal_runlist_remove(&e->run, qp);
	peal_epoch_enter();
	if (peal_turn_once(qp)) {
		peal_runlist_mark_overdue(&e->run, qp);
		peal_defer_on_cpu(qp);
	}
	peal_epoch_exit();
}

/* Return: 0 or -ENOMEM. */
int peal_worker_start(struct peal_engine *e, const char *name)
{
	INIT_WORK(&e->work, peal_worker_work);
	e->cpu_wq = alloc_workqueue("peal-%s-cpu", PEAL_WQ_PERCPU | WQ_CPU_INTENSIVE |
				   WQ_MEM_RECLAIM, 0, name);
	return e->cpu_wq ? 0 : -ENOMEM;
}

/* Nothing queues works any more. Wait for the one of the run list. Sleeps. */
void peal_worker_stop(struct peal_engine *e)
{
	cancel_work_sync(&e->work);
	destroy_workqueue(e->cpu_wq);
}
