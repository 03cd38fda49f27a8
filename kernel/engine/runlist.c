// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See runlist.h.
 */
#include "engine/runlist.h"

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
 * taken in between, move them to the list of those that run on any CPU. @list counts as starving
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
