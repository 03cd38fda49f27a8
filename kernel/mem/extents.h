/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Extents: where the bytes of a memory region are in kernel memory.
 *
 * Owns: one table of equally large granules. The granule is the largest power
 * of two that every boundary between physically contiguous runs agrees on: one
 * entry for a region that is contiguous, one per 2 MiB for huge pages wherever
 * the region begins, one per page in the worst case. Finding an address is a
 * shift and a load.
 * Does not know: keys, rights, user addresses, who pins the memory.
 */
#ifndef PEAL_EXTENTS_H
#define PEAL_EXTENTS_H

#include <linux/types.h>

struct peal_extents {
	void **granule;		/* address at which each granule would begin */
	void *single;		/* the table of a region with one granule */
	u64 phase;		/* bytes of granule 0 before the region */
	u64 bytes;		/* total of all runs */
	u32 shift;		/* log2 of the granule's size */
	u32 count;		/* granules */
	/* used while building */
	void *run_end;
	u64 first;		/* length of the first run */
	u64 spans;		/* OR of the later boundaries' distances from it */
	u64 filled;
	bool split;		/* there is more than one run */
};

void peal_extents_measure(struct peal_extents *x, void *base, u64 bytes);
int peal_extents_alloc(struct peal_extents *x);
void peal_extents_fill(struct peal_extents *x, void *base, u64 bytes);
void peal_extents_free(struct peal_extents *x);

/**
 * peal_extents_at() - address of the byte at @offset, and how many follow it
 * @x: the extents
 * @offset: bytes from the start of the first run; below x->bytes
 * @bytes: in: how many the caller wants (> 0); out: how many are contiguous
 */
static inline void *peal_extents_at(const struct peal_extents *x, u64 offset, u64 *bytes)
{
	u64 at = offset + x->phase;
	u64 size = 1ULL << x->shift;
	u64 inside = at & (size - 1);
	u32 g = at >> x->shift;
	void *base = x->granule[g];
	u64 have = size - inside;

	while (have < *bytes && x->granule[g + 1] == x->granule[g] + size) {
		have += size;
		g++;
	}
	if (have < *bytes)
		*bytes = have;
	return base + inside;
}

#endif
