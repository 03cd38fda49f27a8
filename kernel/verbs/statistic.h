/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Counters of their own for some queue pairs: `rdma statistic qp bind`, and the automatic mode.
 *
 * Owns: these sets of counters, and which set each queue pair counts in. A queue pair counts in
 * one set only, because the core adds the sets of a port to the port's own values.
 * Does not know: the events that are counted.
 */
#ifndef PEAL_STATISTIC_H
#define PEAL_STATISTIC_H

#include <rdma/ib_verbs.h>

#include "base/compat.h"

int peal_statistic_bind_qp(struct rdma_counter *counter, PEAL_COUNTER_QP(struct ib_qp *ib));
int peal_statistic_unbind_qp(PEAL_COUNTER_QP(struct ib_qp *ib));
int peal_statistic_dealloc(struct rdma_counter *counter);
struct rdma_hw_stats *peal_statistic_alloc_stats(struct rdma_counter *counter);
int peal_statistic_update_stats(struct rdma_counter *counter);
#ifdef PEAL_HAS_COUNTER_INIT
void peal_statistic_init(struct rdma_counter *counter);
#endif

#endif
