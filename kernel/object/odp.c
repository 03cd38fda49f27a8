// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include <linux/dax.h>
#include <linux/fadvise.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/hashtable.h>
#include <linux/hmm.h>
#include <linux/hugetlb_inline.h>
#include <linux/jiffies.h>
#include <linux/list.h>
#include <linux/magic.h>
#include <linux/memcontrol.h>
#include <linux/memremap.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/mmu_notifier.h>
#include <linux/module.h>
#include <linux/pagemap.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/userfaultfd_k.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

#include "base/epoch.h"
#include "base/quota.h"
#include "object/odp.h"

static u8 peal_null_zeros[PAGE_SIZE] __aligned(PAGE_SIZE);	/* never written */
static u8 peal_null_forgotten[PAGE_SIZE] __aligned(PAGE_SIZE);	/* never read */

bool peal_odp_is_supported(void)
{
	return IS_ENABLED(CONFIG_INFINIBAND_ON_DEMAND_PAGING);
}

/* Return: the address of any byte. Limits *bytes to the contiguous bytes. */
void *peal_null_at(enum peal_null which, u64 *bytes)
{
	*bytes = min_t(u64, *bytes, PAGE_SIZE);
	return which == PEAL_NULL_SINK ? peal_null_forgotten : peal_null_zeros;
}

#ifdef CONFIG_INFINIBAND_ON_DEMAND_PAGING

/*
 * Turns of regions at bringing in pages.
 *
 * A page may take for ever, because another program may have to deliver it (FUSE). So the number of
 * works is limited for each program and for each user, and nothing that is limited by one delays
 * others. A program is a struct mm_struct. Its user is the user that registered its first region.
 * A region that is gone keeps its work's place until the page has come.
 */

struct peal_odp_program;

enum peal_odp_turn_state {
	PEAL_ODP_IDLE,
	PEAL_ODP_QUEUED,
	PEAL_ODP_RUNS,
	PEAL_ODP_RUNS_AGAIN,	/* and it was asked for another turn since */
};

struct peal_odp_turn {
	struct work_struct work;
	struct peal_odp_program *program;

	/* Guarded by peal_odp_queue_lock: */
	enum peal_odp_turn_state state;
	struct list_head node;		/* in program.waiting */
};

/* Most works at a time: of all users, of a user, and of a program. */
#define PEAL_ODP_ALL_WORKS	512
#define PEAL_ODP_USER_WORKS	16
#define PEAL_ODP_PROGRAM_WORKS	4

/* A user is ready if it may run one more work and one of its programs is ready. */
struct peal_odp_user {
	kuid_t uid;

	/* Guarded by peal_odp_queue_lock: */
	struct list_head node;		/* in odp_queue.users */
	struct list_head ready_node;	/* in odp_queue.ready, if it is */
	struct list_head ready;		/* its programs that are ready */
	u32 programs;
	u32 running;
};

/* A program is ready if it may run one more work and a region waits for that. */
struct peal_odp_program {
	struct mm_struct *mm;		/* only a name */
	struct peal_odp_user *user;

	/* Guarded by peal_odp_queue_lock: */
	struct hlist_node node;		/* in odp_queue.programs */
	struct list_head ready_node;	/* in user.ready, if it is */
	struct list_head waiting;	/* turns */
	u32 turns;			/* number of its regions */
	u32 running;
};

static DEFINE_SPINLOCK(peal_odp_queue_lock);

static struct peal_odp_queue {
	struct workqueue_struct *wq;

	/* Guarded by peal_odp_queue_lock: */
	struct list_head users;
	struct list_head ready;		/* users */
	DECLARE_HASHTABLE(programs, 8);	/* by mm */
	u32 running;
} peal_odp_queue;

/* Is @program ready, and is its user? Those that become ready come after the others. */
static void peal_odp_queue_sort(struct peal_odp_program *program)
{
	struct peal_odp_user *user = program->user;

	lockdep_assert_held(&peal_odp_queue_lock);
	if (list_empty(&program->waiting) || program->running >= PEAL_ODP_PROGRAM_WORKS)
		list_del_init(&program->ready_node);
	else if (list_empty(&program->ready_node))
		list_add_tail(&program->ready_node, &user->ready);
	if (list_empty(&user->ready) || user->running >= PEAL_ODP_USER_WORKS)
		list_del_init(&user->ready_node);
	else if (list_empty(&user->ready_node))
		list_add_tail(&user->ready_node, &peal_odp_queue.ready);
}

