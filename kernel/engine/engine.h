/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The engine of one device: what runs the queue pairs, when, and for how long.
 *
 * Each of these contexts gives a queue pair a turn (turn.h):
 *  - the caller of a kick, within a budget (kick.c). This is the normal case: no wake-up;
 *  - the poller (poller.c), a thread that spins on the doorbells while, and only while, it
 *    is the only runnable task of its CPU. Then posting is a store;
 *  - a worker (worker.c), for what a budget or a timer left over. Where packets are sent it
 *    runs on the CPU of the turn before: a link queues by CPU, and packets of one
 *    queue pair that leave from two overtake each other;
 *  - the queue pair's timer (timer.c);
 *  - a packet that arrives (../transport/demux.c).
 *
 * What the calls of a program have handed to the worker is also on a list of its
 * context, and the context's next kick goes on with it unless the worker has begun.
 * So it is done in the program's own time as far as the program goes on kicking.
 *
 * Owns: the struct alone; each part is written by the file that is named at it.
 */
#ifndef PEAL_ENGINE_H
#define PEAL_ENGINE_H

#include <linux/workqueue.h>

#include "base/table.h"
#include "engine/roster.h"
#include "engine/runlist.h"

struct peal_engine {
	struct peal_table *table;	/* lifecycle.c */
	struct peal_runlist run;	/* schedule.c adds to it */
	struct work_struct work;	/* worker.c serves the run list */
	struct workqueue_struct *homes;	/* worker.c: the works of queue pairs with packets */
	/* poller.c */
	struct peal_roster roster;	/* the thread scans it */
	bool awake;			/* the thread looks at doorbells and run list */
	bool wanted;			/* the thread shall try to spin */
	u64 not_before;			/* no CPU was idle: try again then, local_clock */
	struct task_struct *thread;
	struct work_struct last_pass;	/* ends the thread's scan, which waits for it */
};

#endif
