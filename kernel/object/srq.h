/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Shared receive queues: receives that several queue pairs take their WQEs from. wqe.h has the ring
 * and the list of senders that wait.
 *
 * Lock: `resizing` serialises resizes. It may sleep, and srq_ring.lock is taken inside it.
 *
 * A WQE belongs to the queue pair that took it until that completes it. The keys in the WQE are
 * those of the protection domain of the shared receive queue, which need not be the queue pair's.
 */
#ifndef PEAL_SRQ_H
#define PEAL_SRQ_H

#include <linux/mutex.h>
#include <linux/workqueue.h>
#include <rdma/ib_verbs.h>

#include "base/quota.h"
#include "object/cq.h"
#include "object/wqe.h"

struct peal_context;

/* post.c's part. Only queues of kernel users have it. */
struct peal_srq_posts {
	spinlock_t lock;	/* guards the fields marked with it */

	/* Guarded by srq_posts.lock: */
	u64 *ids;		/* wr_id by slot */
	u32 *free;		/* numbers of the free slots */
	u32 num_free;
	u32 head;		/* next index of the ring; free-running */
};

struct peal_srq {
	struct ib_srq ib;
	struct peal_srq_ring ring;
	struct peal_map *map;		/* the control words, and the ring until the first resize */
	struct mutex resizing;

	/* Guarded by srq.resizing: */
	struct peal_map *resized;	/* the ring since the last resize, or NULL */
	struct peal_map *prepared;	/* the next ring, or NULL */
	u32 prepared_entries;

	struct peal_account *account;	/* the context's, or the kernel's */
	struct peal_context *context;	/* the program's context; NULL for a kernel user */
	u32 index;			/* in the context */
	struct work_struct work;	/* wakes the senders that a kick had no budget for */
	struct peal_events events;	/* for the handler of a kernel user */
	struct peal_srq_posts posts;
};

static inline struct peal_srq *peal_srq(struct ib_srq *ib)
{
	return container_of(ib, struct peal_srq, ib);
}

int peal_srq_init(struct peal_srq *srq, struct peal_account *account, struct ib_ucontext *uctx,
		  const struct peal_limits *limits, struct ib_srq_attr *attr);
void peal_srq_free(struct peal_srq *srq);
void peal_srq_set_work(struct peal_srq *srq, work_func_t work);
void peal_srq_describe(const struct peal_srq *srq, struct peal_create_srq_resp *resp);

int peal_srq_modify(struct peal_srq *srq, const struct ib_srq_attr *attr, int mask);
int peal_srq_prepare_resize(struct peal_srq *srq, struct ib_ucontext *uctx,
			    const struct peal_limits *limits, u32 max_wr,
			    struct peal_resize_srq_resp *resp);
int peal_srq_resize(struct peal_srq *srq, struct peal_resize_srq_resp *resp);
void peal_srq_query(struct peal_srq *srq, struct ib_srq_attr *attr);
void peal_srq_notify(struct peal_srq *srq);

#endif