/* Start as many works as may run. Users take turns, and so do the programs of a user. */
static void peal_odp_queue_start(void)
{
	struct peal_odp_program *program;
	struct peal_odp_turn *turn;
	struct peal_odp_user *user;

	lockdep_assert_held(&peal_odp_queue_lock);
	while (peal_odp_queue.running < PEAL_ODP_ALL_WORKS && !list_empty(&peal_odp_queue.ready)) {
		user = list_first_entry(&peal_odp_queue.ready, struct peal_odp_user, ready_node);
		program = list_first_entry(&user->ready, struct peal_odp_program, ready_node);
		turn = list_first_entry(&program->waiting, struct peal_odp_turn, node);
		list_del_init(&turn->node);
		list_del_init(&program->ready_node);
		list_del_init(&user->ready_node);
		turn->state = PEAL_ODP_RUNS;
		program->running++;
		user->running++;
		peal_odp_queue.running++;
		peal_odp_queue_sort(program);
		queue_work(peal_odp_queue.wq, &turn->work);
	}
}

/*
 * @turn takes part, as a region of the calling program. The caller keeps @mm until the turn leaves.
 * Return: 0 or -ENOMEM.
 */
static int peal_odp_queue_join(struct peal_odp_turn *turn, struct mm_struct *mm, work_func_t func)
{
	struct peal_odp_program *fresh = kzalloc(sizeof(*fresh), GFP_KERNEL_ACCOUNT);
	struct peal_odp_user *fresh_user = kzalloc(sizeof(*fresh_user), GFP_KERNEL_ACCOUNT);
	struct peal_odp_program *program = NULL, *p;
	struct peal_odp_user *user = NULL, *u;
	int ret = -ENOMEM;

	if (!fresh || !fresh_user)
		goto free;
	INIT_WORK(&turn->work, func);
	INIT_LIST_HEAD(&turn->node);
	turn->state = PEAL_ODP_IDLE;
	spin_lock_bh(&peal_odp_queue_lock);
	hash_for_each_possible(peal_odp_queue.programs, p, node, (unsigned long)mm)
		if (p->mm == mm)
			program = p;
	if (!program) {
		list_for_each_entry(u, &peal_odp_queue.users, node)
			if (uid_eq(u->uid, peal_quota_current()))
				user = u;
		if (!user) {
			swap(user, fresh_user);
			user->uid = peal_quota_current();
			INIT_LIST_HEAD(&user->ready_node);
			INIT_LIST_HEAD(&user->ready);
			list_add(&user->node, &peal_odp_queue.users);
		}
		user->programs++;
		swap(program, fresh);
		program->mm = mm;
		program->user = user;
		INIT_LIST_HEAD(&program->ready_node);
		INIT_LIST_HEAD(&program->waiting);
		hash_add(peal_odp_queue.programs, &program->node, (unsigned long)mm);
	}
	program->turns++;
	spin_unlock_bh(&peal_odp_queue_lock);
	turn->program = program;
	ret = 0;
free:
	kfree(fresh);
	kfree(fresh_user);
	return ret;
}

/* Its work neither waits nor runs. */
static void peal_odp_queue_leave(struct peal_odp_turn *turn)
{
	struct peal_odp_program *program = turn->program;
	struct peal_odp_user *user = program->user;
	bool last, last_of_user = false;

	spin_lock_bh(&peal_odp_queue_lock);
	WARN_ON(turn->state != PEAL_ODP_IDLE);
	last = !--program->turns;
	if (last) {
		hash_del(&program->node);
		last_of_user = !--user->programs;
	}
	if (last_of_user)
		list_del(&user->node);
	spin_unlock_bh(&peal_odp_queue_lock);
	if (last)
		kfree(program);
	if (last_of_user)
		kfree(user);
}

static void peal_odp_queue_wait(struct peal_odp_turn *turn)
{
	struct peal_odp_program *program = turn->program;

	lockdep_assert_held(&peal_odp_queue_lock);
	turn->state = PEAL_ODP_QUEUED;
	list_add_tail(&turn->node, &program->waiting);
	peal_odp_queue_sort(program);
}

/*
 * Ask for a turn, inside the epoch. Return: true if @turn was idle. It is idle again when
 * peal_odp_queue_finish() returns false or peal_odp_queue_cancel() true.
 */
static bool peal_odp_queue_add(struct peal_odp_turn *turn)
{
	bool idle;

	peal_epoch_assert_held();
	spin_lock(&peal_odp_queue_lock);
	idle = turn->state == PEAL_ODP_IDLE;
	if (idle) {
		peal_odp_queue_wait(turn);
		peal_odp_queue_start();
	} else if (turn->state == PEAL_ODP_RUNS) {
		turn->state = PEAL_ODP_RUNS_AGAIN;
	}
	spin_unlock(&peal_odp_queue_lock);
	return idle;
}

/* Return: true if @turn waited, and does not wait any more. */
static bool peal_odp_queue_cancel(struct peal_odp_turn *turn)
{
	bool waited;

	spin_lock_bh(&peal_odp_queue_lock);
	waited = turn->state == PEAL_ODP_QUEUED;
	if (waited) {
		turn->state = PEAL_ODP_IDLE;
		list_del_init(&turn->node);
		peal_odp_queue_sort(turn->program);
	}
	spin_unlock_bh(&peal_odp_queue_lock);
	return waited;
}

