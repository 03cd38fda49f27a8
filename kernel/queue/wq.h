/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Work queues: receive queues with a state and a completion queue of their own, to which a raw
 * packet queue pair with an indirection table spreads its frames.
 *
 * Owns: identity, state, the ring's memory, the CQEs and the event of the queue.
 * Does not know: the queue pairs and indirection tables (the core counts them), frames, when the
 * queue is flushed (the engine).
 *
 * Lock: rq.lock, as that of a queue pair.
 */
#ifndef PEAL_WQ_H
#define PEAL_WQ_H

#include <linux/workqueue.h>
#include <rdma/ib_verbs.h>

#include "base/budget.h"
#include "base/quota.h"
#include "base/table.h"
#include "queue/map.h"
#include "queue/notify.h"
#include "queue/rq.h"

struct peal_context;

struct peal_wq {
	struct ib_wq ib;
	struct peal_table *table;
	struct peal_account *account;	/* of the context */
	struct peal_context *context;
	u32 index;			/* in the context */
	struct peal_map *map;
	struct peal_rq rq;
	struct work_struct work;	/* flushes what a kick has left, and after errors */

	/* Guarded by rq.lock: */
	enum ib_wq_state state;
	bool removed;			/* device removal began; flushes give it as the reason */
	bool fatal;			/* the event of an error is due */
};

static inline struct peal_wq *peal_wq(struct ib_wq *ib)
{
	return container_of(ib, struct peal_wq, ib);
}

int peal_wq_init(struct peal_wq *wq, struct peal_table *table, struct peal_account *account,
		 struct ib_ucontext *uctx, struct ib_pd *pd, struct ib_wq_init_attr *init);
void peal_wq_set_work(struct peal_wq *wq, work_func_t work);
void peal_wq_set_owner(struct peal_wq *wq, struct peal_context *ctx, u32 index);
void peal_wq_describe(const struct peal_wq *wq, struct peal_create_wq_resp *resp);
void peal_wq_unpublish(struct peal_wq *wq);
void peal_wq_free(struct peal_wq *wq);

int peal_wq_modify(struct peal_wq *wq, const struct ib_wq_attr *attr, u32 mask);
void peal_wq_abandon(struct peal_wq *wq);

void peal_wq_complete(struct peal_wq *wq, struct peal_notify *notify, const struct peal_cqe *cqe);
void peal_wq_fail_locked(struct peal_wq *wq);
bool peal_wq_take_fatal(struct peal_wq *wq);
void peal_wq_raise_fatal(struct peal_wq *wq);
u32 peal_wq_entries(const struct peal_wq *wq);
bool peal_wq_flush(struct peal_wq *wq, struct peal_notify *notify, struct peal_budget *budget);

#endif
