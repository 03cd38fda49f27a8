/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Device memory: memory that a program gets from the device and registers as regions.
 *
 * Owns: the memory, its mapping for the program, and its part of the account's quota.
 * Does not know: the regions. The core counts them, and refuses to free memory that has any.
 *
 * An RNIC has this memory on its card. Here it is ordinary pages, which the program copies to and
 * from through a mapping.
 */
#ifndef PEAL_DM_H
#define PEAL_DM_H

#include <rdma/ib_verbs.h>
#include <rdma/peal-abi.h>

#include "base/quota.h"

struct peal_map;

struct peal_dm {
	struct ib_dm ib;
	struct peal_map *map;
	struct peal_account *account;	/* account of the context */
	u32 pages;			/* taken from the account */
};

static inline struct peal_dm *peal_dm(struct ib_dm *ib)
{
	return container_of(ib, struct peal_dm, ib);
}

struct peal_dm *peal_dm_create(struct ib_ucontext *uctx, struct peal_account *account, u64 length,
			       u32 alignment);
void peal_dm_destroy(struct peal_dm *dm);
void peal_dm_describe(const struct peal_dm *dm, struct peal_query_dm_resp *resp);
u64 peal_dm_limit(void);

#endif