/* The work ends. @more: it needs another turn. Return: whether it gets one. */
static bool peal_odp_queue_finish(struct peal_odp_turn *turn, bool more)
{
	struct peal_odp_program *program = turn->program;
	bool again;

	spin_lock_bh(&peal_odp_queue_lock);
	again = more || turn->state == PEAL_ODP_RUNS_AGAIN;
	program->running--;
	program->user->running--;
	peal_odp_queue.running--;
	turn->state = PEAL_ODP_IDLE;
	if (again)
		peal_odp_queue_wait(turn);
	else
		peal_odp_queue_sort(program);
	peal_odp_queue_start();
	spin_unlock_bh(&peal_odp_queue_lock);
	return again;
}

/* Most pages that are brought in at a time, and most faults that wait for the work. */
#define PEAL_ODP_BATCH	32
#define PEAL_ODP_FAULTS	16

/* Most pages that are forgotten at a time, with odp.lock held. */
#define PEAL_ODP_FORGET	1024

/* An entry of the table is the page frame number and these bits. */
#define PEAL_ODP_WRITE	0x1	/* the page may be written */
#define PEAL_ODP_STALE	0x2	/* an invalidation waits for the users of the page */
#define PEAL_ODP_SHIFT	2

enum peal_odp_fault_state {
	PEAL_ODP_FREE,
	PEAL_ODP_WAITS,		/* for the work, which may be at it */
	PEAL_ODP_AGAIN,		/* out of memory, or invalidated: the next request repeats it */
	PEAL_ODP_FAILED,	/* until a caller asks for the pages again */
};

struct peal_odp_fault {
	enum peal_odp_fault_state state;
	unsigned long first, last;	/* page numbers */
	bool write;
	bool invalidated;		/* its pages, since it waits */
	unsigned long since;		/* jiffies, when it was requested */
	unsigned long ended;		/* jiffies, when AGAIN or FAILED began */
};

/* A caller that was told to try again learns the end within this time, or asks anew. */
#define PEAL_ODP_ENDED_JIFFIES	(2 * HZ)

struct peal_odp {
	struct mmu_interval_notifier notifier;
	struct mm_struct *mm;		/* kept, but not the program's memory in it */
	unsigned long first;		/* number of the first page */
	unsigned long end;		/* number of the page after the last one */
	bool writable;
	struct kref ref;		/* the region's; the turn's, if not idle; a prefetch's */
	struct xarray pages;		/* by page number - first; present pages */
	struct mutex storing;		/* one batch at a time reserves entries of `pages` */
	struct mutex lock;		/* guards the fields marked with it, and `pages` */
	unsigned long drops;		/* how often entries became stale; barrier O */
	struct peal_odp_turn turn;	/* its work brings the requested pages in */
	spinlock_t fault_lock;		/* guards the fields marked with it */

	/* Guarded by odp.lock: */
	bool dead;			/* the region is gone */

	/* Guarded by odp.fault_lock: */
	struct peal_odp_fault fault[PEAL_ODP_FAULTS];
};

/* At most PEAL_ODP_BATCH pages that are brought in. */
struct peal_odp_batch {
	struct peal_odp *odp;
	unsigned long first, last;	/* page numbers */
	bool write;
	bool fault;			/* false: only those that are in memory already */
	bool holds_module;
	struct hmm_range range;
	unsigned long pfns[PEAL_ODP_BATCH];
};

int peal_odp_init(void)
{
	INIT_LIST_HEAD(&peal_odp_queue.users);
	INIT_LIST_HEAD(&peal_odp_queue.ready);
	hash_init(peal_odp_queue.programs);
	peal_odp_queue.wq = alloc_workqueue("peal_odp", WQ_UNBOUND, PEAL_ODP_ALL_WORKS);
	return peal_odp_queue.wq ? 0 : -ENOMEM;
}

/* Waits for works, but for none that may take for ever. See peal_odp_hold_module(). */
void peal_odp_exit(void)
{
	destroy_workqueue(peal_odp_queue.wq);
}

/* ---- invalidation ---- */

/*
 * Mark pages as stale, wait for the epoch, and forget where they are. @first and @last are indexes
 * of the table. No page comes into the range meanwhile. The lock is dropped now and then, because a
 * program chooses how many pages there are, and memory reclaim may wait for the lock.
 *
 * Barrier O: the entries are stale before `drops` says so. Pairs with peal_odp_find(), which may
 * use a remembered entry for as long as `drops` has not changed.
 */
