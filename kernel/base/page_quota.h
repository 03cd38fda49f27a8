/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * How much memory the rings of programs may take.
 *
 * Owns: how many pages each context, each user and all programs of the host share with the kernel.
 * Does not know: the contents of the pages, or their allocation.
 *
 * The memory cannot be swapped out. It is the host's, so the programs of all devices count
 * together. The rule for each page is that of quota.h. The total is half of the host's memory.
 *
 * A program can keep a mapping of a ring that is destroyed, also when its context is closed and
 * its device is gone. The pages then still exist, so they still count for its user and for all
 * programs, but no longer for the context. This file is a part of peal_kick_file.ko, because a
 * mapping pins that module, and peal.ko can be removed.
 *
 * Pages of the kernel's users are not counted.
 *
 * Lock: page_quota.lock guards all counts. No lock is taken inside it.
 */
#ifndef PEAL_PAGE_QUOTA_H
#define PEAL_PAGE_QUOTA_H

#include <linux/types.h>
#include <linux/user_namespace.h>

struct peal_page_user;

/* What the objects of one context hold. */
struct peal_page_account {
	struct peal_page_user *user;	/* NULL: the kernel's users */

	/* Guarded by page_quota.lock: */
	u64 held;			/* pages */
};

/* How many pages were held when some were refused. */
struct peal_page_use {
	u64 context, user, programs;
};

/* May sleep. Return: 0 or -ENOMEM. */
int peal_page_quota_open(struct peal_page_account *account, kuid_t uid);
/* Call when no object of the context holds pages any more. Mappings may. */
void peal_page_quota_close(struct peal_page_account *account);

/*
 * Take @n pages, all or none. They count for the user until peal_page_quota_give().
 *
 * Return: the user; NULL for the kernel's users; ERR_PTR(-ENOSPC) when the rule forbids it. Only
 * that sets @use.
 */
struct peal_page_user *peal_page_quota_take(struct peal_page_account *account, u64 n,
					    struct peal_page_use *use);
/* The context's object does not hold the pages any more. */
void peal_page_quota_drop(struct peal_page_account *account, u64 n);
/* Nothing holds the pages any more. @user may be NULL. */
void peal_page_quota_give(struct peal_page_user *user, u64 n);

/* The most pages that one context can have, if there is no other. */
u64 peal_page_quota_limit(void);

#endif
