/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Creation and removal of devices: `rdma link add`, netdev changes, removal.
 *
 * Owns: how a device is made on a netdev, the netdev notifier, and the RDMA client
 * whose remove callback flushes the programs' queue pairs before the core destroys
 * their objects.
 * Does not know: verbs beyond the operations table.
 */
#ifndef PEAL_LINK_H
#define PEAL_LINK_H

/*
 * The GIDs of a device on the loopback interface.
 *
 * The RDMA core owns the GID table. It reads all addresses of the netdev when a device is
 * registered, and follows the addresses of Ethernet netdevs afterwards, but not those of the
 * loopback interface. A new network namespace has no address until its loopback interface is up,
 * so this asks the core to read the addresses again.
 *
 * Owns: the notifiers of addresses, and a device's request to read them.
 */

struct net_device;
struct peal_dev;

void peal_gids_init(struct peal_dev *dev);
/* Read the addresses of @ndev again, if it is a loopback interface with a device. Any context. */
void peal_gids_refresh(struct net_device *ndev);

int peal_gids_register(void);
void peal_gids_unregister(void);

int peal_link_init(void);
void peal_link_exit(void);

#endif
