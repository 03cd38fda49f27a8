/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Packets that arrived before their turn, by distance from the one expected.
 *
 * Owns: the slots. Does not know: what a packet is: it keeps the host's handles.
 * A reliable connection may do so: the protocol asks that packets take effect
 * in order, not that early ones are thrown away.
 */
#ifndef PEAL_EARLY_H
#define PEAL_EARLY_H

#include <linux/types.h>

#define PEAL_EARLY_SLOTS	128	/* a power of two */

struct peal_early {
	u32 count;
	void *slot[PEAL_EARLY_SLOTS];	/* by PSN modulo the number of slots */
	u32 psn[PEAL_EARLY_SLOTS];	/* of what is in the slot */
};

/* Return: false when it is too far ahead or a duplicate: @handle stays the caller's. */
bool peal_early_keep(struct peal_early *early, u32 expected, u32 psn, void *handle);
/* The handle with exactly this PSN, now the caller's; NULL when there is none. */
void *peal_early_take(struct peal_early *early, u32 psn);
bool peal_early_has(const struct peal_early *early, u32 psn);
/* Any handle, to be released; NULL when empty. */
void *peal_early_drop(struct peal_early *early);
/* The lowest kept PSN after @expected; @expected when nothing is kept. */
u32 peal_early_first(const struct peal_early *early, u32 expected);

#endif
