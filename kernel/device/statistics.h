/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What the RDMA core shows about objects: counters of queue pairs, ``rdma resource``, and the
 * port counters that peers ask for.
 *
 * Does not know: where events are counted (base/counters.h).
 */
#ifndef PEAL_STATISTICS_H
#define PEAL_STATISTICS_H

#include <rdma/ib_verbs.h>

#include "base/compat.h"

/*
 * Counters of their own for some queue pairs: `rdma statistic qp bind`, and the automatic mode.
 *
 * Owns: these sets of counters, and which set each queue pair counts in. A queue pair counts in
 * one set only, because the core adds the sets of a port to the port's own values.
 */

int peal_statistic_bind_qp(struct rdma_counter *counter, PEAL_COUNTER_QP(struct ib_qp *ib));
int peal_statistic_unbind_qp(PEAL_COUNTER_QP(struct ib_qp *ib));
int peal_statistic_dealloc(struct rdma_counter *counter);
struct rdma_hw_stats *peal_statistic_alloc_stats(struct rdma_counter *counter);
int peal_statistic_update_stats(struct rdma_counter *counter);
#ifdef PEAL_HAS_COUNTER_INIT
void peal_statistic_init(struct rdma_counter *counter);
#endif

/*
 * What `rdma resource show -dd` tells about peal's objects, beyond what the core knows.
 *
 * Owns: the names and values of these attributes. They are for people, so they may change.
 */

int peal_restrack_fill_cq(struct sk_buff *msg, struct ib_cq *ib);
int peal_restrack_fill_mr(struct sk_buff *msg, struct ib_mr *ib);
int peal_restrack_fill_qp(struct sk_buff *msg, struct ib_qp *ib);
int peal_restrack_fill_srq(struct sk_buff *msg, struct ib_srq *ib);

/*
 * The performance management agent (IBTA 16.1): the port's counters as other RDMA devices show
 * them.
 *
 * Owns: the answers to performance management MADs. The core also asks for them to fill the
 * files of ports/1/counters in sysfs, which monitoring programs read.
 */

struct ib_mad;

int peal_pma_process_mad(struct ib_device *ib, int flags, u32 port, const struct ib_wc *wc,
			 const struct ib_grh *grh, const struct ib_mad *in, struct ib_mad *out,
			 size_t *out_bytes, u16 *out_pkey_index);

#endif
