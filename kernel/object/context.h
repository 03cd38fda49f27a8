/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * User contexts: one opened device of one program, with its doorbell page, its kick file, the
 * doorbell index of each queue pair and the index of each shared receive queue.
 *
 * Closing a context does not wait for running kicks. The core frees its own object when the
 * context is closed, so a kick must not use that object. Kicks use struct peal_context, which
 * is a separate allocation that RCU frees.
 *
 * Only the engine's thread clears the doorbell bits.
 */
#ifndef PEAL_CONTEXT_H
#define PEAL_CONTEXT_H

#include <linux/bitmap.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/nospec.h>
#include <linux/rcupdate.h>
#include <linux/xarray.h>
#include <rdma/ib_verbs.h>

#include "base/epoch.h"
#include "base/kick_file.h"
#include "base/quota.h"
#include "object/qp.h"

struct peal_tx_quota;

/* The queue pairs whose doorbell bits are in one word. */
struct peal_context_word {
	struct rcu_head rcu;
	struct peal_qp __rcu *qp[64];
};

struct peal_context {
	struct ib_ucontext *ib;			/* valid until the context is closed */
	struct rcu_head rcu;			/* kicks are RCU readers */

	/* Guarded by poller.lock: */
	struct list_head node;			/* in peal_poller.contexts */
	struct list_head awake;			/* in peal_poller.told if the page says AWAKE */
	bool listed;				/* node is in the poll list */

	struct mutex lock;			/* guards the fields marked with it */

	/* Guarded by context.lock: */
	DECLARE_BITMAP(used, PEAL_MAX_QP);	/* indices of queue pairs */
	u32 words;				/* doorbell words up to the last queue pair's */
	/* Each stays until the context goes. */
	struct peal_context_word __rcu *word[PEAL_DB_WORDS];

	struct xarray srqs;			/* by index; writers take its xa_lock */

	struct peal_map *map;
	struct peal_doorbell *doorbell;		/* shared with the program */
	u64 pass;				/* engine's thread: number of the last pass here */
	struct peal_kick_file *kick_file;
	struct peal_engine *engine;		/* runs the queue pairs of this context */

	/* Guarded by runlists.lock: */
	struct list_head overdue;		/* unfinished queue pairs; see engine.h */

	struct peal_account account;		/* how many objects the context holds */
	struct peal_tx_quota *tx_quota;		/* transmit memory of its packets; outlives it */
};

/* The core's object, which the core frees when the context is closed. */
struct peal_ucontext {
	struct ib_ucontext ib;
	struct peal_context *ctx;
};

static inline struct peal_ucontext *peal_ucontext(struct ib_ucontext *ib)
{
	return container_of(ib, struct peal_ucontext, ib);
}

struct peal_context *peal_context_create(struct ib_ucontext *ib, struct peal_quota *quota,
					 const struct peal_kick_file_ops *ops,
					 struct peal_engine *engine);
void peal_context_destroy(struct peal_context *ctx);
void peal_context_describe(const struct peal_context *ctx, struct peal_alloc_ucontext_resp *resp);

int peal_context_add_qp(struct peal_context *ctx, struct peal_qp *qp);
void peal_context_remove_qp(struct peal_qp *qp);
int peal_context_add_srq(struct peal_context *ctx, struct peal_srq *srq);
void peal_context_remove_srq(struct peal_srq *srq);

/* Call inside the epoch, which keeps the queue pair valid. */
static inline struct peal_qp *peal_context_qp(struct peal_context *ctx, unsigned long index)
{
	const struct peal_context_word *word;

	peal_epoch_assert_held();
	if (unlikely(index >= PEAL_MAX_QP))
		return NULL;
	index = array_index_nospec(index, PEAL_MAX_QP);
	word = rcu_dereference_raw(ctx->word[index / 64]);
	return word ? rcu_dereference_raw(word->qp[index % 64]) : NULL;
}

/* Call inside the epoch, which keeps the shared receive queue valid. */
static inline struct peal_srq *peal_context_srq(struct peal_context *ctx, unsigned long index)
{
	peal_epoch_assert_held();
	return xa_load(&ctx->srqs, index);
}

/* Return: whether @pass has visited this context already. For the engine's thread. */
static inline bool peal_context_was_scanned(const struct peal_context *ctx, u64 pass)
{
	return ctx->pass == pass;
}

void peal_context_set_listed(struct peal_context *ctx, bool listed);
void peal_context_set_state(struct peal_context *ctx, enum peal_engine_state state);
u32 peal_context_begin_scan(struct peal_context *ctx, u64 pass);

/* Return: the bits of doorbell word @w, which are cleared. An idle word is only read. */
static inline u64 peal_context_take_bits(struct peal_context *ctx, u32 w)
{
	u64 *bits = &ctx->doorbell->bits[w];

	return READ_ONCE(*bits) ? xchg(bits, 0) : 0;
}

#endif
