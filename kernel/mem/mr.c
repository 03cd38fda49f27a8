// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See mr.h.
 */
#include <linux/highmem.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>

#include "base/compat.h"
#include "base/epoch.h"
#include "mem/mr.h"

/* The access flags that a region may have, besides IB_ACCESS_OPTIONAL. */
#define PEAL_MR_ACCESS								\
	(IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE | IB_ACCESS_REMOTE_READ |	\
	 IB_ACCESS_REMOTE_ATOMIC | IB_ACCESS_MW_BIND | IB_ZERO_BASED | IB_ACCESS_HUGETLB)

typedef void peal_mr_run_fn(struct peal_extents *x, void *base, u64 bytes);

/*
 * Call @fn for each contiguous run. Because this is a virt-dma device, the pages of the list are
 * in the direct map, and page_address() works. ib_umem has merged adjacent pages into one entry.
 */
static void peal_mr_each_run(struct ib_umem *umem, struct peal_extents *x, peal_mr_run_fn *fn)
{
	struct scatterlist *sg;
	int i;

	for_each_sgtable_sg(&umem->sgt_append.sgt, sg, i)
		fn(x, page_address(sg_page(sg)), sg->length);
}

static int peal_mr_build_extents(struct ib_umem *umem, struct peal_extents *x)
{
	int ret;

	peal_mr_each_run(umem, x, peal_extents_measure);
	ret = peal_extents_alloc(x);
	if (!ret)
		peal_mr_each_run(umem, x, peal_extents_fill);
	return ret;
}

/* @x: zeroed; set to where the pages are. Return: the pinned pages, or ERR_PTR(). */
static struct ib_umem *peal_mr_pin(struct ib_device *device, u64 start, u64 length, int access,
				   struct peal_extents *x)
{
	struct ib_umem *umem = peal_umem_get(device, start, length, access);
	int ret;

	if (IS_ERR(umem))
		return umem;
	ret = peal_mr_build_extents(umem, x);
	if (!ret)
		return umem;
	ib_umem_release(umem);
	return ERR_PTR(ret);
}

static void peal_mr_free(struct peal_mr *mr)
{
	peal_extents_free(&mr->extents);
	if (mr->umem)
		ib_umem_release(mr->umem);
	kfree(mr);
}

/* The last step of every registration. After it requests can find the region. */
static struct ib_mr *peal_mr_publish(struct peal_mr *mr, struct peal_table *table,
				     struct peal_account *account)
{
	int ret;

	mr->table = table;
	mr->account = account;
	mr->key.kind = PEAL_KEY_REGION;
	ret = peal_table_add_key(table, account, &mr->key, &mr->key.value);
	if (ret) {
		peal_mr_free(mr);
		return ERR_PTR(ret);
	}
	mr->ib.lkey = mr->key.value;
	mr->ib.rkey = mr->key.value;
	return &mr->ib;
}

static int peal_mr_check(u64 length, u64 iova, int access)
{
	if (access & ~(PEAL_MR_ACCESS | IB_ACCESS_OPTIONAL))
		return -EOPNOTSUPP;
	return length && iova + length >= iova ? 0 : -EINVAL;
}

/**
 * peal_mr_register() - pin user memory and give it a key
 * @start: first byte, an address in the calling program
 * @length: bytes; not 0
 * @iova: the address by which requests name the first byte; ignored with IB_ZERO_BASED
 * @access: IB_ACCESS_*
 *
 * Return: the region, or after undoing everything ERR_PTR() of -EINVAL, -EOPNOTSUPP, -ENOMEM
 * (RLIMIT_MEMLOCK is one cause), -ENOSPC (the account's limit of keys is reached) or -EFAULT.
 */
struct ib_mr *peal_mr_register(struct peal_table *table, struct peal_account *account,
			       struct ib_pd *pd, u64 start, u64 length, u64 iova, int access)
{
	struct peal_mr *mr;
	int ret = peal_mr_check(length, iova, access);

