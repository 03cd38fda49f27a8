/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The port of a device (IBTA 3.2): the netdev by which its packets leave and arrive.
 *
 * Owns: the netdev, the network namespace, and the transmit queues' memory.
 * Does not know: queue pairs. What is received goes to the owner, through ops.
 */
#ifndef PEAL_PORT_H
#define PEAL_PORT_H

#include <linux/netdevice.h>
#include <rdma/ib_verbs.h>

#include "base/budget.h"
#include "base/table.h"
#include "net/reorder_mem.h"
#include "net/room.h"

struct peal_datagram;
struct peal_netns;
struct peal_port;
struct peal_qp;

/* What the owner of a port does for it. */
struct peal_port_ops {
	/*
	 * Inside the guard: the queue pair of this number. NULL: there is none, so another
	 * user of the UDP port may own the packet.
	 */
	struct peal_qp *(*find)(struct peal_port *port, u32 qpn);
	/*
	 * Inside the guard, softirqs off, never called from inside a send of ours (the
	 * receive side queues those packets). @qp: what find() gave in the same section, or
	 * NULL. Consumes dg->skb. When @budget is used up, what there is to do because of the
	 * packet is left to the engine.
	 */
	void (*deliver)(struct peal_port *port, struct peal_qp *qp, struct peal_datagram *dg,
			struct peal_budget *budget);
	/*
	 * The namespace ends: begin to remove the device. Does not sleep, and is called again
	 * until the device is gone.
	 */
	void (*remove)(struct peal_port *port);
};

struct peal_port {
	const struct peal_port_ops *ops;
	struct peal_table *table;	/* whose counters count the packets */
	struct net_device *ndev;	/* held */
	netdevice_tracker tracker;
	struct peal_netns *netns;	/* from before the device can be used to after */
	struct net *net;		/* its namespace, as long as netns is set */
	struct list_head node;		/* on the list of netns */
	struct peal_rooms rooms;	/* open as long as netns is set */
	struct peal_reorder_mem reorder_mem;
};

/* RoCEv2 headers at their longest: IPv6, UDP, BTH, RETH, immediate, ICRC. */
#define PEAL_HEADERS_BYTES	(40 + 8 + 12 + 16 + 4 + 4)

/* The port's MTU: the largest path MTU whose packets fit the link; 256 where none does. */
static inline enum ib_mtu peal_port_mtu(const struct peal_port *port)
{
	int room = (int)READ_ONCE(port->ndev->mtu) - PEAL_HEADERS_BYTES;
	enum ib_mtu mtu = IB_MTU_4096;

	while (mtu > IB_MTU_256 && ib_mtu_enum_to_int(mtu) > room)
		mtu--;
	return mtu;
}

#endif
