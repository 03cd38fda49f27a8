// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See poll_list.h.
 */
#include <linux/bitops.h>
#include <linux/rculist.h>

#include "base/epoch.h"
#include "engine/poll_list.h"

/*
 * A program may open any number of contexts, so each walk of the list ends after this many. When
 * the engine wakes up, this many contexts are told, and the programs of the others still kick,
 * which is only slower. One section of the epoch scans this many contexts and doorbell words,
 * together.
 */
#define PEAL_POLL_LIST_PART	512

void peal_poll_list_init(struct peal_poll_list *poll_list)
{
	spin_lock_init(&poll_list->lock);
	INIT_LIST_HEAD(&poll_list->contexts);
	INIT_LIST_HEAD(&poll_list->awake);
	poll_list->pass = 1;	/* a new context has pass 0, so it is not scanned yet */
}

void peal_poll_list_add(struct peal_poll_list *poll_list, struct peal_context *ctx)
{
	spin_lock(&poll_list->lock);
	list_add_tail_rcu(&ctx->node, &poll_list->contexts);
	peal_context_set_listed(ctx, true);
	if (poll_list->gone)
		peal_context_set_state(ctx, PEAL_ENGINE_GONE);
	spin_unlock(&poll_list->lock);
}

/* The scanner may still use @ctx until the caller has waited for the epoch. */
void peal_poll_list_remove(struct peal_poll_list *poll_list, struct peal_context *ctx)
{
	spin_lock(&poll_list->lock);
	list_del_rcu(&ctx->node);
	list_del_init(&ctx->awake);
	peal_context_set_listed(ctx, false);
	spin_unlock(&poll_list->lock);
}

/*
 * Under the lock. Tell the contexts at the front. A long pass moves contexts that it has scanned to
 * the end, so the next announcement tells others.
 */
static void peal_poll_list_say_awake(struct peal_poll_list *poll_list)
{
	struct peal_context *ctx;
	u32 told = 0;

	lockdep_assert_held(&poll_list->lock);
	list_for_each_entry(ctx, &poll_list->contexts, node) {
		if (told++ == PEAL_POLL_LIST_PART)
			break;
		peal_context_set_state(ctx, PEAL_ENGINE_AWAKE);
		list_move(&ctx->awake, &poll_list->awake);
	}
}

/* Under the lock. No page of another context says AWAKE. */
static void peal_poll_list_say_asleep(struct peal_poll_list *poll_list)
{
	struct peal_context *ctx, *next;

	lockdep_assert_held(&poll_list->lock);
	list_for_each_entry_safe(ctx, next, &poll_list->awake, awake) {
		peal_context_set_state(ctx, PEAL_ENGINE_ASLEEP);
		list_del_init(&ctx->awake);
	}
}

/*
 * Tell programs the engine's state. While the device is being removed the pages
 * keep saying GONE.
 */
void peal_poll_list_announce(struct peal_poll_list *poll_list, bool awake)
{
	spin_lock(&poll_list->lock);
	if (awake && !poll_list->gone)
		peal_poll_list_say_awake(poll_list);
	if (!awake)
		peal_poll_list_say_asleep(poll_list);
	spin_unlock(&poll_list->lock);
}

/*
 * Under the lock. Tell all contexts. The length of the list is acceptable here, because this is
 * done only when the device is removed or moved.
 */
static void peal_poll_list_tell(struct peal_poll_list *poll_list, enum peal_engine_state state)
{
	struct peal_context *ctx;

	lockdep_assert_held(&poll_list->lock);
	peal_poll_list_say_asleep(poll_list);
	list_for_each_entry(ctx, &poll_list->contexts, node)
		peal_context_set_state(ctx, state);
}

void peal_poll_list_leave(struct peal_poll_list *poll_list)
{
	spin_lock(&poll_list->lock);
	poll_list->gone = true;
	peal_poll_list_tell(poll_list, PEAL_ENGINE_GONE);
	spin_unlock(&poll_list->lock);
}

/*
 * The device has moved to another network namespace. Programs that have opened it there
 * meanwhile may post from now on.
 */
