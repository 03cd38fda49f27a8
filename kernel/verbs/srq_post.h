/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Posts of kernel users to shared receive queues. Programs post without the kernel's help.
 *
 * Owns: the free slots, and the wr_id of each slot that is in use.
 * Does not know: queue pairs, completion queues.
 *
 * Lock: srq_posts.lock, taken inside cq.poll_lock, with interrupts off. Nothing is taken inside it.
 */
#ifndef PEAL_SRQ_POST_H
#define PEAL_SRQ_POST_H

#include "queue/srq.h"

int peal_srq_post_init(struct peal_srq *srq);
void peal_srq_post_free(struct peal_srq *srq);
int peal_srq_post_recv(struct peal_srq *srq, const struct ib_recv_wr *wr,
		       const struct ib_recv_wr **bad, bool *wants_kick);
u64 peal_srq_post_complete(struct peal_srq *srq, u32 number);

#endif