static void peal_odp_drop(struct peal_odp *odp, unsigned long first, unsigned long last)
{
	unsigned long value, end = first;
	unsigned int count;
	void *entry;

	do {
		XA_STATE(xas, &odp->pages, first);

		count = 0;
		mutex_lock(&odp->lock);
		xas_lock(&xas);
		xas_for_each(&xas, entry, last) {
			if (!xa_is_value(entry))
				continue;	/* reserved */
			/* Replacing an entry needs no memory. */
			xas_store(&xas, xa_mk_value(xa_to_value(entry) | PEAL_ODP_STALE));
			end = xas.xa_index;
			if (++count == PEAL_ODP_FORGET)
				break;
		}
		xas_unlock(&xas);
		if (!count) {
			mutex_unlock(&odp->lock);
			return;
		}
		smp_store_release(&odp->drops, odp->drops + 1);	/* O */
		peal_epoch_wait();
		xas_set(&xas, first);
		xas_lock(&xas);
		xas_for_each(&xas, entry, end) {
			if (!xa_is_value(entry))
				continue;
			value = xa_to_value(entry);
			/* A copy does not set the page table's dirty bit, so mark the page here. */
			if (value & PEAL_ODP_WRITE)
				folio_mark_dirty(page_folio(pfn_to_page(value >> PEAL_ODP_SHIFT)));
			xas_store(&xas, NULL);
		}
		xas_unlock(&xas);
		mutex_unlock(&odp->lock);
		first = end + 1;
		cond_resched();
	} while (count == PEAL_ODP_FORGET && end != last);
}

/*
 * The kernel takes pages from the program, moves them, or takes the right to write them. With the
 * sequence number set no page is stored until the invalidation has ended.
 */
static bool peal_odp_invalidate(struct mmu_interval_notifier *notifier,
				const struct mmu_notifier_range *range, unsigned long seq)
{
	struct peal_odp *odp = container_of(notifier, struct peal_odp, notifier);
	unsigned long first = range->start >> PAGE_SHIFT;
	unsigned long last = (range->end - 1) >> PAGE_SHIFT;
	int i;

	if (!mmu_notifier_range_blockable(range))
		return false;
	mutex_lock(&odp->lock);
	mmu_interval_set_seq(notifier, seq);
	mutex_unlock(&odp->lock);
	spin_lock_bh(&odp->fault_lock);
	for (i = 0; i < PEAL_ODP_FAULTS; i++)
		if (odp->fault[i].first <= last && odp->fault[i].last >= first)
			odp->fault[i].invalidated = true;
	spin_unlock_bh(&odp->fault_lock);
	peal_odp_drop(odp, max(first, odp->first) - odp->first, last - odp->first);
	return true;
}

static const struct mmu_interval_notifier_ops peal_odp_ops = {
	.invalidate = peal_odp_invalidate,
};

/* ---- faults ---- */

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

/*
 * Store the pages of the snapshot. Entries are reserved without the lock, because that may sleep
 * for memory. Return: 0, -ENOMEM, -EFAULT, or -EBUSY when an invalidation came between.
 */
static int peal_odp_fill(struct peal_odp_batch *batch)
{
	struct peal_odp *odp = batch->odp;
	unsigned long i, hmm_pfn, value;
	int ret = 0;

	mutex_lock(&odp->storing);
	for (i = batch->first; !ret && i <= batch->last; i++)
		ret = xa_reserve(&odp->pages, i - odp->first, GFP_KERNEL_ACCOUNT);
	mutex_lock(&odp->lock);
	if (!ret && odp->dead)
		ret = -EFAULT;
	else if (!ret && mmu_interval_read_retry(&odp->notifier, batch->range.notifier_seq))
		ret = -EBUSY;
	for (i = batch->first; !ret && i <= batch->last; i++) {
		hmm_pfn = batch->pfns[i - batch->first];
		if (!(hmm_pfn & HMM_PFN_VALID))
			continue;
		if (!peal_odp_is_reachable(hmm_pfn_to_page(hmm_pfn))) {
			ret = -EFAULT;
			break;
		}
		value = page_to_pfn(hmm_pfn_to_page(hmm_pfn)) << PEAL_ODP_SHIFT;
		if (odp->writable && hmm_pfn & HMM_PFN_WRITE)
			value |= PEAL_ODP_WRITE;
		ret = xa_err(xa_store(&odp->pages, i - odp->first, xa_mk_value(value),
				      GFP_NOWAIT));
	}
	mutex_unlock(&odp->lock);
	/* Some entries were reserved but got no page. */
	for (i = batch->first; i <= batch->last; i++)
		xa_release(&odp->pages, i - odp->first);
	mutex_unlock(&odp->storing);
	return ret;
}

/*
 * From here on the batch may wait for ever. The module cannot be removed until it ends. A removal
 * that has begun waits for the works, so it lets none of them wait. The reference is dropped inside
 * the work, which is safe, because the removal then waits for the few instructions that are left.
 */
static bool peal_odp_hold_module(struct peal_odp_batch *batch)
{
	if (!batch->holds_module)
		batch->holds_module = try_module_get(THIS_MODULE);
	return batch->holds_module;
}

/* Keep the program's memory, and take its mmap_lock. Return: 0 or -EFAULT or -EINTR. */
static int peal_odp_enter_mm(struct peal_odp_batch *batch)
{
	struct mm_struct *mm = batch->odp->mm;
	int ret = -EFAULT;

	if (!mmget_not_zero(mm))
		return ret;
	if (mmap_read_trylock(mm))
		return 0;
	/* A thread of the program may hold it for as long as it waits for a page. */
	if (peal_odp_hold_module(batch))
		ret = mmap_read_lock_killable(mm);
	if (ret)
		mmput_async(mm);
	return ret;
}

