// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See ind_table.h.
 */
#include <rdma/peal-abi.h>

#include "queue/ind_table.h"

int peal_ind_table_init(struct peal_ind_table *table, struct peal_account *account,
			u32 log_entries)
{
	if (1U << log_entries > PEAL_MAX_IND_TABLE)
		return -EINVAL;
	table->account = account;
	return peal_quota_take(account, PEAL_QUOTA_IND_TABLE);
}

void peal_ind_table_end(struct peal_ind_table *table)
{
	peal_quota_give(table->account, PEAL_QUOTA_IND_TABLE);
}
