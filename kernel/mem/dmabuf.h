/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A DMA buffer of another driver, for example of a graphics device.
 *
 * Owns: a reference to the buffer, and its mapping in kernel memory. While it is mapped, the
 * exporter keeps the buffer in its place.
 * Does not know: keys, regions.
 *
 * peal copies with the CPU, so it does not attach a device to the buffer as an RNIC does.
 */
#ifndef PEAL_DMABUF_H
#define PEAL_DMABUF_H

#include <linux/types.h>

struct dma_buf;

/* Return: the mapped buffer, or ERR_PTR(). @write: the caller wants to write to it. */
struct dma_buf *peal_dmabuf_get(int fd, bool write, void **base);
void peal_dmabuf_put(struct dma_buf *buf, void *base);
u64 peal_dmabuf_bytes(const struct dma_buf *buf);

#endif
