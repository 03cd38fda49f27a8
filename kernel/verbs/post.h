/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Kernel users: what the provider is for a program, this is for a ULP.
 *
 * Owns: the way from ib_send_wr and ib_recv_wr to WQEs in the same rings, the
 * wr_ids by slot, and the way back from CQEs to ib_wc.
 * Does not know: who runs the queues, what happens to a WQE.
 *
 * Locks: posts->lock guards a queue pair's two producer sides, cq->poll_lock a
 * completion queue's consumer side. Both are taken with interrupts off, because
 * ULPs call from anywhere; nothing but each other's data is touched inside.
 */
#ifndef PEAL_POST_H
#define PEAL_POST_H

#include "queue/qp.h"

int peal_post_init(struct peal_qp *qp);
void peal_post_free(struct peal_qp *qp);
void peal_post_forget(struct peal_qp *qp);

int peal_post_send(struct peal_qp *qp, const struct ib_send_wr *wr, const struct ib_send_wr **bad);
int peal_post_recv(struct peal_qp *qp, const struct ib_recv_wr *wr, const struct ib_recv_wr **bad,
		   bool *wants_kick);

int peal_post_poll(struct peal_table *table, struct peal_cq *cq, int n, struct ib_wc *wc);

#endif
