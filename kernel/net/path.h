/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A path: how packets of one address vector get to the other side.
 *
 * Owns: addresses, UDP source port, traffic class, hop limit, VLAN's netdev and
 * the cached route, which the stack may invalidate at any time.
 * Does not know: queue pairs, packets' contents.
 *
 * A path is written by peal_path_resolve() only; its cached route has a lock of
 * its own (path->lock, innermost), so that senders of several queue pairs may
 * share an address handle's path.
 */
#ifndef PEAL_PATH_H
#define PEAL_PATH_H

#include <linux/netdevice.h>
#include <linux/spinlock.h>
#include <net/dst.h>
#include <rdma/ib_verbs.h>

struct peal_path {
	struct net_device *ndev;	/* held: the device's, or a VLAN's on top of it */
	netdevice_tracker tracker;
	bool ipv6;
	bool multicast;
	union ib_gid sgid, dgid;	/* IPv4 as mapped addresses */
	u16 sport;			/* UDP source port, host order, 0xc000 and up */
	u8 tclass, hop_limit;
	u32 flow_label;
	spinlock_t lock;		/* guards the two below */
	struct dst_entry *dst;		/* NULL: look up at the next packet */
	u32 cookie;
};

/**
 * peal_path_resolve() - from an address vector to a path
 * @ndev: the netdev of the device; the GID's attribute may name a VLAN on it
 * @attr: with GRH and sgid_attr
 * @hash: chooses the source port when the flow label is 0 (from the queue pairs)
 *
 * Sleeps. Return: 0, -EINVAL (no RoCEv2 GID), -ENETUNREACH or what the route
 * lookup says. An unresolved neighbour is no error.
 */
int peal_path_resolve(struct peal_path *path, struct net_device *ndev,
		      const struct rdma_ah_attr *attr, u32 hash);
void peal_path_release(struct peal_path *path);

/* Does a packet of this path MTU fit the link? The route's MTU counts. */
bool peal_path_fits(struct peal_path *path, enum ib_mtu mtu);

/* Is the destination this host's, in this network namespace (route is local)? */
bool peal_path_is_local(struct peal_path *path);

#endif
