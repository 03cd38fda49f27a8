/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * User contexts: one opened device of one program.
 *
 * Owns: the doorbell page, the numbers of the queue pairs in it, the door.
 * Does not know: when to look at the doorbells, what to do with a queue pair.
 *
 * Closing a context does not wait for kicks that are under way. So what they use,
 * struct peal_context, is not part of the core's object, which the core frees when the
 * context is closed, but is freed by RCU.
 *
 * The doorbell bits are cleared by one reader, the engine's thread.
 */
#ifndef PEAL_CONTEXT_H
#define PEAL_CONTEXT_H

#include <linux/list.h>
#include <linux/rcupdate.h>
#include <linux/xarray.h>
#include <rdma/ib_verbs.h>

#include "base/door.h"
#include "base/quota.h"
#include "queue/map.h"
#include "queue/qp.h"

struct peal_room;

struct peal_context {
	struct ib_ucontext *ib;			/* valid until it is closed */
	struct rcu_head rcu;			/* kicks are RCU readers */
	struct list_head node;			/* the engine's list */
	struct list_head awake;			/* the roster's list of those told so */
	bool listed;				/* node is on it; under the roster's lock */
	struct xarray qps;			/* by index; writers take its xa_lock */
	u32 words;				/* doorbell words that were ever in use */
	struct peal_map *map;
	struct peal_doorbell *doorbell;		/* shared */
	u64 pending[PEAL_DB_SUMMARIES];		/* engine's thread: words to visit */
	u64 pass;				/* engine's thread: when it was last visited */
	struct peal_door *door;
	struct peal_engine *engine;		/* runs its queue pairs */
	struct list_head overdue;		/* what calls left unfinished; runlist.c's */
	struct peal_account account;		/* what it holds of the device's numbers */
	struct peal_room *room;			/* net's: what its packets are charged to */
};

/* The core's object. */
struct peal_ucontext {
	struct ib_ucontext ib;
	struct peal_context *ctx;
};

static inline struct peal_ucontext *peal_ucontext(struct ib_ucontext *ib)
{
	return container_of(ib, struct peal_ucontext, ib);
}

struct peal_context *peal_context_create(struct ib_ucontext *ib, struct peal_quota *quota,
					 const struct peal_door_ops *ops,
					 struct peal_engine *engine);
void peal_context_set_room(struct peal_context *ctx, struct peal_room *room);
void peal_context_destroy(struct peal_context *ctx);
void peal_context_describe(const struct peal_context *ctx, struct peal_alloc_ucontext_resp *resp);

int peal_context_add_qp(struct peal_context *ctx, struct peal_qp *qp);
void peal_context_remove_qp(struct peal_qp *qp);

/* Inside the guard. */
static inline struct peal_qp *peal_context_qp(struct peal_context *ctx, unsigned long index)
{
	return xa_load(&ctx->qps, index);
}

/* Was it this pass's turn already? The engine's thread asks. */
static inline bool peal_context_was_scanned(const struct peal_context *ctx, u64 pass)
{
	return ctx->pass == pass;
}

void peal_context_set_listed(struct peal_context *ctx, bool listed);
void peal_context_set_state(struct peal_context *ctx, enum peal_engine_state state);
void peal_context_begin_scan(struct peal_context *ctx, u64 pass);
bool peal_context_take_word(struct peal_context *ctx, u32 *first, u64 *bits);

#endif
