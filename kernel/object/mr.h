/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Memory regions and the keys that name them.
 *
 * Owns: pinned user memory (through ib_umem, which also accounts it), the key, the rights and the
 * range of each region, regions of device memory and of DMA buffers, the null region, the fast
 * registration of kernel memory, and the check of a request against all of this.
 * Does not know: queue pairs, the sources of requests. Windows use the same struct peal_key.
 *
 * The key, range and rights of a region do not change while its key is in the table, so the data
 * path reads them without a lock, inside the epoch. Deregistration takes the key out of the table,
 * waits for the epoch, and then unpins the memory. A change of the registration hides the key
 * meanwhile.
 *
 * A region for fast registration is registered and invalidated by work requests, which cannot wait
 * for the epoch. Each user of it counts in `users`, and the invalidation waits for all of them.
 * So a user of such a region (from peal_mr_local() or peal_rkey_check() to peal_target_end())
 * must not wait for a queue pair's lock, because its holder may be waiting for the users. It may
 * take locks inside which no region is invalidated, such as cq->lock.
 */
#ifndef PEAL_MR_H
#define PEAL_MR_H

#include <linux/spinlock.h>
#include <rdma/ib_umem.h>
#include <rdma/ib_verbs.h>
#include <rdma/peal-abi.h>

#include "base/table.h"
#include "object/extents.h"
#include "object/odp.h"
#include "object/wqe.h"

struct dma_buf;
struct ib_sge;
struct peal_map;
struct peal_odp;

enum peal_key_kind {
	PEAL_KEY_REGION,
	PEAL_KEY_WINDOW,
	PEAL_KEY_FAST_REG,	/* a region for fast registration */
	PEAL_KEY_ON_DEMAND,	/* a region whose pages are found on demand */
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

/* What a region for fast registration has besides. */
struct peal_fast_reg {
	spinlock_t lock;		/* guards the fields marked with it */
	atomic_t users;			/* number of those that use the memory; barrier N */
	struct peal_page_list next;	/* of the next registration; its owner fills it */

