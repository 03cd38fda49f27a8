// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See odp.h.
 */
#include <linux/hmm.h>
#include <linux/jiffies.h>
#include <linux/magic.h>
#include <linux/memcontrol.h>
#include <linux/memremap.h>
#include <linux/mmu_notifier.h>
#include <linux/pagemap.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

#include "base/epoch.h"
#include "mem/null.h"
#include "mem/odp.h"

#ifdef CONFIG_INFINIBAND_ON_DEMAND_PAGING

/* Most pages that one fault brings in, and most faults that wait for the worker. */
#define PEAL_ODP_BATCH	32
#define PEAL_ODP_FAULTS	16

/* An entry of the table is the page frame number and these bits. */
#define PEAL_ODP_WRITE	0x1	/* the page may be written */
#define PEAL_ODP_STALE	0x2	/* an invalidation waits for the users of the page */
#define PEAL_ODP_SHIFT	2

enum peal_odp_fault_state {
	PEAL_ODP_FREE,
	PEAL_ODP_WAITS,		/* for the worker, which may work on it */
	PEAL_ODP_FAILED,	/* until a caller asks for the page again */
};

struct peal_odp_fault {
	enum peal_odp_fault_state state;
	unsigned long first, last;	/* page numbers */
	bool write;
	unsigned long failed_at;	/* jiffies */
};

/* A caller that was told to try again learns the failure within this time, or asks once more. */
#define PEAL_ODP_FAILED_JIFFIES	(2 * HZ)

struct peal_odp {
	struct mmu_interval_notifier notifier;
	struct mm_struct *mm;		/* the notifier holds it */
	unsigned long end;		/* number of the page after the last one */
	bool writable;
	struct kref ref;
	struct xarray pages;		/* by page number; present pages */
	struct mutex lock;		/* serializes changes of `pages` */
	struct mutex fault_mutex;	/* one fault at a time; guards the field marked with it */

	/* Guarded by odp.fault_mutex: */
	bool dead;			/* it is being destroyed */

	struct work_struct work;	/* brings the requested pages in */
	spinlock_t fault_lock;		/* guards the fields marked with it */

	/* Guarded by odp.fault_lock: */
	struct peal_odp_fault fault[PEAL_ODP_FAULTS];
};

static struct workqueue_struct *peal_odp_wq;

int peal_odp_init(void)
{
	peal_odp_wq = alloc_workqueue("peal_odp", WQ_UNBOUND, 0);
	return peal_odp_wq ? 0 : -ENOMEM;
}

void peal_odp_exit(void)
{
	destroy_workqueue(peal_odp_wq);
}

bool peal_odp_is_supported(void)
{
	return true;
}

/* ---- invalidation ---- */

/* Return: whether a page was there. */
static bool peal_odp_mark(struct peal_odp *odp, unsigned long first, unsigned long last)
{
	unsigned long i;
	void *entry;
	bool any = false;

	lockdep_assert_held(&odp->lock);
	xa_for_each_range(&odp->pages, i, entry, first, last) {
		/* Replacing an entry needs no memory. */
		xa_store(&odp->pages, i, xa_mk_value(xa_to_value(entry) | PEAL_ODP_STALE),
			 GFP_NOWAIT);
		any = true;
	}
	return any;
}

static void peal_odp_forget(struct peal_odp *odp, unsigned long first, unsigned long last)
{
	unsigned long i, value;
	void *entry;

	lockdep_assert_held(&odp->lock);
	xa_for_each_range(&odp->pages, i, entry, first, last) {
		value = xa_to_value(entry);
		/* A copy does not set the dirty bit of the page table, so mark the page here. */
		if (value & PEAL_ODP_WRITE)
			folio_mark_dirty(page_folio(pfn_to_page(value >> PEAL_ODP_SHIFT)));
		xa_erase(&odp->pages, i);
	}
}

static void peal_odp_drop(struct peal_odp *odp, unsigned long first, unsigned long last)
{
	lockdep_assert_held(&odp->lock);
	if (!peal_odp_mark(odp, first, last))
		return;
	peal_epoch_wait();
	peal_odp_forget(odp, first, last);
}

