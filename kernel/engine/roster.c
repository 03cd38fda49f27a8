// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See roster.h.
 */
#include <linux/bitops.h>
#include <linux/rculist.h>

#include "base/guard.h"
#include "engine/roster.h"

/*
 * How much of the list is dealt with at a time, because a program may open any number of
 * contexts. So many contexts are told that the engine is awake, which happens a thousand times
 * a second. The others go on to kick. So many contexts and doorbell words, together, are
 * scanned in one section of the guard.
 */
#define PEAL_ROSTER_PART	512

void peal_roster_init(struct peal_roster *roster)
{
	spin_lock_init(&roster->lock);
	INIT_LIST_HEAD(&roster->contexts);
	INIT_LIST_HEAD(&roster->awake);
	roster->pass = 1;	/* a new context has pass 0, so it is not scanned yet */
}

void peal_roster_add(struct peal_roster *roster, struct peal_context *ctx)
{
	spin_lock(&roster->lock);
	list_add_tail_rcu(&ctx->node, &roster->contexts);
	peal_context_set_listed(ctx, true);
	if (roster->gone)
		peal_context_set_state(ctx, PEAL_ENGINE_GONE);
	spin_unlock(&roster->lock);
}

/* The scanner may still use @ctx until the caller has waited for the guard. */
void peal_roster_remove(struct peal_roster *roster, struct peal_context *ctx)
{
	spin_lock(&roster->lock);
	list_del_rcu(&ctx->node);
	list_del_init(&ctx->awake);
	peal_context_set_listed(ctx, false);
	spin_unlock(&roster->lock);
}

/*
 * Under the lock. Tell the contexts at the front. After each pass another part
 * of the list is there.
 */
static void peal_roster_say_awake(struct peal_roster *roster)
{
	struct peal_context *ctx;
	u32 told = 0;

	lockdep_assert_held(&roster->lock);
	list_for_each_entry(ctx, &roster->contexts, node) {
		if (told++ == PEAL_ROSTER_PART)
			break;
		peal_context_set_state(ctx, PEAL_ENGINE_AWAKE);
		list_move(&ctx->awake, &roster->awake);
	}
}

/* Under the lock. No page of another context says AWAKE. */
static void peal_roster_say_asleep(struct peal_roster *roster)
{
	struct peal_context *ctx, *next;

	lockdep_assert_held(&roster->lock);
	list_for_each_entry_safe(ctx, next, &roster->awake, awake) {
		peal_context_set_state(ctx, PEAL_ENGINE_ASLEEP);
		list_del_init(&ctx->awake);
	}
}

/*
 * Tell programs the engine's state. While the device is being removed the pages
 * keep saying GONE.
 */
void peal_roster_announce(struct peal_roster *roster, bool awake)
{
	spin_lock(&roster->lock);
	if (awake && !roster->gone)
		peal_roster_say_awake(roster);
	if (!awake)
		peal_roster_say_asleep(roster);
	spin_unlock(&roster->lock);
}

/*
 * Under the lock. Tell all contexts. The length of the list is acceptable here, because this is
 * done only when the device is removed or moved.
 */
static void peal_roster_tell(struct peal_roster *roster, enum peal_engine_state state)
{
	struct peal_context *ctx;

	lockdep_assert_held(&roster->lock);
	peal_roster_say_asleep(roster);
	list_for_each_entry(ctx, &roster->contexts, node)
		peal_context_set_state(ctx, state);
}

void peal_roster_leave(struct peal_roster *roster)
{
	spin_lock(&roster->lock);
	roster->gone = true;
	peal_roster_tell(roster, PEAL_ENGINE_GONE);
	spin_unlock(&roster->lock);
}

/*
 * The device has moved to another network namespace. Programs that have opened it there
 * meanwhile may post from now on.
 */
void peal_roster_return(struct peal_roster *roster)
{
	spin_lock(&roster->lock);
	roster->gone = false;
	peal_roster_tell(roster, PEAL_ENGINE_ASLEEP);
	spin_unlock(&roster->lock);
}

/* Start a new pass, in which every context is scanned again. */
void peal_roster_begin_pass(struct peal_roster *roster)
{
	roster->pass++;
}

/* Under the lock. Return: the first context that this pass has not scanned, or NULL. */
static struct peal_context *peal_roster_unscanned(struct peal_roster *roster)
{
	struct peal_context *ctx;

	lockdep_assert_held(&roster->lock);
	list_for_each_entry(ctx, &roster->contexts, node)
		if (!peal_context_was_scanned(ctx, roster->pass))
			return ctx;
	return NULL;
}

/*
 * Let the next section begin at @ctx. The scanner reads the list without the lock,
 * so @ctx may have been removed since. In that case the next section begins at the
 * first context not scanned yet.
 */
static void peal_roster_continue_at(struct peal_roster *roster, struct peal_context *ctx)
{
	spin_lock(&roster->lock);
	if (unlikely(!ctx->listed))
		ctx = peal_roster_unscanned(roster);
	if (ctx)
		list_rotate_to_front(&ctx->node, &roster->contexts);
	spin_unlock(&roster->lock);
}

/* One section of a scan. */
struct peal_roster_look {
	void (*rung)(void *owner, struct peal_qp *qp);
	void *owner;
	u32 words;	/* cost so far: one for each doorbell word and each context */
};

static void peal_roster_ring(struct peal_roster_look *look, struct peal_context *ctx, u32 first,
			     u64 bits)
{
	struct peal_qp *qp;

	for (; bits; bits &= bits - 1) {
		qp = peal_context_qp(ctx, first + __ffs64(bits));
		if (qp)
			look->rung(look->owner, qp);
	}
}

static void peal_roster_scan_context(struct peal_roster_look *look, struct peal_context *ctx,
				     u64 pass)
{
	u32 words = peal_context_begin_scan(ctx, pass);
	u32 w;

	look->words += 1 + words;
	for (w = 0; w < words; w++)
		peal_roster_ring(look, ctx, w * 64, peal_context_take_bits(ctx, w));
}

/*
 * Return: the first context of this pass that does not fit into this section, or NULL.
 *
 * Contexts that were scanned are at the end of the list. Contexts behind those were opened
 * during this pass and need no scan, because they were not told that the engine is awake.
 */
static struct peal_context *peal_roster_scan_section(struct peal_roster *roster,
						     struct peal_roster_look *look)
{
	struct peal_context *ctx;

	list_for_each_entry_rcu(ctx, &roster->contexts, node, peal_guard_held()) {
		if (peal_context_was_scanned(ctx, roster->pass))
			break;
		if (look->words >= PEAL_ROSTER_PART)
			return ctx;
		peal_roster_scan_context(look, ctx, roster->pass);
	}
	return NULL;
}

/**
 * peal_roster_scan() - scan doorbells for one section of the guard
 * @rung: called inside the guard for each queue pair whose doorbell was rung
 *
 * A section covers a limited number of contexts, because a program may open any number of them.
 *
 * Return: false when the pass has not ended.
 */
bool peal_roster_scan(struct peal_roster *roster,
		      void (*rung)(void *owner, struct peal_qp *qp), void *owner)
{
	struct peal_roster_look look = { .rung = rung, .owner = owner };
	struct peal_context *next;

	peal_guard_enter();
	next = peal_roster_scan_section(roster, &look);
	if (unlikely(next))
		peal_roster_continue_at(roster, next);
	peal_guard_exit();
	roster->pass += !next;
	return !next;
}
