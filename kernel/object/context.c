// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include <linux/slab.h>

#include "object/context.h"
#include "object/dm.h"

/**
 * peal_context_create() - make a context with its doorbell page and its kick file
 * @quota: the device's quota, in which the context gets an account
 * @ops: handle the program's kicks
 * @engine: runs the context's queue pairs
 *
 * Return: the context, or an ERR_PTR: -ENOMEM, -EMFILE, -ENFILE.
 */
struct peal_context *peal_context_create(struct ib_ucontext *ib, struct peal_quota *quota,
					 const struct peal_kick_file_ops *ops,
					 struct peal_engine *engine)
{
	struct peal_context *ctx = kzalloc(sizeof(*ctx), GFP_KERNEL_ACCOUNT);
	int ret;

	if (!ctx)
		return ERR_PTR(-ENOMEM);
	ret = peal_quota_open(quota, &ctx->account);
	if (ret)
		goto free;
	ctx->ib = ib;
	ctx->map = peal_map_alloc(ib, &ctx->account, sizeof(struct peal_doorbell));
	if (IS_ERR(ctx->map)) {
		ret = PTR_ERR(ctx->map);
		goto close;
	}
	ctx->engine = engine;
	ctx->doorbell = peal_map_address(ctx->map);
	peal_context_set_state(ctx, PEAL_ENGINE_ASLEEP);
	xa_init_flags(&ctx->qps, XA_FLAGS_ALLOC | XA_FLAGS_ACCOUNT);
	xa_init_flags(&ctx->srqs, XA_FLAGS_ALLOC | XA_FLAGS_ACCOUNT);
	INIT_LIST_HEAD(&ctx->node);
	INIT_LIST_HEAD(&ctx->awake);
	INIT_LIST_HEAD(&ctx->overdue);
	ctx->kick_file = peal_kick_file_create(ops, ctx);
	if (!IS_ERR(ctx->kick_file))
		return ctx;
	ret = PTR_ERR(ctx->kick_file);
	peal_map_free(ctx->map);
close:
	peal_quota_close(&ctx->account);
free:
	kfree(ctx);
	return ERR_PTR(ret);
}

/*
 * The caller has removed the context from the engine, and has revoked or discarded the kick file.
 * Running kicks find no queue pair in the context and do not use the doorbell page, so the page
 * can be freed at once. RCU frees the context, because those kicks still read it.
 */
void peal_context_destroy(struct peal_context *ctx)
{
	peal_context_set_state(ctx, PEAL_ENGINE_GONE);
	peal_map_free(ctx->map);
	xa_destroy(&ctx->qps);
	xa_destroy(&ctx->srqs);
	peal_quota_close(&ctx->account);
	kfree_rcu(ctx, rcu);
}

void peal_context_describe(const struct peal_context *ctx, struct peal_alloc_ucontext_resp *resp)
{
	*resp = (struct peal_alloc_ucontext_resp){
		.kick_fd = peal_kick_file_fd(ctx->kick_file),
		.doorbell_offset = peal_map_offset(ctx->map),
		.doorbell_bytes = peal_map_bytes(ctx->map),
		.max_send_sge = PEAL_MAX_SGE,
		.max_inline = PEAL_MAX_INLINE,
		.null_lkey = PEAL_NULL_LKEY,
	};
}

/*
 * Set how many doorbell words a scan reads: @words, or fewer when the last ones have no queue
 * pair. The caller holds the lock of qps, because threads may make and destroy queue pairs at
 * the same time. A new queue pair is in qps before its word is counted, so that the destruction
 * of another one does not take the word away.
 */
static void peal_context_set_words(struct peal_context *ctx, u32 words)
{
	unsigned long index;

	lockdep_assert_held(&ctx->qps.xa_lock);
	for (; words; words--) {
		index = (words - 1) * 64;
		if (xa_find(&ctx->qps, &index, ULONG_MAX, XA_PRESENT))
			break;
	}
	WRITE_ONCE(ctx->words, words);
}

/* Give out the smallest free index, because a scan reads every doorbell word in use. */
int peal_context_add_qp(struct peal_context *ctx, struct peal_qp *qp)
{
	u32 index;
	int ret = xa_alloc(&ctx->qps, &index, qp, XA_LIMIT(0, PEAL_MAX_QP - 1), GFP_KERNEL);

	if (ret)
		return ret == -EBUSY ? -ENOSPC : ret;
	qp->context = ctx;
	qp->index = index;
	xa_lock(&ctx->qps);
	peal_context_set_words(ctx, max(ctx->words, index / 64 + 1));
	xa_unlock(&ctx->qps);
	return 0;
}

void peal_context_remove_qp(struct peal_qp *qp)
{
	struct peal_context *ctx = qp->context;

	if (!ctx)
		return;
	xa_lock(&ctx->qps);
	__xa_erase(&ctx->qps, qp->index);
	peal_context_set_words(ctx, ctx->words);
	xa_unlock(&ctx->qps);
}

int peal_context_add_srq(struct peal_context *ctx, struct peal_srq *srq)
{
	u32 index;
	int ret = xa_alloc(&ctx->srqs, &index, srq, xa_limit_31b, GFP_KERNEL_ACCOUNT);

	if (ret)
		return ret == -EBUSY ? -ENOSPC : ret;
	srq->context = ctx;
	srq->index = index;
	return 0;
}

void peal_context_remove_srq(struct peal_srq *srq)
{
	if (srq->context)
		xa_erase(&srq->context->srqs, srq->index);
}

void peal_context_set_listed(struct peal_context *ctx, bool listed)
{
	ctx->listed = listed;
}

/* After ASLEEP the caller must execute barrier B. One barrier then serves all contexts. */
void peal_context_set_state(struct peal_context *ctx, enum peal_engine_state state)
{
	WRITE_ONCE(ctx->doorbell->engine, state);
}

/**
 * peal_context_begin_scan() - start to look at the doorbells of @ctx in pass @pass
 *
 * Return: how many doorbell words to look at, each once. A program that sets bits in words
 * without a queue pair costs nothing.
 */
u32 peal_context_begin_scan(struct peal_context *ctx, u64 pass)
{
	ctx->pass = pass;
	return READ_ONCE(ctx->words);
}