/* The kernel takes pages from the program, moves them, or takes the right to write them. */
static bool peal_odp_invalidate(struct mmu_interval_notifier *notifier,
				const struct mmu_notifier_range *range, unsigned long seq)
{
	struct peal_odp *odp = container_of(notifier, struct peal_odp, notifier);

	if (!mmu_notifier_range_blockable(range))
		return false;
	mutex_lock(&odp->lock);
	mmu_interval_set_seq(notifier, seq);
	peal_odp_drop(odp, range->start >> PAGE_SHIFT, (range->end - 1) >> PAGE_SHIFT);
	mutex_unlock(&odp->lock);
	return true;
}

static const struct mmu_interval_notifier_ops peal_odp_ops = {
	.invalidate = peal_odp_invalidate,
};

/* ---- faults ---- */

static int peal_odp_reserve(struct peal_odp *odp, unsigned long first, unsigned long last)
{
	unsigned long i;
	int ret = 0;

	for (i = first; !ret && i <= last; i++)
		ret = xa_reserve(&odp->pages, i, GFP_KERNEL_ACCOUNT);
	return ret;
}

/* Release the entries that were reserved but got no page. */
static void peal_odp_release(struct peal_odp *odp, unsigned long first, unsigned long last)
{
	unsigned long i;

	for (i = first; i <= last; i++)
		xa_release(&odp->pages, i);
}

/*
 * Can the kernel reach this page? It cannot reach the pages of memfd_secret(2), and memory of
 * another device is not for the CPU. The page is mapped at this time, so its mapping does not
 * change.
 */
static bool peal_odp_is_reachable(struct page *page)
{
	struct address_space *mapping;

	if (is_zone_device_page(page))
		return !is_device_private_page(page) && !is_pci_p2pdma_page(page);
	mapping = folio_mapping(page_folio(page));
	return !mapping || !mapping->host || mapping->host->i_sb->s_magic != SECRETMEM_MAGIC;
}

static int peal_odp_store(struct peal_odp *odp, unsigned long i, unsigned long hmm_pfn)
{
	unsigned long value;

	lockdep_assert_held(&odp->lock);
	if (!(hmm_pfn & HMM_PFN_VALID))
		return 0;
	if (!peal_odp_is_reachable(hmm_pfn_to_page(hmm_pfn)))
		return -EFAULT;
	value = page_to_pfn(hmm_pfn_to_page(hmm_pfn)) << PEAL_ODP_SHIFT;
	if (odp->writable && hmm_pfn & HMM_PFN_WRITE)
		value |= PEAL_ODP_WRITE;
	return xa_err(xa_store(&odp->pages, i, xa_mk_value(value), GFP_NOWAIT));
}

/* Return: 0, -ENOMEM, -EFAULT, or -EBUSY when an invalidation came between. */
static int peal_odp_fill(struct peal_odp *odp, const struct hmm_range *range)
{
	unsigned long i, first = range->start >> PAGE_SHIFT;
	unsigned long count = (range->end - range->start) >> PAGE_SHIFT;
	int ret = 0;

	mutex_lock(&odp->lock);
	if (mmu_interval_read_retry(&odp->notifier, range->notifier_seq))
		ret = -EBUSY;
	for (i = 0; !ret && i < count; i++)
		ret = peal_odp_store(odp, first + i, range->hmm_pfns[i]);
	mutex_unlock(&odp->lock);
	return ret;
}

/* Retry after an invalidation, up to a time limit. */
static int peal_odp_try(struct peal_odp *odp, struct hmm_range *range)
{
	unsigned long limit = jiffies + msecs_to_jiffies(HMM_RANGE_DEFAULT_TIMEOUT);
	int ret;

	do {
		range->notifier_seq = mmu_interval_read_begin(&odp->notifier);
		mmap_read_lock(odp->mm);
		ret = hmm_range_fault(range);
		mmap_read_unlock(odp->mm);
		if (!ret)
			ret = peal_odp_fill(odp, range);
	} while (ret == -EBUSY && time_before(jiffies, limit));
	return ret;
}

