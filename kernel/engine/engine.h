/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The engine of one device. It decides when each queue pair runs, in which
 * place in the kernel, and for how long.
 *
 * Each of these places gives a queue pair a turn (turn.h):
 *  - the caller of a kick, within a budget (kick.c). This is the normal case, because it needs
 *    no wake-up;
 *  - the poller (poller.c), a thread that spins on the doorbells. It spins only while it is
 *    the only runnable task of its CPU. While it spins, posting is a store;
 *  - a worker (worker.c), for the work that a budget or a timer left over. For a queue pair
 *    that sends packets it runs on the CPU of the last turn. A link queues packets by CPU, so
 *    packets of one queue pair that leave from two CPUs overtake each other. A device has one
 *    worker for each CPU, and one that runs anywhere. Each serves a run list (runlist.h). If
 *    that of a CPU does not run, because a real-time thread has the CPU, the other one helps;
 *  - the queue pair's timer (timer.c);
 *  - a packet that arrives (../transport/demux.c).
 *
 * A queue pair that a program's call handed to the worker is also on a list of its context. The
 * context's next kick goes on with it unless the worker has started. So the work is done in the
 * program's own time as long as the program goes on kicking.
 *
 * Owns: only the struct. The file named at each part writes that part.
 */
#ifndef PEAL_ENGINE_H
#define PEAL_ENGINE_H

#include <linux/workqueue.h>

#include "base/table.h"
#include "engine/poll_list.h"
#include "engine/runlist.h"

/* How often `watch` looks. It helps a CPU whose list two looks in a row find not served. */
#define PEAL_WATCH_JIFFIES	(HZ / 20)

struct peal_engine {
	struct peal_table *table;	/* set by lifecycle.c */
	struct peal_runlists run;	/* filled by schedule.c, poller.c and worker.c */
	/* worker.c */
	struct workqueue_struct *cpu_wq;	/* for the works of the CPUs' run lists */
	struct delayed_work watch;	/* looks whether each CPU serves its run list */
	/* poller.c */
	struct peal_poll_list poll_list;	/* contexts whose doorbells the thread scans */
	bool awake;			/* the thread scans doorbells and run list */
	bool wanted;			/* the thread is asked to try to spin */
	u64 not_before;			/* earliest next try to spin, local_clock() ns */
	struct task_struct *thread;
	struct work_struct last_pass;	/* finishes the last pass; the thread waits for it */
};

#endif
