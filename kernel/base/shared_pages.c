// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See shared_pages.h.
 */
#include <linux/anon_inodes.h>
#include <linux/err.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "base/page_quota.h"
#include "base/shared_pages.h"

struct peal_shared_pages {
	struct peal_page_account *account;	/* the context's; valid while the object exists */
	struct peal_page_user *user;		/* pays until the pages are freed; NULL: kernel */
	struct file *file;			/* NULL: no program maps them */
	struct page **pages;
	void *address;
	size_t count;
};

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

/* Do not use vmalloc_user(), because the program's memory control group must pay for the pages. */
static int peal_shared_pages_fill(struct peal_shared_pages *shared)
{
	size_t i;

	shared->pages = kvcalloc(shared->count, sizeof(*shared->pages), GFP_KERNEL_ACCOUNT);
	if (!shared->pages)
		return -ENOMEM;
	for (i = 0; i < shared->count; i++) {
		shared->pages[i] = alloc_page(GFP_KERNEL_ACCOUNT | __GFP_ZERO);
		if (!shared->pages[i])
			return -ENOMEM;
	}
	shared->address = vmap(shared->pages, shared->count, VM_MAP | VM_USERMAP, PAGE_KERNEL);
	return shared->address ? 0 : -ENOMEM;
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
	int ret;

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
	ret = peal_shared_pages_fill(shared);
	if (!ret && mappable) {
		file = anon_inode_getfile("[peal-ring]", &peal_shared_pages_fops, shared, O_RDWR);
		ret = PTR_ERR_OR_ZERO(file);
		shared->file = ret ? NULL : file;
	}
	if (!ret)
		return shared;
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

void *peal_shared_pages_address(const struct peal_shared_pages *shared)
{
	return shared->address;
}
EXPORT_SYMBOL_GPL(peal_shared_pages_address);

size_t peal_shared_pages_bytes(const struct peal_shared_pages *shared)
{
	return shared->count << PAGE_SHIFT;
}
EXPORT_SYMBOL_GPL(peal_shared_pages_bytes);

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
	if (vma->vm_end - vma->vm_start != peal_shared_pages_bytes(shared))
		return -EINVAL;
	vma_set_file(vma, shared->file);
	vma->vm_ops = &peal_shared_pages_vm_ops;
	return remap_vmalloc_range(vma, shared->address, 0);
}
EXPORT_SYMBOL_GPL(peal_shared_pages_mmap);
