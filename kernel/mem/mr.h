/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Memory regions and the keys that name them.
 *
 * Owns: pinned user memory (through ib_umem, which also accounts it), the key,
 * the rights and the range of each region, and the check of a key against what
 * somebody wants to do with it.
 * Does not know: queue pairs, who asks and why. Windows (mw.c) share the key.
 *
 * A region is immutable while its key is in the table; the data path uses it
 * inside the guard. dereg: out of the table, wait for the guard, unpin.
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

/* What an lkey or rkey stands for: the part that both kinds share. */
struct peal_key {
	u32 value;
	enum peal_key_kind kind;
	struct ib_pd *pd;
	u64 iova;		/* first address */
	u64 length;		/* bytes */
	int access;		/* IB_ACCESS_* */
};

struct peal_mr {
	struct ib_mr ib;
	struct peal_key key;
	struct ib_umem *umem;		/* NULL: all kernel memory (get_dma_mr) */
	struct peal_extents extents;	/* of the pages from the umem's first */
	u64 skip;			/* bytes of the first page before iova */
	atomic_t windows;		/* bound to this region; -1: being deregistered */
	struct peal_table *table;
	struct peal_account *account;	/* the context's, or the kernel's */
};

/* What a checked key gives access to, valid until the guard is left. */
struct peal_target {
	const struct peal_mr *mr;
	u64 offset;		/* from the region's first byte, or the address */
};

struct ib_mr *peal_mr_register(struct peal_table *table, struct peal_account *account,
			       struct ib_pd *pd, u64 start, u64 length, u64 iova, int access);
struct ib_mr *peal_mr_dma(struct peal_table *table, struct peal_account *account,
			  struct ib_pd *pd, int access);
int peal_mr_deregister(struct ib_mr *ib);

enum peal_reason peal_mr_local(struct peal_table *table, const struct ib_pd *pd,
			       const struct peal_sge *sge, bool write,
			       struct peal_target *target);
enum peal_reason peal_key_allows(const struct peal_key *key, const struct ib_pd *pd, u64 addr,
				 u64 length, int access);
struct peal_mr *peal_mr_find(struct peal_table *table, u32 value);
bool peal_mr_add_window(struct peal_mr *mr);
void peal_mr_drop_window(struct peal_mr *mr);

/* Kernel address of the byte at @offset; *bytes shrinks to what is contiguous. */
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
