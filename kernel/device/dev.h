/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * One peal device: the RDMA core's object and the struct peal_nic that does the work. Also what the
 * files of device/ call of each other; posts of kernel users are in post.h.
 */
#ifndef PEAL_DEV_H
#define PEAL_DEV_H

#include <linux/xarray.h>
#include <rdma/ib_verbs.h>
#include <rdma/uverbs_ioctl.h>

#include "base/compat.h"
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
	struct device *parent;		/* of parent.c; NULL: the netdev has a parent of its own */
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

/* ---- verbs.c: the RDMA core's calls, and all driver data (udata) ---- */

extern const struct ib_device_ops peal_verbs_ops;
extern const struct uapi_definition peal_verbs_attributes[];

/* ---- link.c: creation and removal of devices, and changes of their netdevs ---- */

int peal_link_init(void);
void peal_link_exit(void);

/*
 * ---- parent.c: the parent of a device whose netdev has none (veth, bridges, the loopback
 * interface) ----
 *
 * Many tools find the netdev of an RDMA device in sysfs, below `device/net/`. `device` is the
 * parent that both have in common, for example a PCI device. Without one, peal makes a device,
 * below /sys/devices/peal, with a directory `net` in which a link leads to the netdev. As in the
 * directory of a PCI device, only the netdev's namespace sees it. Also as there, the files
 * `numa_node`, `local_cpus` and `local_cpulist` say which CPUs are near.
 */

int peal_parent_init(void);
void peal_parent_exit(void);

/* Sleeps. Return: a parent, or an ERR_PTR. */
struct device *peal_parent_new(void);
/* Call when all children are gone. @dev may be NULL. */
void peal_parent_free(struct device *dev);
/* Under RTNL. Show @ndev, which is registered, by its present name. @dev may be NULL. */
void peal_parent_show(struct device *dev, struct net_device *ndev);
/* Under RTNL. The netdev leaves. @dev may be NULL. */
void peal_parent_hide(struct device *dev);

/* ---- netlink.c: the generic netlink family (Documentation/netlink/specs/peal.yaml) ---- */

int peal_netlink_init(void);
void peal_netlink_exit(void);

/*
 * Add a device that is registered, remove one that goes. When peal_netlink_remove() returns, the
 * family does not use the device any more.
 */
void peal_netlink_add(struct peal_dev *dev);
void peal_netlink_remove(struct peal_dev *dev);

/* ---- query.c: what a device reports about itself. The create verbs enforce the limits. ---- */

int peal_query_device(struct ib_device *ib, struct ib_device_attr *attr, struct ib_udata *udata);
/* The limits have changed. */
void peal_query_tell_core(struct peal_dev *dev);
int peal_query_port(struct ib_device *ib, u32 port, struct ib_port_attr *attr);
#ifdef PEAL_HAS_PORT_SPEED
/* @speed: in units of 100 Mb/s. */
int peal_query_port_speed(struct ib_device *ib, u32 port, u64 *speed);
#endif
/* May an administrator set this rate? */
bool peal_query_has_rate(u32 gbps);
int peal_query_pkey(struct ib_device *ib, u32 port, u16 index, u16 *pkey);
int peal_query_immutable(struct ib_device *ib, u32 port, struct ib_port_immutable *immutable);
enum rdma_link_layer peal_query_link_layer(struct ib_device *ib, u32 port);

/* ---- statistics.c: counters, `rdma resource show -dd`, and performance management MADs ---- */

struct ib_mad;

struct rdma_hw_stats *peal_statistic_alloc_port(struct ib_device *ib, u32 port);
int peal_statistic_get_port(struct ib_device *ib, struct rdma_hw_stats *stats, u32 port,
			    int index);
int peal_statistic_modify(struct ib_device *ib, u32 port, unsigned int counter, bool enable);

int peal_statistic_bind_qp(struct rdma_counter *counter, PEAL_COUNTER_QP(struct ib_qp *ib));
int peal_statistic_unbind_qp(PEAL_COUNTER_QP(struct ib_qp *ib));
int peal_statistic_dealloc(struct rdma_counter *counter);
struct rdma_hw_stats *peal_statistic_alloc_stats(struct rdma_counter *counter);
int peal_statistic_update_stats(struct rdma_counter *counter);
#ifdef PEAL_HAS_COUNTER_INIT
void peal_statistic_init(struct rdma_counter *counter);
#endif

int peal_restrack_fill_cq(struct sk_buff *msg, struct ib_cq *ib);
int peal_restrack_fill_mr(struct sk_buff *msg, struct ib_mr *ib);
int peal_restrack_fill_qp(struct sk_buff *msg, struct ib_qp *ib);
int peal_restrack_fill_srq(struct sk_buff *msg, struct ib_srq *ib);

int peal_pma_process_mad(struct ib_device *ib, int flags, u32 port, const struct ib_wc *wc,
			 const struct ib_grh *grh, const struct ib_mad *in, struct ib_mad *out,
			 size_t *out_bytes, u16 *out_pkey_index);

#endif
