/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The guard of the devices' addresses and of their peers': what a network namespace with a device
 * sends to port 4791 from an address of a device, or from one that this host does not have, comes
 * from the kernel, or from a socket that was opened with CAP_NET_RAW.
 *
 * Owns: the netfilter hooks, the decision, and the count of refused packets.
 * Does not know: queue pairs, and the contents of packets behind UDP.
 */
#ifndef PEAL_GUARD_H
#define PEAL_GUARD_H

#include <linux/netfilter.h>

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
