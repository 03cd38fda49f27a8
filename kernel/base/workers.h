/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The module's workqueue. It runs the work that is left when a budget ends, and work that must not
 * run in the context that found it.
 *
 * Owns: one unbound workqueue. It has WQ_MEM_RECLAIM, because storage that memory reclaim
 * waits for may use a queue pair whose remaining work is done here. It is in sysfs, where
 * an administrator may choose its CPUs and its nice value.
 * Does not know: whose works run on it. Code that queues a work item must also wait
 * for it to end.
 */
#ifndef PEAL_WORKERS_H
#define PEAL_WORKERS_H

#include <linux/workqueue.h>

int peal_workers_init(void);
void peal_workers_exit(void);

/* Any context. Return: false when @work was queued already. */
bool peal_workers_queue(struct work_struct *work);
/* The same, when @delay jiffies are over. */
bool peal_workers_queue_later(struct delayed_work *work, unsigned long delay);

#endif
