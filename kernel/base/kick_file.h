/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Files that a program may keep when its device is gone: the one at which it kicks the device, and
 * those behind the pages that it maps. They are peal_kick_file.ko, because an open file or a
 * mapping pins the module whose functions it calls, and peal.ko must be removable meanwhile.
 */
#ifndef PEAL_KICK_FILE_H
#define PEAL_KICK_FILE_H

#include <linux/types.h>

/*
 * Zeroed pages that the kernel and programs share, their address in the kernel, and the charge for
 * them (quota.h).
 *
 * Pages that a program may map belong to a file. Each mapping has a reference to it, and so has the
 * object that uses the pages. So the pages are freed and given back when the last mapping is gone,
 * also if the object, its context and its device end before.
 */
struct peal_page_account;
struct peal_page_use;
struct peal_page_user;
struct file;
struct page;
struct vm_area_struct;

struct peal_shared_pages {
	struct peal_page_account *account;	/* the context's; valid while the object exists */
	struct peal_page_user *user;		/* pays until the pages are freed; NULL: kernel */
	struct file *file;			/* NULL: no program maps them */
	struct page **pages;
	void *address;
	size_t count;
};

struct peal_shared_pages *peal_shared_pages_alloc(struct peal_page_account *account, size_t count,
						  bool mappable, struct peal_page_use *use);
void peal_shared_pages_free(struct peal_shared_pages *shared);
int peal_shared_pages_mmap(struct peal_shared_pages *shared, struct vm_area_struct *vma);

/*
 * The kick file. It tells whether the owner still exists: a revoked one answers EIO. Calls that
 * began before are RCU readers until they end.
 */
struct peal_kick_file;

struct peal_kick_file_ops {
	/* A kick of the program (enum peal_kick), in its context, under rcu_read_lock. */
	int (*kick)(void *owner, unsigned int kick, unsigned long index);
};

struct peal_kick_file *peal_kick_file_create(const struct peal_kick_file_ops *ops, void *owner);
int peal_kick_file_fd(const struct peal_kick_file *kick_file);
void peal_kick_file_open(struct peal_kick_file *kick_file);
struct file *peal_kick_file_again(struct peal_kick_file *kick_file);
void peal_kick_file_discard(struct peal_kick_file *kick_file);
void peal_kick_file_revoke(struct peal_kick_file *kick_file);

#endif
