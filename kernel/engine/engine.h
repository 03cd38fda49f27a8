/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The engine of one device: who runs the send queues, when, and for how long.
 *
 * Owns: the spinning thread, the worker, what queue pairs' timers lead to.
 * Does not know: what running a queue means (requester.c).
 *
 * Three places run queues:
 *  - the caller of a kick, within a budget. This is the normal case: no wake-up;
 *  - the thread, which spins on the doorbells while, and only while, it is the
 *    only runnable task of its CPU. Then posting is a store;
 *  - the worker, for what a budget or a timer left over. Where packets are sent it
 *    runs on the CPU of the turn before: a link queues by CPU, and packets of one
 *    queue pair that leave from two overtake each other.
 *
 * What the calls of a program have handed to the worker is also on a list of its
 * context, and the context's next kick goes on with it unless the worker has begun.
 * So it is done in the program's own time as far as the program goes on kicking.
 */
#ifndef PEAL_ENGINE_H
#define PEAL_ENGINE_H

#include <linux/workqueue.h>

#include "base/table.h"
#include "engine/roster.h"
#include "engine/runlist.h"
#include "queue/context.h"
#include "queue/qp.h"

struct peal_engine {
	struct peal_table *table;
	struct peal_runlist run;
	struct peal_roster roster;	/* the thread scans it */
	bool awake;			/* the thread looks at doorbells and run list */
	bool wanted;			/* the thread shall try to spin */
	u64 not_before;			/* no CPU was idle: try again then, local_clock */
	struct task_struct *thread;
	struct work_struct work;	/* serves the run list */
	struct work_struct last_pass;	/* ends the thread's scan, which waits for it */
	struct workqueue_struct *homes;	/* the works of queue pairs with packets */
};

int peal_engine_start(struct peal_engine *e, struct peal_table *table, const char *name);
void peal_engine_stop(struct peal_engine *e);

struct peal_context *peal_engine_add_context(struct peal_engine *e, struct ib_ucontext *ib,
					     struct peal_quota *quota);
void peal_engine_remove_context(struct peal_engine *e, struct peal_context *ctx);

void peal_engine_add_qp(struct peal_engine *e, struct peal_qp *qp);
void peal_engine_remove_qp(struct peal_engine *e, struct peal_qp *qp);
void peal_engine_poke(struct peal_engine *e, struct peal_qp *qp);
void peal_engine_poke_sender(struct peal_engine *e, struct peal_qp *qp);
void peal_engine_defer(struct peal_engine *e, struct peal_qp *qp);
void peal_engine_settle(struct peal_engine *e, struct peal_burst *burst);
void peal_engine_abandon(struct peal_engine *e);
void peal_engine_return(struct peal_engine *e);

/* Run this queue pair at @when at the latest. Holds one of its locks, inside the guard. */
static inline void peal_engine_remind(struct peal_qp *qp, ktime_t when)
{
	peal_alarm_set(&qp->run.alarm, when);
}

extern const struct peal_door_ops peal_engine_door_ops;

#endif
