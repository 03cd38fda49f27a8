/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The scatter-gather lists of messages in flight. A list says where the bytes of a message are
 * on this side. It is kept from the WQE until the message completes, because any
 * packet may be requested again.
 *
 * Owns: a copy of each message's scatter-gather list. Inline data stay in the WQE's slot, which
 * the program may reuse only after the completion.
 * Does not know: packets, the protocol.
 *
 * Lock: everything is under sq.lock, inside the epoch. The callers assert it, because the
 * lists do not know their queue pair.
 */
#ifndef PEAL_SG_LISTS_H
#define PEAL_SG_LISTS_H

#include "mem/cursor.h"
#include "queue/wqe.h"

struct peal_sg_list {
	const void *inline_data;	/* NULL: the bytes are in the scatter-gather list */
	u64 length;
	u8 num_sge;
};

struct peal_sg_lists {
	struct peal_sg_list *item;	/* by the message's index in flight, modulo the size */
	struct peal_sge *sge;		/* max_sge entries for each item */
	u32 mask;			/* items - 1 */
	u32 max_sge;
};

int peal_sg_lists_init(struct peal_sg_lists *sg_lists, u32 items, u32 max_sge);
void peal_sg_lists_free(struct peal_sg_lists *sg_lists);
void peal_sg_lists_save(struct peal_sg_lists *sg_lists, u32 index, const struct peal_wqe *wqe);
enum peal_reason peal_sg_lists_find(const struct peal_sg_lists *sg_lists, u32 index,
				    struct peal_table *table, const struct ib_pd *pd, bool write,
				    u64 offset, u64 bytes, struct peal_cursor *cursor);

#endif
