// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See mw.h. Rules: IBTA 10.6.7.2 (memory windows), 10.6.7.2.6 (type 2B).
 */
#include "base/epoch.h"
#include "mem/mw.h"

#define PEAL_MW_ACCESS \
	(IB_ACCESS_REMOTE_WRITE | IB_ACCESS_REMOTE_READ | IB_ACCESS_REMOTE_ATOMIC)

int peal_mw_init(struct peal_mw *mw, struct peal_table *table, struct peal_account *account,
		 struct ib_pd *pd)
{
	int ret;

	spin_lock_init(&mw->lock);
	mw->table = table;
	mw->account = account;
	mw->key.kind = PEAL_KEY_WINDOW;
	mw->key.pd = pd;
	ret = peal_table_add_key(table, account, &mw->key, &mw->key.value);
	mw->ib.rkey = mw->key.value;
	return ret;
}

static void peal_mw_unbind(struct peal_mw *mw)
{
	if (mw->region)
		peal_mr_drop_window(mw->region);
	mw->region = NULL;
	mw->qpn = 0;
}

void peal_mw_destroy(struct peal_mw *mw)
{
	peal_table_remove_key(mw->table, mw->account, mw->key.value);
	peal_epoch_wait();
	peal_mw_unbind(mw);
}

/* Find the window by its index only, because each bind changes the low byte of the key. */
static struct peal_mw *peal_mw_find(struct peal_table *table, u32 rkey)
{
	struct peal_key *key = peal_table_key(table, rkey);

	if (!key || key->kind != PEAL_KEY_WINDOW)
		return NULL;
	return container_of(key, struct peal_mw, key);
}

/*
 * Check that the region may be bound, and that it covers the window's range and rights. The bind
 * names the range by the region's addresses, also if the window is zero-based.
 */
static enum peal_reason peal_mw_check_region(const struct peal_mr *mr, const struct ib_pd *pd,
					     const struct peal_bind_seg *bind)
{
	int access = mr ? mr->key.access : 0;
	enum peal_reason reason;

	if (!mr || mr->key.pd != pd || !(access & IB_ACCESS_MW_BIND) || access & IB_ZERO_BASED)
		return PEAL_REASON_BIND_REGION;
	reason = peal_key_allows(&mr->key, pd, bind->addr, bind->length, 0);
	if (reason || bind->access & ~(PEAL_MW_ACCESS | IB_ZERO_BASED))
		return PEAL_REASON_BIND_RANGE;
	/* C10-75: remote write and atomic access need a region with local write access. */
	if (bind->access & (IB_ACCESS_REMOTE_WRITE | IB_ACCESS_REMOTE_ATOMIC) &&
	    !(access & IB_ACCESS_LOCAL_WRITE))
		return PEAL_REASON_BIND_RANGE;
	return PEAL_REASON_NONE;
}

static enum peal_reason peal_mw_may_bind(const struct peal_mw *mw, const struct ib_pd *pd,
					 const struct peal_bind_seg *bind)
{
	lockdep_assert_held(&mw->lock);
	/* Do not compare the current low byte, because libibverbs does not track it. */
	if (mw->key.pd != pd)
		return PEAL_REASON_BIND_WINDOW;
	/* o10-36.2.2: a window of type 1 is not zero-based. */
	if (mw->ib.type == IB_MW_TYPE_1)
		return bind->access & IB_ZERO_BASED ? PEAL_REASON_BIND_RANGE : PEAL_REASON_NONE;
	/* A type 2 window can be bound again only after it was invalidated. */
	if (mw->region)
		return PEAL_REASON_BIND_WINDOW;
	/* o10-37.2.40: a bind does not invalidate it. */
	return bind->length ? PEAL_REASON_NONE : PEAL_REASON_BIND_RANGE;
}

/* The caller holds mw->lock. Return: false if the region is being deregistered or changed. */
static bool peal_mw_set(struct peal_mw *mw, struct peal_mr *mr, u32 qpn,
			const struct peal_bind_seg *bind)
{
	lockdep_assert_held(&mw->lock);
	if (bind->length && !peal_mr_add_window(mr))
		return false;
	peal_mw_unbind(mw);
	/* The program chooses the low byte only. RNICs and rdma_rxe ignore the index, too. */
	mw->key.value = (mw->key.value & ~0xffU) | (bind->new_rkey & 0xff);
	mw->key.iova = bind->access & IB_ZERO_BASED ? 0 : bind->addr;
	mw->key.length = bind->length;
	mw->key.access = bind->access;
	if (!bind->length)
		return true;	/* IBTA: a bind of length 0 unbinds a type 1 window */
	mw->region = mr;
	mw->offset = bind->addr - mr->key.iova;
	mw->qpn = mw->ib.type == IB_MW_TYPE_2 ? qpn : 0;
	return true;
}

/**
 * peal_mw_bind() - execute a BIND_MW
 *
 * Call inside the epoch.
 *
 * Return: PEAL_REASON_NONE, or a BIND reason without any change to the window.
 */
enum peal_reason peal_mw_bind(struct peal_table *table, const struct ib_pd *pd, u32 qpn,
			      const struct peal_wqe *wqe)
{
	struct peal_mw *mw = peal_mw_find(table, wqe->rkey);
	struct peal_mr *mr = peal_mr_find(table, wqe->bind.mr_lkey);
	enum peal_reason reason = PEAL_REASON_NONE;

	peal_epoch_assert_held();
	if (!mw)
		return PEAL_REASON_BIND_WINDOW;
	if (wqe->bind.length)
		reason = peal_mw_check_region(mr, pd, &wqe->bind);
	if (reason)
		return reason;
	spin_lock(&mw->lock);
	reason = peal_mw_may_bind(mw, pd, &wqe->bind);
	if (!reason && !peal_mw_set(mw, mr, qpn, &wqe->bind))
		reason = PEAL_REASON_BIND_REGION;
	spin_unlock(&mw->lock);
	return reason;
}

