/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The page list of a fast registration: where the bytes of the region are in kernel memory.
 *
 * Owns: the table of pieces, which is allocated once and filled for each registration. Filling it
 * may not sleep. In a list of pages the pieces are equally large; in a list with gaps they are as
 * long as the entries of the scatterlist.
 * Does not know: keys, rights, the users of the memory.
 *
 * This is a virt-dma device, so a DMA address is a kernel address.
 */
#ifndef PEAL_PAGE_LIST_H
#define PEAL_PAGE_LIST_H

#include <linux/types.h>

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