/* The last user of the memory frees it, which this work leaves to another one. */
static void peal_odp_leave_mm(const struct peal_odp_batch *batch, bool locked)
{
	if (locked)
		mmap_read_unlock(batch->odp->mm);
	mmput_async(batch->odp->mm);
}

/* Return: the first page from @i on that the snapshot lacks, or the one after the last. */
static unsigned long peal_odp_next_lacking(const struct peal_odp_batch *batch, unsigned long i)
{
	unsigned long needs = HMM_PFN_VALID | (batch->write ? HMM_PFN_WRITE : 0);

	while (i <= batch->last && (batch->pfns[i - batch->first] & needs) == needs)
		i++;
	return i;
}

/* Does this memory show pages of the page cache, which can be read without it? */
static bool peal_odp_is_readable(struct vm_area_struct *vma)
{
	const struct address_space *mapping;

	if (!vma->vm_file || is_vm_hugetlb_page(vma))
		return false;
	mapping = vma->vm_file->f_mapping;
	return mapping->a_ops->read_folio && !IS_DAX(mapping->host);
}

/*
 * Read pages of a file into the page cache. May take for ever. Return: 0, -ENOMEM, -EINTR or
 * -EFAULT.
 */
static int peal_odp_read(struct file *file, pgoff_t index, unsigned long count)
{
	struct address_space *mapping = file->f_mapping;
	pgoff_t end = DIV_ROUND_UP(i_size_read(mapping->host), PAGE_SIZE);
	struct folio *folio;
	bool uptodate;
	int ret = 0;

	/* Pages behind the end of the file fail when they are mapped. */
	end = min(end, index + count);
	if (index >= end)
		return 0;
	vfs_fadvise(file, (loff_t)index << PAGE_SHIFT, (loff_t)(end - index) << PAGE_SHIFT,
		    POSIX_FADV_WILLNEED);
	for (; !ret && index < end; index++) {
		cond_resched();
		/*
		 * read_mapping_folio() would wait for a locked folio where nothing can kill it, and
		 * where the kernel reports a hung task. Kernels before 6.4 return NULL for a page
		 * that is not there, and newer ones an error.
		 */
		folio = filemap_get_folio(mapping, index);
		if (!IS_ERR_OR_NULL(folio)) {
			while (!ret && !folio_test_uptodate(folio) && folio_test_locked(folio))
				ret = folio_wait_locked_killable(folio);
			uptodate = folio_test_uptodate(folio);
			folio_put(folio);
			if (ret || uptodate)
				continue;
		}
		folio = read_mapping_folio(mapping, index, file);
		ret = PTR_ERR_OR_ZERO(folio);
		if (!ret)
			folio_put(folio);
	}
	return !ret || ret == -ENOMEM || ret == -EINTR ? ret : -EFAULT;
}

/*
 * Map a page as if the program had touched it. The caller has called peal_odp_enter_mm(). The fault
 * drops the mmap_lock before it waits for the page; then the page must be mapped again. It never
 * says that it was tried before, because then it would wait without dropping the lock. Return: 0,
 * or after peal_odp_leave_mm() -EBUSY when the page should be looked for again, -ENOMEM or -EFAULT.
 */
static int peal_odp_map(struct peal_odp_batch *batch, struct vm_area_struct *vma, unsigned long i)
{
	unsigned int flags = FAULT_FLAG_REMOTE | (batch->write ? FAULT_FLAG_WRITE : 0);
	vm_fault_t fault;

	lockdep_assert_held(&batch->odp->mm->mmap_lock);
	/* Nobody promises that a page of userfaultfd comes, so it fails at once. */
	if (!userfaultfd_armed(vma))
		flags |= FAULT_FLAG_ALLOW_RETRY | FAULT_FLAG_KILLABLE;
	fault = handle_mm_fault(vma, i << PAGE_SHIFT, flags, NULL);
	if (fault & (VM_FAULT_COMPLETED | VM_FAULT_RETRY)) {
		peal_odp_leave_mm(batch, false);
		return -EBUSY;
	}
	if (!(fault & VM_FAULT_ERROR))
		return 0;
	peal_odp_leave_mm(batch, true);
	return fault & VM_FAULT_OOM ? -ENOMEM : -EFAULT;
}

/*
 * Bring in the pages that the snapshot lacks. A file's pages are read first, while this holds
 * nothing of the program but the file, so that the program may end meanwhile. Return: 0 or -EBUSY
 * when there should be another snapshot, or -EFAULT, -ENOMEM or -EINTR.
 */
