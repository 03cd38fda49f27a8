// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See map.h.
 */
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "queue/map.h"

struct peal_map {
	struct rdma_user_mmap_entry entry;
	struct page **pages;
	void *address;
	size_t bytes;		/* a multiple of PAGE_SIZE */
	bool shared;		/* entry is inserted; the core frees the map through it */
};

static void peal_map_destroy(struct peal_map *map)
{
	size_t i;

	vunmap(map->address);
	for (i = 0; map->pages && i < map->bytes >> PAGE_SHIFT; i++)
		if (map->pages[i])
			__free_page(map->pages[i]);
	kvfree(map->pages);
	kfree(map);
}

/* Do not use vmalloc_user(), because the program's memory control group must pay for the pages. */
static int peal_map_fill(struct peal_map *map)
{
	size_t i, count = map->bytes >> PAGE_SHIFT;

	map->pages = kvcalloc(count, sizeof(*map->pages), GFP_KERNEL_ACCOUNT);
	if (!map->pages)
		return -ENOMEM;
	for (i = 0; i < count; i++) {
		map->pages[i] = alloc_page(GFP_KERNEL_ACCOUNT | __GFP_ZERO);
		if (!map->pages[i])
			return -ENOMEM;
	}
	map->address = vmap(map->pages, count, VM_MAP | VM_USERMAP, PAGE_KERNEL);
	return map->address ? 0 : -ENOMEM;
}

/**
 * peal_map_alloc() - allocate zeroed memory that a program can map
 * @uctx: the context whose file maps the memory; NULL for memory of the kernel alone
 * @bytes: the size, rounded up to whole pages
 *
 * Return: the map or ERR_PTR(-ENOMEM).
 */
struct peal_map *peal_map_alloc(struct ib_ucontext *uctx, size_t bytes)
{
	struct peal_map *map = kzalloc(sizeof(*map), GFP_KERNEL_ACCOUNT);

	if (!map)
		return ERR_PTR(-ENOMEM);
	map->bytes = PAGE_ALIGN(bytes);
	if (peal_map_fill(map))
		goto err;
	map->shared = uctx;
	if (uctx && rdma_user_mmap_entry_insert(uctx, &map->entry, map->bytes))
		goto err;
	return map;
err:
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
	return map->address;
}

size_t peal_map_bytes(const struct peal_map *map)
{
	return map->bytes;
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
	struct peal_map *map;
	int ret = -EINVAL;

	entry = rdma_user_mmap_entry_get(uctx, vma);
	if (!entry)
		return -EINVAL;
	map = container_of(entry, struct peal_map, entry);
	if (vma->vm_end - vma->vm_start == map->bytes)
		ret = remap_vmalloc_range(vma, map->address, 0);
	rdma_user_mmap_entry_put(entry);
	return ret;
}