/* At most PEAL_ODP_BATCH pages. @fault: bring in pages that are not in memory. */
static int peal_odp_fault_batch(struct peal_odp *odp, unsigned long first, unsigned long last,
				bool write, bool fault)
{
	unsigned long pfns[PEAL_ODP_BATCH];
	struct hmm_range range = {
		.notifier = &odp->notifier,
		.start = first << PAGE_SHIFT,
		.end = (last + 1) << PAGE_SHIFT,
		.hmm_pfns = pfns,
		.default_flags = fault ? HMM_PFN_REQ_FAULT | (write ? HMM_PFN_REQ_WRITE : 0) : 0,
	};
	int ret = peal_odp_reserve(odp, first, last);

	lockdep_assert_held(&odp->fault_mutex);
	if (!ret)
		ret = peal_odp_try(odp, &range);
	peal_odp_release(odp, first, last);
	return ret;
}

static int peal_odp_fault_in(struct peal_odp *odp, unsigned long first, unsigned long last,
			     bool write, bool fault)
{
	int ret = -EFAULT;

	lockdep_assert_held(&odp->fault_mutex);
	if (odp->dead || (write && !odp->writable) || last >= odp->end ||
	    !mmget_not_zero(odp->mm))
		return ret;
	for (; first <= last; first += PEAL_ODP_BATCH) {
		ret = peal_odp_fault_batch(odp, first, min(last, first + PEAL_ODP_BATCH - 1),
					   write, fault);
		if (ret)
			break;
		cond_resched();
		if (fatal_signal_pending(current)) {
			ret = -EINTR;
			break;
		}
	}
	mmput_async(odp->mm);
	return ret;
}

/* Bring in more than was asked for, because the next chunk is likely to need it. */
static int peal_odp_fault_ahead(struct peal_odp *odp, const struct peal_odp_fault *fault)
{
	unsigned long ahead = min(fault->first + PEAL_ODP_BATCH - 1, odp->end - 1);
	int ret = -EFAULT;

	mutex_lock(&odp->fault_mutex);
	if (ahead > fault->last)
		ret = peal_odp_fault_in(odp, fault->first, ahead, fault->write, true);
	if (ret)
		ret = peal_odp_fault_in(odp, fault->first, fault->last, fault->write, true);
	mutex_unlock(&odp->fault_mutex);
	return ret;
}

/* Return: the index of a fault that waits, or -1. *@fault is a copy of it. */
static int peal_odp_next(struct peal_odp *odp, struct peal_odp_fault *fault)
{
	int i;

	spin_lock_bh(&odp->fault_lock);
	for (i = PEAL_ODP_FAULTS - 1; i >= 0; i--)
		if (odp->fault[i].state == PEAL_ODP_WAITS)
			break;
	if (i >= 0)
		*fault = odp->fault[i];
	spin_unlock_bh(&odp->fault_lock);
	return i;
}

/* Lack of memory and endless invalidations are no errors of the program. */
static void peal_odp_end_fault(struct peal_odp *odp, struct peal_odp_fault *fault, int ret)
{
	spin_lock_bh(&odp->fault_lock);
	fault->state = ret && ret != -ENOMEM && ret != -EBUSY ? PEAL_ODP_FAILED : PEAL_ODP_FREE;
	fault->failed_at = jiffies;
	spin_unlock_bh(&odp->fault_lock);
}

/* The program's memory cgroup is charged for the table, as for the pages. */
static void peal_odp_work(struct work_struct *work)
{
	struct peal_odp *odp = container_of(work, struct peal_odp, work);
	struct mem_cgroup *memcg = get_mem_cgroup_from_mm(odp->mm);
	struct mem_cgroup *old = set_active_memcg(memcg);
	struct peal_odp_fault fault;
	int i;

	while ((i = peal_odp_next(odp, &fault)) >= 0)
		peal_odp_end_fault(odp, &odp->fault[i], peal_odp_fault_ahead(odp, &fault));
	set_active_memcg(old);
	mem_cgroup_put(memcg);
}

/*
 * A program asks for pages to be brought in. Sleeps. The worker, and the end of the region, get
 * their turn after each batch. Return: 0 or an errno.
 */
