// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See map.h.
 */
#include <linux/mm.h>
#include <linux/slab.h>

#include "base/kick_file.h"
#include "base/trace.h"
#include "object/map.h"

struct peal_map {
	struct rdma_user_mmap_entry entry;
	struct peal_shared_pages *pages;
	bool shared;		/* entry is inserted; the core frees the map through it */
};

static void peal_map_destroy(struct peal_map *map)
{
	peal_shared_pages_free(map->pages);
	kfree(map);
}

/**
 * peal_map_alloc() - allocate zeroed memory that a program can map
 * @uctx: the context whose file maps the memory; NULL for memory of the kernel alone
 * @account: pays for the memory. It must live until peal_map_free() was called and no mmap call is
 *	running. A context is not closed while one is.
 * @bytes: the size, rounded up to whole pages
 *
 * Return: the map, or an ERR_PTR: -ENOMEM, -ENFILE, -ENOSPC (the account's limit is reached).
 */
struct peal_map *peal_map_alloc(struct ib_ucontext *uctx, struct peal_account *account,
				size_t bytes)
{
	struct peal_map *map = kzalloc(sizeof(*map), GFP_KERNEL_ACCOUNT);
	struct peal_page_use use;
	int ret;

	if (!map)
		return ERR_PTR(-ENOMEM);
	map->pages = peal_shared_pages_alloc(&account->pages, PAGE_ALIGN(bytes) >> PAGE_SHIFT,
					     uctx, &use);
	if (IS_ERR(map->pages)) {
		ret = PTR_ERR(map->pages);
		if (ret == -ENOSPC)
			trace_peal_quota(PEAL_QUOTA_PAGE, use.context, use.user, use.programs);
		kfree(map);
		return ERR_PTR(ret);
	}
	map->shared = uctx;
	if (!uctx || !rdma_user_mmap_entry_insert(uctx, &map->entry, peal_map_bytes(map)))
		return map;
	peal_map_destroy(map);
	return ERR_PTR(-ENOMEM);
}

/* No later mmap call finds the map. A running mmap call delays the free until it has finished. */
void peal_map_free(struct peal_map *map)
{
	if (map->shared)
		rdma_user_mmap_entry_remove(&map->entry);
	else
		peal_map_destroy(map);
}

void *peal_map_address(const struct peal_map *map)
{
	return peal_shared_pages_address(map->pages);
}

size_t peal_map_bytes(const struct peal_map *map)
{
	return peal_shared_pages_bytes(map->pages);
}

u64 peal_map_offset(const struct peal_map *map)
{
	return rdma_user_mmap_get_offset(&map->entry);
}

/* ib_device_ops.mmap_free: the last reference to the entry is gone. */
void peal_map_release(struct rdma_user_mmap_entry *entry)
{
	peal_map_destroy(container_of(entry, struct peal_map, entry));
}

/*
 * ib_device_ops.mmap. Map ordinary, reference-counted pages, not I/O memory.
 *
 * Do not use rdma_user_mmap_io(), because the core zaps the mappings that it makes when the device
 * is removed, and puts the same single page under all of them. The doorbell's engine, a send
 * ring's producer and a completion queue's consumer all lie at offset 0, so a program that
 * publishes an index would overwrite GONE. The core does not know the mappings made here and
 * leaves them alone. A program can therefore still read GONE and its flushed CQEs after removal.
 */
int peal_map_mmap(struct ib_ucontext *uctx, struct vm_area_struct *vma)
{
	struct rdma_user_mmap_entry *entry;
	int ret;

	entry = rdma_user_mmap_entry_get(uctx, vma);
	if (!entry)
		return -EINVAL;
	ret = peal_shared_pages_mmap(container_of(entry, struct peal_map, entry)->pages, vma);
	rdma_user_mmap_entry_put(entry);
	return ret;
}
