/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The generic netlink family `peal` (Documentation/netlink/specs/peal.yaml).
 *
 * Owns: the family, and the list of devices that it shows.
 * Does not know: the effect of the options.
 */
#ifndef PEAL_NETLINK_H
#define PEAL_NETLINK_H

struct peal_dev;

int peal_netlink_init(void);
void peal_netlink_exit(void);

/*
 * Add a device that is registered, remove one that goes. When peal_netlink_remove() returns, the
 * family does not use the device any more.
 */
void peal_netlink_add(struct peal_dev *dev);
void peal_netlink_remove(struct peal_dev *dev);

#endif
