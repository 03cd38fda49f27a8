/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The loads of messages in flight: where their bytes are on this side, kept from
 * the WQE until the message completes, because any packet may be asked for again.
 *
 * Owns: a copy of each message's scatter-gather list. Inline data stay in the
 * WQE's slot, which is the program's again only after the completion.
 * Does not know: packets, the protocol.
 *
 * Everything under sq.lock, inside the guard.
 */
#ifndef PEAL_LOAD_H
#define PEAL_LOAD_H

#include "mem/cursor.h"
#include "queue/wqe.h"

struct peal_load_item {
	const void *inline_data;	/* NULL: the list */
	u64 length;
	u8 num_sge;
};

struct peal_load {
	struct peal_load_item *item;	/* by the message's index in flight */
	struct peal_sge *sge;		/* max_sge for each item */
	u32 mask;			/* items - 1 */
	u32 max_sge;
};

int peal_load_init(struct peal_load *load, u32 items, u32 max_sge);
void peal_load_free(struct peal_load *load);
void peal_load_keep(struct peal_load *load, u32 index, const struct peal_send *wqe);
enum peal_reason peal_load_find(const struct peal_load *load, u32 index,
				struct peal_table *table, const struct ib_pd *pd, bool write,
				u64 offset, u64 bytes, struct peal_cursor *cursor);

#endif
