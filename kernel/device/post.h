/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Posting and polling for kernel users (ULPs). It does for a ULP what the provider library
 * does for a program.
 *
 * Owns: how ib_send_wr and ib_recv_wr become WQEs in the same rings, the wr_id of each
 * slot, and how CQEs become ib_wc.
 * Does not know: how the queues are run, what happens to a WQE.
 *
 * Locks: posts->lock guards the two producer sides of a queue pair, cq->poll_lock the
 * consumer side of a completion queue. Both are taken with interrupts off, because ULPs
 * call from any context. Only srq_posts.lock is taken inside one of them, inside
 * cq->poll_lock.
 */
#ifndef PEAL_POST_H
#define PEAL_POST_H

#include "object/qp.h"
#include "object/srq.h"

/*
 * Posts of kernel users to shared receive queues. Programs post without the kernel's help.
 *
 * Owns: the free slots, and the wr_id of each slot that is in use.
 *
 * Lock: srq_posts.lock, taken inside cq.poll_lock, with interrupts off. Nothing is taken inside it.
 */

int peal_srq_post_init(struct peal_srq *srq);
void peal_srq_post_free(struct peal_srq *srq);
int peal_srq_post_recv(struct peal_srq *srq, const struct ib_recv_wr *wr,
		       const struct ib_recv_wr **bad, bool *wants_kick);
u64 peal_srq_post_complete(struct peal_srq *srq, u32 number);

int peal_post_init(struct peal_qp *qp);
void peal_post_free(struct peal_qp *qp);
void peal_post_forget(struct peal_qp *qp);
void peal_post_drop_shared(struct peal_qp *qp);

int peal_post_send(struct peal_qp *qp, const struct ib_send_wr *wr, const struct ib_send_wr **bad);
int peal_post_recv(struct peal_qp *qp, const struct ib_recv_wr *wr, const struct ib_recv_wr **bad,
		   bool *wants_kick);

int peal_post_poll(struct peal_table *table, struct peal_cq *cq, int n, struct ib_wc *wc);

#endif
