/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Multicast groups of one device, from a group's GID to the queue pairs that are
 * attached to it.
 *
 * Owns: the membership of queue pairs, and the network stack's membership, one for
 * each group that has a member.
 * Does not know: what a queue pair does with a datagram.
 *
 * Lock: groups->lock serialises attach and detach and may sleep. The data path looks
 * groups up inside the epoch.
 */
#ifndef PEAL_GROUP_H
#define PEAL_GROUP_H

#include <linux/list.h>
#include <linux/mutex.h>
#include <rdma/ib_verbs.h>

/* Limits of one group, for all queue pairs and for the queue pairs of one context. */
#define PEAL_MAX_GROUP_QPS	256
#define PEAL_CONTEXT_GROUP_QPS	64

#define PEAL_GROUP_BUCKETS	64

struct peal_budget;
struct peal_datagram;
struct peal_port;
struct peal_qp;

struct peal_groups {
	struct peal_port *port;		/* the device's port */
	struct mutex lock;

	/* Guarded by groups.lock: */
	struct hlist_head bucket[PEAL_GROUP_BUCKETS];	/* also read inside the epoch */
};

void peal_groups_init(struct peal_groups *groups, struct peal_port *port);
void peal_groups_destroy(struct peal_groups *groups);

/*
 * Sleeps. Return: 0, -EEXIST, -ENOSPC (beyond the limits), -ENOMEM, or an error
 * of the network stack.
 */
int peal_group_attach(struct peal_groups *groups, struct peal_qp *qp, const union ib_gid *gid);
/*
 * Sleeps. After this @qp gets no datagram of the group. Return: 0, or -ENOENT
 * when @qp is not attached.
 */
int peal_group_detach(struct peal_groups *groups, struct peal_qp *qp, const union ib_gid *gid);

/*
 * Deliver @dg to every queue pair that is attached to its destination, as peal_ud_deliver()
 * does. The members are served in one go, so that up to 256 of them may overdraw @budget.
 */
void peal_group_deliver(struct peal_groups *groups, const struct peal_datagram *dg,
			struct peal_budget *budget);

#endif
