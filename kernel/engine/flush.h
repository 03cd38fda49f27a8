/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Flushing of work queues, which have no turns because they send nothing.
 *
 * Owns: how long a caller flushes, and the work item that flushes what a caller leaves.
 * Does not know: the programs that post, and why a work queue is in error.
 */
#ifndef PEAL_FLUSH_H
#define PEAL_FLUSH_H

#include "queue/wq.h"

bool peal_flush_wq(struct peal_wq *wq, struct peal_budget *budget);
void peal_flush_failed_wq(struct peal_wq *wq);
bool peal_flush_abandoned_wq(struct peal_table *table, unsigned long *number, u32 *turns);
void peal_flush_wq_work(struct work_struct *work);

#endif
