/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Indirection tables: the work queues to which a raw packet queue pair spreads its frames.
 *
 * Owns: the account that pays for the table.
 * Does not know: the entries, which the RDMA core has, and how they are used (transport/rss.h).
 */
#ifndef PEAL_IND_TABLE_H
#define PEAL_IND_TABLE_H

#include <rdma/ib_verbs.h>

#include "base/quota.h"

struct peal_ind_table {
	struct ib_rwq_ind_table ib;
	struct peal_account *account;	/* of the context */
};

static inline struct peal_ind_table *peal_ind_table(struct ib_rwq_ind_table *ib)
{
	return container_of(ib, struct peal_ind_table, ib);
}

/* Return: 0, -EINVAL (too many entries) or -ENOSPC (the account's limit is reached). */
int peal_ind_table_init(struct peal_ind_table *table, struct peal_account *account,
			u32 log_entries);
void peal_ind_table_end(struct peal_ind_table *table);

#endif
