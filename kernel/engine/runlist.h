/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The queue pairs of one device that have work to do.
 *
 * Owns: the run list, and for each context the list of its overdue queue pairs, whose
 * last turn ended before their work. A queue pair that is taken from one list is
 * taken from the other, too.
 * Does not know: which context takes a queue pair, and what it does with it.
 *
 * Lock: runlist->lock guards all these lists. Nothing else is taken inside it. It is taken
 * with interrupts off, because kernel users post in any context. A caller that takes a
 * queue pair is inside the epoch. The destroyer of a queue pair removes it from the lists
 * and then waits for the epoch.
 */
#ifndef PEAL_RUNLIST_H
#define PEAL_RUNLIST_H

#include <linux/list.h>
#include <linux/spinlock.h>

#include "queue/context.h"
#include "queue/qp.h"

struct peal_runlist {
	spinlock_t lock;		/* guards the fields marked with it */

	/* Guarded by runlist.lock: */
	struct list_head qps;		/* the run list, by peal_run.node */
};

void peal_runlist_init(struct peal_runlist *list);
void peal_runlist_init_qp(struct peal_qp *qp);

void peal_runlist_add(struct peal_runlist *list, struct peal_qp *qp);
void peal_runlist_mark_overdue(struct peal_runlist *list, struct peal_qp *qp);
void peal_runlist_remove(struct peal_runlist *list, struct peal_qp *qp);
struct peal_qp *peal_runlist_pop(struct peal_runlist *list);
struct peal_qp *peal_runlist_pop_overdue(struct peal_runlist *list, struct peal_context *ctx);

static inline bool peal_runlist_is_empty(const struct peal_runlist *list)
{
	return list_empty_careful(&list->qps);
}

/* Only a hint, because no lock is held. */
static inline bool peal_runlist_is_overdue(const struct peal_qp *qp)
{
	return !list_empty_careful(&qp->run.overdue);
}

#endif
