// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include <linux/err.h>
#include <linux/export.h>
#include <linux/list.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

#include "base/quota.h"

struct peal_page_user {
	kuid_t uid;

	/* Guarded by page_quota.lock: */
	struct list_head node;
	u64 accounts;		/* open ones */
	u64 held;		/* pages of its objects and mappings */
};

#define PEAL_PAGE_QUOTA_WEIGHT	8	/* weight of what the context itself holds, in the rule */

struct peal_page_quota {
	spinlock_t lock;		/* guards the fields marked with it */

	/* Guarded by page_quota.lock: */
	struct list_head users;		/* with open accounts or pages */
	u64 held;			/* pages of all programs */
};

static struct peal_page_quota peal_page_quota = {
	.lock = __SPIN_LOCK_UNLOCKED(peal_page_quota.lock),
	.users = LIST_HEAD_INIT(peal_page_quota.users),
};

static unsigned long peal_page_quota_total(void)
{
	return totalram_pages() / 2;
}

/* Return: the user if the caller has to free it, because nothing needs it any more. */
static struct peal_page_user *peal_page_quota_forget(struct peal_page_user *user)
{
	lockdep_assert_held(&peal_page_quota.lock);
	if (user->accounts || user->held)
		return NULL;
	list_del(&user->node);
	return user;
}

int peal_page_quota_open(struct peal_page_account *account, kuid_t uid)
{
	struct peal_page_user *fresh = kzalloc(sizeof(*fresh), GFP_KERNEL_ACCOUNT);
	struct peal_page_user *user = NULL, *at;

	if (!fresh)
		return -ENOMEM;
	fresh->uid = uid;
	spin_lock(&peal_page_quota.lock);
	list_for_each_entry(at, &peal_page_quota.users, node)
		if (uid_eq(at->uid, uid))
			user = at;
	if (!user) {
		list_add(&fresh->node, &peal_page_quota.users);
		swap(user, fresh);
	}
	user->accounts++;
	spin_unlock(&peal_page_quota.lock);
	kfree(fresh);
	*account = (struct peal_page_account){ .user = user };
	return 0;
}
EXPORT_SYMBOL_GPL(peal_page_quota_open);

void peal_page_quota_close(struct peal_page_account *account)
{
	struct peal_page_user *user = account->user;

	spin_lock(&peal_page_quota.lock);
	WARN_ON(account->held);
	user->accounts--;
	user = peal_page_quota_forget(user);
	spin_unlock(&peal_page_quota.lock);
	kfree(user);
}
EXPORT_SYMBOL_GPL(peal_page_quota_close);

struct peal_page_user *peal_page_quota_take(struct peal_page_account *account, u64 n,
					    struct peal_page_use *use)
{
	struct peal_page_user *user = account->user;

	if (!user)
		return NULL;
	spin_lock(&peal_page_quota.lock);
	/* The last page counts those before it as held. */
	if (peal_page_quota.held + user->held + account->held * PEAL_PAGE_QUOTA_WEIGHT +
	    (n - 1) * (2 + PEAL_PAGE_QUOTA_WEIGHT) < peal_page_quota_total()) {
		account->held += n;
		user->held += n;
		peal_page_quota.held += n;
	} else {
		*use = (struct peal_page_use){
			.context = account->held, .user = user->held,
			.programs = peal_page_quota.held,
		};
		user = ERR_PTR(-ENOSPC);
	}
	spin_unlock(&peal_page_quota.lock);
	return user;
}
EXPORT_SYMBOL_GPL(peal_page_quota_take);

void peal_page_quota_drop(struct peal_page_account *account, u64 n)
{
	if (!account->user)
		return;
	spin_lock(&peal_page_quota.lock);
	WARN_ON(account->held < n);
	account->held -= n;
	spin_unlock(&peal_page_quota.lock);
}
EXPORT_SYMBOL_GPL(peal_page_quota_drop);

void peal_page_quota_give(struct peal_page_user *user, u64 n)
{
	if (!user)
		return;
	spin_lock(&peal_page_quota.lock);
	WARN_ON(user->held < n || peal_page_quota.held < n);
	user->held -= n;
	peal_page_quota.held -= n;
	user = peal_page_quota_forget(user);
	spin_unlock(&peal_page_quota.lock);
	kfree(user);
}
EXPORT_SYMBOL_GPL(peal_page_quota_give);

u64 peal_page_quota_limit(void)
{
	/* All that a context alone holds is its user's and all programs', too. */
	return DIV_ROUND_UP(peal_page_quota_total(), 2 + PEAL_PAGE_QUOTA_WEIGHT);
}
EXPORT_SYMBOL_GPL(peal_page_quota_limit);
