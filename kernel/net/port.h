/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The port of a device (IBTA 3.2): the netdev by which its packets leave and arrive.
 *
 * Owns: the netdev, the network namespace, and the memory limits of the transmit queues and
 * of out-of-order packets.
 * Does not know: queue pairs. Received packets go to the owner, through ops.
 */
#ifndef PEAL_PORT_H
#define PEAL_PORT_H

#include <linux/atomic.h>
#include <linux/netdevice.h>
#include <rdma/ib_verbs.h>

#include "base/budget.h"
#include "base/table.h"
#include "net/tx_quota.h"
#include "proto/packet.h"

/*
 * How much memory a device spends on out-of-order packets: packets that came before their turn and
 * are kept until then.
 *
 * Owns: the sum over all queue pairs, and the rule that decides which queue pair may keep a
 * packet. A kept skb is charged to no socket and to no program. A limit is necessary,
 * because peers decide how many packets arrive out of order, and programs decide how many queue
 * pairs there are.
 *
 * No lock: the sum is read before a packet is kept and grows afterwards, so each CPU may
 * exceed the limit by one packet.
 */

struct peal_datagram;
struct peal_table;
struct sk_buff;

struct peal_reorder_mem {
	struct peal_table *table;	/* the device's, for its counters */
	atomic_long_t bytes;	/* truesize of all kept packets */
};

void peal_reorder_mem_init(struct peal_reorder_mem *mem, struct peal_table *table);
/* Call when all queue pairs and the packets that they kept are gone. */
void peal_reorder_mem_end(const struct peal_reorder_mem *mem);

/*
 * May a queue pair that keeps @kept packets on this side (requester or responder) also keep
 * @dg until its turn comes? Return: the skb, or NULL. NULL means that it is larger than a
 * packet of this path MTU has reason to be, or that the queue pair's share is used up.
 */
struct sk_buff *peal_reorder_mem_may(struct peal_reorder_mem *mem, const struct peal_datagram *dg,
				     u32 mtu, u32 kept);
/*
 * Count @skb as kept, and give it memory of its own. The caller of peal_reorder_mem_add(),
 * peal_reorder_mem_take() and peal_reorder_mem_lose() holds the lock of that side of the
 * queue pair, or frees the queue pair. The callers assert it, because the queue pair is not
 * known here.
 */
void peal_reorder_mem_add(struct peal_reorder_mem *mem, struct sk_buff *skb);
/* The turn of @skb has come, so it is not kept any more. It is the caller's. */
void peal_reorder_mem_take(struct peal_reorder_mem *mem, const struct sk_buff *skb);
/* The turn of @skb will not come. Frees @skb. */
void peal_reorder_mem_lose(struct peal_reorder_mem *mem, struct sk_buff *skb);

struct peal_datagram;
struct peal_netns;
struct peal_port;
struct peal_qp;

/* What the owner of a port provides. */
struct peal_port_ops {
	/*
	 * Inside the epoch. Return: the queue pair of this number. NULL: there is none, so
	 * another device of the kernel may own the packet.
	 */
	struct peal_qp *(*find)(struct peal_port *port, u32 qpn);
	/*
	 * Inside the epoch with softirqs off. Never called from inside a send of ours,
	 * because the receive side queues such packets. @qp: what find() returned in the
	 * same section of the epoch, or NULL. Consumes dg->skb. When @budget is used up,
	 * the engine does the rest of the work that the packet causes.
	 */
	void (*deliver)(struct peal_port *port, struct peal_qp *qp, struct peal_datagram *dg,
			struct peal_budget *budget);
	/*
	 * The namespace ends. Begin to remove the device. Must not sleep. Called again
	 * until the device is gone.
	 */
	void (*remove)(struct peal_port *port);
};

struct peal_port {
	const struct peal_port_ops *ops;
	struct peal_table *table;	/* its counters count the packets */
	struct net_device *ndev;	/* with a reference */
	netdevice_tracker tracker;
	struct peal_netns *netns;	/* set before the device can be used, until after */
	struct net *net;		/* its namespace; valid while netns is set */

	/* Guarded by peal_netns_mutex: */
	struct list_head node;		/* on netns->rx.ports */

	struct peal_tx_quotas tx_quotas;	/* open while netns is set */
	struct peal_reorder_mem reorder_mem;
};

/* In bytes: IPv6, UDP, and what a RoCE packet has besides its payload. */
#define PEAL_HEADERS_BYTES	(40 + 8 + PEAL_PACKET_MOST_OVERHEAD)

/* The port's MTU: the largest path MTU whose packets fit the link, or 256 when none fits. */
static inline enum ib_mtu peal_port_mtu(const struct peal_port *port)
{
	int room = (int)READ_ONCE(port->ndev->mtu) - PEAL_HEADERS_BYTES;
	enum ib_mtu mtu = IB_MTU_4096;

	while (mtu > IB_MTU_256 && ib_mtu_enum_to_int(mtu) > room)
		mtu--;
	return mtu;
}

/* Takes a reference on @ndev. @table: its counters count the packets. */
void peal_port_init(struct peal_port *port, const struct peal_port_ops *ops,
		    struct peal_table *table, struct net_device *ndev);
/* Call after peal_port_close(), when all queue pairs are gone. */
void peal_port_end(struct peal_port *port);

/*
 * For netns.c. Open the port in @net, to which the caller holds a reference. Sleeps. Return: 0 or
 * a negative errno.
 */
int peal_port_open(struct peal_port *port, struct net *net);
/* For netns.c. From now on the port receives by way of @netns. */
void peal_port_join(struct peal_port *port, struct peal_netns *netns, struct net *net);
/* For netns.c. May be called when the port is not open. Sleeps. */
void peal_port_close(struct peal_port *port);

#endif
