// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See page_list.h.
 */
#include <linux/log2.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/slab.h>

#include "mem/page_list.h"

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

static void *peal_page_list_page_at(const struct peal_page_list *list, u64 offset, u64 *bytes)
{
	u64 at = list->skip + offset;
	u64 size = 1ULL << list->shift;
	u64 inside = at & (size - 1);
	u32 i = at >> list->shift;
	void *base = list->piece[i];
	u64 have = size - inside;

	while (have < *bytes && ++i < list->count && list->piece[i] == list->piece[i - 1] + size)
		have += size;
	*bytes = min(*bytes, have);
	return base + inside;
}

static void *peal_page_list_piece_at(const struct peal_page_list *list, u64 offset, u64 *bytes)
{
	u32 first = 0, last = list->count - 1;
	u64 begin;

	while (first < last) {
		u32 middle = first + (last - first) / 2;

		if (offset < list->end[middle])
			last = middle;
		else
			first = middle + 1;
	}
	begin = first ? list->end[first - 1] : 0;
	*bytes = min(*bytes, list->end[first] - offset);
	return list->piece[first] + (offset - begin);
}

/**
 * peal_page_list_at() - find the address of the byte at @offset
 * @offset: bytes from the start of the region; below peal_page_list_bytes()
 * @bytes: in: how many bytes the caller wants (> 0); out: how many of them are contiguous
 */
void *peal_page_list_at(const struct peal_page_list *list, u64 offset, u64 *bytes)
{
	return list->end ? peal_page_list_piece_at(list, offset, bytes) :
			   peal_page_list_page_at(list, offset, bytes);
}
