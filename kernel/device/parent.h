/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The parent of a device whose netdev has none (veth, bridges, the loopback interface).
 *
 * Many tools find the netdev of an RDMA device in sysfs, below `device/net/`. `device` is the
 * parent that both have in common, for example a PCI device. Without one, peal makes a device,
 * below /sys/devices/peal, with a directory `net` in which a link leads to the netdev. As in the
 * directory of a PCI device, only the netdev's namespace sees it. Also as there, the files
 * `numa_node`, `local_cpus` and `local_cpulist` say which CPUs are near.
 *
 * Owns: these devices, and the name of the link.
 * Does not know: when a netdev changes. link.c has the notifier.
 */
#ifndef PEAL_PARENT_H
#define PEAL_PARENT_H

struct device;
struct net_device;
struct peal_parent;

int peal_parent_init(void);
void peal_parent_exit(void);

/* Sleeps. Return: a parent, or an ERR_PTR. */
struct peal_parent *peal_parent_new(void);
/* Call when all children are gone. @parent may be NULL. */
void peal_parent_free(struct peal_parent *parent);

struct device *peal_parent_device(struct peal_parent *parent);

/* Under RTNL. Show @ndev, which is registered, by its present name. @parent may be NULL. */
void peal_parent_show(struct peal_parent *parent, struct net_device *ndev);
/* Under RTNL. The netdev leaves. @parent may be NULL. */
void peal_parent_hide(struct peal_parent *parent);

#endif
