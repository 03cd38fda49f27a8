// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include <linux/dma-buf.h>
#include <linux/dma-resv.h>
#include <linux/err.h>
#include <linux/fs.h>
#include <linux/iosys-map.h>
#include <linux/mm.h>
#include <linux/slab.h>

#include "base/compat.h"
#include "base/kick_file.h"
#include "base/trace.h"
#include "object/dm.h"

/* ---- memory that a program maps ---- */

struct peal_map {
	struct rdma_user_mmap_entry entry;
	struct peal_shared_pages *pages;
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
	if (!uctx || !rdma_user_mmap_entry_insert(uctx, &map->entry, peal_map_bytes(map)))
		return map;
	peal_map_destroy(map);
	return ERR_PTR(-ENOMEM);
}

/*
 * No later mmap call finds the map. A running mmap call delays the free until it has finished. @map
 * may be NULL.
 */
void peal_map_free(struct peal_map *map)
{
	if (!map)
		return;
	if (map->pages->file)
		rdma_user_mmap_entry_remove(&map->entry);	/* the core frees it */
	else
		peal_map_destroy(map);
}

void *peal_map_address(const struct peal_map *map)
{
	return map->pages->address;
}

size_t peal_map_bytes(const struct peal_map *map)
{
	return map->pages->count << PAGE_SHIFT;
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

/* ---- DMA buffers of other drivers ---- */

static const struct dma_buf_attach_ops peal_dmabuf_importer = {
	.allow_peer2peer = false,	/* because that memory is I/O memory */
	PEAL_DMABUF_MOVE_NOTIFY
};

/*
 * The access by the CPU begins with the mapping and lasts until peal_dmabuf_put(), because the
 * exporter's function may sleep, and a message may not.
 */
static int peal_dmabuf_map(struct dma_buf *buf, void **base)
{
	struct iosys_map map;
	int ret = peal_dma_buf_vmap(buf, &map);

	if (ret)
		return ret;
	/* Copies use plain loads and stores, which I/O memory does not allow. */
	ret = map.is_iomem ? -EOPNOTSUPP : dma_buf_begin_cpu_access(buf, DMA_BIDIRECTIONAL);
	if (ret) {
		peal_dma_buf_vunmap(buf, &map);
		return ret;
	}
	*base = map.vaddr;
	return 0;
}

static void peal_dmabuf_unpin(struct dma_buf_attachment *attach)
{
	struct dma_buf *buf = attach->dmabuf;

	if (!dma_buf_is_dynamic(buf))
		return;
	dma_resv_lock(buf->resv, NULL);
	dma_buf_unpin(attach);
	dma_resv_unlock(buf->resv);
}

/**
 * peal_dmabuf_get() - map the DMA buffer behind a program's file descriptor
 * @dev: the device that is attached to the buffer; it must exist until peal_dmabuf_put()
 * @write: whether it will be written, for which the descriptor must be open for writing
 * @base: set to the first byte
 *
 * Return: the attachment, or ERR_PTR() of -EBADF, -EINVAL (no DMA buffer), -EACCES, -EOPNOTSUPP
 * (I/O memory), or an error of the exporter, for example because it cannot pin the buffer.
 */
struct dma_buf_attachment *peal_dmabuf_get(int fd, struct device *dev, bool write, void **base)
{
	struct dma_buf *buf = dma_buf_get(fd);
	struct dma_buf_attachment *attach;
	int ret = -EACCES;

	if (IS_ERR(buf))
		return ERR_CAST(buf);
	if (write && !(buf->file->f_mode & FMODE_WRITE))
		goto put;
	/*
	 * The attachment is static for a static exporter, and dynamic for a dynamic one. Otherwise
	 * older kernels would map the buffer for DMA by the device, which does none.
	 */
	if (dma_buf_is_dynamic(buf))
		attach = dma_buf_dynamic_attach(buf, dev, &peal_dmabuf_importer, NULL);
	else
		attach = dma_buf_attach(buf, dev);
	ret = PTR_ERR_OR_ZERO(attach);
	if (ret)
		goto put;
	/* A dynamic exporter may move a buffer that is only mapped, so pin it first. */
	if (dma_buf_is_dynamic(buf)) {
		dma_resv_lock(buf->resv, NULL);
		ret = dma_buf_pin(attach);
		dma_resv_unlock(buf->resv);
		if (ret)
			goto detach;
	}
	ret = peal_dmabuf_map(buf, base);
	if (!ret)
		return attach;
	peal_dmabuf_unpin(attach);
detach:
	dma_buf_detach(buf, attach);
put:
	dma_buf_put(buf);
	return ERR_PTR(ret);
}

/* No CPU uses the mapping any more. */
void peal_dmabuf_put(struct dma_buf_attachment *attach, void *base)
{
	struct iosys_map map = IOSYS_MAP_INIT_VADDR(base);
	struct dma_buf *buf = attach->dmabuf;

	dma_buf_end_cpu_access(buf, DMA_BIDIRECTIONAL);
	peal_dma_buf_vunmap(buf, &map);
	peal_dmabuf_unpin(attach);
	dma_buf_detach(buf, attach);
	dma_buf_put(buf);
}

u64 peal_dmabuf_bytes(const struct dma_buf_attachment *attach)
{
	return attach->dmabuf->size;
}

/* ---- device memory ---- */

/* Return: the most bytes that one context can have. */
u64 peal_dm_limit(void)
{
	return (u64)peal_quota_limit(PEAL_QUOTA_DM) << PAGE_SHIFT;
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
	ret = peal_quota_take_some(account, PEAL_QUOTA_DM, dm->pages);
	if (ret)
		goto free;
	dm->map = peal_map_alloc(uctx, account, length);
	if (!IS_ERR(dm->map))
		return dm;
	ret = PTR_ERR(dm->map);
	peal_quota_give_some(account, PEAL_QUOTA_DM, dm->pages);
free:
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