int peal_odp_prefetch(struct peal_odp *odp, u64 address, u64 bytes, bool write, bool fault)
{
	unsigned long first = address >> PAGE_SHIFT, last = (address + bytes - 1) >> PAGE_SHIFT;
	int ret = 0;

	if (!bytes)
		return 0;
	for (; !ret && first <= last; first += PEAL_ODP_BATCH) {
		mutex_lock(&odp->fault_mutex);
		ret = peal_odp_fault_in(odp, first, min(last, first + PEAL_ODP_BATCH - 1), write,
					fault);
		mutex_unlock(&odp->fault_mutex);
	}
	return ret;
}

/* ---- the data path ---- */

/*
 * Does this fault answer a request for these pages? A fault that waits does if it will bring in the
 * first page. A fault that failed does only if it was for the same pages, because it does not tell
 * which page could not be brought in. It is forgotten soon, because the program may map memory
 * there.
 */
static bool peal_odp_covers(const struct peal_odp_fault *fault, unsigned long first,
			    unsigned long last, bool write)
{
	if (fault->state == PEAL_ODP_FREE || fault->write != write)
		return false;
	if (fault->state == PEAL_ODP_WAITS)
		return first >= fault->first && first <= fault->last;
	return first == fault->first && last == fault->last &&
	       time_before(jiffies, fault->failed_at + PEAL_ODP_FAILED_JIFFIES);
}

/* Return: the fault of these pages, or a new one, or NULL when too many wait already. */
static struct peal_odp_fault *peal_odp_find(struct peal_odp *odp, unsigned long first,
					    unsigned long last, bool write)
{
	struct peal_odp_fault *best = NULL;
	int i;

	lockdep_assert_held(&odp->fault_lock);
	for (i = 0; i < PEAL_ODP_FAULTS; i++) {
		struct peal_odp_fault *fault = &odp->fault[i];

		if (peal_odp_covers(fault, first, last, write))
			return fault;
		if (fault->state != PEAL_ODP_WAITS && (!best || best->state != PEAL_ODP_FREE))
			best = fault;
	}
	if (best)
		best->state = PEAL_ODP_FREE;
	return best;
}

static enum peal_odp_state peal_odp_request(struct peal_odp *odp, unsigned long first,
					    unsigned long last, bool write)
{
	enum peal_odp_state state = PEAL_ODP_ABSENT;
	struct peal_odp_fault *fault;

	spin_lock(&odp->fault_lock);
	fault = peal_odp_find(odp, first, last, write);
	if (fault && fault->state == PEAL_ODP_FREE) {
		*fault = (struct peal_odp_fault){
			.state = PEAL_ODP_WAITS, .first = first, .last = last, .write = write,
		};
		queue_work(peal_odp_wq, &odp->work);
	} else if (fault && fault->state == PEAL_ODP_FAILED) {
		fault->state = PEAL_ODP_FREE;
		state = PEAL_ODP_FAULT;
	}
	spin_unlock(&odp->fault_lock);
	return state;
}

/**
 * peal_odp_look() - are these bytes in memory?
 * @bytes: not 0
 *
 * Call inside the epoch. Absent pages are requested.
 */
enum peal_odp_state peal_odp_look(struct peal_odp *odp, u64 address, u64 bytes, bool write)
{
	unsigned long i = address >> PAGE_SHIFT, last = (address + bytes - 1) >> PAGE_SHIFT;
	unsigned long value;

	peal_epoch_assert_held();
	for (; i <= last; i++) {
		value = xa_to_value(xa_load(&odp->pages, i));
		if (!value || value & PEAL_ODP_STALE || (write && !(value & PEAL_ODP_WRITE)))
			return peal_odp_request(odp, i, last, write);
	}
	return PEAL_ODP_PRESENT;
}

/*
 * Call after peal_odp_look(), in the same section. An entry that became stale is still there. The
 * warning means that a caller has not looked, or has looked only for reading.
 */
