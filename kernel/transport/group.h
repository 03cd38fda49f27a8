/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Multicast groups of one device: from a group's GID to the queue pairs that are
 * attached to it.
 *
 * Owns: the membership; the stack's with it, one for each group that anybody is
 * attached to.
 * Does not know: what a queue pair does with a datagram.
 *
 * Lock: groups->lock serialises attach and detach and may sleep. The data path
 * looks up inside the guard.
 */
#ifndef PEAL_GROUP_H
#define PEAL_GROUP_H

#include <linux/list.h>
#include <linux/mutex.h>
#include <rdma/ib_verbs.h>

/* In one group: queue pairs, and those of one context. */
#define PEAL_MAX_GROUP_QPS	256
#define PEAL_CONTEXT_GROUP_QPS	64

#define PEAL_GROUP_BUCKETS	64

struct peal_budget;
struct peal_datagram;
struct peal_port;
struct peal_qp;

struct peal_groups {
	struct peal_port *port;		/* the device's */
	struct mutex lock;		/* guards changes of the buckets */
	struct hlist_head bucket[PEAL_GROUP_BUCKETS];	/* written under lock */
};

void peal_groups_init(struct peal_groups *groups, struct peal_port *port);
void peal_groups_destroy(struct peal_groups *groups);

/* Sleep. Return: 0, -EEXIST, -ENOSPC (beyond the limits), or what the stack says. */
int peal_group_attach(struct peal_groups *groups, struct peal_qp *qp, const union ib_gid *gid);
/* Return: 0; -ENOENT: it is not attached. @qp gets no datagram of it any more. */
int peal_group_detach(struct peal_groups *groups, struct peal_qp *qp, const union ib_gid *gid);

/*
 * Every queue pair attached to @dg's destination gets it. As peal_ud_deliver(). It is
 * not divided: 256 members may overdraw @budget.
 */
void peal_group_deliver(struct peal_groups *groups, const struct peal_datagram *dg,
			struct peal_budget *budget);

#endif