static int peal_odp_bring_in(struct peal_odp_batch *batch)
{
	unsigned long i = peal_odp_next_lacking(batch, batch->first), read = i, last;
	unsigned long needs = VM_READ | (batch->write ? VM_WRITE : 0);
	struct vm_area_struct *vma;
	struct file *file;
	pgoff_t index;
	int ret;

	ret = peal_odp_enter_mm(batch);
	while (!ret && i <= batch->last) {
		vma = vma_lookup(batch->odp->mm, i << PAGE_SHIFT);
		if (!vma || vma->vm_flags & (VM_IO | VM_PFNMAP) ||
		    (vma->vm_flags & needs) != needs ||
		    (vma->vm_file && !peal_odp_hold_module(batch))) {
			peal_odp_leave_mm(batch, true);
			return -EFAULT;
		}
		if (i < read || !peal_odp_is_readable(vma)) {
			ret = peal_odp_map(batch, vma, i);
			i = peal_odp_next_lacking(batch, i + 1);
			continue;
		}
		file = get_file(vma->vm_file);
		index = linear_page_index(vma, i << PAGE_SHIFT);
		last = min(batch->last, (vma->vm_end >> PAGE_SHIFT) - 1);
		peal_odp_leave_mm(batch, true);
		ret = peal_odp_read(file, index, last - i + 1);
		fput(file);
		if (ret)
			return ret;
		read = last + 1;
		ret = peal_odp_enter_mm(batch);
	}
	if (!ret)
		peal_odp_leave_mm(batch, true);
	return ret;
}

/*
 * Find the pages that are in memory, bring in those that are not, and store them all. Retry after
 * an invalidation, up to a time limit. Return: 0, -EBUSY, -EFAULT, -ENOMEM or -EINTR.
 */
static int peal_odp_fault_batch(struct peal_odp_batch *batch)
{
	unsigned long limit = jiffies + msecs_to_jiffies(HMM_RANGE_DEFAULT_TIMEOUT);
	struct peal_odp *odp = batch->odp;
	int ret;

	do {
		batch->range = (struct hmm_range){
			.notifier = &odp->notifier,
			.start = batch->first << PAGE_SHIFT,
			.end = (batch->last + 1) << PAGE_SHIFT,
			.hmm_pfns = batch->pfns,
		};
		batch->range.notifier_seq = mmu_interval_read_begin(&odp->notifier);
		ret = peal_odp_enter_mm(batch);
		if (ret)
			continue;
		ret = hmm_range_fault(&batch->range);
		peal_odp_leave_mm(batch, true);
		if (ret)
			continue;
		if (batch->fault && peal_odp_next_lacking(batch, batch->first) <= batch->last)
			ret = peal_odp_bring_in(batch) ?: -EBUSY;
		else
			ret = peal_odp_fill(batch);
	} while (ret == -EBUSY && time_before(jiffies, limit) &&
		 !fatal_signal_pending(current));
	if (batch->holds_module)
		module_put(THIS_MODULE);
	return ret;
}

/* @fault: bring in pages that are not in memory. */
static int peal_odp_fault_in(struct peal_odp *odp, unsigned long first, unsigned long last,
			     bool write, bool fault)
{
	struct peal_odp_batch batch;
	int ret = 0;

	if ((write && !odp->writable) || last >= odp->end)
		return -EFAULT;
	for (; !ret && first <= last; first += PEAL_ODP_BATCH) {
		if (READ_ONCE(odp->dead))
			return -EFAULT;
		batch = (struct peal_odp_batch){
			.odp = odp, .first = first, .last = min(last, first + PEAL_ODP_BATCH - 1),
			.write = write, .fault = fault,
		};
		ret = peal_odp_fault_batch(&batch);
		cond_resched();
		if (fatal_signal_pending(current))
			ret = -EINTR;
	}
	return ret;
}

/*
 * Bring in more than was asked for, because the next chunk is likely to need it. Not beyond the
 * mapping, because pages of another file have nothing to do with these.
 */
static void peal_odp_fault_ahead(struct peal_odp *odp, const struct peal_odp_fault *fault)
{
	struct peal_odp_batch batch = { .odp = odp };
	unsigned long ahead = fault->last;
	struct vm_area_struct *vma;

	if (!peal_odp_enter_mm(&batch)) {
		vma = vma_lookup(odp->mm, fault->last << PAGE_SHIFT);
		if (vma)
			ahead = min3(fault->first + PEAL_ODP_BATCH - 1, odp->end - 1,
				     (vma->vm_end >> PAGE_SHIFT) - 1);
		peal_odp_leave_mm(&batch, true);
	}
	if (batch.holds_module)
		module_put(THIS_MODULE);
	if (ahead > fault->last)
		peal_odp_fault_in(odp, fault->last + 1, ahead, fault->write, true);
}

/* Return: the index of the fault that waits longest, or -1. *@fault is a copy of it. */
static int peal_odp_next(struct peal_odp *odp, struct peal_odp_fault *fault)
{
	int i, oldest = -1;

	spin_lock_bh(&odp->fault_lock);
	for (i = 0; i < PEAL_ODP_FAULTS; i++)
		if (odp->fault[i].state == PEAL_ODP_WAITS &&
		    (oldest < 0 || time_before(odp->fault[i].since, odp->fault[oldest].since)))
			oldest = i;
	if (oldest >= 0)
		*fault = odp->fault[oldest];
	spin_unlock_bh(&odp->fault_lock);
	return oldest;
}

