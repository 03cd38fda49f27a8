/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Memory of programs that is neither pinned nor paged: what they map from the device, and buffers
 * of other drivers.
 */
#ifndef PEAL_DM_H
#define PEAL_DM_H

#include <linux/types.h>
#include <rdma/ib_verbs.h>
#include <rdma/peal-abi.h>

#include "base/quota.h"

/*
 * Pages that the kernel shares with one program, for rings, doorbells and device memory, and their
 * mmap offset. The object gives the pages up when peal_map_free() was called and no mmap call is
 * running. A mapping that outlives the object keeps them (kick_file.h). The program can then still
 * use them, but the kernel no longer reads them.
 */
struct peal_map;

struct peal_map *peal_map_alloc(struct ib_ucontext *uctx, struct peal_account *account,
				size_t bytes);
void peal_map_free(struct peal_map *map);
void *peal_map_address(const struct peal_map *map);
size_t peal_map_bytes(const struct peal_map *map);
u64 peal_map_offset(const struct peal_map *map);

int peal_map_mmap(struct ib_ucontext *uctx, struct vm_area_struct *vma);
void peal_map_release(struct rdma_user_mmap_entry *entry);

/*
 * A DMA buffer of another driver, for example of a graphics device, with the attachment of a device
 * to it, its pin, and its mapping in kernel memory.
 *
 * The device does no DMA, because peal copies with the CPU. It is attached so that the exporter
 * keeps the buffer in its place: a static exporter does so while a device is attached, a dynamic
 * one only while the buffer is pinned as well. A mapping in kernel memory does not keep it there.
 */
struct device;
struct dma_buf_attachment;

struct dma_buf_attachment *peal_dmabuf_get(int fd, struct device *dev, bool write, void **base);
void peal_dmabuf_put(struct dma_buf_attachment *attach, void *base);
u64 peal_dmabuf_bytes(const struct dma_buf_attachment *attach);

/*
 * Device memory: memory that a program gets from the device and registers as regions. An RNIC has
 * it on its card. Here it is ordinary pages, which the program copies to and from through a
 * mapping. The core counts the regions, and refuses to free memory that has any.
 */
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
