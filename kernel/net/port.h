/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The port of a device (IBTA 3.2): the netdev by which its packets leave and arrive, and what peal
 * keeps for a network namespace while it has devices there.
 */
#ifndef PEAL_PORT_H
#define PEAL_PORT_H

#include <linux/completion.h>
#include <linux/list.h>
#include <linux/netdevice.h>
#include <linux/netfilter.h>
#include <linux/skbuff.h>
#include <linux/workqueue.h>
#include <rdma/ib_verbs.h>

#include "base/budget.h"
#include "base/table.h"
#include "net/hold.h"
#include "net/rx_packet.h"
#include "net/tx_quota.h"
#include "object/qp.h"
#include "proto/packet.h"

struct peal_flows;

struct peal_port {
	struct peal_table *table;	/* its counters count the packets */
	struct net_device *ndev;	/* with a reference */
	netdevice_tracker tracker;
	struct peal_netns *netns;	/* set before the device can be used, until after */
	struct net *net;		/* its namespace; valid while netns is set */

	/* Guarded by peal_netns_mutex: */
	struct list_head node;		/* on netns->ports */

	struct peal_flows *flows;	/* the device's flow rules */
	bool sniffed;			/* the device has a sniffer; written under RTNL */

	struct peal_tx_quotas tx_quotas;	/* open while netns is set */
	struct peal_reorder_mem reorder_mem;
	struct peal_hold hold;		/* empty while netns is not set */
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
void peal_port_init(struct peal_port *port, struct peal_table *table, struct net_device *ndev);
/* Call after peal_netns_detach(), when all queue pairs are gone. */
void peal_port_end(struct peal_port *port);

/* ---- namespaces (netns.c) ---- */

#define PEAL_NETNS_HOOKS	4

/* Without a device in the namespace there is no such struct, and so no hook. */
struct peal_netns {
	struct net *net;		/* outlives all devices in it */

	/* Guarded by peal_netns_mutex: */
	struct list_head ports;		/* by port->node; readers are inside the epoch */
	struct list_head node;		/* in peal_netns_all, or with those that end together */
	u32 users;			/* number of devices */
	bool ending;			/* the namespace's end closes it, not the last device */
	struct completion *gone;	/* the namespace's end waits for it; NULL: not ending */

	struct sk_buff_head backlog;	/* packets that arrived inside the epoch: see rx.c */
	struct work_struct work;	/* takes the packets of the backlog */
	struct nf_hook_ops hooks[PEAL_NETNS_HOOKS];
	struct rcu_head rcu;		/* a hook may still run when another one cannot be had */
};

/*
 * Add a device to @ndev's namespace. Sets port->netns and port->net. Sleeps. Return: 0 or a
 * negative errno.
 */
int peal_netns_attach(struct peal_port *port, struct net_device *ndev);
/* Under RTNL. Has @ndev, the port's netdev, left the port's namespace, or is it being removed? */
bool peal_netns_left(const struct peal_port *port, const struct net_device *ndev);
/*
 * Remove a device from its namespace. No packet is delivered to it when this returns. Does
 * nothing for a device that is not attached. Sleeps.
 */
void peal_netns_detach(struct peal_port *port);

int peal_netns_init(void);
void peal_netns_exit(void);

/*
 * Membership in an IP multicast group. It makes switches (IGMP, MLD) and the receive filters of the
 * netdev and the stack let the group's packets through. The stack counts the references on (netdev,
 * group), so each successful join must be followed by one leave.
 * @net: the netdev's namespace, as the device knows it. A netdev that moves to another
 * namespace loses all memberships. Those that it has there are not ours.
 * @mgid: an IPv6 group, or an IPv4 group as a mapped address.
 * Both sleep, because they take RTNL. Return: 0; -EINVAL: @mgid is no group; -ENODEV: the
 * netdev has no addresses of that IP version, or has moved; or what the stack says.
 */
int peal_mcast_join(const struct net *net, struct net_device *ndev, const union ib_gid *mgid);
void peal_mcast_leave(const struct net *net, struct net_device *ndev, const union ib_gid *mgid);

/* ---- packets in (rx.c) ---- */

/* For netns.c. Sleeps. Return: 0 or a negative errno. */
int peal_rx_open(struct peal_netns *ns);
/* For netns.c. Remove the hooks. No new packet comes in once a grace period is over. */
void peal_rx_close(struct peal_netns *ns);
/* Count and trace a packet that is thrown away, and free its skb, unless that is a train. */
void peal_rx_drop(struct peal_port *port, const struct peal_rx_packet *rx, enum peal_drop why);
/* For netns.c. Deliver the packets of port->hold that are due. */
void peal_rx_held_work(struct work_struct *work);
/*
 * For transport/demux.c. A packet for queue pair @qpn was delivered. Fill @rx with one that it has
 * overtaken. Inside the epoch. Return: false if there is none.
 */
bool peal_rx_overtaken(struct peal_port *port, u32 qpn, struct peal_rx_packet *rx);
/* For transport/demux.c. Was the packet held, so that it was compared with the rules already? */
static inline bool peal_rx_was_held(const struct peal_rx_packet *rx)
{
	return peal_arrival(rx->skb)->held;
}

/*
 * ---- what net/ calls in the layers above it ----
 *
 * They implement these functions, and the linker joins them. A table of functions would have one
 * implementation.
 */

/*
 * In transport/demux.c. The packets of one skb are delivered one after the other between begin()
 * and end(). As long as they are for the same half of the same queue pair, its lock is held, and
 * what they cause together is done at the end: the acknowledgment, and what the responses allow to
 * be sent. Inside the epoch with softirqs off. Never called from inside a send of ours, because the
 * receive side queues such packets.
 */
struct peal_delivery {
	struct peal_port *port;
	/* When it is used up, the engine does the rest of the work that the packets cause. */
	struct peal_budget *budget;
	struct peal_qp *qp;		/* a connected one, whose lock is held; NULL: none */
	bool request;			/* rq.lock is held, otherwise sq.lock */
	bool taken;			/* the queue pair has processed a packet */
	u64 now;			/* when the lock was taken, ns; stands for all packets */
	struct peal_notify notify;	/* valid if qp is not NULL */
};

void peal_demux_begin(struct peal_delivery *delivery, struct peal_port *port,
		      struct peal_budget *budget);
/*
 * @qp: what the table had for the QP number in the same section of the epoch, or NULL.
 *
 * Return: how many MIDDLE packets like @rx may be delivered as one run. 0: @rx is in no run. Holds
 * until the next delivery.
 */
u32 peal_demux_takes(struct peal_delivery *delivery, struct peal_qp *qp,
		     const struct peal_rx_packet *rx);
/* May @last be delivered as the end of @run, as many packets as peal_demux_takes() allows? */
bool peal_demux_takes_last(const struct peal_delivery *delivery, const struct peal_packet *run,
			   const struct peal_packet *last);
/* Deliver a packet, or a run of packets. @qp: as in peal_demux_takes(). Consumes the packets. */
void peal_demux_deliver(struct peal_delivery *delivery, struct peal_qp *qp,
			struct peal_rx_packet *rx);
/* Other packets may be delivered after it. */
void peal_demux_end(struct peal_delivery *delivery);
/*
 * In device/link.c. The namespace ends. Begin to remove the device. Does not sleep. Does nothing
 * for a device that is being removed already, is not registered yet, or is just changing its
 * namespace in the RDMA core. So it is called again until the device is gone.
 */
void peal_link_remove(struct peal_port *port);

#endif
