// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include <linux/bitops.h>
#include <linux/compiler.h>
#include <linux/kernel.h>
#include <linux/log2.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/slab.h>

#include "object/extents.h"

/* A granule of 2^62 bytes holds any region, and a 64-bit shift by 62 is defined. */
#define PEAL_EXTENTS_WHOLE	62

/**
 * peal_extents_measure() - first pass: note the length and the end of one run
 * @x: zeroed before the first call
 * @base: kernel address of the run; page aligned
 * @bytes: length of the run; a multiple of the page size
 */
void peal_extents_measure(struct peal_extents *x, void *base, u64 bytes)
{
	if (x->bytes && base != x->run_end) {
		if (!x->split)
			x->first = x->bytes;
		x->spans |= x->bytes - x->first;
		x->split = true;
	}
	x->run_end = base + bytes;
	x->bytes += bytes;
}

/**
 * peal_extents_alloc() - between the passes: choose the granule size and allocate the table
 *
 * Return: 0 or -ENOMEM.
 */
int peal_extents_alloc(struct peal_extents *x)
{
	u64 size;

	/*
	 * Two runs have one boundary, which any granule size fits. Use the smallest size that
	 * gives each run one granule.
	 */
	if (!x->split)
		x->shift = PEAL_EXTENTS_WHOLE;
	else if (x->spans)
		x->shift = __ffs64(x->spans);
	else
		x->shift = ilog2(roundup_pow_of_two(max(x->first, x->bytes - x->first)));
	size = 1ULL << x->shift;
	x->phase = x->split ? (size - (x->first & (size - 1))) & (size - 1) : 0;
	x->count = (x->phase + x->bytes + size - 1) >> x->shift;
	if (x->count == 1) {
		x->granule = &x->single;
		return 0;
	}
	x->granule = kvcalloc(x->count, sizeof(*x->granule),
			      GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	return x->granule ? 0 : -ENOMEM;
}

/* Second pass: fill in the same runs in the same order as in the first pass. */
void peal_extents_fill(struct peal_extents *x, void *base, u64 bytes)
{
	u64 begin = x->phase + x->filled;
	u32 last = (begin + bytes - 1) >> x->shift;
	u32 g;

	for (g = begin >> x->shift; g <= last; g++)
		x->granule[g] = base + (((u64)g << x->shift) - begin);
	x->filled += bytes;
}

void peal_extents_free(struct peal_extents *x)
{
	if (x->granule != &x->single)
		kvfree(x->granule);
	x->granule = NULL;
}

/* @to is free or zeroed, and not in use. @from is free afterwards. */
void peal_extents_move(struct peal_extents *to, struct peal_extents *from)
{
	*to = *from;
	if (from->granule == &from->single)
		to->granule = &to->single;
	from->granule = NULL;
}

/* @list: zeroed. Return: 0 or -ENOMEM. */
int peal_page_list_init(struct peal_page_list *list, u32 max, bool gaps)
{
	list->max = max;
	list->piece = kvcalloc(max, sizeof(*list->piece), GFP_KERNEL);
	if (gaps)
		list->end = kvcalloc(max, sizeof(*list->end), GFP_KERNEL);
	if (list->piece && (list->end || !gaps))
		return 0;
	peal_page_list_free(list);
	return -ENOMEM;
}

void peal_page_list_free(struct peal_page_list *list)
{
	kvfree(list->piece);
	kvfree(list->end);
}

void peal_page_list_clear(struct peal_page_list *list)
{
	list->count = 0;
}

/* Add one page, without gaps. Return: false when the list is full. */
bool peal_page_list_add(struct peal_page_list *list, u64 address)
{
	if (list->count == list->max)
		return false;
	list->piece[list->count++] = (void *)(uintptr_t)address;
	return true;
}

/* Add a piece of any length to a list with gaps. Return: false when the list is full. */
bool peal_page_list_add_piece(struct peal_page_list *list, u64 address, u64 bytes)
{
	u64 begin = list->count ? list->end[list->count - 1] : 0;

	if (list->count == list->max)
		return false;
	list->end[list->count] = begin + bytes;
	list->piece[list->count++] = (void *)(uintptr_t)address;
	return true;
}

/* All pages are added. @page_size: a power of two. */
void peal_page_list_finish(struct peal_page_list *list, u64 iova, u32 page_size)
{
	list->shift = ilog2(page_size);
	list->skip = iova & (page_size - 1);
}

/* Return: how long a region of these pieces can be. */
u64 peal_page_list_bytes(const struct peal_page_list *list)
{
	if (!list->count)
		return 0;
	if (list->end)
		return list->end[list->count - 1];
	return ((u64)list->count << list->shift) - list->skip;
}

/**
 * peal_page_list_at() - find the address of the byte at @offset
 * @offset: bytes from the start of the region; below peal_page_list_bytes()
 * @bytes: in: how many bytes the caller wants (> 0); out: how many of them are contiguous
 */
void *peal_page_list_at(const struct peal_page_list *list, u64 offset, u64 *bytes)
{
	u64 at = list->skip + offset, size, inside, have;
	u32 first = 0, last = list->count - 1, middle, i;
	void *begin;

	if (list->end) {
		/* Find the first piece that ends behind the offset. */
		while (first < last) {
			middle = first + (last - first) / 2;
			if (offset < list->end[middle])
				last = middle;
			else
				first = middle + 1;
		}
		*bytes = min(*bytes, list->end[first] - offset);
		return list->piece[first] + (offset - (first ? list->end[first - 1] : 0));
	}
	size = 1ULL << list->shift;
	inside = at & (size - 1);
	have = size - inside;
	i = at >> list->shift;
	begin = list->piece[i];
	while (have < *bytes && ++i < list->count && list->piece[i] == list->piece[i - 1] + size)
		have += size;
	*bytes = min(*bytes, have);
	return begin + inside;
}
