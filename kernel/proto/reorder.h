/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Out-of-order packets, which arrive before the packet with the expected PSN. They are kept
 * until their turn comes. A reliable connection may keep them, because the specification
 * demands that packets take effect in order, not that out-of-order ones are dropped.
 *
 * Owns: the slots, and how long a packet is kept.
 * Does not know: packets; a slot holds a handle of the caller.
 */
#ifndef PEAL_REORDER_H
#define PEAL_REORDER_H

#include <linux/limits.h>
#include <linux/types.h>

#include "proto/packet.h"

#define PEAL_REORDER_SLOTS	128	/* a power of two */
#define PEAL_REORDER_OLD		0x80000000U	/* kept since before the last expire() */

struct peal_reorder {
	u32 count;
	u64 look_at;			/* if count: when peal_reorder_expire() is due, ns */
	void *slot[PEAL_REORDER_SLOTS];	/* by PSN modulo PEAL_REORDER_SLOTS */
	u32 psn[PEAL_REORDER_SLOTS];	/* PSN in the slot, with flag PEAL_REORDER_OLD */
};

static inline u32 peal_reorder_slot(u32 psn)
{
	return psn & (PEAL_REORDER_SLOTS - 1);
}

static inline bool peal_reorder_has(const struct peal_reorder *reorder, u32 psn)
{
	u32 slot = peal_reorder_slot(psn);

	return reorder->count && reorder->slot[slot] &&
	       (reorder->psn[slot] & PEAL_PSN_MASK) == psn;
}

/*
 * Return: true if @handle is kept. false if @psn is not ahead of @expected, is too far ahead, or
 * is a duplicate; then the caller still owns @handle.
 */
bool peal_reorder_insert(struct peal_reorder *reorder, u32 expected, u32 psn, void *handle, u64 now,
			 u64 reorder_ns);
/* Return: the handle with exactly this PSN, which stays kept; NULL if there is none. */
void *peal_reorder_find(const struct peal_reorder *reorder, u32 psn);
/* Return: the handle with exactly this PSN, owned by the caller now; NULL if there is none. */
void *peal_reorder_take(struct peal_reorder *reorder, u32 psn);
/* Return: any handle, to be released by the caller; NULL if there is none. */
void *peal_reorder_drop(struct peal_reorder *reorder);
/* Return: the lowest kept PSN after @expected; @expected if there is none. */
u32 peal_reorder_first(const struct peal_reorder *reorder, u32 expected);

/* When to call peal_reorder_expire(), in ns; U64_MAX: never. */
static inline u64 peal_reorder_deadline(const struct peal_reorder *reorder)
{
	return reorder->count ? reorder->look_at : U64_MAX;
}

/*
 * Return: a handle that was kept for at least @reorder_ns, to be released by the caller; NULL: no
 * more of them. If this is called at each deadline until NULL, no handle is kept for longer than
 * twice @reorder_ns.
 */
void *peal_reorder_expire(struct peal_reorder *reorder, u64 now, u64 reorder_ns);

#endif
