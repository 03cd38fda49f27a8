// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See dm.h.
 */
#include <linux/mm.h>
#include <linux/slab.h>

#include "mem/dm.h"
#include "queue/map.h"

/* Return: the most bytes that one context can have. */
u64 peal_dm_limit(void)
{
	return (u64)peal_quota_limit(PEAL_QUOTA_DM) << PAGE_SHIFT;
}

static int peal_dm_fill(struct peal_dm *dm, struct ib_ucontext *uctx, u64 length)
{
	int ret = peal_quota_take_some(dm->account, PEAL_QUOTA_DM, dm->pages);

	if (ret)
		return ret;
	dm->map = peal_map_alloc(uctx, dm->account, length);
	if (!IS_ERR(dm->map))
		return 0;
	peal_quota_give_some(dm->account, PEAL_QUOTA_DM, dm->pages);
	return PTR_ERR(dm->map);
}

/**
 * peal_dm_create() - allocate zeroed device memory
 * @uctx: the context that may map it
 * @length: bytes; not 0
 * @alignment: log2 of the alignment that the program needs
 *
 * Return: the memory, or ERR_PTR() of -EINVAL, -ENOMEM or -ENOSPC (the account's limit is reached).
 */
struct peal_dm *peal_dm_create(struct ib_ucontext *uctx, struct peal_account *account, u64 length,
			       u32 alignment)
{
	struct peal_dm *dm;
	int ret;

	if (!length || length > peal_dm_limit() || alignment > PAGE_SHIFT)
		return ERR_PTR(-EINVAL);
	dm = kzalloc(sizeof(*dm), GFP_KERNEL_ACCOUNT);
	if (!dm)
		return ERR_PTR(-ENOMEM);
	dm->account = account;
	dm->pages = PAGE_ALIGN(length) >> PAGE_SHIFT;
	ret = peal_dm_fill(dm, uctx, length);
	if (!ret)
		return dm;
	kfree(dm);
	return ERR_PTR(ret);
}

/* No region of the memory is left. A mapping that the program still has keeps its pages. */
void peal_dm_destroy(struct peal_dm *dm)
{
	peal_map_free(dm->map);
	peal_quota_give_some(dm->account, PEAL_QUOTA_DM, dm->pages);
	kfree(dm);
}

/* How a program maps it. The core sets ib.length after peal_dm_create(). */
void peal_dm_describe(const struct peal_dm *dm, struct peal_query_dm_resp *resp)
{
	*resp = (struct peal_query_dm_resp){
		.map_offset = peal_map_offset(dm->map),
		.map_bytes = peal_map_bytes(dm->map),
		.length = dm->ib.length,
	};
}
