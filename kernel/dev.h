/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * One peal device: the RDMA core's object, the netdev it sits on, its tables
 * and its engine.
 */
#ifndef PEAL_DEV_H
#define PEAL_DEV_H

#include <linux/netdevice.h>
#include <rdma/ib_verbs.h>

#include "engine.h"
#include "options.h"
#include "table.h"

/* Our own numbers: programs key their quirks on the ids of others. */
#define PEAL_VENDOR_ID		0x706561
#define PEAL_PART_ID		1
#define PEAL_HW_VERSION		1

#define PEAL_GID_TABLE_LEN	128

struct peal_dev {
	struct ib_device ib;
	struct net_device *ndev;	/* held */
	netdevice_tracker ndev_tracker;
	struct peal_table table;
	struct peal_engine engine;
	struct peal_options options;
	struct list_head node;		/* netlink.c's list */
	struct peal_netns *netns;	/* from before the device can be used to after */
	struct list_head netns_node;	/* netns.c's list */
};

static inline struct peal_dev *peal_dev(struct ib_device *ib)
{
	return container_of(ib, struct peal_dev, ib);
}

#endif
