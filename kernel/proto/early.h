/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Packets that arrived before their turn, by distance from the one expected.
 *
 * Owns: the slots, and how long they are held. Does not know: what a packet is: it
 * keeps the host's handles.
 * A reliable connection may do so: the protocol asks that packets take effect
 * in order, not that early ones are thrown away.
 */
#ifndef PEAL_EARLY_H
#define PEAL_EARLY_H

#include <linux/limits.h>
#include <linux/types.h>

#include "proto/psn.h"

#define PEAL_EARLY_SLOTS	128	/* a power of two */
#define PEAL_EARLY_OLD		0x80000000U	/* was here when expire() looked last */

struct peal_early {
	u32 count;
	u64 look_at;			/* with count: when peal_early_expire() is due, ns */
	void *slot[PEAL_EARLY_SLOTS];	/* by PSN modulo the number of slots */
	u32 psn[PEAL_EARLY_SLOTS];	/* of what is in the slot; PEAL_EARLY_OLD beside it */
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

/* Return: false when it is too far ahead or a duplicate: @handle stays the caller's. */
bool peal_early_keep(struct peal_early *early, u32 expected, u32 psn, void *handle, u64 now,
		     u64 keep_ns);
/* The handle with exactly this PSN, which stays here; NULL when there is none. */
void *peal_early_find(const struct peal_early *early, u32 psn);
/* The handle with exactly this PSN, now the caller's; NULL when there is none. */
void *peal_early_take(struct peal_early *early, u32 psn);
/* Any handle, to be released; NULL when empty. */
void *peal_early_drop(struct peal_early *early);
/* The lowest kept PSN after @expected; @expected when nothing is kept. */
u32 peal_early_first(const struct peal_early *early, u32 expected);

/* When peal_early_expire() shall be called, ns; U64_MAX: never. */
static inline u64 peal_early_deadline(const struct peal_early *early)
{
	return early->count ? early->look_at : U64_MAX;
}

/*
 * A handle that was kept for @keep_ns at least, to be released; NULL: there is none any
 * more. None is kept for more than twice that time when this is called in time.
 */
void *peal_early_expire(struct peal_early *early, u64 now, u64 keep_ns);

#endif
