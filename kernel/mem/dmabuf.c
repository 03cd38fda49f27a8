// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See dmabuf.h.
 */
#include <linux/dma-buf.h>
#include <linux/dma-resv.h>
#include <linux/err.h>
#include <linux/fs.h>
#include <linux/iosys-map.h>

#include "base/compat.h"
#include "mem/dmabuf.h"

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
