// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See mr.h.
 */
#include <linux/highmem.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>

#include "base/compat.h"
#include "base/epoch.h"
#include "object/dm.h"
#include "object/mr.h"

/* The access flags that a region may have, besides IB_ACCESS_OPTIONAL. */
#define PEAL_MR_ACCESS								\
	(IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE | IB_ACCESS_REMOTE_READ |	\
	 IB_ACCESS_REMOTE_ATOMIC | IB_ACCESS_MW_BIND | IB_ZERO_BASED | IB_ACCESS_HUGETLB |	\
	 IB_ACCESS_FLUSH_GLOBAL)

/* With one of these the pages of a region may be written. */
#define PEAL_WRITE_ACCESS							\
	(IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE | IB_ACCESS_REMOTE_ATOMIC |	\
	 IB_ACCESS_MW_BIND)

/* The access flags of a fast registration. */
#define PEAL_FAST_REG_ACCESS							\
	(IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE | IB_ACCESS_REMOTE_READ |	\
	 IB_ACCESS_REMOTE_ATOMIC)

/* The null region has no end, no key in the table, and belongs to all protection domains. */
static struct peal_mr peal_mr_zeros = { .null = PEAL_NULL_SOURCE };
static struct peal_mr peal_mr_sink = { .null = PEAL_NULL_SINK };

typedef void peal_mr_run_fn(struct peal_extents *x, void *base, u64 bytes);

/*
 * Call @fn for each contiguous run. Because this is a virt-dma device, the pages of the list are
 * in the direct map, and page_address() works. ib_umem has merged adjacent pages into one entry.
 * A program chooses how many there are, so others get the CPU in between.
 */
