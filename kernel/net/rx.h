/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Packets in: from the stack to checked headers and a proven ICRC, in one network
 * namespace.
 *
 * Owns: the netfilter hooks, the choice of the port that a packet is for, and every check
 * that needs no queue pair.
 * Does not know: queue pairs. It hands over to the port's owner (port.h).
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
	struct list_head ports;		/* by port->node; changed under the caller's mutex, */
					/* read inside the guard */
	struct sk_buff_head backlog;	/* arrived inside the guard: see rx.c */
	struct work_struct work;	/* takes them in */
	struct nf_hook_ops hooks[PEAL_RX_HOOKS];
};

/* Sleeps. Return: 0 or a negative errno. */
int peal_rx_open(struct peal_rx *rx, struct net *net);
/* No new packet comes in once a grace period is over. */
void peal_rx_stop(struct peal_rx *rx);
/* After that grace period: what had come in is dropped or delivered. Sleeps. */
void peal_rx_drain(struct peal_rx *rx);

void peal_rx_add_port(struct peal_rx *rx, struct peal_port *port);
/* No packet is delivered to it when peal_rx_forget_port() returns, which sleeps. */
void peal_rx_remove_port(struct peal_rx *rx, struct peal_port *port);
void peal_rx_forget_port(struct peal_rx *rx);

#endif
