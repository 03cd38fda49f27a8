/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Early packets: those that arrive before the packet with the expected PSN. They are kept
 * until their turn comes. A reliable connection may keep them, because the specification
 * demands that packets take effect in order, not that early ones are dropped.
 *
 * Owns: the slots, and how long a packet is kept.
 * Does not know: packets; a slot holds a handle of the caller.
 */
#ifndef PEAL_EARLY_H
#define PEAL_EARLY_H

#include <linux/limits.h>
#include <linux/types.h>

#include "proto/psn.h"

#define PEAL_EARLY_SLOTS	128	/* a power of two */
#define PEAL_EARLY_OLD		0x80000000U	/* kept since before the last scan of expire() */

struct peal_early {
	u32 count;
	u64 look_at;			/* if count: when peal_early_expire() is due, ns */
	void *slot[PEAL_EARLY_SLOTS];	/* by PSN modulo PEAL_EARLY_SLOTS */
	u32 psn[PEAL_EARLY_SLOTS];	/* PSN in the slot, with flag PEAL_EARLY_OLD */
};

static inline u32 peal_early_slot(u32 psn)
{
	return psn & (PEAL_EARLY_SLOTS - 1);
}

static inline bool peal_early_has(const struct peal_early *early, u32 psn)
{
	u32 slot = peal_early_slot(psn);

	return early->count && early->slot[slot] &&
	       (early->psn[slot] & PEAL_PSN_MASK) == psn;
}

/*
 * Return: true if @handle is kept. false if @psn is not ahead of @expected, is too far ahead, or
 * is a duplicate; then the caller still owns @handle.
 */
bool peal_early_keep(struct peal_early *early, u32 expected, u32 psn, void *handle, u64 now,
		     u64 keep_ns);
/* Return: the handle with exactly this PSN, which stays kept; NULL if there is none. */
void *peal_early_find(const struct peal_early *early, u32 psn);
/* Return: the handle with exactly this PSN, owned by the caller now; NULL if there is none. */
void *peal_early_take(struct peal_early *early, u32 psn);
/* Return: any handle, to be released by the caller; NULL if there is none. */
void *peal_early_drop(struct peal_early *early);
/* Return: the lowest kept PSN after @expected; @expected if there is none. */
u32 peal_early_first(const struct peal_early *early, u32 expected);

/* When to call peal_early_expire(), in ns; U64_MAX: never. */
static inline u64 peal_early_deadline(const struct peal_early *early)
{
	return early->count ? early->look_at : U64_MAX;
}

/*
 * Return: a handle that was kept for at least @keep_ns, to be released by the caller; NULL: no
 * more of them. If this is called at each deadline until NULL, no handle is kept for longer than
 * twice @keep_ns.
 */
void *peal_early_expire(struct peal_early *early, u64 now, u64 keep_ns);

#endif
