/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Extents: where the bytes of a memory region are in kernel memory.
 *
 * Owns: one table of equally large granules. The granule size is the largest power of two such
 * that every boundary between physically contiguous runs is a granule boundary. The table has one
 * entry for a contiguous region, one entry per 2 MiB for huge pages wherever the region begins,
 * and one entry per page in the worst case. To find an address takes a shift and a load.
 * Does not know: keys, rights, user addresses, how the memory is pinned.
 */
#ifndef PEAL_EXTENTS_H
#define PEAL_EXTENTS_H

#include <linux/types.h>

struct peal_extents {
	void **granule;		/* where each granule begins, even if before the region */
	void *single;		/* the table, if it has only one entry */
	u64 phase;		/* bytes of granule 0 that lie before the region */
	u64 bytes;		/* length of all runs together */
	u32 shift;		/* log2 of the granule size in bytes */
	u32 count;		/* number of granules */
	/* used only while the table is built */
	void *run_end;		/* end of the last run */
	u64 first;		/* length of the first run */
	u64 spans;		/* OR of the distances of later boundaries from the first one */
	u64 filled;		/* bytes filled in by the second pass */
	bool split;		/* there is more than one contiguous run */
};

void peal_extents_measure(struct peal_extents *x, void *base, u64 bytes);
int peal_extents_alloc(struct peal_extents *x);
void peal_extents_fill(struct peal_extents *x, void *base, u64 bytes);
void peal_extents_free(struct peal_extents *x);
void peal_extents_move(struct peal_extents *to, struct peal_extents *from);

/**
 * peal_extents_at() - find the address of the byte at @offset
 * @x: the extents
 * @offset: bytes from the start of the first run; below x->bytes
 * @bytes: in: how many bytes the caller wants (> 0); out: how many of them are contiguous
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
