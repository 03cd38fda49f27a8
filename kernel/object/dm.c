// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See dm.h.
 */
#include <linux/dma-buf.h>
#include <linux/dma-resv.h>
#include <linux/err.h>
#include <linux/fs.h>
#include <linux/iosys-map.h>
#include <linux/mm.h>
#include <linux/slab.h>

#include "base/compat.h"
#include "object/dm.h"
#include "object/map.h"

static const struct dma_buf_attach_ops peal_dmabuf_importer = {
	.allow_peer2peer = false,	/* because that memory is I/O memory */
	PEAL_DMABUF_MOVE_NOTIFY
};

/*
 * The attachment is static for a static exporter, and dynamic for a dynamic one. Otherwise older
 * kernels would map the buffer for DMA by the device, which does none.
 */
static struct dma_buf_attachment *peal_dmabuf_attach(struct dma_buf *buf, struct device *dev)
{
	if (dma_buf_is_dynamic(buf))
		return dma_buf_dynamic_attach(buf, dev, &peal_dmabuf_importer, NULL);
	return dma_buf_attach(buf, dev);
}

/* A dynamic exporter may move the buffer until it is pinned, a static one until the attachment. */
static int peal_dmabuf_pin(struct dma_buf_attachment *attach)
{
	struct dma_buf *buf = attach->dmabuf;
	int ret;

	if (!dma_buf_is_dynamic(buf))
		return 0;
	dma_resv_lock(buf->resv, NULL);
	ret = dma_buf_pin(attach);
	dma_resv_unlock(buf->resv);
	return ret;
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

/* Copies use plain loads and stores, which I/O memory does not allow. */
static int peal_dmabuf_map(struct dma_buf *buf, void **base)
{
	struct iosys_map map;
	int ret = peal_dma_buf_vmap(buf, &map);

	if (ret)
		return ret;
	if (map.is_iomem) {
		peal_dma_buf_vunmap(buf, &map);
		return -EOPNOTSUPP;
	}
	*base = map.vaddr;
	return 0;
}

static void peal_dmabuf_unmap(struct dma_buf *buf, void *base)
{
	struct iosys_map map = IOSYS_MAP_INIT_VADDR(base);

	peal_dma_buf_vunmap(buf, &map);
}

/*
 * The access by the CPU begins here and lasts until peal_dmabuf_put(), because the exporter's
 * function may sleep, and a message may not.
 */
static int peal_dmabuf_begin(struct dma_buf *buf, void **base)
{
	int ret = peal_dmabuf_map(buf, base);

	if (ret)
		return ret;
	ret = dma_buf_begin_cpu_access(buf, DMA_BIDIRECTIONAL);
	if (ret)
		peal_dmabuf_unmap(buf, *base);
	return ret;
}

/* The pin comes first, because the exporter may move a buffer that is only mapped. */
static int peal_dmabuf_pin_and_begin(struct dma_buf_attachment *attach, void **base)
{
	int ret = peal_dmabuf_pin(attach);

	if (ret)
		return ret;
	ret = peal_dmabuf_begin(attach->dmabuf, base);
	if (ret)
		peal_dmabuf_unpin(attach);
	return ret;
}

static struct dma_buf_attachment *peal_dmabuf_take(struct dma_buf *buf, struct device *dev,
						   void **base)
{
	struct dma_buf_attachment *attach = peal_dmabuf_attach(buf, dev);
	int ret;

	if (IS_ERR(attach))
		return attach;
	ret = peal_dmabuf_pin_and_begin(attach, base);
	if (!ret)
		return attach;
	dma_buf_detach(buf, attach);
	return ERR_PTR(ret);
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
	struct dma_buf_attachment *attach = ERR_PTR(-EACCES);
	struct dma_buf *buf = dma_buf_get(fd);

	if (IS_ERR(buf))
		return ERR_CAST(buf);
	if (!write || buf->file->f_mode & FMODE_WRITE)
		attach = peal_dmabuf_take(buf, dev, base);
	if (IS_ERR(attach))
		dma_buf_put(buf);
	return attach;
}

/* No CPU uses the mapping any more. */
void peal_dmabuf_put(struct dma_buf_attachment *attach, void *base)
{
	struct dma_buf *buf = attach->dmabuf;

	dma_buf_end_cpu_access(buf, DMA_BIDIRECTIONAL);
	peal_dmabuf_unmap(buf, base);
	peal_dmabuf_unpin(attach);
	dma_buf_detach(buf, attach);
	dma_buf_put(buf);
}

u64 peal_dmabuf_bytes(const struct dma_buf_attachment *attach)
{
	return attach->dmabuf->size;
}

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