	if (ret)
		return ERR_PTR(ret);
	mr = kzalloc(sizeof(*mr), GFP_KERNEL_ACCOUNT);
	if (!mr)
		return ERR_PTR(-ENOMEM);
	mr->key = (struct peal_key){
		.pd = pd, .iova = access & IB_ZERO_BASED ? 0 : iova,
		.length = length, .access = access,
	};
	mr->iova = iova;
	mr->umem = peal_mr_pin(pd->device, start, length, access, &mr->extents);
	if (IS_ERR(mr->umem)) {
		ret = PTR_ERR(mr->umem);
		kfree(mr);
		return ERR_PTR(ret);
	}
	mr->skip = ib_umem_offset(mr->umem);
	return peal_mr_publish(mr, table, account);
}

/*
 * Make a region of all kernel memory, for kernel users. It needs no pages, because on a virt-dma
 * device a DMA address is a kernel pointer.
 */
struct ib_mr *peal_mr_dma(struct peal_table *table, struct peal_account *account,
			  struct ib_pd *pd, int access)
{
	struct peal_mr *mr = kzalloc(sizeof(*mr), GFP_KERNEL);

	if (!mr)
		return ERR_PTR(-ENOMEM);
	mr->key = (struct peal_key){ .pd = pd, .length = U64_MAX, .access = access };
	return peal_mr_publish(mr, table, account);
}

/*
 * Which memory has a changed region? It keeps its pages if neither they nor the right to write them
 * change. A program that wants to write pages must show that it may write them now, so they are
 * pinned again. The addresses are those of the program that pinned the pages.
 */
static struct ib_umem *peal_mr_pin_again(struct peal_mr *mr, int flags, u64 start, u64 length,
					 int access, struct peal_extents *x)
{
	struct ib_umem *umem = mr->umem;

	if (flags & IB_MR_REREG_TRANS)
		return peal_mr_pin(mr->ib.device, start, length, access, x);
	if (umem->writable || !ib_access_writable(access))
		return umem;
	if (umem->owning_mm != current->mm)
		return ERR_PTR(-EINVAL);
	return peal_mr_pin(mr->ib.device, umem->address, umem->length, access, x);
}

/* Nobody finds the region and nobody uses it any more. Return: its old pages, if they go. */
static struct ib_umem *peal_mr_exchange(struct peal_mr *mr, struct ib_umem *umem,
					struct peal_extents *x)
{
	struct ib_umem *old = mr->umem;

	if (umem == old)
		return NULL;
	peal_extents_free(&mr->extents);
	peal_extents_move(&mr->extents, x);
	mr->umem = umem;
	mr->skip = ib_umem_offset(umem);
	return old;
}

/* The key is hidden while it changes, so a request sees all of the change or finds no key. */
static void peal_mr_change(struct peal_mr *mr, const struct peal_key *key, struct ib_umem *umem,
			   struct peal_extents *x)
{
	struct ib_umem *old;

	peal_table_hide_key(mr->table, key->value);
	peal_epoch_wait();
	mr->key = *key;
	old = peal_mr_exchange(mr, umem, x);
	peal_table_show_key(mr->table, &mr->key, key->value);
	if (old)
		ib_umem_release(old);
}

/* No window can be bound meanwhile. The caller's @key is the changed one. */
static int peal_mr_try_change(struct peal_mr *mr, int flags, u64 start, const struct peal_key *key)
{
	struct peal_extents x = {};
	struct ib_umem *umem = peal_mr_pin_again(mr, flags, start, key->length, key->access, &x);

	if (IS_ERR(umem))
		return PTR_ERR(umem);
	peal_mr_change(mr, key, umem, &x);
	return 0;
}

/**
 * peal_mr_reregister() - change the memory, the rights or the protection domain of a region
 * @flags: IB_MR_REREG_*, what changes; the parameters of the rest are ignored
 *
 * The key stays the same. After it returns 0, no CPU reads or writes memory that the region does
 * not have any more. Both the old and the new pages are pinned for a moment.
 *
 * Return: 0, or with the region unchanged -EBUSY while a memory window is bound to it, or an error
 * of peal_mr_register().
 */
