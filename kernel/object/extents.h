/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Where the bytes of a region are.
 */
#ifndef PEAL_EXTENTS_H
#define PEAL_EXTENTS_H

#include <linux/minmax.h>
#include <linux/types.h>

/*
 * Extents: where the bytes of a pinned memory region are in kernel memory.
 *
 * All granules are equally large. The granule size is the largest power of two such that every
 * boundary between physically contiguous runs is a granule boundary. The table has one entry for a
 * contiguous region, one entry per 2 MiB for huge pages wherever the region begins, and one entry
 * per page in the worst case. To find an address takes a shift and a load.
 *
 * The caller walks the same runs twice. It measures each run, allocates the table, and then fills
 * each run in.
 */

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

/* Contiguous bytes, and the granules behind them. */
struct peal_extent {
	void *at;		/* the next byte */
	u64 left;		/* bytes from there */
	void **next;		/* the granule behind them, which need not be there */
	u64 size;		/* of a granule, in bytes */
};

/**
 * peal_extents_find() - find the granule of the byte at @offset
 * @x: the extents
 * @offset: bytes from the start of the region; below x->bytes
 * @extent: set to the bytes of the granule from there
 */
static inline void peal_extents_find(const struct peal_extents *x, u64 offset,
				     struct peal_extent *extent)
{
	u64 at = offset + x->phase, inside;

	extent->size = 1ULL << x->shift;
	inside = at & (extent->size - 1);
	extent->next = &x->granule[at >> x->shift];
	extent->at = (u8 *)*extent->next++ + inside;
	extent->left = extent->size - inside;
}

/**
 * peal_extents_at() - find the address of the byte at @offset
 * @bytes: in: how many bytes the caller wants (> 0), which the region has; out: how many of them
 *	are contiguous
 */
static inline void *peal_extents_at(const struct peal_extents *x, u64 offset, u64 *bytes)
{
	struct peal_extent extent;

	peal_extents_find(x, offset, &extent);
	while (extent.left < *bytes && *extent.next == (u8 *)extent.at + extent.left) {
		extent.next++;
		extent.left += extent.size;
	}
	*bytes = min(*bytes, extent.left);
	return extent.at;
}

/*
 * The page list of a fast registration: where the bytes of the region are in kernel memory. The
 * table of pieces is allocated once and filled for each registration, which may not sleep. In a
 * list of pages the pieces are equally large; in a list with gaps they are as long as the entries
 * of the scatterlist.
 *
 * This is a virt-dma device, so a DMA address is a kernel address.
 */

/* Most pieces of one registration. */
#define PEAL_MAX_FAST_REG_PAGES	1024

struct peal_page_list {
	void **piece;		/* where each begins; the first may begin before the region */
	u64 *end;		/* with gaps: where each piece ends in the region; else NULL */
	u32 max;		/* pieces that fit */
	u32 count;		/* pieces in use */
	u32 shift;		/* without gaps: log2 of the page size */
	u64 skip;		/* without gaps: bytes of the first page before the region */
};

int peal_page_list_init(struct peal_page_list *list, u32 max, bool gaps);
void peal_page_list_free(struct peal_page_list *list);
void peal_page_list_clear(struct peal_page_list *list);
bool peal_page_list_add(struct peal_page_list *list, u64 address);
bool peal_page_list_add_piece(struct peal_page_list *list, u64 address, u64 bytes);
void peal_page_list_finish(struct peal_page_list *list, u64 iova, u32 page_size);
u64 peal_page_list_bytes(const struct peal_page_list *list);
void *peal_page_list_at(const struct peal_page_list *list, u64 offset, u64 *bytes);

#endif
