// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See group.h.
 */
#include <linux/jhash.h>
#include <linux/rculist.h>
#include <linux/slab.h>

#include "../budget.h"
#include "../dev.h"
#include "../guard.h"
#include "../trace.h"
#include "group.h"
#include "mcast.h"
#include "netns.h"
#include "receive.h"
#include "ud.h"

struct peal_group {
	struct hlist_node node;
	union ib_gid gid;
	u32 count;
	struct list_head members;	/* struct peal_member, read inside the guard */
};

struct peal_member {
	struct list_head node;
	struct peal_qp *qp;
};

void peal_groups_init(struct peal_groups *groups)
{
	u32 i;

	mutex_init(&groups->lock);
	for (i = 0; i < PEAL_GROUP_BUCKETS; i++)
		INIT_HLIST_HEAD(&groups->bucket[i]);
	groups->count = 0;
}

/* The core has detached everybody: it counts the attachments of a queue pair. */
void peal_groups_destroy(struct peal_groups *groups)
{
	WARN_ON(groups->count);
	mutex_destroy(&groups->lock);
}

static struct hlist_head *peal_group_bucket(struct peal_groups *groups, const union ib_gid *gid)
{
	return &groups->bucket[jhash(gid, sizeof(*gid), 0) % PEAL_GROUP_BUCKETS];
}

/* Inside the guard, or under the lock. */
static struct peal_group *peal_group_find(struct peal_groups *groups, const union ib_gid *gid)
{
	struct peal_group *group;

	hlist_for_each_entry_rcu(group, peal_group_bucket(groups, gid), node,
				 peal_guard_held() || lockdep_is_held(&groups->lock))
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

/* The first attachment: the stack joins. */
static struct peal_group *peal_group_new(struct peal_dev *dev, const union ib_gid *gid)
{
	struct peal_groups *groups = &dev->groups;
	struct peal_group *group;
	int ret;

	if (groups->count >= PEAL_MAX_GROUPS)
		return ERR_PTR(-ENOSPC);
	group = kzalloc(sizeof(*group), GFP_KERNEL_ACCOUNT);
	if (!group)
		return ERR_PTR(-ENOMEM);
	ret = peal_mcast_join(dev->netns->net, dev->ndev, gid);
	if (ret) {
		kfree(group);
		return ERR_PTR(ret);
	}
	group->gid = *gid;
	INIT_LIST_HEAD(&group->members);
	hlist_add_head_rcu(&group->node, peal_group_bucket(groups, gid));
	groups->count++;
	return group;
}

/* The last one is gone. The caller waits for the guard, then frees. */
static void peal_group_end(struct peal_dev *dev, struct peal_group *group)
{
	hlist_del_rcu(&group->node);
	dev->groups.count--;
	peal_mcast_leave(dev->netns->net, dev->ndev, &group->gid);
}

static int peal_group_add(struct peal_group *group, struct peal_qp *qp)
{
	struct peal_member *member;

	if (peal_group_member(group, qp))
		return -EEXIST;
	if (group->count >= PEAL_MAX_GROUP_QPS)
		return -ENOSPC;
	member = kzalloc(sizeof(*member), GFP_KERNEL_ACCOUNT);
	if (!member)
		return -ENOMEM;
	member->qp = qp;
	list_add_tail_rcu(&member->node, &group->members);
	group->count++;
	return 0;
}

static int peal_group_attach_locked(struct peal_dev *dev, struct peal_qp *qp,
				    const union ib_gid *gid)
{
	struct peal_group *group = peal_group_find(&dev->groups, gid);
	int ret;

	if (!group)
		group = peal_group_new(dev, gid);
	if (IS_ERR(group))
		return PTR_ERR(group);
	ret = peal_group_add(group, qp);
	if (!group->count) {
		peal_group_end(dev, group);
		peal_guard_wait();
		kfree(group);
	}
	return ret;
}

int peal_group_attach(struct peal_dev *dev, struct peal_qp *qp, const union ib_gid *gid)
{
	int ret;

	mutex_lock(&dev->groups.lock);
	ret = peal_group_attach_locked(dev, qp, gid);
	mutex_unlock(&dev->groups.lock);
	return ret;
}

static int peal_group_detach_locked(struct peal_dev *dev, struct peal_qp *qp,
				    const union ib_gid *gid)
{
	struct peal_group *group = peal_group_find(&dev->groups, gid);
	struct peal_member *member = group ? peal_group_member(group, qp) : NULL;

	if (!member)
		return -ENOENT;
	list_del_rcu(&member->node);
	if (!--group->count)
		peal_group_end(dev, group);
	peal_guard_wait();
	if (!group->count)
		kfree(group);
	kfree(member);
	return 0;
}

int peal_group_detach(struct peal_dev *dev, struct peal_qp *qp, const union ib_gid *gid)
{
	int ret;

	mutex_lock(&dev->groups.lock);
	ret = peal_group_detach_locked(dev, qp, gid);
	mutex_unlock(&dev->groups.lock);
	return ret;
}

void peal_group_deliver(struct peal_dev *dev, const struct peal_datagram *dg,
			struct peal_budget *budget)
{
	struct peal_group *group = peal_group_find(&dev->groups, &dg->dgid);
	struct peal_member *member;

	if (!group) {
		peal_count_drop(&dev->table, PEAL_DROP_group);
		trace_peal_drop(&dg->packet, PEAL_DROP_group);
		return;
	}
	list_for_each_entry_rcu(member, &group->members, node, peal_guard_held()) {
		peal_ud_deliver(member->qp, dg);
		peal_budget_spend(budget, PEAL_COST_PIECE + dg->packet.payload_bytes);
	}
}
