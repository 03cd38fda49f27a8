// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include <linux/bottom_half.h>
#include <linux/cred.h>
#include <linux/slab.h>
#include <linux/user_namespace.h>

#include <rdma/peal-abi.h>

#include "base/quota.h"
#include "base/trace.h"

struct peal_quota_user {
	kuid_t uid;

	/* Guarded by quota.lock: */
	struct list_head node;
	u32 accounts;		/* number of open contexts */
	u32 held[PEAL_QUOTA_KINDS];
};

kuid_t peal_quota_uid(const struct peal_account *account)
{
	return account->user ? account->user->uid : GLOBAL_ROOT_UID;
}

#define PEAL_QUOTA_WEIGHT	8	/* weight of what the context itself holds, in the rule */

/*
 * Programs get seven eighths of each total, and the kernel's users get the rest. For queue
 * pairs, keys and address handles the total is how many numbers there are (table.c). A
 * device has at most 4096 multicast groups. For protection domains, completion queues and shared
 * receive queues the limits bound the memory that the RDMA core takes for them. A program maps
 * each queue, and can have 65530 mappings by default (vm.max_map_count).
 * The limit of XRC domains bounds the transmit quotas, because each domain has one. A domain is
 * charged to an account of its own, and kernel users have none.
 * All device memory of programs is 56 MiB, and 1 MiB of it may be one context's.
 * The limit of flow rules bounds how long a frame is compared with them.
 */
struct peal_quota_limits {
	u32 programs;		/* total of all contexts */
	u32 kernel;		/* total of the kernel's users */
	u32 context;		/* of one context; less than a tenth of `programs` */
	enum peal_limit limit;	/* of all contexts, which an administrator may set */
};

static const struct peal_quota_limits peal_quota_limits[PEAL_QUOTA_KINDS] = {
	[PEAL_QUOTA_PD] = { 7 << 17, 1 << 17, 1 << 16 },
	[PEAL_QUOTA_CQ] = { 7 << 17, 1 << 17, 1 << 15, PEAL_LIMIT_CQ },
	[PEAL_QUOTA_SRQ] = { 7 << 17, 1 << 17, 1 << 15 },
	[PEAL_QUOTA_XRCD] = { .programs = 7 << 9, .context = 1 },
	[PEAL_QUOTA_QP] = { 7 << 20, (1 << 20) - 17, PEAL_MAX_QP, PEAL_LIMIT_QP },
	[PEAL_QUOTA_KEY] = { 7 << 21, (1 << 21) - 1, 1 << 20, PEAL_LIMIT_MR },
	[PEAL_QUOTA_AH] = { 7 << 17, 1 << 17, 1 << 15 },
	[PEAL_QUOTA_GROUP] = { 7 << 9, 1 << 9, 1 << 8 },
	[PEAL_QUOTA_DM] = { 7 << 11, 1 << 11, 1 << 8 },
	[PEAL_QUOTA_FLOW] = { 7 << 8, 1 << 8, 1 << 7 },
};

void peal_quota_init(struct peal_quota *quota, const struct peal_limits *limits,
		     struct peal_faults *faults)
{
	quota->limits = limits;
	quota->faults = faults;
	spin_lock_init(&quota->lock);
	INIT_LIST_HEAD(&quota->users);
	quota->kernel.quota = quota;
}

void peal_quota_end(const struct peal_quota *quota)
{
	int kind;

	WARN_ON(!list_empty(&quota->users));
	for (kind = 0; kind < PEAL_QUOTA_KINDS; kind++)
		WARN_ON(quota->programs[kind] || quota->kernel.held[kind]);
}

u32 peal_quota_programs(struct peal_quota *quota, enum peal_quota_kind kind)
{
	unsigned long flags;
	u32 held;

	spin_lock_irqsave(&quota->lock, flags);
	held = quota->programs[kind];
	spin_unlock_irqrestore(&quota->lock, flags);
	return held;
}

kuid_t peal_quota_current(void)
{
	const struct user_namespace *ns = current_user_ns();
	kuid_t uid = current_uid();

	for (; ns->parent; ns = ns->parent)
		uid = ns->owner;
	return uid;
}

