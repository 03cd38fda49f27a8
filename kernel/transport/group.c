// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See group.h.
 */
#include <linux/jhash.h>
#include <linux/rculist.h>
#include <linux/slab.h>

#include "base/budget.h"
#include "base/epoch.h"
#include "base/trace.h"
#include "net/datagram.h"
#include "net/mcast.h"
#include "net/port.h"
#include "transport/group.h"
#include "transport/ud.h"

struct peal_group {
	union ib_gid gid;

	/* Guarded by groups.lock: */
	struct hlist_node node;
	u32 count;
	struct list_head members;	/* peal_member, oldest first; read inside the epoch */
};

struct peal_member {
	struct peal_qp *qp;

	/* Guarded by groups.lock: */
	struct list_head node;
};

void peal_groups_init(struct peal_groups *groups, struct peal_port *port)
{
	u32 i;

	groups->port = port;
	mutex_init(&groups->lock);
	for (i = 0; i < PEAL_GROUP_BUCKETS; i++)
		INIT_HLIST_HEAD(&groups->bucket[i]);
}

/* The core has detached all queue pairs, because it counts the attachments of each. */
void peal_groups_destroy(struct peal_groups *groups)
{
	u32 i;

	for (i = 0; i < PEAL_GROUP_BUCKETS; i++)
		WARN_ON(!hlist_empty(&groups->bucket[i]));
	mutex_destroy(&groups->lock);
}

static struct hlist_head *peal_group_bucket(struct peal_groups *groups, const union ib_gid *gid)
{
	return &groups->bucket[jhash(gid, sizeof(*gid), 0) % PEAL_GROUP_BUCKETS];
}

/* Inside the epoch or under groups->lock. */
static struct peal_group *peal_group_find(struct peal_groups *groups, const union ib_gid *gid)
{
	struct peal_group *group;

	hlist_for_each_entry_rcu(group, peal_group_bucket(groups, gid), node,
				 peal_epoch_held() || lockdep_is_held(&groups->lock))
		if (!memcmp(&group->gid, gid, sizeof(*gid)))
			return group;
	return NULL;
}

static struct peal_member *peal_group_member(const struct peal_group *group,
					     const struct peal_qp *qp)
{
	struct peal_member *member;

	list_for_each_entry(member, &group->members, node)
		if (member->qp == qp)
			return member;
	return NULL;
}

/* A group gets its first member, so the network stack joins it. */
static int peal_group_begin(struct peal_groups *groups, struct peal_group *group)
{
	int ret = peal_mcast_join(groups->port->net, groups->port->ndev, &group->gid);

	lockdep_assert_held(&groups->lock);
	if (!ret)
		hlist_add_head_rcu(&group->node, peal_group_bucket(groups, &group->gid));
	return ret;
}

/* The group is charged to @account as long as a queue pair of @account is the oldest member. */
static struct peal_group *peal_group_new(struct peal_groups *groups, struct peal_account *account,
					 const union ib_gid *gid)
{
	struct peal_group *group;
	int ret = peal_quota_take(account, PEAL_QUOTA_GROUP);

	lockdep_assert_held(&groups->lock);
	if (ret)
		return ERR_PTR(ret);
	ret = -ENOMEM;
	group = kzalloc(sizeof(*group), GFP_KERNEL_ACCOUNT);
	if (!group)
		goto give;
	group->gid = *gid;
	INIT_LIST_HEAD(&group->members);
	ret = peal_group_begin(groups, group);
	if (!ret)
		return group;
	kfree(group);
give:
	peal_quota_give(account, PEAL_QUOTA_GROUP);
	return ERR_PTR(ret);
}

/*
 * The last member, one of @account, is gone. The caller waits for the epoch and
 * then frees the group.
 */
static void peal_group_end(struct peal_groups *groups, struct peal_account *account,
			   struct peal_group *group)
{
	lockdep_assert_held(&groups->lock);
	hlist_del_rcu(&group->node);
	peal_mcast_leave(groups->port->net, groups->port->ndev, &group->gid);
	peal_quota_give(account, PEAL_QUOTA_GROUP);
}