/* Only a type 2 window can be invalidated, and only through the queue pair that bound it. */
static enum peal_reason peal_mw_invalidate(struct peal_table *table, const struct ib_pd *pd,
					   u32 qpn, u32 rkey)
{
	struct peal_mw *mw = peal_mw_find(table, rkey);
	bool ours;

	if (!mw || mw->ib.type != IB_MW_TYPE_2)
		return PEAL_REASON_INV_RKEY;
	spin_lock(&mw->lock);
	ours = mw->key.value == rkey && mw->key.pd == pd && mw->region && mw->qpn == qpn;
	if (ours)
		peal_mw_unbind(mw);
	spin_unlock(&mw->lock);
	return ours ? PEAL_REASON_NONE : PEAL_REASON_INV_RKEY;
}

/**
 * peal_rkey_invalidate() - execute a LOCAL_INV, or the invalidation in a SEND_INV
 *
 * A kernel user's fast registration can be invalidated through any queue pair of its protection
 * domain. A region that a program registered cannot be invalidated. Call inside the epoch, while
 * using no memory.
 *
 * Return: PEAL_REASON_NONE or PEAL_REASON_INV_RKEY.
 */
enum peal_reason peal_rkey_invalidate(struct peal_table *table, const struct ib_pd *pd, u32 qpn,
				      u32 rkey)
{
	peal_epoch_assert_held();
	if (peal_mr_invalidate(table, pd, rkey))
		return PEAL_REASON_NONE;
	return peal_mw_invalidate(table, pd, qpn, rkey);
}

static enum peal_reason peal_mw_check(struct peal_mw *mw, const struct ib_pd *pd, u32 qpn,
				      const struct peal_wqe *wqe, int access,
				      struct peal_target *target)
{
	enum peal_reason reason;

	lockdep_assert_held(&mw->lock);
	if (mw->key.value != wqe->rkey || !mw->region)
		return PEAL_REASON_RKEY_UNKNOWN;
	if (mw->qpn && mw->qpn != qpn)
		return PEAL_REASON_RKEY_QP;
	reason = peal_key_allows(&mw->key, pd, wqe->remote_addr, wqe->length, access);
	target->mr = mw->region;
	target->offset = wqe->remote_addr - mw->key.iova + mw->offset;
	return reason;
}

static enum peal_reason peal_fast_reg_check(struct peal_table *table, const struct ib_pd *pd,
					    const struct peal_wqe *wqe, int access,
					    struct peal_target *target)
{
	enum peal_reason reason;

	target->mr = peal_mr_use(table, wqe->rkey);
	if (!target->mr)
		return PEAL_REASON_RKEY_UNKNOWN;
	target->offset = wqe->remote_addr - target->mr->key.iova;
	reason = peal_key_allows(&target->mr->key, pd, wqe->remote_addr, wqe->length, access);
	if (reason)
		peal_target_end(target);
	return reason;
}

/**
 * peal_rkey_check() - check whether a request may use its remote range
 * @pd: protection domain of the responding queue pair
 * @qpn: number of the responding queue pair
 * @wqe: the request; do not call this for a length of 0, because that needs no key
 * @access: IB_ACCESS_REMOTE_*
 * @target: set on success, valid inside the epoch; peal_target_end() ends its use
 *
 * Return: PEAL_REASON_NONE or an RKEY reason.
 */
enum peal_reason peal_rkey_check(struct peal_table *table, const struct ib_pd *pd, u32 qpn,
				 const struct peal_wqe *wqe, int access,
				 struct peal_target *target)
{
	struct peal_mr *mr = peal_mr_find(table, wqe->rkey);
	struct peal_mw *mw;
	enum peal_reason reason;

	peal_epoch_assert_held();
	if (likely(mr)) {
		target->mr = mr;
		target->offset = wqe->remote_addr - mr->key.iova;
		return peal_key_allows(&mr->key, pd, wqe->remote_addr, wqe->length, access);
	}
	mw = peal_mw_find(table, wqe->rkey);
	if (!mw)
		return peal_fast_reg_check(table, pd, wqe, access, target);
	spin_lock(&mw->lock);
	reason = peal_mw_check(mw, pd, qpn, wqe, access, target);
	spin_unlock(&mw->lock);
	return reason;
}

/**
 * peal_rkey_check_flush() - check whether a request may flush memory
 * @whole: all bytes of the region; otherwise the range that @wqe names
 * @access: IB_ACCESS_FLUSH_*
 *
 * A window, and a fast registration, gives no right to flush. Pages that are not in memory
 * (on-demand paging) have nothing to flush. Call inside the epoch.
 *
 * Return: PEAL_REASON_NONE or an RKEY reason.
 */
enum peal_reason peal_rkey_check_flush(struct peal_table *table, const struct ib_pd *pd,
				       const struct peal_wqe *wqe, bool whole, int access)
{
	struct peal_mr *mr = peal_mr_find(table, wqe->rkey) ?:
			     peal_mr_find_on_demand(table, wqe->rkey);

	peal_epoch_assert_held();
	if (!mr)
		return PEAL_REASON_RKEY_UNKNOWN;
	if (whole)
		return peal_key_allows(&mr->key, pd, mr->key.iova, 0, access);
	return peal_key_allows(&mr->key, pd, wqe->remote_addr, wqe->flush.length, access);
}
