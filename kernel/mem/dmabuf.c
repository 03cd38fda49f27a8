// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See dmabuf.h.
 */
#include <linux/dma-buf.h>
#include <linux/err.h>
#include <linux/fs.h>
#include <linux/iosys-map.h>

#include "base/compat.h"
#include "mem/dmabuf.h"

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

/**
 * peal_dmabuf_get() - map the DMA buffer behind a program's file descriptor
 * @write: whether it will be written, for which the descriptor must be open for writing
 * @base: set to the first byte
 *
 * Return: the buffer, or ERR_PTR() of -EBADF, -EINVAL (no DMA buffer), -EACCES, -EOPNOTSUPP (I/O
 * memory), or an error of the exporter.
 */
struct dma_buf *peal_dmabuf_get(int fd, bool write, void **base)
{
	struct dma_buf *buf = dma_buf_get(fd);
	int ret = -EACCES;

	if (IS_ERR(buf))
		return buf;
	if (!write || buf->file->f_mode & FMODE_WRITE)
		ret = peal_dmabuf_begin(buf, base);
	if (!ret)
		return buf;
	dma_buf_put(buf);
	return ERR_PTR(ret);
}

/* No CPU uses the mapping any more. */
void peal_dmabuf_put(struct dma_buf *buf, void *base)
{
	dma_buf_end_cpu_access(buf, DMA_BIDIRECTIONAL);
	peal_dmabuf_unmap(buf, base);
	dma_buf_put(buf);
}

u64 peal_dmabuf_bytes(const struct dma_buf *buf)
{
	return buf->size;
}
