/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Datagrams (UD): address handles, multicast groups, sending and receiving.
 *
 * Does not know: connections.
 */
#ifndef PEAL_UD_H
#define PEAL_UD_H

#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/rcupdate.h>
#include <rdma/ib_verbs.h>

#include "base/table.h"
#include "net/path.h"
#include "proto/packet.h"
#include "object/qp.h"
#include "transport/local.h"

/*
 * Address handles, which name the destination of a datagram.
 *
 * Owns: creation and destruction of handles, and the path, the proof and the number of each. The
 * RDMA core frees its ib_ah as soon as destroy returns, also where nothing may sleep. The data path
 * therefore uses struct peal_address, which RCU frees. This is safe because a section of the epoch
 * is an RCU reader.
 */

/*
 * The object that a WQE's ah_index names. An address that is found inside the epoch stays valid
 * until the end of the section.
 */
struct peal_address {
	const struct ib_pd *pd;
	u32 index;
	struct peal_path path;
	struct peal_proof proof;
	struct rcu_head rcu;
};

struct peal_ah {
	struct ib_ah ib;
	struct peal_table *table;
	struct peal_account *account;
	struct peal_address *address;
	struct rdma_ah_attr attr;	/* sgid_attr is NULL: no reference to the GID is held */
};

static inline struct peal_ah *peal_ah(struct ib_ah *ib)
{
	return container_of(ib, struct peal_ah, ib);
}

/**
 * peal_ah_init() - set up the path and give it a number
 * @account: the context's, or the kernel's
 * @tx_quota: the transmit quota of the queue pairs of its protection domain
 * @gfp: GFP_ATOMIC where nothing may sleep, because the connection manager calls from
 *	there
 *
 * Return: 0, -EINVAL (not a RoCEv2 address), -ENOMEM, -ENOSPC.
 */
int peal_ah_init(struct peal_ah *ah, struct peal_account *account, struct peal_port *port,
		 struct peal_tx_quota *tx_quota, const struct rdma_ah_attr *attr, gfp_t gfp);
/* Never sleeps, because the connection manager calls with interrupts off. */
void peal_ah_destroy(struct peal_ah *ah);
void peal_ah_query(const struct peal_ah *ah, struct rdma_ah_attr *attr);

/*
 * Multicast groups of one device, from a group's GID to the queue pairs that are
 * attached to it.
 *
 * Owns: the membership of queue pairs, and the network stack's membership, one for
 * each group that has a member.
 *
 * Lock: groups->lock serialises attach and detach and may sleep. The data path looks
 * groups up inside the epoch.
 */

/* Limits of one group, for all queue pairs and for the queue pairs of one context. */
#define PEAL_MAX_GROUP_QPS	256
#define PEAL_CONTEXT_GROUP_QPS	64

#define PEAL_GROUP_BUCKETS	64

struct peal_budget;
struct peal_rx_packet;
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
 * Deliver @rx to every queue pair that is attached to its destination, as peal_ud_deliver()
 * does. The members are served in one go, so that up to 256 of them may overdraw @budget.
 */
void peal_group_deliver(struct peal_groups *groups, const struct peal_rx_packet *rx,
			struct peal_budget *budget);

/*
 * The transport of datagrams, for UD queue pairs and the GSI queue pair (IBTA 9.8.3).
 *
 * Owns: the way from a send WQE to one packet, the way from one packet to a receive, and the way
 * from the one to the other without a packet.
 */

struct peal_rx_packet;
struct peal_locality_device;
struct peal_port;
struct peal_tx_quota;

/* Called before @qp is published. @tx_quota outlives @qp. Return: 0 or -ENOMEM. */
int peal_ud_attach(struct peal_qp *qp, struct peal_port *port,
		   const struct peal_locality_device *device, struct peal_tx_quota *tx_quota);

/*
 * Deliver a datagram to @qp. The caller has checked that the type of @qp fits the opcode's
 * transport. Inside the epoch, no lock held. The skb stays the caller's, because a multicast
 * packet has several receivers.
 */
void peal_ud_deliver(struct peal_qp *qp, const struct peal_rx_packet *rx);

/*
 * A challenge has arrived at the device @at, for a UD queue pair. Inside the epoch, no lock held.
 * Return: why it proves nothing, or PEAL_DROP_none.
 */
enum peal_drop peal_ud_challenged(const struct peal_locality_device *at,
				  const struct peal_rx_packet *rx);

#endif
