/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Packets in: from the stack to checked headers and a verified ICRC, in one network
 * namespace.
 *
 * Owns: the netfilter hooks, the choice of the port that a packet is for, and every check
 * that needs no queue pair.
 * Does not know: queue pairs. It hands packets over to the port's owner (port.h).
 */
#ifndef PEAL_RX_H
#define PEAL_RX_H

#include <linux/netfilter.h>
#include <linux/skbuff.h>
#include <linux/workqueue.h>

#include "net/port.h"

#define PEAL_RX_HOOKS	2

struct peal_rx {
	struct net *net;

	/* Guarded by peal_netns_mutex: */
	struct list_head ports;		/* by port->node; readers are inside the epoch */

	struct sk_buff_head backlog;	/* packets that arrived inside the epoch: see rx.c */
	struct work_struct work;	/* takes the packets of the backlog */
	struct nf_hook_ops hooks[PEAL_RX_HOOKS];
};

/* Sleeps. Return: 0 or a negative errno. */
int peal_rx_open(struct peal_rx *rx, struct net *net);
/* Remove the hooks. No new packet comes in once a grace period is over. */
void peal_rx_stop(struct peal_rx *rx);
/* Call after that grace period. Delivers or drops the packets of the backlog. Sleeps. */
void peal_rx_drain(struct peal_rx *rx);

void peal_rx_add_port(struct peal_rx *rx, struct peal_port *port);
/*
 * Call both to remove a port. No packet is delivered to it any more when
 * peal_rx_forget_port(), which sleeps, returns.
 */
void peal_rx_remove_port(struct peal_rx *rx, struct peal_port *port);
void peal_rx_forget_port(struct peal_rx *rx);

/* Inside the epoch. Return: NULL when no device is there. */
struct peal_port *peal_rx_first_port(struct peal_rx *rx);
/*
 * Inside the epoch and RCU. Return: a port whose netdev, or one above it, has the packet's source
 * address, or NULL.
 */
struct peal_port *peal_rx_source_port(struct peal_rx *rx, const struct sk_buff *skb, bool ipv6);
/*
 * Return: the offset of the UDP header of an IPv6 packet with extension headers from skb->data,
 * where its IPv6 header is. Negative: it is not UDP, or not its first fragment.
 */
int peal_rx_behind_headers6(const struct sk_buff *skb);

/*
 * The guard of the devices' addresses and of their peers': what a network namespace with a device
 * sends to port 4791 from an address of a device, or from one that this host does not have, comes
 * from the kernel, or from a socket that was opened with CAP_NET_RAW.
 *
 * Owns: the netfilter hooks, the decision, and the count of refused packets.
 */

#define PEAL_GUARD_HOOKS	2

struct peal_rx;

struct peal_guard {
	struct peal_rx *rx;		/* of the same namespace; has the devices' ports */
	struct nf_hook_ops hooks[PEAL_GUARD_HOOKS];
};

/* Sleeps. Return: 0 or a negative errno. */
int peal_guard_open(struct peal_guard *guard, struct peal_rx *rx);
/* Remove the hooks. None of them runs any more once a grace period is over. */
void peal_guard_stop(struct peal_guard *guard);

#endif
