// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See context.h.
 */
#include <linux/bitops.h>
#include <linux/slab.h>

#include "queue/context.h"

static int peal_context_init(struct peal_context *ctx, struct ib_ucontext *ib,
			     struct peal_quota *quota, const struct peal_door_ops *ops,
			     struct peal_engine *engine)
{
	int ret = peal_quota_open(quota, &ctx->account);

	if (ret)
		return ret;
	ctx->ib = ib;
	ctx->map = peal_map_alloc(ib, sizeof(struct peal_doorbell));
	if (IS_ERR(ctx->map)) {
		ret = PTR_ERR(ctx->map);
		goto close;
	}
	ctx->engine = engine;
	ctx->doorbell = peal_map_address(ctx->map);
	peal_context_set_state(ctx, PEAL_ENGINE_ASLEEP);
	xa_init_flags(&ctx->qps, XA_FLAGS_ALLOC | XA_FLAGS_ACCOUNT);
	INIT_LIST_HEAD(&ctx->node);
	INIT_LIST_HEAD(&ctx->awake);
	INIT_LIST_HEAD(&ctx->overdue);
	ctx->door = peal_door_create(ops, ctx);
	if (!IS_ERR(ctx->door))
		return 0;
	ret = PTR_ERR(ctx->door);
	peal_map_free(ctx->map);
close:
	peal_quota_close(&ctx->account);
	return ret;
}

/**
 * peal_context_create() - doorbell page and door
 * @quota: the device's; the context gets an account there
 * @ops: who answers the door
 * @engine: runs its queue pairs
 *
 * Return: the context, ERR_PTR(-ENOMEM) or ERR_PTR(-EMFILE).
 */
struct peal_context *peal_context_create(struct ib_ucontext *ib, struct peal_quota *quota,
					 const struct peal_door_ops *ops,
					 struct peal_engine *engine)
{
	struct peal_context *ctx = kzalloc(sizeof(*ctx), GFP_KERNEL_ACCOUNT);
	int ret;

	if (!ctx)
		return ERR_PTR(-ENOMEM);
	ret = peal_context_init(ctx, ib, quota, ops, engine);
	if (!ret)
		return ctx;
	kfree(ctx);
	return ERR_PTR(ret);
}

/* Before the program has a queue pair. The room stays the caller's, and outlives those. */
void peal_context_set_room(struct peal_context *ctx, struct peal_room *room)
{
	ctx->room = room;
}

/*
 * The engine has forgotten the context and the door was revoked or discarded. Kicks
 * that are under way find no queue pair in it any more, and do not use the page.
 */
void peal_context_destroy(struct peal_context *ctx)
{
	peal_context_set_state(ctx, PEAL_ENGINE_GONE);
	peal_map_free(ctx->map);
	xa_destroy(&ctx->qps);
	peal_quota_close(&ctx->account);
	kfree_rcu(ctx, rcu);
}

void peal_context_describe(const struct peal_context *ctx, struct peal_alloc_ucontext_resp *resp)
{
	*resp = (struct peal_alloc_ucontext_resp){
		.kick_fd = peal_door_fd(ctx->door),
		.doorbell_offset = peal_map_offset(ctx->map),
		.doorbell_bytes = peal_map_bytes(ctx->map),
		.max_send_sge = PEAL_MAX_SGE,
		.max_inline = PEAL_MAX_INLINE,
	};
}

/* Several threads may make queue pairs at once. */
static void peal_context_use_word(struct peal_context *ctx, u32 word)
{
	xa_lock(&ctx->qps);
	WRITE_ONCE(ctx->words, max(ctx->words, word + 1));
	xa_unlock(&ctx->qps);
}

/* Small numbers first: the fewer doorbell words are in use the better. */
int peal_context_add_qp(struct peal_context *ctx, struct peal_qp *qp)
{
	u32 index;
	int ret = xa_alloc(&ctx->qps, &index, qp, XA_LIMIT(0, PEAL_MAX_QP - 1), GFP_KERNEL);

	if (ret)
		return ret == -EBUSY ? -ENOSPC : ret;
	peal_qp_set_owner(qp, ctx, index);
	peal_context_use_word(ctx, index / 64);
	return 0;
}

void peal_context_remove_qp(struct peal_qp *qp)
{
	if (qp->context)
		xa_erase(&qp->context->qps, qp->index);
}

void peal_context_set_listed(struct peal_context *ctx, bool listed)
{
	ctx->listed = listed;
}

/* The barrier that must follow ASLEEP is the caller's: it does all contexts. */
void peal_context_set_state(struct peal_context *ctx, enum peal_engine_state state)
{
	WRITE_ONCE(ctx->doorbell->engine, state);
}

/* Those of summary word @s that some queue pair has a bit in. */
static u64 peal_context_used(const struct peal_context *ctx, u32 s)
{
	u32 words = READ_ONCE(ctx->words);

	if (words <= s * 64)
		return 0;
	return words < s * 64 + 64 ? GENMASK_ULL(words - s * 64 - 1, 0) : U64_MAX;
}

/*
 * Take note of the words that have bits now. Once per scan: a program that goes
 * on setting bits is visited in the next one, which has another number. What it
 * sets where it has no queue pairs costs nothing; what is in use is looked at after
 * a bit was taken, since its queue pair may be as new as the bit.
 */
void peal_context_begin_scan(struct peal_context *ctx, u64 pass)
{
	u64 taken;
	u32 s;

	ctx->pass = pass;
	for (s = 0; s < PEAL_DB_SUMMARIES && peal_context_used(ctx, s); s++) {
		if (!READ_ONCE(ctx->doorbell->summary[s]))
			continue;
		taken = xchg(&ctx->doorbell->summary[s], 0);
		ctx->pending[s] |= taken & peal_context_used(ctx, s);
	}
}

/**
 * peal_context_take_word() - the next doorbell word of this scan
 * @first: set to the index of the queue pair that bit 0 stands for
 * @bits: set to its bits, which are taken away; maybe none
 *
 * Return: false when the scan is at its end.
 */
bool peal_context_take_word(struct peal_context *ctx, u32 *first, u64 *bits)
{
	u32 s, w;

	for (s = 0; s < PEAL_DB_SUMMARIES; s++) {
		if (!ctx->pending[s])
			continue;
		w = s * 64 + __ffs64(ctx->pending[s]);
		ctx->pending[s] &= ctx->pending[s] - 1;
		*first = w * 64;
		*bits = xchg(&ctx->doorbell->word[w].bits, 0);
		return true;
	}
	return false;
}
