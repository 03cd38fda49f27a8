/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What peal keeps per network namespace, from its first device there to its
 * last: the receive hooks, the transmit socket, the list of devices.
 *
 * Owns: struct peal_netns and its life. No port is opened and no hook exists
 * before a device does.
 * Does not know: what is received and sent.
 *
 * The namespace may end while devices are still in it, because their removal is
 * queued. Then hooks and socket go at once (peal_netns_close), and this structure
 * with its last device; what is sent until then is lost.
 */
#ifndef PEAL_NETNS_H
#define PEAL_NETNS_H

#include <linux/list.h>
#include <linux/net.h>
#include <linux/skbuff.h>
#include <linux/spinlock.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

struct net;
struct net_device;
struct peal_dev;

struct peal_netns {
	struct list_head node;		/* of all, under the module's mutex */
	struct net *net;		/* NULL once it has ended; read under RCU */
	u32 users;			/* devices, under the module's mutex */
	struct list_head devices;	/* by dev->netns_node; read inside the guard */
	struct socket *sock;		/* accounts what waits in transmit queues; unbound */
	wait_queue_entry_t room;	/* waits for the socket to have room */
	spinlock_t lock;		/* guards waiters */
	struct list_head waiters;	/* struct peal_waiter, by node */
	struct sk_buff_head backlog;	/* arrived inside the guard: see receive.c */
	struct work_struct work;	/* takes them in */
};

/*
 * A device appears in @ndev's namespace: sets dev->netns. Sleeps. Return: 0 or a
 * negative errno.
 */
int peal_netns_attach(struct peal_dev *dev, struct net_device *ndev);
/* It goes: no packet is delivered to it when this returns. Sleeps. */
void peal_netns_detach(struct peal_dev *dev);

/*
 * Inside the guard: the device that sits on @ndev, or on one that lies below it
 * (@ndev is a VLAN, a bridge or a bond). NULL: not ours.
 */
struct peal_dev *peal_netns_find(struct peal_netns *ns, struct net_device *ndev);

int peal_netns_init(void);
void peal_netns_exit(void);

#endif
