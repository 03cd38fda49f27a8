/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A DMA buffer of another driver, for example of a graphics device.
 *
 * Owns: a reference to the buffer, the attachment of a device to it, its pin, and its mapping in
 * kernel memory.
 * Does not know: keys, regions.
 *
 * The device does no DMA, because peal copies with the CPU. It is attached so that the exporter
 * keeps the buffer in its place: a static exporter does so while a device is attached, a dynamic
 * one only while the buffer is pinned as well. A mapping in kernel memory does not keep it there.
 */
#ifndef PEAL_DMABUF_H
#define PEAL_DMABUF_H

#include <linux/types.h>

struct device;
struct dma_buf_attachment;

/* Return: the mapped buffer, or ERR_PTR(). @write: the caller wants to write to it. */
struct dma_buf_attachment *peal_dmabuf_get(int fd, struct device *dev, bool write, void **base);
void peal_dmabuf_put(struct dma_buf_attachment *attach, void *base);
u64 peal_dmabuf_bytes(const struct dma_buf_attachment *attach);

#endif
