/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * One peal device: the RDMA core's object and the struct peal_nic that does the work.
 */
#ifndef PEAL_DEV_H
#define PEAL_DEV_H

#include <linux/xarray.h>
#include <rdma/ib_verbs.h>

#include "raw/raw.h"
#include "transport/nic.h"

/* These ids belong to no real device, because programs apply quirks by the ids of real devices. */
#define PEAL_VENDOR_ID		0x706561
#define PEAL_PART_ID		1
#define PEAL_HW_VERSION		1

#define PEAL_GID_TABLE_LEN	128

struct peal_dev {
	struct ib_device ib;
	struct peal_nic nic;
	struct peal_flows flows;
	struct peal_parent *parent;	/* NULL: the netdev has a parent of its own */
	struct work_struct rescan;	/* of link.c; holds a reference while it is queued */
	struct xarray statistics;	/* counters of bound queue pairs, by rdma_counter.id */

	/* Guarded by RTNL: */
	enum ib_port_state told_state;	/* of the last port event; IB_PORT_NOP: there was none */

	/* Guarded by peal_netlink_lock: */
	struct list_head node;		/* in the list of netlink.c */
};

static inline struct peal_dev *peal_dev(struct ib_device *ib)
{
	return container_of(ib, struct peal_dev, ib);
}

#endif