/*
 * One fault, so that the program's regions take turns. The program's memory cgroup is charged for
 * the table, as for the pages.
 */
static void peal_odp_work(struct work_struct *work)
{
	struct peal_odp *odp = container_of(work, struct peal_odp, turn.work);
	struct mem_cgroup *memcg = get_mem_cgroup_from_mm(odp->mm);
	struct mem_cgroup *old = set_active_memcg(memcg);
	struct peal_odp_fault fault;
	int i = peal_odp_next(odp, &fault);
	int ret;

	if (i >= 0) {
		ret = peal_odp_fault_in(odp, fault.first, fault.last, fault.write, true);
		spin_lock_bh(&odp->fault_lock);
		if (!ret)
			odp->fault[i].state = PEAL_ODP_FREE;
		else if (ret == -ENOMEM || ret == -EBUSY || odp->fault[i].invalidated)
			odp->fault[i].state = PEAL_ODP_AGAIN;	/* no error of the program */
		else
			odp->fault[i].state = PEAL_ODP_FAILED;
		odp->fault[i].ended = jiffies;
		spin_unlock_bh(&odp->fault_lock);
		if (!ret)
			peal_odp_fault_ahead(odp, &fault);
	}
	set_active_memcg(old);
	mem_cgroup_put(memcg);
	if (!peal_odp_queue_finish(&odp->turn, peal_odp_next(odp, &fault) >= 0))
		peal_odp_put(odp);
}

/* A program asks for pages to be brought in. Sleeps until then. Return: 0 or an errno. */
int peal_odp_prefetch(struct peal_odp *odp, u64 address, u64 bytes, bool write, bool fault)
{
	if (!bytes)
		return 0;
	return peal_odp_fault_in(odp, address >> PAGE_SHIFT, (address + bytes - 1) >> PAGE_SHIFT,
				 write, fault);
}

/* ---- the data path ---- */

/*
 * Does this fault answer a request for these pages? A fault that waits does if it will bring in the
 * first page. A fault that has ended does only if it was for the same pages, because it does not
 * tell which page could not be brought in. It is forgotten soon, because the program may map memory
 * there.
 *
 * A message may find its pages before its fault is dealt with, because the fault before it has
 * brought in more than was asked for. Its fault then still waits when the message has ended and
 * the program has unmapped the memory. A failure is then no answer to a later message. So a fault
 * whose pages were invalidated while it waited becomes AGAIN instead, and the next request repeats
 * it.
 */
static bool peal_odp_covers(const struct peal_odp_fault *fault, unsigned long first,
			    unsigned long last, bool write)
{
	if (fault->state == PEAL_ODP_FREE || fault->write != write)
		return false;
	if (fault->state == PEAL_ODP_WAITS)
		return first >= fault->first && first <= fault->last;
	return first == fault->first && last == fault->last &&
	       time_before(jiffies, fault->ended + PEAL_ODP_ENDED_JIFFIES);
}

/* Request pages, if they are not requested yet, and tell what became of the request. */
static enum peal_odp_state peal_odp_request(struct peal_odp *odp, unsigned long first,
					    unsigned long last, bool write)
{
	struct peal_odp_fault *fault = NULL, *spare = NULL;
	enum peal_odp_state state = PEAL_ODP_ABSENT;
	unsigned long since;
	int i;

	spin_lock(&odp->fault_lock);
	for (i = 0; !fault && i < PEAL_ODP_FAULTS; i++) {
		if (peal_odp_covers(&odp->fault[i], first, last, write))
			fault = &odp->fault[i];
		else if (odp->fault[i].state != PEAL_ODP_WAITS &&
			 (!spare || spare->state != PEAL_ODP_FREE))
			spare = &odp->fault[i];
	}
	if (!fault && spare) {
		fault = spare;
		*fault = (struct peal_odp_fault){
			.first = first, .last = last, .write = write, .since = jiffies,
		};
	}
	/* If there is no room, the page is as late as those that wait before it. */
	since = fault ? fault->since : odp->fault[0].since;
	if (fault && fault->state == PEAL_ODP_FAILED) {
		fault->state = PEAL_ODP_FREE;
		state = PEAL_ODP_FAULT;
	} else if (time_after(jiffies, since + PEAL_ODP_LATE_SECONDS * HZ)) {
		state = PEAL_ODP_LATE;
	} else if (fault && fault->state != PEAL_ODP_WAITS) {
		fault->state = PEAL_ODP_WAITS;
		fault->invalidated = false;
		/* The work needs fault_lock, so it cannot put this reference before. */
		if (peal_odp_queue_add(&odp->turn))
			kref_get(&odp->ref);
	}
	spin_unlock(&odp->fault_lock);
	return state;
}

