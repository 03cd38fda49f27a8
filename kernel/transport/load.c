// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See load.h.
 */
#include <linux/mm.h>

#include "transport/load.h"

/* @items is a power of two. Return: 0, or -ENOMEM with everything undone. */
int peal_load_init(struct peal_load *load, u32 items, u32 max_sge)
{
	load->mask = items - 1;
	load->max_sge = max_sge;
	load->item = kvcalloc(items, sizeof(*load->item), GFP_KERNEL_ACCOUNT);
	load->sge = kvcalloc(items, max_sge * sizeof(*load->sge), GFP_KERNEL_ACCOUNT);
	if (load->item && load->sge)
		return 0;
	peal_load_free(load);
	return -ENOMEM;
}

void peal_load_free(struct peal_load *load)
{
	kvfree(load->item);
	kvfree(load->sge);
}

static struct peal_sge *peal_load_sges(const struct peal_load *load, u32 index)
{
	return load->sge + (size_t)(index & load->mask) * load->max_sge;
}

void peal_load_keep(struct peal_load *load, u32 index, const struct peal_send *wqe)
{
	load->item[index & load->mask] = (struct peal_load_item){
		.inline_data = wqe->inline_data, .length = wqe->length, .num_sge = wqe->num_sge,
	};
	memcpy(peal_load_sges(load, index), wqe->sge, wqe->num_sge * sizeof(*wqe->sge));
}

/**
 * peal_load_find() - set a cursor to some bytes of a message
 * @write: the bytes come from the peer
 * @offset: of the first byte in the message
 * @bytes: number of bytes. offset + bytes is within the message's length
 *
 * The keys are looked up for each packet, because they may have become invalid
 * since the last one.
 *
 * Return: PEAL_REASON_NONE or an LKEY reason.
 */
enum peal_reason peal_load_find(const struct peal_load *load, u32 index,
				struct peal_table *table, const struct ib_pd *pd, bool write,
				u64 offset, u64 bytes, struct peal_cursor *cursor)
{
	const struct peal_load_item *item = &load->item[index & load->mask];

	if (!item->inline_data)
		return peal_cursor_part(cursor, table, pd, peal_load_sges(load, index),
					item->num_sge, write, offset, bytes);
	peal_cursor_inline(cursor, item->inline_data, item->length);
	peal_cursor_skip(cursor, offset);
	return PEAL_REASON_NONE;
}
