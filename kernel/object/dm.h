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

#include <linux/types.h>
#include <rdma/ib_verbs.h>
#include <rdma/peal-abi.h>

#include "base/quota.h"

/*
 * A DMA buffer of another driver, for example of a graphics device.
 *
 * Owns: a reference to the buffer, the attachment of a device to it, its pin, and its mapping in
 * kernel memory.
 *
 * The device does no DMA, because peal copies with the CPU. It is attached so that the exporter
 * keeps the buffer in its place: a static exporter does so while a device is attached, a dynamic
 * one only while the buffer is pinned as well. A mapping in kernel memory does not keep it there.
 */

struct device;
struct dma_buf_attachment;

/* Return: the mapped buffer, or ERR_PTR(). @write: the caller wants to write to it. */
struct dma_buf_attachment *peal_dmabuf_get(int fd, struct device *dev, bool write, void **base);
void peal_dmabuf_put(struct dma_buf_attachment *attach, void *base);
u64 peal_dmabuf_bytes(const struct dma_buf_attachment *attach);

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
