/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * How many objects of a device each program may have, and how much memory its rings may take. The
 * kernel's own users (the connection manager, for example) have limits of their own, so that no
 * program can take their objects.
 *
 * The rule: a context may take one more object while it holds less than its own limit and
 * while
 *
 *	(held by all programs) + (held by its user) + 8 * (held by the context) < total
 *
 * An administrator can set a lower limit for all programs of a device together (struct
 * peal_limits). Then one user may take all of it.
 *
 * From the rule follows:
 *
 *	- One user never holds more than half of the total, however many contexts it opens.
 *	  Another user can take half of the rest, so that u users leave at least total /
 *	  2^u.
 *	- One context takes at most a tenth of (total - all - user), which is what the rule
 *	  leaves its user. c contexts of one user leave at least 0.8^c of that. Programs of
 *	  one user can starve each other with some dozens of contexts, but not the programs
 *	  of other users.
 *
 * A user is a real user id of the initial user namespace. A program in another user
 * namespace counts as the user who made the outermost such namespace, because one user may
 * have thousands of ids inside of it.
 *
 * Lock: quota->lock guards all counts. It is taken with interrupts off, because the
 * connection manager makes and destroys address handles with interrupts off. No lock is
 * taken inside it.
 */
#ifndef PEAL_QUOTA_H
#define PEAL_QUOTA_H

#include <linux/list.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/user_namespace.h>

#include "base/fault.h"
#include "base/options.h"

/*
 * The pages that each context, each user and all programs of the host share with the kernel. They
 * cannot be swapped out. The memory is the host's, so the programs of all devices count together.
 * The rule for each page is the same. The total is half of the host's memory. Pages of the kernel's
 * users are not counted.
 *
 * A program can keep a mapping of a ring that is destroyed, also when its context is closed and
 * its device is gone. The pages then still exist, so they still count for its user and for all
 * programs, but no longer for the context. page_quota.c is therefore a part of peal_kick_file.ko,
 * because a mapping pins that module, and peal.ko can be removed.
 *
 * Lock: page_quota.lock guards all counts. No lock is taken inside it.
 */
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

enum peal_quota_kind {
	PEAL_QUOTA_PD,
	PEAL_QUOTA_CQ,
	PEAL_QUOTA_SRQ,
	PEAL_QUOTA_XRCD,
	PEAL_QUOTA_QP,
	PEAL_QUOTA_KEY,		/* a memory region or a memory window */
	PEAL_QUOTA_AH,
	PEAL_QUOTA_GROUP,	/* a multicast group; its oldest member holds it */
	PEAL_QUOTA_DM,		/* a page of device memory */
	PEAL_QUOTA_FLOW,	/* a flow rule */
	PEAL_QUOTA_KINDS,
	/* Counted as below. The tracepoint says it when pages are refused. */
	PEAL_QUOTA_PAGE = PEAL_QUOTA_KINDS
};

struct peal_quota_user;

/* What one context holds, or what all of the kernel's users hold together. */
struct peal_account {
	struct peal_quota *quota;
	struct peal_quota_user *user;	/* NULL: the kernel's users */
	struct peal_page_account pages;	/* for rings */

	/* Guarded by quota.lock: */
	u32 held[PEAL_QUOTA_KINDS];
};

/* The quota of one device. */
struct peal_quota {
	spinlock_t lock;		/* guards the fields marked with it */
	const struct peal_limits *limits;	/* what an administrator lets all programs have */
	struct peal_faults *faults;	/* that an administrator asks for */
	struct peal_account kernel;

	/* Guarded by quota.lock: */
	struct list_head users;		/* users with open contexts */
	u32 programs[PEAL_QUOTA_KINDS];	/* held by all contexts */
};

void peal_quota_init(struct peal_quota *quota, const struct peal_limits *limits,
		     struct peal_faults *faults);
/* Call when all objects and contexts are gone. */
void peal_quota_end(const struct peal_quota *quota);

/*
 * Return: the user that the caller counts as. An unprivileged user may map thousands of ids
 * into a user namespace, so the maker of the namespace counts.
 */
kuid_t peal_quota_current(void);

/*
 * Open the account of a new context. Its user is the calling program's. May sleep. Return:
 * 0 or -ENOMEM.
 */
int peal_quota_open(struct peal_quota *quota, struct peal_account *account);
/* Call when the context holds nothing any more. */
void peal_quota_close(struct peal_account *account);

/*
 * Take or give back @n objects, all or none. Neither sleeps. Return: 0; -ENOSPC when the rule or a
 * limit forbids the last of them; or -ENOMEM when an administrator asks for it. This does not hit
 * the kernel's users, because no program could connect without the connection manager's objects.
 */
int peal_quota_take_some(struct peal_account *account, enum peal_quota_kind kind, u32 n);
void peal_quota_give_some(struct peal_account *account, enum peal_quota_kind kind, u32 n);
static inline int peal_quota_take(struct peal_account *account, enum peal_quota_kind kind)
{
	return peal_quota_take_some(account, kind, 1);
}

static inline void peal_quota_give(struct peal_account *account, enum peal_quota_kind kind)
{
	peal_quota_give_some(account, kind, 1);
}

/* Return: how many objects of a kind all programs hold. */
u32 peal_quota_programs(struct peal_quota *quota, enum peal_quota_kind kind);

/* Return: who opened the account; root for the kernel's users. */
kuid_t peal_quota_uid(const struct peal_account *account);

/* Make @to the holder of an object of @from, even if @to is then beyond its limit. */
void peal_quota_move(struct peal_account *from, struct peal_account *to,
		     enum peal_quota_kind kind);

/* The most objects of a kind that one context can have. */
u32 peal_quota_limit(enum peal_quota_kind kind);

#endif
