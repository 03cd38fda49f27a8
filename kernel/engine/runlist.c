// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See runlist.h.
 */
#include "engine/runlist.h"

void peal_runlist_init(struct peal_runlist *list)
{
	spin_lock_init(&list->lock);
	INIT_LIST_HEAD(&list->qps);
}

void peal_runlist_init_qp(struct peal_qp *qp)
{
	INIT_LIST_HEAD(&qp->run.node);
	INIT_LIST_HEAD(&qp->run.overdue);
}

void peal_runlist_add(struct peal_runlist *list, struct peal_qp *qp)
{
	unsigned long flags;

	spin_lock_irqsave(&list->lock, flags);
	if (list_empty(&qp->run.node))
		list_add_tail(&qp->run.node, &list->qps);
	spin_unlock_irqrestore(&list->lock, flags);
}

/* A turn of @qp ended before its work. The next kick of its context may go on with it. */
void peal_runlist_mark_overdue(struct peal_runlist *list, struct peal_qp *qp)
{
	unsigned long flags;

	if (!qp->context)
		return;
	spin_lock_irqsave(&list->lock, flags);
	if (list_empty(&qp->run.overdue))
		list_add_tail(&qp->run.overdue, &qp->context->overdue);
	spin_unlock_irqrestore(&list->lock, flags);
}

static void peal_runlist_take(struct peal_runlist *list, struct peal_qp *qp)
{
	lockdep_assert_held(&list->lock);
	list_del_init(&qp->run.node);
	list_del_init(&qp->run.overdue);
}

void peal_runlist_remove(struct peal_runlist *list, struct peal_qp *qp)
{
	unsigned long flags;

	spin_lock_irqsave(&list->lock, flags);
	peal_runlist_take(list, qp);
	spin_unlock_irqrestore(&list->lock, flags);
}

/* Return: the first queue pair on the run list, or NULL. */
struct peal_qp *peal_runlist_pop(struct peal_runlist *list)
{
	struct peal_qp *qp;
	unsigned long flags;

	spin_lock_irqsave(&list->lock, flags);
	qp = list_first_entry_or_null(&list->qps, struct peal_qp, run.node);
	if (qp)
		peal_runlist_take(list, qp);
	spin_unlock_irqrestore(&list->lock, flags);
	return qp;
}

/* Return: the queue pair of @ctx that has been overdue for the longest time, or NULL. */
struct peal_qp *peal_runlist_pop_overdue(struct peal_runlist *list, struct peal_context *ctx)
{
	struct peal_qp *qp;
	unsigned long flags;

	spin_lock_irqsave(&list->lock, flags);
	qp = list_first_entry_or_null(&ctx->overdue, struct peal_qp, run.overdue);
	if (qp)
		peal_runlist_take(list, qp);
	spin_unlock_irqrestore(&list->lock, flags);
	return qp;
}
