/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Memory regions and the keys that name them.
 *
 * Owns: pinned user memory (through ib_umem, which also accounts it), the key, the rights and the
 * range of each region, and the check of a request against them.
 * Does not know: queue pairs, the sources of requests. Windows (mw.c) use the same struct peal_key.
 *
 * The key, range and rights of a region do not change while its key is in the table, so the data
 * path reads them without a lock, inside the epoch. Deregistration takes the key out of the table,
 * waits for the epoch, and then unpins the memory. A change of the registration hides the key
 * meanwhile.
 */
#ifndef PEAL_MR_H
#define PEAL_MR_H

#include <rdma/ib_umem.h>
#include <rdma/ib_verbs.h>
#include <rdma/peal-abi.h>

#include "base/table.h"
#include "mem/extents.h"

enum peal_key_kind {
	PEAL_KEY_REGION,
	PEAL_KEY_WINDOW,
};

/* What an lkey or rkey refers to. Regions and windows embed it. */
struct peal_key {
	u32 value;
	enum peal_key_kind kind;
	struct ib_pd *pd;
	u64 iova;		/* address that names the first byte */
	u64 length;		/* bytes */
	int access;		/* IB_ACCESS_* */
};

struct peal_mr {
	struct ib_mr ib;
	struct peal_key key;
	struct ib_umem *umem;		/* NULL for all kernel memory (get_dma_mr) */
	struct peal_extents extents;	/* of all pages of the umem */
	u64 skip;			/* bytes of the first page before the region */
	u64 iova;			/* the program's; key.iova is 0 with IB_ZERO_BASED */
	atomic_t windows;		/* windows bound here; -1 while deregistering or changing */
	struct peal_table *table;
	struct peal_account *account;	/* account of the context, or of the kernel */
};

/* The memory that a checked key gives access to. Valid until the epoch is left. */
struct peal_target {
	const struct peal_mr *mr;
	u64 offset;		/* from the region's first byte; without umem the address */
};

struct ib_mr *peal_mr_register(struct peal_table *table, struct peal_account *account,
			       struct ib_pd *pd, u64 start, u64 length, u64 iova, int access);
struct ib_mr *peal_mr_dma(struct peal_table *table, struct peal_account *account,
			  struct ib_pd *pd, int access);
int peal_mr_reregister(struct ib_mr *ib, int flags, u64 start, u64 length, u64 iova, int access,
		       struct ib_pd *pd);
int peal_mr_deregister(struct ib_mr *ib);

enum peal_reason peal_mr_local(struct peal_table *table, const struct ib_pd *pd,
			       const struct peal_sge *sge, bool write,
			       struct peal_target *target);
enum peal_reason peal_key_allows(const struct peal_key *key, const struct ib_pd *pd, u64 addr,
				 u64 length, int access);
struct peal_mr *peal_mr_find(struct peal_table *table, u32 value);
bool peal_mr_add_window(struct peal_mr *mr);
void peal_mr_drop_window(struct peal_mr *mr);

/* Return: the kernel address of the byte at @offset. Limits *bytes to the contiguous bytes. */
static inline void *peal_target_at(const struct peal_target *target, u64 offset, u64 *bytes)
{
	if (unlikely(!target->mr->umem))
		return (void *)(uintptr_t)(target->offset + offset);
	return peal_extents_at(&target->mr->extents, target->mr->skip + target->offset + offset,
			       bytes);
}

static inline struct peal_mr *peal_mr(struct ib_mr *ib)
{
	return container_of(ib, struct peal_mr, ib);
}

#endif
