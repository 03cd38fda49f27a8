/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The generic netlink family `peal` (Documentation/netlink/specs/peal.yaml).
 *
 * Owns: the family, and the list of devices that it shows.
 * Does not know: what the options do.
 */
#ifndef PEAL_NETLINK_H
#define PEAL_NETLINK_H

struct peal_dev;

int peal_netlink_init(void);
void peal_netlink_exit(void);

/* The device is registered; it goes. After remove nobody uses it here. */
void peal_netlink_add(struct peal_dev *dev);
void peal_netlink_remove(struct peal_dev *dev);

#endif