void peal_poll_list_return(struct peal_poll_list *poll_list)
{
	spin_lock(&poll_list->lock);
	poll_list->gone = false;
	peal_poll_list_tell(poll_list, PEAL_ENGINE_ASLEEP);
	spin_unlock(&poll_list->lock);
}

/* Start a new pass, in which every context is scanned again. */
void peal_poll_list_begin_pass(struct peal_poll_list *poll_list)
{
	poll_list->pass++;
}

/* Under the lock. Return: the first context that this pass has not scanned, or NULL. */
static struct peal_context *peal_poll_list_unscanned(struct peal_poll_list *poll_list)
{
	struct peal_context *ctx;

	lockdep_assert_held(&poll_list->lock);
	list_for_each_entry(ctx, &poll_list->contexts, node)
		if (!peal_context_was_scanned(ctx, poll_list->pass))
			return ctx;
	return NULL;
}

/*
 * Let the next section begin at @ctx. The scanner reads the list without the lock,
 * so @ctx may have been removed since. In that case the next section begins at the
 * first context not scanned yet.
 */
static void peal_poll_list_continue_at(struct peal_poll_list *poll_list, struct peal_context *ctx)
{
	spin_lock(&poll_list->lock);
	if (unlikely(!ctx->listed))
		ctx = peal_poll_list_unscanned(poll_list);
	if (ctx)
		list_rotate_to_front(&ctx->node, &poll_list->contexts);
	spin_unlock(&poll_list->lock);
}

/* One section of a scan. */
struct peal_poll_list_look {
	struct peal_poll_list *poll_list;
	void (*found)(struct peal_poll_list *poll_list, struct peal_qp *qp);
	u32 words;	/* cost so far: one for each doorbell word and each context */
};

static void peal_poll_list_ring(struct peal_poll_list_look *look, struct peal_context *ctx,
				u32 first, u64 bits)
{
	struct peal_qp *qp;

	for (; bits; bits &= bits - 1) {
		qp = peal_context_qp(ctx, first + __ffs64(bits));
		if (qp)
			look->found(look->poll_list, qp);
	}
}

static void peal_poll_list_scan_context(struct peal_poll_list_look *look, struct peal_context *ctx)
{
	u32 words = peal_context_begin_scan(ctx, look->poll_list->pass);
	u32 w;

	look->words += 1 + words;
	for (w = 0; w < words; w++)
		peal_poll_list_ring(look, ctx, w * 64, peal_context_take_bits(ctx, w));
}

/*
 * Return: the first context of this pass that does not fit into this section, or NULL.
 *
 * Contexts that were scanned are at the end of the list. Contexts behind those were opened
 * during this pass and need no scan, because they were not told that the engine is awake.
 */
static struct peal_context *peal_poll_list_scan_section(struct peal_poll_list_look *look)
{
	struct peal_poll_list *poll_list = look->poll_list;
	struct peal_context *ctx;

	list_for_each_entry_rcu(ctx, &poll_list->contexts, node, peal_epoch_held()) {
		if (peal_context_was_scanned(ctx, poll_list->pass))
			break;
		if (look->words >= PEAL_POLL_LIST_PART)
			return ctx;
		peal_poll_list_scan_context(look, ctx);
	}
	return NULL;
}

/**
 * peal_poll_list_scan() - scan doorbells for one section of the epoch
 * @found: called inside the epoch for each queue pair whose doorbell was rung
 *
 * A section covers a limited number of contexts, because a program may open any number of them.
 *
 * Return: false when the pass has not ended.
 */
bool peal_poll_list_scan(struct peal_poll_list *poll_list,
			 void (*found)(struct peal_poll_list *poll_list, struct peal_qp *qp))
{
	struct peal_poll_list_look look = { .poll_list = poll_list, .found = found };
	struct peal_context *next;

	peal_epoch_enter();
	next = peal_poll_list_scan_section(&look);
	if (unlikely(next))
		peal_poll_list_continue_at(poll_list, next);
	peal_epoch_exit();
	poll_list->pass += !next;
	return !next;
}