int peal_quota_open(struct peal_quota *quota, struct peal_account *account)
{
	struct peal_quota_user *fresh = kzalloc(sizeof(*fresh), GFP_KERNEL_ACCOUNT);
	struct peal_quota_user *user = NULL, *at;
	int ret;

	if (!fresh)
		return -ENOMEM;
	*account = (struct peal_account){ .quota = quota };
	fresh->uid = peal_quota_current();
	ret = peal_page_quota_open(&account->pages, fresh->uid);
	if (ret) {
		kfree(fresh);
		return ret;
	}
	spin_lock_irq(&quota->lock);
	list_for_each_entry(at, &quota->users, node)
		if (uid_eq(at->uid, fresh->uid))
			user = at;
	if (!user) {
		list_add(&fresh->node, &quota->users);
		swap(user, fresh);
	}
	user->accounts++;
	spin_unlock_irq(&quota->lock);
	kfree(fresh);
	account->user = user;
	return 0;
}

void peal_quota_close(struct peal_account *account)
{
	struct peal_quota *quota = account->quota;
	struct peal_quota_user *user = account->user;
	bool last;
	int kind;

	peal_page_quota_close(&account->pages);
	for (kind = 0; kind < PEAL_QUOTA_KINDS; kind++)
		WARN_ON(account->held[kind]);
	spin_lock_irq(&quota->lock);
	last = !--user->accounts;
	if (last)
		list_del(&user->node);
	spin_unlock_irq(&quota->lock);
	if (last)
		kfree(user);
}

static void peal_quota_add(struct peal_account *account, enum peal_quota_kind kind, int n)
{
	lockdep_assert_held(&account->quota->lock);
	account->held[kind] += n;
	if (!account->user)
		return;
	account->user->held[kind] += n;
	account->quota->programs[kind] += n;
}

/* A program makes an object, and the device has rules. */
static bool peal_quota_fault(struct peal_quota *quota)
{
	const struct peal_fault_message message = { .kinds = 1 << PEAL_NL_FAULT_KIND_NO_MEMORY };
	struct peal_fault fault;
	bool hit;

	local_bh_disable();
	hit = peal_faults_hit(quota->faults, &message, &fault);
	local_bh_enable();
	return hit;
}

int peal_quota_take_some(struct peal_account *account, enum peal_quota_kind kind, u32 n)
{
	const struct peal_quota_limits *limits = &peal_quota_limits[kind];
	struct peal_quota_user *user = account->user;
	struct peal_quota *quota = account->quota;
	u64 before = n - 1;	/* these count as held when the last one is taken */
	u32 most = peal_limits_most(account->quota->limits, limits->limit);
	unsigned long flags;
	u64 held;
	bool may;

	if (user && peal_faults_exist(quota->faults) && peal_quota_fault(quota))
		return -ENOMEM;
	spin_lock_irqsave(&quota->lock, flags);
	held = account->held[kind] + before;
	if (user)
		may = held < limits->context && quota->programs[kind] + before < most &&
		      quota->programs[kind] + before + user->held[kind] + before +
		      held * PEAL_QUOTA_WEIGHT < limits->programs;
	else
		may = held < limits->kernel;
	if (may)
		peal_quota_add(account, kind, n);
	else
		trace_peal_quota(kind, account->held[kind], user ? user->held[kind] : 0,
				 quota->programs[kind]);
	spin_unlock_irqrestore(&quota->lock, flags);
	return may ? 0 : -ENOSPC;
}

void peal_quota_give_some(struct peal_account *account, enum peal_quota_kind kind, u32 n)
{
	struct peal_quota *quota = account->quota;
	unsigned long flags;

	spin_lock_irqsave(&quota->lock, flags);
	WARN_ON(account->held[kind] < n);
	peal_quota_add(account, kind, -(int)n);
	spin_unlock_irqrestore(&quota->lock, flags);
}

void peal_quota_move(struct peal_account *from, struct peal_account *to,
		     enum peal_quota_kind kind)
{
	struct peal_quota *quota = from->quota;
	unsigned long flags;

	spin_lock_irqsave(&quota->lock, flags);
	peal_quota_add(from, kind, -1);
	peal_quota_add(to, kind, 1);
	spin_unlock_irqrestore(&quota->lock, flags);
}

u32 peal_quota_limit(enum peal_quota_kind kind)
{
	return peal_quota_limits[kind].context;
}
