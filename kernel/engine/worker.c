// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See worker.h.
 */
#include <linux/cpumask.h>

#include "base/compat.h"
#include "base/epoch.h"
#include "base/workers.h"
#include "engine/schedule.h"
#include "engine/turn.h"
#include "engine/worker.h"

/*
 * A turn of @qp, which came from @list, ended before its work. It goes to the end of the list. The
 * worker that runs anywhere leaves packets to the CPU on which it has run, so that a queue pair
 * that it took over does not stay with it. The poller goes on with what it has begun.
 */
static void peal_worker_return(struct peal_runlist *list, struct peal_qp *qp)
{
	struct peal_engine *e = list->engine;

	peal_epoch_assert_held();
	if (list == &e->run.any && peal_qp_sends_packets(qp) && !READ_ONCE(e->awake)) {
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

static void peal_worker_work(struct work_struct *work)
{
	struct peal_runlist *list = container_of(work, struct peal_runlist, work);

	while (peal_worker_serve_next(list))
		cond_resched();
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
