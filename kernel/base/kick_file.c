// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include <linux/anon_inodes.h>
#include <linux/err.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/rcupdate.h>
#include <linux/refcount.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>
#include <rdma/peal-abi.h>

#include "base/kick_file.h"
#include "base/quota.h"

static void peal_shared_pages_destroy(struct peal_shared_pages *shared)
{
	size_t i;

	vunmap(shared->address);
	for (i = 0; shared->pages && i < shared->count; i++)
		if (shared->pages[i])
			__free_page(shared->pages[i]);
	kvfree(shared->pages);
	peal_page_quota_give(shared->user, shared->count);
	kfree(shared);
}

/* The object and all mappings are gone. */
static int peal_shared_pages_release(struct inode *inode, struct file *file)
{
	peal_shared_pages_destroy(file->private_data);
	return 0;
}

/* No program has a descriptor of the file, so it has no mmap. */
static const struct file_operations peal_shared_pages_fops = {
	.owner = THIS_MODULE,
	.release = peal_shared_pages_release,
};

/**
 * peal_shared_pages_alloc() - allocate zeroed pages
 * @account: of the context whose object needs them; must live until peal_shared_pages_free()
 * @count: how many; not 0
 * @mappable: will a program map them?
 * @use: set if the quota refuses them
 *
 * Return: the pages, or an ERR_PTR: -ENOMEM, -ENFILE, -ENOSPC (the quota).
 */
struct peal_shared_pages *peal_shared_pages_alloc(struct peal_page_account *account, size_t count,
						  bool mappable, struct peal_page_use *use)
{
	struct peal_shared_pages *shared = kzalloc(sizeof(*shared), GFP_KERNEL_ACCOUNT);
	struct file *file;
	int ret = -ENOMEM;
	size_t i;

	if (!shared)
		return ERR_PTR(-ENOMEM);
	shared->account = account;
	shared->count = count;
	shared->user = peal_page_quota_take(account, count, use);
	if (IS_ERR(shared->user)) {
		ret = PTR_ERR(shared->user);
		kfree(shared);
		return ERR_PTR(ret);
	}
	/* Not vmalloc_user(), because the program's memory control group must pay for the pages. */
	shared->pages = kvcalloc(count, sizeof(*shared->pages), GFP_KERNEL_ACCOUNT);
	if (!shared->pages)
		goto undo;
	for (i = 0; i < count; i++) {
		shared->pages[i] = alloc_page(GFP_KERNEL_ACCOUNT | __GFP_ZERO);
		if (!shared->pages[i])
			goto undo;
	}
	shared->address = vmap(shared->pages, count, VM_MAP | VM_USERMAP, PAGE_KERNEL);
	if (!shared->address)
		goto undo;
	if (!mappable)
		return shared;
	file = anon_inode_getfile("[peal-ring]", &peal_shared_pages_fops, shared, O_RDWR);
	if (!IS_ERR(file)) {
		shared->file = file;
		return shared;
	}
	ret = PTR_ERR(file);
undo:
	peal_page_quota_drop(account, count);
	peal_shared_pages_destroy(shared);
	return ERR_PTR(ret);
}
EXPORT_SYMBOL_GPL(peal_shared_pages_alloc);

/* The object is gone. Mappings keep the pages. */
void peal_shared_pages_free(struct peal_shared_pages *shared)
{
	peal_page_quota_drop(shared->account, shared->count);
	if (shared->file)
		fput(shared->file);
	else
		peal_shared_pages_destroy(shared);
}
EXPORT_SYMBOL_GPL(peal_shared_pages_free);

/* All pages are there from the beginning, so there is nothing to fault in. */
static const struct vm_operations_struct peal_shared_pages_vm_ops = { };

/**
 * peal_shared_pages_mmap() - map all of the pages, and pin them for as long as the mapping lives
 * @vma: during the mmap call of another file, whose place the pages' file takes. @vma must be as
 *	large as they are
 *
 * Return: 0, -EINVAL (the size) or -ENOMEM.
 */
int peal_shared_pages_mmap(struct peal_shared_pages *shared, struct vm_area_struct *vma)
{
	if (vma_pages(vma) != shared->count)
		return -EINVAL;
	vma_set_file(vma, shared->file);
	vma->vm_ops = &peal_shared_pages_vm_ops;
	return remap_vmalloc_range(vma, shared->address, 0);
}
EXPORT_SYMBOL_GPL(peal_shared_pages_mmap);

struct peal_kick_file {
	refcount_t refs;			/* the file's, and the owner's until revoked */
	const struct peal_kick_file_ops __rcu *ops;	/* NULL: revoked */
	void *owner;				/* valid under RCU, if ops was not NULL */
	struct file *file;			/* valid until opened */
	int fd;
};

static void peal_kick_file_put(struct peal_kick_file *kick_file)
{
	if (refcount_dec_and_test(&kick_file->refs))
		kfree(kick_file);
}

