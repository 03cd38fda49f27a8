/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The ring of a shared receive queue.
 *
 * Owns: the ring of slot numbers, the limit, the list of receive queues whose senders wait for a
 * receive, and the flag that asks the program for kicks.
 * Does not know: queue pairs, senders, how events are raised. Compiles in userspace for the tests.
 *
 * Lock: srq_ring.lock, taken inside an rq->lock. Nothing is taken inside it.
 */
#ifndef PEAL_SRQ_RING_H
#define PEAL_SRQ_RING_H

#include <linux/list.h>
#include <linux/spinlock.h>

#include "queue/ring.h"
#include "queue/wqe.h"

/* Bits of peal_srq_ring.due: the events to raise. */
#define PEAL_SRQ_DUE_LIMIT	0x1
#define PEAL_SRQ_DUE_ERROR	0x2

struct peal_srq_ring {
	spinlock_t lock;		/* guards the fields marked with it */
	struct peal_wqe_limits limits;

	/* Guarded by srq_ring.lock: */
	u32 *numbers;			/* shared with the program: slot numbers, as posted */
	struct peal_ring ring;		/* `next` is an index of `numbers` */
	u32 limit;			/* an event is due below so many WQEs; 0: not armed */
	u32 due;			/* PEAL_SRQ_DUE_* */
	bool broken;			/* the program stored nonsense; no WQE is taken any more */
	bool reposted;			/* a WQE was, since the program began to copy the ring */
	struct list_head starving;	/* peal_rq.starving; the longest wait first */
};

void peal_srq_ring_init(struct peal_srq_ring *srq, void *ctl, u32 *numbers, void *slots,
			u32 entries, u32 stride, const struct peal_wqe_limits *limits);
bool peal_srq_ring_take(struct peal_srq_ring *srq, struct list_head *waiter,
			struct peal_recv *recv, enum peal_reason *reason);
bool peal_srq_ring_repost(struct peal_srq_ring *srq, const struct peal_recv *recv);
void peal_srq_ring_leave(struct peal_srq_ring *srq, struct list_head *waiter);
struct list_head *peal_srq_ring_next_waiter(struct peal_srq_ring *srq);

void peal_srq_ring_arm(struct peal_srq_ring *srq, u32 limit);
u32 peal_srq_ring_limit(struct peal_srq_ring *srq);
u32 peal_srq_ring_entries(struct peal_srq_ring *srq);
void peal_srq_ring_prepare(struct peal_srq_ring *srq);
int peal_srq_ring_replace(struct peal_srq_ring *srq, u32 *numbers, void *slots, u32 entries,
			  u32 *taken);
u32 peal_srq_ring_take_due(struct peal_srq_ring *srq);

#endif