void *peal_odp_at(struct peal_odp *odp, u64 address, u64 *bytes)
{
	unsigned long value = xa_to_value(xa_load(&odp->pages, address >> PAGE_SHIFT));
	u64 inside = offset_in_page(address);

	peal_epoch_assert_held();
	if (WARN_ON_ONCE(!value))
		return peal_null_at(PEAL_NULL_SINK, bytes);
	*bytes = min_t(u64, *bytes, PAGE_SIZE - inside);
	return page_address(pfn_to_page(value >> PEAL_ODP_SHIFT)) + inside;
}

/* ---- creation and destruction ---- */

/**
 * peal_odp_create() - let memory of the calling program be found on demand
 * @length: bytes; U64_MAX with @start 0 stands for all memory of the program
 *
 * Return: the table, without any page, or ERR_PTR().
 */
struct peal_odp *peal_odp_create(u64 start, u64 length, bool writable)
{
	struct peal_odp *odp;
	u64 first, end;
	int ret;

	if (!start && length == U64_MAX)
		length = current->mm->task_size;
	if (start + length < start || start + length > current->mm->task_size)
		return ERR_PTR(-EFAULT);
	first = start & PAGE_MASK;
	end = PAGE_ALIGN(start + length);
	odp = kzalloc(sizeof(*odp), GFP_KERNEL_ACCOUNT);
	if (!odp)
		return ERR_PTR(-ENOMEM);
	odp->mm = current->mm;
	odp->end = end >> PAGE_SHIFT;
	odp->writable = writable;
	kref_init(&odp->ref);
	xa_init_flags(&odp->pages, XA_FLAGS_ACCOUNT);
	mutex_init(&odp->lock);
	mutex_init(&odp->fault_mutex);
	spin_lock_init(&odp->fault_lock);
	INIT_WORK(&odp->work, peal_odp_work);
	ret = mmu_interval_notifier_insert(&odp->notifier, odp->mm, first, end - first,
					   &peal_odp_ops);
	if (!ret)
		return odp;
	kfree(odp);
	return ERR_PTR(ret);
}

/* The caller has waited for the epoch, so no request comes any more. A prefetch may still run. */
void peal_odp_destroy(struct peal_odp *odp)
{
	cancel_work_sync(&odp->work);
	mutex_lock(&odp->fault_mutex);
	odp->dead = true;
	mutex_unlock(&odp->fault_mutex);
	/*
	 * Forget the pages before the notifier is removed, because only the notifier tells when a
	 * page leaves.
	 */
	mutex_lock(&odp->lock);
	peal_odp_forget(odp, 0, ULONG_MAX);
	mutex_unlock(&odp->lock);
	mmu_interval_notifier_remove(&odp->notifier);
	peal_odp_put(odp);
}

/* Inside the epoch. Return: false if it is being destroyed. */
bool peal_odp_get(struct peal_odp *odp)
{
	peal_epoch_assert_held();
	return kref_get_unless_zero(&odp->ref);
}

static void peal_odp_free(struct kref *ref)
{
	struct peal_odp *odp = container_of(ref, struct peal_odp, ref);

	xa_destroy(&odp->pages);
	kfree(odp);
}

void peal_odp_put(struct peal_odp *odp)
{
	kref_put(&odp->ref, peal_odp_free);
}

#else /* CONFIG_INFINIBAND_ON_DEMAND_PAGING */

int peal_odp_init(void)
{
	return 0;
}

void peal_odp_exit(void)
{
}

bool peal_odp_is_supported(void)
{
	return false;
}

struct peal_odp *peal_odp_create(u64 start, u64 length, bool writable)
{
	return ERR_PTR(-EOPNOTSUPP);
}

void peal_odp_destroy(struct peal_odp *odp)
{
}

bool peal_odp_get(struct peal_odp *odp)
{
	peal_epoch_assert_held();
	return false;
}

void peal_odp_put(struct peal_odp *odp)
{
}

enum peal_odp_state peal_odp_look(struct peal_odp *odp, u64 address, u64 bytes, bool write)
{
	peal_epoch_assert_held();
	return PEAL_ODP_FAULT;
}

void *peal_odp_at(struct peal_odp *odp, u64 address, u64 *bytes)
{
	return NULL;
}

int peal_odp_prefetch(struct peal_odp *odp, u64 address, u64 bytes, bool write, bool fault)
{
	return -EOPNOTSUPP;
}

#endif
