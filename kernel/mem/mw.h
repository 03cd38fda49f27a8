/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Memory windows: keys that a work request binds to a part of a region.
 *
 * Owns: the binding (region, range, rights, queue pair), the bind and invalidate operations, and
 * the check of an rkey, which may name a region or a window.
 * Does not know: where the request comes from.
 *
 * Lock: mw->lock guards the binding, because a bind may race with a remote access through the
 * same window. It is an innermost lock, like cq->lock.
 */
#ifndef PEAL_MW_H
#define PEAL_MW_H

#include "mem/mr.h"
#include "queue/wqe.h"

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
