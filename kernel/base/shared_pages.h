/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Zeroed pages that the kernel and programs share.
 *
 * Owns: the pages, their address in the kernel, and the charge for them (page_quota.h).
 * Does not know: the contents of the pages, or the mmap offset.
 *
 * Pages that a program may map belong to a file. Each mapping has a reference to it, and so has the
 * object that uses the pages. So the pages are freed and given back when the last mapping is gone,
 * also if the object, its context and its device end before. This is a part of peal_kick_file.ko,
 * because such a file pins the module, and peal.ko must be removable while programs have mappings.
 */
#ifndef PEAL_SHARED_PAGES_H
#define PEAL_SHARED_PAGES_H

#include <linux/types.h>

struct peal_page_account;
struct peal_page_use;
struct peal_shared_pages;
struct vm_area_struct;

struct peal_shared_pages *peal_shared_pages_alloc(struct peal_page_account *account, size_t count,
						  bool mappable, struct peal_page_use *use);
void peal_shared_pages_free(struct peal_shared_pages *shared);
void *peal_shared_pages_address(const struct peal_shared_pages *shared);
size_t peal_shared_pages_bytes(const struct peal_shared_pages *shared);
int peal_shared_pages_mmap(struct peal_shared_pages *shared, struct vm_area_struct *vma);

#endif