/* May a page with this entry of the table be used? */
static bool peal_odp_entry_serves(unsigned long value, bool write)
{
	return value && !(value & PEAL_ODP_STALE) && (!write || value & PEAL_ODP_WRITE);
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
		value = xa_to_value(xa_load(&odp->pages, i - odp->first));
		if (!peal_odp_entry_serves(value, write))
			return peal_odp_request(odp, i, last, write);
	}
	return PEAL_ODP_PRESENT;
}

/* The address of a byte in a page with this entry. Limits *bytes to those in the page. */
static void *peal_odp_entry_at(unsigned long value, u64 address, u64 *bytes)
{
	u64 inside = offset_in_page(address);

	*bytes = min_t(u64, *bytes, PAGE_SIZE - inside);
	return page_address(pfn_to_page(value >> PEAL_ODP_SHIFT)) + inside;
}

/* peal_odp_find() for a page that is not remembered. @drops: loaded before this looks for it. */
static noinline void *peal_odp_find_anew(struct peal_odp *odp, struct peal_odp_page *last,
					 u64 address, u64 *bytes, bool write, unsigned long drops)
{
	unsigned long page = (address >> PAGE_SHIFT) - odp->first;
	unsigned long value = xa_to_value(xa_load(&odp->pages, page));

	*last = (struct peal_odp_page){ .index = page, .value = value, .drops = drops };
	return peal_odp_entry_serves(value, write) ? peal_odp_entry_at(value, address, bytes) :
						     NULL;
}

/*
 * Is this byte in memory? Call inside the epoch. An absent page is not requested. Return: the
 * address of the byte, or NULL. Limits *bytes to those in the page. They stay there until the epoch
 * is left. @last is for @odp only, or all zeros, and the caller has the lock that guards it.
 */
void *peal_odp_find(struct peal_odp *odp, struct peal_odp_page *last, u64 address, u64 *bytes,
		    bool write)
{
	unsigned long drops = smp_load_acquire(&odp->drops);	/* O */
	unsigned long page = (address >> PAGE_SHIFT) - odp->first;

	peal_epoch_assert_held();
	if (likely(last->index == page && last->drops == drops &&
		   peal_odp_entry_serves(last->value, write)))
		return peal_odp_entry_at(last->value, address, bytes);
	return peal_odp_find_anew(odp, last, address, bytes, write, drops);
}

/*
 * Call after peal_odp_look(), in the same section. An entry that became stale is still there. The
 * warning means that a caller has not looked, or has looked only for reading.
 */
void *peal_odp_at(struct peal_odp *odp, u64 address, u64 *bytes)
{
	unsigned long page = (address >> PAGE_SHIFT) - odp->first;
	unsigned long value = xa_to_value(xa_load(&odp->pages, page));

	peal_epoch_assert_held();
	if (WARN_ON_ONCE(!value))
		return peal_null_at(PEAL_NULL_SINK, bytes);
	return peal_odp_entry_at(value, address, bytes);
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
	odp->first = first >> PAGE_SHIFT;
	odp->end = end >> PAGE_SHIFT;
	odp->writable = writable;
	kref_init(&odp->ref);
	xa_init_flags(&odp->pages, XA_FLAGS_ACCOUNT);
	mutex_init(&odp->storing);
	mutex_init(&odp->lock);
	spin_lock_init(&odp->fault_lock);
	ret = peal_odp_queue_join(&odp->turn, odp->mm, peal_odp_work);
	if (ret)
		goto err_free;
	ret = mmu_interval_notifier_insert(&odp->notifier, odp->mm, first, end - first,
					   &peal_odp_ops);
	if (ret)
		goto err_leave;
	/* The notifier has a reference, too, but works may outlive the notifier. */
	mmgrab(odp->mm);
	return odp;

err_leave:
	peal_odp_queue_leave(&odp->turn);
err_free:
	kfree(odp);
	return ERR_PTR(ret);
}

/*
 * The caller has waited for the epoch, so no request comes any more. A work or a prefetch may still
 * wait for a page, perhaps for ever. This does not wait for it. It stores nothing any more, and
 * puts its reference when the page comes.
 */
void peal_odp_destroy(struct peal_odp *odp)
{
	if (peal_odp_queue_cancel(&odp->turn))
		peal_odp_put(odp);
	mutex_lock(&odp->lock);
	WRITE_ONCE(odp->dead, true);
	mutex_unlock(&odp->lock);
	/*
	 * Forget the pages before the notifier is removed, because only the notifier tells when a
	 * page leaves.
	 */
	peal_odp_drop(odp, 0, ULONG_MAX);
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

	peal_odp_queue_leave(&odp->turn);
	xa_destroy(&odp->pages);
	mmdrop(odp->mm);
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

void *peal_odp_find(struct peal_odp *odp, struct peal_odp_page *last, u64 address, u64 *bytes,
		    bool write)
{
	peal_epoch_assert_held();
	return NULL;
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
