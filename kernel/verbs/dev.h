/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * One peal device: the RDMA core's object, the netdev it sits on, its tables
 * and its engine.
 */
#ifndef PEAL_DEV_H
#define PEAL_DEV_H

#include <linux/netdevice.h>
#include <rdma/ib_verbs.h>

#include "base/options.h"
#include "base/quota.h"
#include "base/table.h"
#include "engine/engine.h"
#include "net/room.h"
#include "transport/group.h"
#include "transport/keep.h"
#include "transport/reach.h"

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
	struct peal_groups groups;
	struct list_head node;		/* netlink.c's list */
	struct peal_reach_home home;
	struct peal_netns *netns;	/* from before the device can be used to after */
	struct list_head netns_node;	/* netns.c's list */
	struct peal_rooms rooms;	/* open as long as netns */
	struct peal_keep keep;
	struct peal_quota quota;
};

/* RoCEv2 headers at their longest: IPv6, UDP, BTH, RETH, immediate, ICRC. */
#define PEAL_HEADERS_BYTES	(40 + 8 + 12 + 16 + 4 + 4)

/* The port's MTU: the largest path MTU whose packets fit the link; 256 where none does. */
static inline enum ib_mtu peal_dev_mtu(const struct peal_dev *dev)
{
	int room = (int)READ_ONCE(dev->ndev->mtu) - PEAL_HEADERS_BYTES;
	enum ib_mtu mtu = IB_MTU_4096;

	while (mtu > IB_MTU_256 && ib_mtu_enum_to_int(mtu) > room)
		mtu--;
	return mtu;
}

/* What packets of this program are charged to; NULL: those of the kernel's users. */
static inline struct peal_room *peal_dev_room(const struct peal_dev *dev,
					      const struct peal_context *ctx)
{
	return ctx ? ctx->room : dev->rooms.kernel;
}

static inline struct peal_dev *peal_dev(struct ib_device *ib)
{
	return container_of(ib, struct peal_dev, ib);
}

#endif
