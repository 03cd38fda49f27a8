/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Devices come and go: `rdma link add`, netdevs that change, removal.
 *
 * Owns: the making of a device on a netdev, the netdev notifier, and the RDMA
 * client whose remove callback flushes the programs before the core takes their
 * objects away.
 * Does not know: verbs beyond the operations table.
 */
#ifndef PEAL_LINK_H
#define PEAL_LINK_H

int peal_link_init(void);
void peal_link_exit(void);

#endif