/*
 * Of the system calls that bring two numbers to a file, lseek does least before it gets here, and
 * it asks no security module. None has to decide about a kick, because it gives a program nothing
 * that its mappings of the rings do not give it.
 */
static loff_t peal_kick_file_llseek(struct file *file, loff_t index, int kick)
{
	struct peal_kick_file *kick_file = file->private_data;
	const struct peal_kick_file_ops *ops;
	int ret = -EIO;

	rcu_read_lock();
	ops = rcu_dereference(kick_file->ops);
	if (likely(ops))
		ret = ops->kick(kick_file->owner, kick, index);
	rcu_read_unlock();
	return ret;
}

static long peal_kick_file_ioctl(struct file *file, unsigned int cmd, unsigned long index)
{
	switch (cmd) {
	case PEAL_IOC_KICK(PEAL_KICK_SEND):
	case PEAL_IOC_KICK(PEAL_KICK_RECV):
	case PEAL_IOC_KICK(PEAL_KICK_SRQ):
		return peal_kick_file_llseek(file, index, _IOC_NR(cmd) - 1);
	default:
		return -ENOTTY;
	}
}

static int peal_kick_file_release(struct inode *inode, struct file *file)
{
	peal_kick_file_put(file->private_data);
	return 0;
}

static const struct file_operations peal_kick_file_fops = {
	.owner = THIS_MODULE,
	.llseek = peal_kick_file_llseek,
	.unlocked_ioctl = peal_kick_file_ioctl,
	.compat_ioctl = peal_kick_file_ioctl,
	.release = peal_kick_file_release,
};

static struct file *peal_kick_file_new_file(struct peal_kick_file *kick_file)
{
	return anon_inode_getfile("[peal]", &peal_kick_file_fops, kick_file, O_RDWR);
}

/**
 * peal_kick_file_create() - make a kick file and reserve its fd, but do not open it yet
 *
 * Call peal_kick_file_open() when nothing can fail any more, otherwise peal_kick_file_discard().
 *
 * Return: the kick file, or an ERR_PTR: -ENOMEM, -EMFILE, -ENFILE.
 */
struct peal_kick_file *peal_kick_file_create(const struct peal_kick_file_ops *ops, void *owner)
{
	struct peal_kick_file *kick_file = kzalloc(sizeof(*kick_file), GFP_KERNEL_ACCOUNT);
	int ret;

	if (!kick_file)
		return ERR_PTR(-ENOMEM);
	kick_file->owner = owner;
	RCU_INIT_POINTER(kick_file->ops, ops);
	refcount_set(&kick_file->refs, 2);
	ret = get_unused_fd_flags(O_CLOEXEC);
	if (ret < 0)
		goto free;
	kick_file->fd = ret;
	kick_file->file = peal_kick_file_new_file(kick_file);
	if (!IS_ERR(kick_file->file))
		return kick_file;
	ret = PTR_ERR(kick_file->file);
	put_unused_fd(kick_file->fd);
free:
	kfree(kick_file);
	return ERR_PTR(ret);
}
EXPORT_SYMBOL_GPL(peal_kick_file_create);

int peal_kick_file_fd(const struct peal_kick_file *kick_file)
{
	return kick_file->fd;
}
EXPORT_SYMBOL_GPL(peal_kick_file_fd);

/* From now on the program has the file and may close it at any time. */
void peal_kick_file_open(struct peal_kick_file *kick_file)
{
	fd_install(kick_file->fd, kick_file->file);
}
EXPORT_SYMBOL_GPL(peal_kick_file_open);

/**
 * peal_kick_file_again() - make one more file for the same owner
 *
 * The caller makes sure that the kick file is not revoked meanwhile.
 *
 * Return: a file, for fd_install() or fput(), or ERR_PTR(-ENOMEM).
 */
struct file *peal_kick_file_again(struct peal_kick_file *kick_file)
{
	struct file *file;

	refcount_inc(&kick_file->refs);
	file = peal_kick_file_new_file(kick_file);
	if (IS_ERR(file))
		peal_kick_file_put(kick_file);
	return file;
}
EXPORT_SYMBOL_GPL(peal_kick_file_again);

/* Frees a kick file that was not opened. Drops the references of the file and of the owner. */
void peal_kick_file_discard(struct peal_kick_file *kick_file)
{
	put_unused_fd(kick_file->fd);
	fput(kick_file->file);
	peal_kick_file_put(kick_file);
}
EXPORT_SYMBOL_GPL(peal_kick_file_discard);

/*
 * When this returns, no new call begins. Calls that began before end within a grace period.
 * @owner, all that it uses, and the functions in ops must live until then.
 */
void peal_kick_file_revoke(struct peal_kick_file *kick_file)
{
	RCU_INIT_POINTER(kick_file->ops, NULL);
	peal_kick_file_put(kick_file);
}
EXPORT_SYMBOL_GPL(peal_kick_file_revoke);

MODULE_DESCRIPTION("Files of a peal device that programs may keep: for kicks, and behind mapped rings");
MODULE_AUTHOR("The peal developers");
MODULE_LICENSE("Dual BSD/GPL");