int peal_mr_reregister(struct ib_mr *ib, int flags, u64 start, u64 length, u64 iova, int access,
		       struct ib_pd *pd)
{
	struct peal_mr *mr = peal_mr(ib);
	struct peal_key key = mr->key;
	int ret;

	if (flags & ~(IB_MR_REREG_TRANS | IB_MR_REREG_PD | IB_MR_REREG_ACCESS))
		return -EOPNOTSUPP;
	if (flags & IB_MR_REREG_TRANS)
		key.length = length;
	else
		iova = mr->iova;
	if (flags & IB_MR_REREG_ACCESS)
		key.access = access;
	if (flags & IB_MR_REREG_PD)
		key.pd = pd;
	key.iova = key.access & IB_ZERO_BASED ? 0 : iova;
	ret = peal_mr_check(key.length, iova, key.access);
	if (ret)
		return ret;
	if (atomic_cmpxchg(&mr->windows, 0, -1))
		return -EBUSY;
	ret = peal_mr_try_change(mr, flags, start, &key);
	if (!ret)
		mr->iova = iova;
	atomic_set(&mr->windows, 0);
	return ret;
}

/**
 * peal_mr_deregister() - remove the key and unpin the memory
 *
 * After it returns 0, no CPU reads or writes the memory any more.
 *
 * Return: 0, or -EBUSY while a memory window is bound to the region.
 */
int peal_mr_deregister(struct ib_mr *ib)
{
	struct peal_mr *mr = peal_mr(ib);

	if (atomic_cmpxchg(&mr->windows, 0, -1))
		return -EBUSY;
	peal_table_remove_key(mr->table, mr->account, mr->key.value);
	peal_epoch_wait();
	peal_mr_free(mr);
	return 0;
}

/*
 * Count one more bound window. Return: false if the region is being deregistered. Binding and
 * deregistration may race; the atomic counter lets only one of them succeed.
 */
bool peal_mr_add_window(struct peal_mr *mr)
{
	return atomic_inc_unless_negative(&mr->windows);
}

void peal_mr_drop_window(struct peal_mr *mr)
{
	atomic_dec(&mr->windows);
}

struct peal_mr *peal_mr_find(struct peal_table *table, u32 value)
{
	struct peal_key *key = peal_table_key(table, value);

	if (!key || key->value != value || key->kind != PEAL_KEY_REGION)
		return NULL;
	return container_of(key, struct peal_mr, key);
}

/* The reasons are those of a remote request. peal_mr_local() translates them for a local one. */
enum peal_reason peal_key_allows(const struct peal_key *key, const struct ib_pd *pd, u64 addr,
				 u64 length, int access)
{
	u64 offset = addr - key->iova;	/* wraps for an address below iova: refused below */

	if (unlikely(key->pd != pd))
		return PEAL_REASON_RKEY_PD;
	if (unlikely(offset > key->length || length > key->length - offset))
		return PEAL_REASON_RKEY_RANGE;
	if (unlikely(access & ~key->access))
		return PEAL_REASON_RKEY_ACCESS;
	return PEAL_REASON_NONE;
}

/**
 * peal_mr_local() - check one scatter-gather entry
 * @write: whether the entry receives data
 * @target: set on success
 *
 * Call inside the epoch. Return: PEAL_REASON_NONE or an LKEY reason.
 */
enum peal_reason peal_mr_local(struct peal_table *table, const struct ib_pd *pd,
			       const struct peal_sge *sge, bool write,
			       struct peal_target *target)
{
	struct peal_mr *mr = peal_mr_find(table, sge->lkey);
	enum peal_reason reason;

	peal_epoch_assert_held();
	if (unlikely(!mr))
		return PEAL_REASON_LKEY_UNKNOWN;
	reason = peal_key_allows(&mr->key, pd, sge->addr, sge->length,
				 write ? IB_ACCESS_LOCAL_WRITE : 0);
	if (unlikely(reason))
		return reason - PEAL_REASON_RKEY_UNKNOWN + PEAL_REASON_LKEY_UNKNOWN;
	target->mr = mr;
	target->offset = sge->addr - mr->key.iova;
	return PEAL_REASON_NONE;
}