	/* Guarded by fast_reg.lock: */
	bool valid;			/* it is registered */
	struct peal_page_list list;	/* of the registration; so is the region's key */
};

struct peal_mr {
	struct ib_mr ib;
	struct peal_key key;
	struct ib_umem *umem;		/* pinned user memory; NULL for other memory */
	struct peal_fast_reg *fast_reg;	/* NULL but for fast registration */
	enum peal_null null;		/* not PEAL_NULL_NONE: no memory but the null region's */
	struct dma_buf_attachment *dmabuf;	/* NULL but for a DMA buffer */
	struct peal_odp *odp;		/* NULL but for on-demand paging */
	u64 start;			/* on-demand paging: first byte in the program */
	bool passing;			/* fast registration or on demand: its pages may go */
	struct peal_extents extents;	/* of the umem, the device memory or the DMA buffer */
	u64 skip;			/* bytes of the first page before the region */
	u64 iova;			/* the program's; key.iova is 0 with IB_ZERO_BASED */
	atomic_t windows;		/* windows bound here; -1 while deregistering or changing */
	struct peal_table *table;
	struct peal_account *account;	/* account of the context, or of the kernel */
};

/* The memory that a checked key gives access to. Valid until the epoch is left. */
struct peal_target {
	struct peal_mr *mr;
	u64 offset;		/* from the region's first byte */
};

struct ib_mr *peal_mr_register(struct peal_table *table, struct peal_account *account,
			       struct ib_pd *pd, u64 start, u64 length, u64 iova, int access);
struct ib_mr *peal_mr_register_map(struct peal_table *table, struct peal_account *account,
				   struct ib_pd *pd, const struct peal_map *map, u64 offset,
				   u64 length, int access);
struct ib_mr *peal_mr_register_dmabuf(struct peal_table *table, struct peal_account *account,
				      struct ib_pd *pd, int fd, u64 offset, u64 length, u64 iova,
				      int access);
int peal_mr_prefetch(struct peal_table *table, const struct ib_pd *pd, const struct ib_sge *sge,
		     bool write, bool fault);
struct ib_mr *peal_mr_dma(struct peal_table *table, struct peal_account *account,
			  struct ib_pd *pd, int access);
int peal_mr_reregister(struct ib_mr *ib, int flags, u64 start, u64 length, u64 iova, int access,
		       struct ib_pd *pd);
int peal_mr_deregister(struct ib_mr *ib);

struct ib_mr *peal_mr_alloc(struct peal_table *table, struct peal_account *account,
			    struct ib_pd *pd, enum ib_mr_type type, u32 max_pages);
int peal_mr_begin_map(struct ib_mr *ib);
int peal_mr_add_page(struct ib_mr *ib, u64 address);
void peal_mr_finish_pages(struct ib_mr *ib);
int peal_mr_add_pieces(struct ib_mr *ib, struct scatterlist *sgl, int count,
		       unsigned int *offset);
enum peal_reason peal_mr_fast_register(struct peal_table *table, const struct ib_pd *pd,
				       const struct peal_bind_seg *reg);
bool peal_mr_invalidate(struct peal_table *table, const struct ib_pd *pd, u32 value);
struct peal_mr *peal_mr_use(struct peal_table *table, u32 value);
void peal_mr_end_use(struct peal_mr *mr);

struct peal_mr *peal_mr_find_on_demand(struct peal_table *table, u32 value);
bool peal_mr_add_window(struct peal_mr *mr);
void peal_mr_drop_window(struct peal_mr *mr);

enum peal_odp_state peal_target_look(const struct peal_target *target, u64 offset, u64 bytes,
				     bool write);
void *peal_target_kernel_at(const struct peal_target *target, u64 offset, u64 *bytes);

/* Return: the kernel address of the byte at @offset. Limits *bytes to the contiguous bytes. */
static inline void *peal_target_at(const struct peal_target *target, u64 offset, u64 *bytes)
{
	if (unlikely(!target->mr->umem))
		return peal_target_kernel_at(target, offset, bytes);
	return peal_extents_at(&target->mr->extents, target->mr->skip + target->offset + offset,
			       bytes);
}

/* Set @extent to the bytes from @offset on. Return: false if the memory has no table of extents. */
static inline bool peal_target_begin(const struct peal_target *target, u64 offset,
				     struct peal_extent *extent)
{
	if (unlikely(!target->mr->umem))
		return false;
	peal_extents_find(&target->mr->extents, target->mr->skip + target->offset + offset,
			  extent);
	return true;
}

/*
 * Memory of a fast registration counts its users, so each use must be ended. Memory of on-demand
 * paging must be looked for before each use. Return: true for both kinds.
 */
static inline bool peal_target_is_counted(const struct peal_target *target)
{
	return target->mr && target->mr->passing;
}

/* The use of the memory ends. */
static inline void peal_target_end(const struct peal_target *target)
{
	if (unlikely(peal_target_is_counted(target)))
		peal_mr_end_use(target->mr);
}

static inline struct peal_mr *peal_mr(struct ib_mr *ib)
{
	return container_of(ib, struct peal_mr, ib);
}

/* What a key is used for. */
enum peal_key_use {
	PEAL_GATHER,		/* local memory that is read */
	PEAL_SCATTER,		/* local memory that is written */
	PEAL_RECEIVE,		/* the buffer of a receive */
};

/* The reasons for which a key is refused. */
struct peal_key_reasons {
	enum peal_reason unknown, pd, range, access;
};

static const struct peal_key_reasons peal_lkey_reasons = {
	PEAL_REASON_LKEY_UNKNOWN, PEAL_REASON_LKEY_PD,
	PEAL_REASON_LKEY_RANGE, PEAL_REASON_LKEY_ACCESS,
};

static const struct peal_key_reasons peal_recv_reasons = {
	PEAL_REASON_RECV_LKEY_UNKNOWN, PEAL_REASON_RECV_LKEY_PD,
	PEAL_REASON_RECV_LKEY_RANGE, PEAL_REASON_RECV_LKEY_ACCESS,
};

static const struct peal_key_reasons peal_rkey_reasons = {
	PEAL_REASON_RKEY_UNKNOWN, PEAL_REASON_RKEY_PD,
	PEAL_REASON_RKEY_RANGE, PEAL_REASON_RKEY_ACCESS,
};

/* The check of a key, of any kind and for any use. Return: PEAL_REASON_NONE or one of @reasons. */
static __always_inline enum peal_reason peal_key_allows(const struct peal_key *key,
							const struct ib_pd *pd, u64 addr,
							u64 length, int access,
							const struct peal_key_reasons *reasons)
{
	u64 offset = addr - key->iova;	/* wraps below iova; the range check refuses that */

	if (unlikely(key->pd != pd))
		return reasons->pd;
	if (unlikely(offset > key->length || length > key->length - offset))
		return reasons->range;
	if (unlikely(access & ~key->access))
		return reasons->access;
	return PEAL_REASON_NONE;
}

/* Return: the region of pinned memory with this key, or NULL. */
static __always_inline struct peal_mr *peal_mr_find(struct peal_table *table, u32 value)
{
	struct peal_key *key = peal_table_key(table, value);

	if (!key || key->value != value || key->kind != PEAL_KEY_REGION)
		return NULL;
	return container_of(key, struct peal_mr, key);
}

/* The last look-up of memory by one user, as struct peal_lookup is for queue pairs. */
struct peal_mr_lookup {
	struct peal_mr *mr;	/* with a table of extents; NULL: there was none */
	struct peal_mr *odp;	/* with on-demand paging; NULL: there was none */
	u32 value;		/* its key */
	unsigned long removals;	/* the table's key_removals, loaded before it was found */
	struct peal_odp_page page;	/* of `odp` */
};

void *peal_mr_present_anew(struct peal_table *table, struct peal_mr_lookup *last,
			   const struct ib_pd *pd, u32 value, u64 addr, u64 length, int access,
			   u64 *bytes);
void *peal_mr_present_on_demand(struct peal_mr_lookup *last, const struct ib_pd *pd, u64 addr,
				u64 length, int access, u64 *bytes);

/**
 * peal_mr_present() - the common case of peal_mr_local() and peal_rkey_check()
 * @last: remembers the region. Only the caller uses it, under a lock
 * @length: the key must give the rights in @access for so many bytes
 * @bytes: in: so many of them are used (> 0); out: at least so many of these are contiguous
 *
 * Call inside the epoch, which the caller asserts. Barrier M, as in peal_table_key().
 *
 * Return: the kernel address of the first byte, or NULL if the key is refused, if it is not that of
 * a region with memory that is there, or if on-demand paging must bring the first byte in. The
 * other two functions find all other memory, and the reason of a refusal.
 */
static __always_inline void *peal_mr_present(struct peal_table *table,
					     struct peal_mr_lookup *last, const struct ib_pd *pd,
					     u32 value, u64 addr, u64 length, int access,
					     u64 *bytes)
{
	struct peal_mr *mr = last->mr;
	struct peal_extent extent;

	if (unlikely(last->value != value ||
		     last->removals != smp_load_acquire(&table->key_removals)))	/* M */
		return peal_mr_present_anew(table, last, pd, value, addr, length, access, bytes);
	if (unlikely(!mr))
		return peal_mr_present_on_demand(last, pd, addr, length, access, bytes);
	if (unlikely(peal_key_allows(&mr->key, pd, addr, length, access, &peal_rkey_reasons)))
		return NULL;
	peal_extents_find(&mr->extents, mr->skip + (addr - mr->key.iova), &extent);
	*bytes = min(*bytes, extent.left);
	return extent.at;
}

/*
 * peal_mr_present() has found the byte at @addr. Set @extent to the bytes from there. Return:
 * false, if they are brought in on demand, so that each page needs a look.
 */
static inline bool peal_mr_present_begin(const struct peal_mr_lookup *last, u64 addr,
					 struct peal_extent *extent)
{
	const struct peal_mr *mr = last->mr;

