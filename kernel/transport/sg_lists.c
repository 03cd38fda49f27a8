// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See sg_lists.h.
 */
#include <linux/mm.h>

#include "transport/sg_lists.h"

/* @items is a power of two. Return: 0, or -ENOMEM with everything undone. */
int peal_sg_lists_init(struct peal_sg_lists *sg_lists, u32 items, u32 max_sge)
{
	sg_lists->mask = items - 1;
	sg_lists->max_sge = max_sge;
	sg_lists->item = kvcalloc(items, sizeof(*sg_lists->item), GFP_KERNEL_ACCOUNT);
	sg_lists->sge = kvcalloc(items, max_sge * sizeof(*sg_lists->sge), GFP_KERNEL_ACCOUNT);
	if (sg_lists->item && sg_lists->sge)
		return 0;
	peal_sg_lists_free(sg_lists);
	return -ENOMEM;
}

void peal_sg_lists_free(struct peal_sg_lists *sg_lists)
{
	kvfree(sg_lists->item);
	kvfree(sg_lists->sge);
}

static struct peal_sge *peal_sg_lists_sges(const struct peal_sg_lists *sg_lists, u32 index)
{
	return sg_lists->sge + (size_t)(index & sg_lists->mask) * sg_lists->max_sge;
}

void peal_sg_lists_save(struct peal_sg_lists *sg_lists, u32 index, const struct peal_wqe *wqe)
{
	sg_lists->item[index & sg_lists->mask] = (struct peal_sg_list){
		.inline_data = wqe->inline_data, .length = wqe->length, .num_sge = wqe->num_sge,
	};
	memcpy(peal_sg_lists_sges(sg_lists, index), wqe->sge, wqe->num_sge * sizeof(*wqe->sge));
}

/**
 * peal_sg_lists_find() - set a cursor to some bytes of a message
 * @write: the bytes come from the peer
 * @offset: of the first byte in the message
 * @bytes: number of bytes. offset + bytes is within the message's length
 *
 * The keys are looked up for each packet, because they may have become invalid
 * since the last one.
 *
 * Return: PEAL_REASON_NONE or an LKEY reason.
 */
enum peal_reason peal_sg_lists_find(const struct peal_sg_lists *sg_lists, u32 index,
				    struct peal_table *table, const struct ib_pd *pd, bool write,
				    u64 offset, u64 bytes, struct peal_cursor *cursor)
{
	const struct peal_sg_list *item = &sg_lists->item[index & sg_lists->mask];

	if (!item->inline_data)
		return peal_cursor_part(cursor, table, pd, peal_sg_lists_sges(sg_lists, index),
					item->num_sge, write, offset, bytes);
	peal_cursor_inline(cursor, item->inline_data, item->length);
	peal_cursor_skip(cursor, offset);
	return PEAL_REASON_NONE;
}
