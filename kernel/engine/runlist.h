/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The queue pairs of one device that have work to do.
 *
 * Owns: the run lists, one for each CPU and one for work that any CPU may do. A queue pair is on at
 * most one of them. Also for each context the list of its overdue queue pairs, whose last turn
 * ended before their work. A queue pair that is taken from its run list is taken from that list,
 * too.
 * Does not know: which context takes a queue pair, and what it does with it.
 *
 * Lock: runlists->lock guards all lists of a device. Nothing else is taken inside it. It is taken
 * with interrupts off, because kernel users post in any context. A caller that takes a
 * queue pair is inside the epoch. The destroyer of a queue pair removes it from the lists
 * and then waits for the epoch.
 */
#ifndef PEAL_RUNLIST_H
#define PEAL_RUNLIST_H

#include <linux/list.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>

#include "queue/context.h"
#include "queue/qp.h"

/* How many looks have found queue pairs on a run list since one was taken from it. */
enum peal_runlist_looks {
	PEAL_RUNLIST_SERVED,
	PEAL_RUNLIST_WAITS,
	PEAL_RUNLIST_STARVES,
};

struct peal_runlist {
	/* Guarded by runlists.lock: */
	struct list_head qps;		/* by peal_run.node */
	enum peal_runlist_looks looks;

	struct work_struct work;	/* serves this list; worker.c */
	struct peal_engine *engine;
};

struct peal_runlists {
	spinlock_t lock;		/* guards the fields marked with it */
	struct peal_runlist any;	/* of queue pairs that run on any CPU */
	struct peal_runlist __percpu *cpu;	/* of queue pairs that send packets */
};

int peal_runlists_init(struct peal_runlists *lists, struct peal_engine *engine, work_func_t work);
void peal_runlists_free(struct peal_runlists *lists);
void peal_runlist_init_qp(struct peal_qp *qp);

void peal_runlist_add(struct peal_runlists *lists, struct peal_runlist *list, struct peal_qp *qp);
void peal_runlist_return(struct peal_runlists *lists, struct peal_runlist *list,
			 struct peal_qp *qp);
void peal_runlist_mark_overdue(struct peal_runlists *lists, struct peal_qp *qp);
void peal_runlist_remove(struct peal_runlists *lists, struct peal_qp *qp);
struct peal_qp *peal_runlist_pop(struct peal_runlists *lists, struct peal_runlist *list);
struct peal_qp *peal_runlist_pop_overdue(struct peal_runlists *lists, struct peal_context *ctx);
enum peal_runlist_looks peal_runlist_look(struct peal_runlists *lists, struct peal_runlist *list);

/* These two are only hints, because no lock is held. */
static inline bool peal_runlist_is_empty(const struct peal_runlist *list)
{
	return list_empty_careful(&list->qps);
}

static inline bool peal_runlist_starves(const struct peal_runlist *list)
{
	return READ_ONCE(list->looks) == PEAL_RUNLIST_STARVES;
}

#endif
