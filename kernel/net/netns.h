/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What peal keeps per network namespace, from its first device there to its
 * last: the receive hooks, the transmit socket, the list of devices.
 *
 * Owns: struct peal_netns and its life. No port is opened and no hook exists
 * before a device does.
 * Does not know: what is received and sent.
 */
#ifndef PEAL_NETNS_H
#define PEAL_NETNS_H

#include <linux/list.h>
#include <linux/net.h>
#include <linux/spinlock.h>

struct peal_dev;
struct net_device;

struct peal_netns {
	struct list_head node;		/* of all, under the module's mutex */
	struct net *net;
	u32 users;			/* devices */
	struct list_head devices;	/* read inside the guard */
	struct socket *sock;		/* accounts what waits in transmit queues; unbound */
	spinlock_t lock;		/* guards waiters */
	struct list_head waiters;	/* struct peal_waiter */
};

/* A device appears in @ndev's namespace. Sleeps. Return: NULL-free pointer or ERR_PTR. */
struct peal_netns *peal_netns_attach(struct peal_dev *dev, struct net_device *ndev);
/* It goes: no packet is delivered to it when this returns. */
void peal_netns_detach(struct peal_netns *ns, struct peal_dev *dev);

/* Inside the guard: the device whose netdev owns @address, or that @in is (or lies under). */
struct peal_dev *peal_netns_find(struct peal_netns *ns, const struct net_device *in);

#endif
