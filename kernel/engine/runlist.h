/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The queue pairs of one device that have work to do.
 *
 * Owns: the run list, and for each context the list of its overdue queue pairs: those
 * that a call of the program has left unfinished. Whoever takes a queue pair from one
 * list takes it from the other, too.
 * Does not know: who takes them, and what becomes of them.
 *
 * Lock: runlist->lock guards all these lists. Inside it nothing else is taken;
 * interrupts are off, because kernel users post anywhere. Who takes a queue pair is
 * inside the guard, and who destroys one removes it and waits for the guard.
 */
#ifndef PEAL_RUNLIST_H
#define PEAL_RUNLIST_H

#include <linux/list.h>
#include <linux/spinlock.h>

#include "queue/context.h"
#include "queue/qp.h"

struct peal_runlist {
	spinlock_t lock;		/* guards the list, and each context's overdue */
	struct list_head qps;		/* by peal_run.node */
};

void peal_runlist_init(struct peal_runlist *list);
void peal_runlist_init_qp(struct peal_qp *qp);

void peal_runlist_add(struct peal_runlist *list, struct peal_qp *qp);
void peal_runlist_owe(struct peal_runlist *list, struct peal_qp *qp);
void peal_runlist_remove(struct peal_runlist *list, struct peal_qp *qp);
struct peal_qp *peal_runlist_pop(struct peal_runlist *list);
struct peal_qp *peal_runlist_pop_overdue(struct peal_runlist *list, struct peal_context *ctx);

static inline bool peal_runlist_is_empty(const struct peal_runlist *list)
{
	return list_empty_careful(&list->qps);
}

/* A hint: the lists change. */
static inline bool peal_runlist_is_overdue(const struct peal_qp *qp)
{
	return !list_empty_careful(&qp->run.overdue);
}

#endif
