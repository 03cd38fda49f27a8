/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What peal keeps for a network namespace while it has devices there: the hooks and the list of
 * devices.
 *
 * Owns: creation and destruction of struct peal_netns. Without a device in the namespace no port is
 * open and no hook exists.
 * Does not know: what is received and sent.
 *
 * A namespace that ends removes its devices and waits for them. Otherwise the routes that
 * paths hold would outlive the namespace, and its netdevs that move to another namespace
 * would have to wait for devices. The stack ends many namespaces at once, so their devices
 * are removed at the same time.
 */
#ifndef PEAL_NETNS_H
#define PEAL_NETNS_H

#include <linux/completion.h>
#include <linux/list.h>
#include <linux/netfilter.h>
#include <linux/skbuff.h>
#include <linux/workqueue.h>
#include <rdma/ib_verbs.h>

#include "net/rx.h"

/*
 * Membership in IP multicast groups. It makes switches (IGMP, MLD) and the receive filters
 * of the netdev and the stack let the groups' packets through.
 *
 * Owns: nothing, because the stack counts the references on (netdev, group). Each
 * successful join must be followed by one leave.
 */

struct net;
struct net_device;

/*
 * @net: the netdev's namespace, as the device knows it. A netdev that moves to another
 * namespace loses all memberships. Those that it has there are not ours.
 * @mgid: an IPv6 group, or an IPv4 group as a mapped address.
 * Both sleep, because they take RTNL. Return: 0; -EINVAL: @mgid is no group; -ENODEV: the
 * netdev has no addresses of that IP version, or has moved; or what the stack says.
 */
int peal_mcast_join(const struct net *net, struct net_device *ndev, const union ib_gid *mgid);
void peal_mcast_leave(const struct net *net, struct net_device *ndev, const union ib_gid *mgid);

struct net_device;
struct peal_port;

struct peal_netns {
	struct net *net;		/* outlives all devices in it */

	/* Guarded by peal_netns_mutex: */
	struct list_head node;		/* in peal_netns_all, or with those that end together */
	u32 users;			/* number of devices */
	bool ending;			/* the namespace's end closes it, not the last device */
	struct completion *gone;	/* the namespace's end waits for it; NULL: not ending */

	struct peal_rx rx;		/* the receive hooks, and the list of ports */
	struct peal_guard guard;	/* the hooks for packets that leave */
	struct rcu_head rcu;		/* a hook may still run when the other one cannot be had */
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

#endif