static void peal_mr_each_run(struct ib_umem *umem, struct peal_extents *x, peal_mr_run_fn *fn)
{
	struct scatterlist *sg;
	int i;

	for_each_sgtable_sg(&umem->sgt_append.sgt, sg, i) {
		fn(x, page_address(sg_page(sg)), sg->length);
		cond_resched();
	}
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

static void peal_mr_free_fast_reg(struct peal_fast_reg *fast_reg)
{
	if (!fast_reg)
		return;
	peal_page_list_free(&fast_reg->list);
	peal_page_list_free(&fast_reg->next);
	kfree(fast_reg);
}

static void peal_mr_free(struct peal_mr *mr)
{
	peal_mr_free_fast_reg(mr->fast_reg);
	if (mr->odp)
		peal_odp_destroy(mr->odp);
	if (mr->dmabuf)
		peal_dmabuf_put(mr->dmabuf, mr->extents.single);
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
	return iova + length >= iova ? 0 : -EINVAL;
}

/* Memory that is not pinned. A huge page is found page by page. */
static struct ib_mr *peal_mr_register_on_demand(struct peal_table *table,
						struct peal_account *account, struct ib_pd *pd,
						u64 start, u64 length, u64 iova, int access)
{
	struct peal_mr *mr;
	int ret;

	if (access & IB_ACCESS_MW_BIND)
		return ERR_PTR(-EOPNOTSUPP);	/* windows are only for pinned memory */
	/* All memory of the program has the program's addresses. */
	if (length == U64_MAX && (start || iova || access & (IB_ACCESS_HUGETLB | IB_ZERO_BASED)))
		return ERR_PTR(-EINVAL);
	mr = kzalloc(sizeof(*mr), GFP_KERNEL_ACCOUNT);
	if (!mr)
		return ERR_PTR(-ENOMEM);
	mr->key = (struct peal_key){
		.kind = PEAL_KEY_ON_DEMAND, .pd = pd, .iova = access & IB_ZERO_BASED ? 0 : iova,
		.length = length, .access = access,
	};
	mr->iova = iova;
	mr->start = start;
	mr->passing = true;
	mr->odp = peal_odp_create(start, length, access & PEAL_WRITE_ACCESS);
	if (!IS_ERR(mr->odp))
		return peal_mr_publish(mr, table, account);
	ret = PTR_ERR(mr->odp);
	kfree(mr);
	return ERR_PTR(ret);
}

/**
 * peal_mr_register() - pin user memory and give it a key
 * @start: first byte, an address in the calling program
 * @length: bytes; 0 makes a region that gives access to nothing
 * @iova: the address by which requests name the first byte; ignored with IB_ZERO_BASED
 * @access: IB_ACCESS_*; with IB_ACCESS_ON_DEMAND nothing is pinned
 *
 * Return: the region, or after undoing everything ERR_PTR() of -EINVAL, -EOPNOTSUPP, -ENOMEM
 * (RLIMIT_MEMLOCK is one cause), -ENOSPC (the account's limit of keys is reached) or -EFAULT.
 */
struct ib_mr *peal_mr_register(struct peal_table *table, struct peal_account *account,
			       struct ib_pd *pd, u64 start, u64 length, u64 iova, int access)
{
	struct peal_mr *mr;
	int ret = peal_mr_check(length, iova, access & ~IB_ACCESS_ON_DEMAND);

	if (ret)
		return ERR_PTR(ret);
	if (access & IB_ACCESS_ON_DEMAND && length)
		return peal_mr_register_on_demand(table, account, pd, start, length, iova, access);
	mr = kzalloc(sizeof(*mr), GFP_KERNEL_ACCOUNT);
	if (!mr)
		return ERR_PTR(-ENOMEM);
	mr->key = (struct peal_key){
		.pd = pd, .iova = access & IB_ZERO_BASED ? 0 : iova,
		.length = length, .access = access,
	};
	mr->iova = iova;
	if (!length)
		return peal_mr_publish(mr, table, account);
	mr->umem = peal_mr_pin(pd->device, start, length, access, &mr->extents);
	if (IS_ERR(mr->umem)) {
		ret = PTR_ERR(mr->umem);
		kfree(mr);
		return ERR_PTR(ret);
	}
	mr->skip = ib_umem_offset(mr->umem);
	return peal_mr_publish(mr, table, account);
}

/* Memory that is contiguous for the kernel. @base: page aligned */
static int peal_mr_extend(struct peal_mr *mr, void *base, u64 bytes)
{
	int ret;

	peal_extents_measure(&mr->extents, base, bytes);
	ret = peal_extents_alloc(&mr->extents);
	if (!ret)
		peal_extents_fill(&mr->extents, base, bytes);
	return ret;
}

/**
 * peal_mr_register_map() - give a part of device memory a key
 * @map: the device memory; its owner keeps it until the region is deregistered
 * @offset: where the part begins in the memory; the memory has @length bytes from there
 * @length: bytes; 0 makes a region that gives access to nothing
 * @access: IB_ACCESS_*, with IB_ZERO_BASED
 *
 * Return: the region, or ERR_PTR() of -EOPNOTSUPP, -ENOMEM or -ENOSPC.
 */
struct ib_mr *peal_mr_register_map(struct peal_table *table, struct peal_account *account,
				   struct ib_pd *pd, const struct peal_map *map, u64 offset,
				   u64 length, int access)
{
	struct peal_mr *mr;
	int ret;

	if (access & ~(PEAL_MR_ACCESS | IB_ACCESS_OPTIONAL))
		return ERR_PTR(-EOPNOTSUPP);
	mr = kzalloc(sizeof(*mr), GFP_KERNEL_ACCOUNT);
	if (!mr)
		return ERR_PTR(-ENOMEM);
	mr->key = (struct peal_key){ .pd = pd, .length = length, .access = access };
	mr->ib.length = length;
	mr->skip = offset;
	ret = peal_mr_extend(mr, peal_map_address(map), peal_map_bytes(map));
	if (!ret)
		return peal_mr_publish(mr, table, account);
	kfree(mr);
	return ERR_PTR(ret);
}

static int peal_mr_map_dmabuf(struct peal_mr *mr, int fd, u64 offset, u64 length)
{
	void *base;
	struct dma_buf_attachment *buf;
	u64 bytes;
	int ret;

	buf = peal_dmabuf_get(fd, &mr->key.pd->device->dev, mr->key.access & PEAL_WRITE_ACCESS,
			      &base);
	if (IS_ERR(buf))
		return PTR_ERR(buf);
	bytes = peal_dmabuf_bytes(buf);
	if (offset > bytes || length > bytes - offset)
		ret = -EINVAL;
	else
		ret = peal_mr_extend(mr, base, bytes);
	if (ret) {
		peal_dmabuf_put(buf, base);
		return ret;
	}
	mr->dmabuf = buf;
	mr->skip = offset;
	return 0;
}

/**
 * peal_mr_register_dmabuf() - give a part of a DMA buffer a key
 * @fd: the program's descriptor of the buffer
 * @offset: where the part begins in the buffer
 * @length: bytes; not 0
 * @iova: the address by which requests name the first byte
 *
 * Return: the region, or ERR_PTR() of an error of peal_mr_register() or peal_dmabuf_get().
 */
struct ib_mr *peal_mr_register_dmabuf(struct peal_table *table, struct peal_account *account,
				      struct ib_pd *pd, int fd, u64 offset, u64 length, u64 iova,
				      int access)
{
	struct peal_mr *mr;
	int ret = length ? peal_mr_check(length, iova, access) : -EINVAL;

	if (ret)
		return ERR_PTR(ret);
	mr = kzalloc(sizeof(*mr), GFP_KERNEL_ACCOUNT);
	if (!mr)
		return ERR_PTR(-ENOMEM);
	mr->key = (struct peal_key){
		.pd = pd, .iova = iova, .length = length, .access = access,
	};
	mr->iova = iova;
	mr->ib.iova = iova;
	mr->ib.length = length;
	ret = peal_mr_map_dmabuf(mr, fd, offset, length);
	if (!ret)
		return peal_mr_publish(mr, table, account);
	kfree(mr);
	return ERR_PTR(ret);
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
 * Find the memory of a region whose registration changes. It keeps its pages if neither the
 * addresses nor the right to write change. A program that wants to write pages must show that it
 * may write them now, so they are pinned again. The addresses are those of the program that pinned
 * the pages.
 */
static struct ib_umem *peal_mr_pin_again(struct peal_mr *mr, int flags, u64 start, u64 length,
					 int access, struct peal_extents *x)
{
	struct ib_umem *umem = mr->umem;

	if (flags & IB_MR_REREG_TRANS)
		return peal_mr_pin(mr->ib.device, start, length, access, x);
	if (umem->writable || !(access & PEAL_WRITE_ACCESS))
		return umem;
	if (umem->owning_mm != current->mm)
		return ERR_PTR(-EINVAL);
	return peal_mr_pin(mr->ib.device, umem->address, umem->length, access, x);
}

/* The region is not found and not in use any more. Return: its old pages, if they go. */
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
	if (!mr->umem)
		return -EOPNOTSUPP;	/* a DMA buffer, on-demand paging, or length 0 */
	if (flags & IB_MR_REREG_TRANS)
		key.length = length;
	else
		iova = mr->iova;
	if (flags & IB_MR_REREG_ACCESS)
		key.access = access;
	if (flags & IB_MR_REREG_PD)
		key.pd = pd;
	key.iova = key.access & IB_ZERO_BASED ? 0 : iova;
	ret = key.length ? peal_mr_check(key.length, iova, key.access) : -EINVAL;
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
 * Count one more bound window. Return: false if the region is being deregistered or changed.
 * Binding and deregistration may race; the atomic counter lets only one of them succeed.
 */
bool peal_mr_add_window(struct peal_mr *mr)
{
	return atomic_inc_unless_negative(&mr->windows);
}

void peal_mr_drop_window(struct peal_mr *mr)
{
	atomic_dec(&mr->windows);
}

/* ---- fast registration ---- */

/* The two page lists take turns. */
static struct peal_fast_reg *peal_mr_make_fast_reg(u32 max_pages, bool gaps)
{
	struct peal_fast_reg *fast_reg = kzalloc(sizeof(*fast_reg), GFP_KERNEL);

	if (!fast_reg)
		return NULL;
	spin_lock_init(&fast_reg->lock);
	if (!peal_page_list_init(&fast_reg->list, max_pages, gaps)) {
		if (!peal_page_list_init(&fast_reg->next, max_pages, gaps))
			return fast_reg;
		peal_page_list_free(&fast_reg->list);
	}
	kfree(fast_reg);
	return NULL;
}

/**
 * peal_mr_alloc() - make a region for fast registration by a kernel user
 * @type: IB_MR_TYPE_MEM_REG or IB_MR_TYPE_SG_GAPS
 * @max_pages: most pages, or with gaps most entries of a scatterlist, in one registration
 *
 * It gives access to nothing until it is registered by peal_mr_fast_register().
 *
 * Return: the region, or ERR_PTR() of -EINVAL, -EOPNOTSUPP, -ENOMEM or -ENOSPC.
 */
struct ib_mr *peal_mr_alloc(struct peal_table *table, struct peal_account *account,
			    struct ib_pd *pd, enum ib_mr_type type, u32 max_pages)
{
	struct peal_mr *mr;

	if (type != IB_MR_TYPE_MEM_REG && type != IB_MR_TYPE_SG_GAPS)
		return ERR_PTR(-EOPNOTSUPP);
	if (!max_pages || max_pages > PEAL_MAX_FAST_REG_PAGES)
		return ERR_PTR(-EINVAL);
	mr = kzalloc(sizeof(*mr), GFP_KERNEL);
	if (!mr)
		return ERR_PTR(-ENOMEM);
	mr->key = (struct peal_key){ .kind = PEAL_KEY_FAST_REG, .pd = pd };
	mr->passing = true;
	mr->fast_reg = peal_mr_make_fast_reg(max_pages, type == IB_MR_TYPE_SG_GAPS);
	if (mr->fast_reg)
		return peal_mr_publish(mr, table, account);
	kfree(mr);
	return ERR_PTR(-ENOMEM);
}

/*
 * Filling in the pages, or pieces, of the next registration. The present one stays as it is. These
 * functions are called in any context.
 */

/* Return: 0, or -EINVAL if the region is not for fast registration. */
int peal_mr_begin_map(struct ib_mr *ib)
{
	struct peal_fast_reg *fast_reg = peal_mr(ib)->fast_reg;

	if (!fast_reg || !is_power_of_2(ib->page_size))
		return -EINVAL;
	peal_page_list_clear(&fast_reg->next);
	return 0;
}

/* For ib_sg_to_pages(). Return: 0, or -ENOMEM when there are as many pages as fit. */
int peal_mr_add_page(struct ib_mr *ib, u64 address)
{
	return peal_page_list_add(&peal_mr(ib)->fast_reg->next, address) ? 0 : -ENOMEM;
}

void peal_mr_finish_pages(struct ib_mr *ib)
{
	peal_page_list_finish(&peal_mr(ib)->fast_reg->next, ib->iova, ib->page_size);
}

/**
 * peal_mr_add_pieces() - like ib_sg_to_pages(), but each entry is one piece of any length
 * @offset: bytes of the first entry to leave out, or NULL
 *
 * Return: how many entries fit, or -EINVAL.
 */
int peal_mr_add_pieces(struct ib_mr *ib, struct scatterlist *sgl, int count, unsigned int *offset)
{
	struct peal_page_list *list = &peal_mr(ib)->fast_reg->next;
	unsigned int skip = offset ? *offset : 0;
	struct scatterlist *sg;
	int i;

	if (count <= 0 || skip > sg_dma_len(sgl))
		return -EINVAL;
	ib->iova = sg_dma_address(sgl) + skip;
	for_each_sg(sgl, sg, count, i) {
		if (!peal_page_list_add_piece(list, sg_dma_address(sg) + skip,
					      sg_dma_len(sg) - skip))
			break;
		skip = 0;
	}
	if (offset)
		*offset = 0;
	ib->length = peal_page_list_bytes(list);
	return i;
}

/* Find the region by its index only, because each registration changes the low byte of the key. */
static struct peal_mr *peal_mr_find_fast_reg(struct peal_table *table, u32 value)
{
	struct peal_key *key = peal_table_key(table, value);

	if (!key || key->kind != PEAL_KEY_FAST_REG)
		return NULL;
	return container_of(key, struct peal_mr, key);
}

static enum peal_reason peal_mr_check_reg(const struct peal_mr *mr, const struct peal_bind_seg *reg)
{
	const struct peal_fast_reg *fast_reg = mr->fast_reg;

	lockdep_assert_held(&fast_reg->lock);
	if ((reg->new_rkey ^ mr->key.value) >> 8)
		return PEAL_REASON_REG_KEY;
	if (fast_reg->valid)
		return PEAL_REASON_REG_STATE;
	if (!reg->length || reg->length > peal_page_list_bytes(&fast_reg->next))
		return PEAL_REASON_REG_RANGE;
	if (reg->access & ~(PEAL_FAST_REG_ACCESS | IB_ACCESS_OPTIONAL) ||
	    (reg->access & PEAL_WRITE_ACCESS && !(reg->access & IB_ACCESS_LOCAL_WRITE)))
		return PEAL_REASON_REG_ACCESS;
	return PEAL_REASON_NONE;
}

static void peal_mr_set_reg(struct peal_mr *mr, const struct peal_bind_seg *reg)
{
	struct peal_fast_reg *fast_reg = mr->fast_reg;

	lockdep_assert_held(&fast_reg->lock);
	swap(fast_reg->list, fast_reg->next);
	mr->key.value = reg->new_rkey;
	mr->key.iova = reg->addr;
	mr->key.length = reg->length;
	mr->key.access = reg->access;
	smp_store_release(&fast_reg->valid, true);	/* N: after the key and the list */
}

/**
 * peal_mr_fast_register() - execute a REG_MR
 *
 * Call inside the epoch.
 *
 * Return: PEAL_REASON_NONE, or a REG reason with the region unchanged.
 */
enum peal_reason peal_mr_fast_register(struct peal_table *table, const struct ib_pd *pd,
				       const struct peal_bind_seg *reg)
{
	struct peal_mr *mr = peal_mr_find_fast_reg(table, reg->mr_lkey);
	enum peal_reason reason;

	peal_epoch_assert_held();
	if (!mr || mr->key.pd != pd)
		return PEAL_REASON_REG_KEY;
	spin_lock(&mr->fast_reg->lock);
	reason = peal_mr_check_reg(mr, reg);
	if (!reason)
		peal_mr_set_reg(mr, reg);
	spin_unlock(&mr->fast_reg->lock);
	return reason;
}

/*
 * No further user can begin. Wait for the present ones. They have the locks that they need, and
 * copy no more than one chunk.
 */
static void peal_mr_wait_users(struct peal_fast_reg *fast_reg)
{
	lockdep_assert_held(&fast_reg->lock);
	smp_mb();	/* N: pairs with peal_mr_use() */
	while (atomic_read_acquire(&fast_reg->users))
		cpu_relax();
}

/**
 * peal_mr_invalidate() - execute the invalidation of a fast registration
 *
 * After it returns true, no CPU reads or writes the memory any more. A region that is invalid
 * already stays so. Call inside the epoch, while using no memory.
 *
 * Return: false if the key names no fast registration of this protection domain.
 */
bool peal_mr_invalidate(struct peal_table *table, const struct ib_pd *pd, u32 value)
{
	struct peal_mr *mr = peal_mr_find_fast_reg(table, value);
	bool ours;

	peal_epoch_assert_held();
	if (!mr || mr->key.pd != pd)
		return false;
	spin_lock(&mr->fast_reg->lock);
	ours = mr->key.value == value;
	if (ours) {
		WRITE_ONCE(mr->fast_reg->valid, false);
		peal_mr_wait_users(mr->fast_reg);
	}
	spin_unlock(&mr->fast_reg->lock);
	return ours;
}

/* The epoch is enough to use it. */
struct peal_mr *peal_mr_find_on_demand(struct peal_table *table, u32 value)
{
	struct peal_key *key = peal_table_key(table, value);

	if (!key || key->value != value || key->kind != PEAL_KEY_ON_DEMAND)
		return NULL;
	return container_of(key, struct peal_mr, key);
}

/* Return: the region of this key whose pages may go, with one user more, or NULL. */
struct peal_mr *peal_mr_use(struct peal_table *table, u32 value)
{
	struct peal_mr *mr = peal_mr_find_fast_reg(table, value);

	peal_epoch_assert_held();
	if (!mr)
		return peal_mr_find_on_demand(table, value);
	atomic_inc(&mr->fast_reg->users);
	smp_mb__after_atomic();	/* N: pairs with peal_mr_wait_users() */
	if (smp_load_acquire(&mr->fast_reg->valid) && mr->key.value == value)	/* N */
		return mr;
	peal_mr_end_use(mr);
	return NULL;
}

void peal_mr_end_use(struct peal_mr *mr)
{
	if (!mr->fast_reg)
		return;
	smp_mb__before_atomic();	/* N: the use ends before it */
	atomic_dec(&mr->fast_reg->users);
}

/*
 * Memory that is not a program's pinned memory: of a fast registration, device memory, a DMA
 * buffer, the null region, on-demand paging, or all kernel memory.
 */
void *peal_target_kernel_at(const struct peal_target *target, u64 offset, u64 *bytes)
{
	const struct peal_mr *mr = target->mr;

	offset += target->offset;
	if (mr->fast_reg)
		return peal_page_list_at(&mr->fast_reg->list, offset, bytes);
	if (mr->extents.granule)
		return peal_extents_at(&mr->extents, mr->skip + offset, bytes);
	if (mr->odp)
		return peal_odp_at(mr->odp, mr->start + offset, bytes);
	if (mr->null)
		return peal_null_at(mr->null, bytes);
	return (void *)(uintptr_t)offset;
}

/* Are these bytes in memory? If so, they stay there until the epoch is left. */
enum peal_odp_state peal_target_look(const struct peal_target *target, u64 offset, u64 bytes,
				     bool write)
{
	const struct peal_mr *mr = target->mr;

	if (!mr->odp)
		return PEAL_ODP_PRESENT;
	return peal_odp_look(mr->odp, mr->start + target->offset + offset, bytes, write);
}

/**
 * peal_mr_prefetch() - bring in pages of a region with on-demand paging
 * @write: the device will write them
 * @fault: false: only those that are in memory already
 *
 * Sleeps. Return: 0 or -EFAULT, or -ENOMEM, -EBUSY or -EINTR before all pages are there.
 */
int peal_mr_prefetch(struct peal_table *table, const struct ib_pd *pd, const struct ib_sge *sge,
		     bool write, bool fault)
{
	struct peal_odp *odp = NULL;
	struct peal_mr *mr;
	u64 address = 0;
	int ret;

	peal_epoch_enter();
	mr = peal_mr_find_on_demand(table, sge->lkey);
	if (mr && !peal_key_allows(&mr->key, pd, sge->addr, sge->length,
				   write ? IB_ACCESS_LOCAL_WRITE : 0, &peal_lkey_reasons) &&
	    peal_odp_get(mr->odp)) {
		odp = mr->odp;
		address = mr->start + (sge->addr - mr->key.iova);
	}
	peal_epoch_exit();
	if (!odp)
		return -EFAULT;
	ret = peal_odp_prefetch(odp, address, sge->length, write, fault);
	peal_odp_put(odp);
	return ret;
}

/* peal_mr_present() for a key that is remembered and is that of on-demand paging, or of nothing. */
void *peal_mr_present_on_demand(struct peal_mr_lookup *last, const struct ib_pd *pd, u64 addr,
				u64 length, int access, u64 *bytes)
{
	bool write = access & (IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE |
			       IB_ACCESS_REMOTE_ATOMIC);
	struct peal_mr *mr = last->odp;

	peal_epoch_assert_held();
	if (!mr || peal_key_allows(&mr->key, pd, addr, length, access, &peal_rkey_reasons))
		return NULL;
	return peal_odp_find(mr->odp, &last->page, mr->start + (addr - mr->key.iova), bytes, write);
}

/*
 * peal_mr_present() for a key that is not remembered.
 *
 * Barrier M: key_removals is loaded before the key is looked up. Pairs with peal_table_end_key().
 */
void *peal_mr_present_anew(struct peal_table *table, struct peal_mr_lookup *last,
			   const struct ib_pd *pd, u32 value, u64 addr, u64 length, int access,
			   u64 *bytes)
{
	unsigned long removals = smp_load_acquire(&table->key_removals);	/* M */
	struct peal_mr *mr = peal_mr_find(table, value);

	peal_epoch_assert_held();
	*last = (struct peal_mr_lookup){
		.mr = mr && mr->extents.granule ? mr : NULL,
		.odp = mr ? NULL : peal_mr_find_on_demand(table, value),
		.value = value,
		.removals = removals,
	};
	if (!last->mr)
		return peal_mr_present_on_demand(last, pd, addr, length, access, bytes);
	if (peal_key_allows(&mr->key, pd, addr, length, access, &peal_rkey_reasons))
		return NULL;
	return peal_extents_at(&mr->extents, mr->skip + (addr - mr->key.iova), bytes);
}

/**
 * peal_mr_local() - check one scatter-gather entry
 * @target: set on success; peal_target_end() ends its use
 *
 * Call inside the epoch. Return: PEAL_REASON_NONE or an LKEY reason.
 */
enum peal_reason peal_mr_local(struct peal_table *table, const struct ib_pd *pd,
			       const struct peal_sge *sge, enum peal_key_use use,
			       struct peal_target *target)
{
	const struct peal_key_reasons *reasons =
		use == PEAL_RECEIVE ? &peal_recv_reasons : &peal_lkey_reasons;
	struct peal_mr *mr = peal_mr_find(table, sge->lkey);
	enum peal_reason reason;

	peal_epoch_assert_held();
	if (unlikely(!mr)) {
		if (sge->lkey == PEAL_NULL_LKEY) {
			target->mr = use == PEAL_GATHER ? &peal_mr_zeros : &peal_mr_sink;
			target->offset = 0;
			return PEAL_REASON_NONE;
		}
		mr = peal_mr_use(table, sge->lkey);
		if (!mr)
			return reasons->unknown;
	}
	target->mr = mr;
	target->offset = sge->addr - mr->key.iova;
	reason = peal_key_allows(&mr->key, pd, sge->addr, sge->length,
				 use == PEAL_GATHER ? 0 : IB_ACCESS_LOCAL_WRITE, reasons);
	if (unlikely(reason))
		peal_target_end(target);
	return reason;
}

/*
 * Memory windows. Rules: IBTA 10.6.7.2, and 10.6.7.2.6 for type 2B.
 */

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
	reason = peal_key_allows(&mr->key, pd, bind->addr, bind->length, 0, &peal_rkey_reasons);
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
	struct peal_mw *mw = NULL;
	enum peal_reason reason;

	peal_epoch_assert_held();
	if (unlikely(!mr))
		mw = peal_mw_find(table, wqe->rkey);
	if (unlikely(mw)) {
		spin_lock(&mw->lock);
		if (mw->key.value != wqe->rkey || !mw->region)
			reason = PEAL_REASON_RKEY_UNKNOWN;
		else if (mw->qpn && mw->qpn != qpn)
			reason = PEAL_REASON_RKEY_QP;
		else
			reason = peal_key_allows(&mw->key, pd, wqe->remote_addr, wqe->length,
						 access, &peal_rkey_reasons);
		target->mr = mw->region;
		target->offset = wqe->remote_addr - mw->key.iova + mw->offset;
		spin_unlock(&mw->lock);
		return reason;
	}
	if (unlikely(!mr)) {
		mr = peal_mr_use(table, wqe->rkey);
		if (!mr)
			return PEAL_REASON_RKEY_UNKNOWN;
	}
	target->mr = mr;
	target->offset = wqe->remote_addr - mr->key.iova;
	reason = peal_key_allows(&mr->key, pd, wqe->remote_addr, wqe->length, access,
				 &peal_rkey_reasons);
	if (unlikely(reason))
		peal_target_end(target);
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
		return peal_key_allows(&mr->key, pd, mr->key.iova, 0, access, &peal_rkey_reasons);
	return peal_key_allows(&mr->key, pd, wqe->remote_addr, wqe->flush.length, access,
			       &peal_rkey_reasons);
}