	if (unlikely(!mr))
		return false;
	peal_extents_find(&mr->extents, mr->skip + (addr - mr->key.iova), extent);
	return true;
}

enum peal_reason peal_mr_local(struct peal_table *table, const struct ib_pd *pd,
			       const struct peal_sge *sge, enum peal_key_use use,
			       struct peal_target *target);

/*
 * Memory windows: keys that a work request binds to a part of a region.
 *
 * Owns: the binding (region, range, rights, queue pair), the bind and invalidate operations, and
 * the check of an rkey, which may name a region or a window.
 *
 * Lock: mw->lock guards the binding, because a bind may race with a remote access through the
 * same window. It is an innermost lock, like cq->lock.
 */

struct peal_mw {
	struct ib_mw ib;
	spinlock_t lock;		/* guards the fields marked with it */

	/* Guarded by mw.lock: */
	struct peal_key key;		/* its kind and pd do not change */
	struct peal_mr *region;		/* the bound region; NULL: unbound */
	u64 offset;			/* from the region's first byte to the window's */
	u32 qpn;			/* type 2: number of the binding queue pair; else 0 */

	struct peal_table *table;
	struct peal_account *account;	/* account of the context, or of the kernel */
};

static inline struct peal_mw *peal_mw(struct ib_mw *ib)
{
	return container_of(ib, struct peal_mw, ib);
}

int peal_mw_init(struct peal_mw *mw, struct peal_table *table, struct peal_account *account,
		 struct ib_pd *pd);
void peal_mw_destroy(struct peal_mw *mw);

enum peal_reason peal_mw_bind(struct peal_table *table, const struct ib_pd *pd, u32 qpn,
			      const struct peal_wqe *wqe);
enum peal_reason peal_rkey_invalidate(struct peal_table *table, const struct ib_pd *pd, u32 qpn,
				      u32 rkey);

enum peal_reason peal_rkey_check(struct peal_table *table, const struct ib_pd *pd, u32 qpn,
				 const struct peal_wqe *wqe, int access,
				 struct peal_target *target);
enum peal_reason peal_rkey_check_flush(struct peal_table *table, const struct ib_pd *pd,
				       const struct peal_wqe *wqe, bool whole, int access);

#endif
