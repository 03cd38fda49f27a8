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
	mutex_init(&ctx->lock);
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
 * can be freed at once. RCU frees the context and its words, because those kicks still read them.
 */
void peal_context_destroy(struct peal_context *ctx)
{
	struct peal_context_word *word;
	u32 w;

	peal_context_set_state(ctx, PEAL_ENGINE_GONE);
	peal_map_free(ctx->map);
	for (w = 0; w < PEAL_DB_WORDS; w++) {
		word = rcu_dereference_protected(ctx->word[w], true);
		if (word)
			kfree_rcu(word, rcu);
	}
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
 * Give out the smallest free index, because a scan reads every doorbell word up to the last one in
 * use. Return: 0, -ENOMEM or -ENOSPC.
 */
int peal_context_add_qp(struct peal_context *ctx, struct peal_qp *qp)
{
	struct peal_context_word *word;
	int ret = -ENOSPC;
	u32 index;

	mutex_lock(&ctx->lock);
	index = find_first_zero_bit(ctx->used, PEAL_MAX_QP);
	if (index == PEAL_MAX_QP)
		goto unlock;
	word = rcu_dereference_protected(ctx->word[index / 64],
					 lockdep_is_held(&ctx->lock));
	if (!word) {
		ret = -ENOMEM;
		word = kzalloc(sizeof(*word), GFP_KERNEL_ACCOUNT);
		if (!word)
			goto unlock;
		rcu_assign_pointer(ctx->word[index / 64], word);
	}
	ret = 0;
	qp->context = ctx;
	qp->index = index;
	rcu_assign_pointer(word->qp[index % 64], qp);
	__set_bit(index, ctx->used);
	WRITE_ONCE(ctx->words, max(ctx->words, index / 64 + 1));
unlock:
	mutex_unlock(&ctx->lock);
	return ret;
}

void peal_context_remove_qp(struct peal_qp *qp)
{
	struct peal_context *ctx = qp->context;
	struct peal_context_word *word;
	u32 last;

	if (!ctx)
		return;
	mutex_lock(&ctx->lock);
	word = rcu_dereference_protected(ctx->word[qp->index / 64],
					 lockdep_is_held(&ctx->lock));
	RCU_INIT_POINTER(word->qp[qp->index % 64], NULL);
	__clear_bit(qp->index, ctx->used);
	last = find_last_bit(ctx->used, PEAL_MAX_QP);
	WRITE_ONCE(ctx->words, last < PEAL_MAX_QP ? last / 64 + 1 : 0);
	mutex_unlock(&ctx->lock);
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
