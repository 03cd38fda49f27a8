/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A path: how packets of one address vector get to the other side.
 *
 * Owns: addresses, UDP source port, traffic class, hop limit, the interface,
 * and the cached route, which the stack may invalidate at any time.
 * Does not know: queue pairs, packets' contents.
 *
 * A path is written by peal_path_resolve() only, before anybody sends on it; a
 * new address vector is a new path. What changes later is the cached route: it
 * has a lock of its own (path->lock, innermost), so that senders of several
 * queue pairs may share an address handle's path.
 *
 * A path holds no reference on a netdev, so that a VLAN's can be removed while
 * queue pairs use its address: their packets are lost from then on.
 */
#ifndef PEAL_PATH_H
#define PEAL_PATH_H

#include <linux/spinlock.h>
#include <linux/types.h>
#include <net/dst.h>
#include <rdma/ib_verbs.h>

struct peal_port;
struct peal_room;

struct peal_path {
	struct peal_port *port;		/* whose packets these are; outlives the path */
	struct peal_room *room;		/* what they are charged to; outlives their senders */
	int ifindex;			/* of the GID's netdev: the device's, or a VLAN's on it */
	bool ipv6;
	bool multicast;
	bool bound;			/* only this interface will do */
	union ib_gid sgid, dgid;	/* IPv4 as mapped addresses */
	u16 sport;			/* UDP source port, host order, 0xc000 and up */
	u8 tclass;			/* not ECN-capable: no sender heeds marks */
	u8 hop_limit;			/* 0: what the stack would choose */
	u8 sl;
	u32 flow_label;
	spinlock_t lock;		/* guards the two below */
	struct dst_entry *dst;		/* NULL: look up at the next packet */
	u32 cookie;
};

/*
 * May the calling program send with this service level, which becomes the packets'
 * priority? The rule is that of SO_PRIORITY. Return: 0 or -EPERM.
 */
int peal_path_permit(const struct peal_port *port, const struct rdma_ah_attr *attr);

/**
 * peal_path_resolve() - from an address vector to a path, and its first route
 * @path: not in use; its contents do not matter, also when this fails
 * @port: the device's; the GID's attribute may name a VLAN on its netdev
 * @room: of the context whose queue pairs send there, or the kernel's
 * @attr: with GRH and sgid_attr
 * @hash: chooses the source port when the flow label is 0 (from the queue pairs)
 *
 * Interrupts are on. An unresolved neighbour is no error: packets wait for it in
 * the stack.
 *
 * Return: 0; -EINVAL: no RoCEv2 GID, or source and destination of two IP
 * versions; -ENETUNREACH or what else the route lookup says.
 */
int peal_path_resolve(struct peal_path *path, struct peal_port *port, struct peal_room *room,
		      const struct rdma_ah_attr *attr, u32 hash);
/*
 * As peal_path_resolve(), but no route is looked up before the first packet: for
 * address handles, which the connection manager creates and destroys with
 * interrupts off. Neither this nor release sleeps; both may be called anywhere.
 */
int peal_path_init(struct peal_path *path, struct peal_port *port, struct peal_room *room,
		   const struct rdma_ah_attr *attr, u32 hash);
/* After one of these has succeeded, when nobody sends on it any more. */
void peal_path_release(struct peal_path *path);

/*
 * Does a packet of this path MTU fit the link? The route's MTU counts. Where
 * there is no route at all, nothing does.
 */
bool peal_path_fits(struct peal_path *path, enum ib_mtu mtu);

/* Is the destination this host's, in this network namespace (route is local)? */
bool peal_path_is_local(struct peal_path *path);

/* Do its packets leave through the netdev of that index? Those to this host do by loopback. */
bool peal_path_leaves_by(struct peal_path *path, int ifindex);

/*
 * For tx.c. The route of the next packet, looked up anew when the stack has
 * invalidated the last one. Under RCU, valid until its end, without a reference;
 * or an ERR_PTR.
 */
struct dst_entry *peal_path_route(struct peal_path *path, struct net *net);

#endif