static struct peal_account *peal_group_holder(const struct peal_group *group)
{
	return list_first_entry(&group->members, struct peal_member, node)->qp->account;
}

/*
 * One user never has more than half of a group, so that other users can join it, too. The
 * kernel's own queue pairs count as one user.
 */
static bool peal_group_has_room(const struct peal_group *group, const struct peal_account *account)
{
	const struct peal_member *member;
	u32 user = 0, context = 0;

	list_for_each_entry(member, &group->members, node) {
		user += member->qp->account->user == account->user;
		context += member->qp->account == account;
	}
	return context < PEAL_CONTEXT_GROUP_QPS &&
	       group->count + user + context < PEAL_MAX_GROUP_QPS;
}

static int peal_group_add(struct peal_group *group, struct peal_qp *qp)
{
	struct peal_member *member;

	if (peal_group_member(group, qp))
		return -EEXIST;
	if (!peal_group_has_room(group, qp->account))
		return -ENOSPC;
	member = kzalloc(sizeof(*member), GFP_KERNEL_ACCOUNT);
	if (!member)
		return -ENOMEM;
	member->qp = qp;
	list_add_tail_rcu(&member->node, &group->members);
	group->count++;
	return 0;
}

static int peal_group_attach_locked(struct peal_groups *groups, struct peal_qp *qp,
				    const union ib_gid *gid)
{
	struct peal_group *group = peal_group_find(groups, gid);
	int ret;

	lockdep_assert_held(&groups->lock);
	if (!group)
		group = peal_group_new(groups, qp->account, gid);
	if (IS_ERR(group))
		return PTR_ERR(group);
	ret = peal_group_add(group, qp);
	/* A new group whose first member could not be added has no use. */
	if (!group->count) {
		peal_group_end(groups, qp->account, group);
		peal_epoch_wait();
		kfree(group);
	}
	return ret;
}

int peal_group_attach(struct peal_groups *groups, struct peal_qp *qp, const union ib_gid *gid)
{
	int ret;

	mutex_lock(&groups->lock);
	ret = peal_group_attach_locked(groups, qp, gid);
	mutex_unlock(&groups->lock);
	return ret;
}

/* The group is charged to its oldest member. When that one leaves, the next oldest takes over. */
static void peal_group_remove(struct peal_groups *groups, struct peal_group *group,
			      struct peal_member *member)
{
	struct peal_account *holder = peal_group_holder(group);

	lockdep_assert_held(&groups->lock);
	list_del_rcu(&member->node);
	if (--group->count)
		peal_quota_move(holder, peal_group_holder(group), PEAL_QUOTA_GROUP);
	else
		peal_group_end(groups, holder, group);
}

static int peal_group_detach_locked(struct peal_groups *groups, struct peal_qp *qp,
				    const union ib_gid *gid)
{
	struct peal_group *group = peal_group_find(groups, gid);
	struct peal_member *member = group ? peal_group_member(group, qp) : NULL;

	lockdep_assert_held(&groups->lock);
	if (!member)
		return -ENOENT;
	peal_group_remove(groups, group, member);
	/* The data path may still use the member and the group. */
	peal_epoch_wait();
	if (!group->count)
		kfree(group);
	kfree(member);
	return 0;
}

int peal_group_detach(struct peal_groups *groups, struct peal_qp *qp, const union ib_gid *gid)
{
	int ret;

	mutex_lock(&groups->lock);
	ret = peal_group_detach_locked(groups, qp, gid);
	mutex_unlock(&groups->lock);
	return ret;
}

void peal_group_deliver(struct peal_groups *groups, const struct peal_datagram *dg,
			struct peal_budget *budget)
{
	struct peal_group *group = peal_group_find(groups, &dg->dgid);
	struct peal_member *member;

	peal_epoch_assert_held();
	if (!group) {
		peal_count_drop(groups->port->table, PEAL_DROP_group);
		trace_peal_drop(&dg->packet, PEAL_DROP_group);
		return;
	}
	list_for_each_entry_rcu(member, &group->members, node, peal_epoch_held()) {
		peal_ud_deliver(member->qp, dg);
		peal_budget_spend(budget, PEAL_COST_PIECE + dg->packet.payload_bytes);
	}
}
