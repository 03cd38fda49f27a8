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

int peal_link_init(void);
void peal_link_exit(void);

#endif
