// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include <linux/ethtool.h>
#include <net/addrconf.h>
#include <rdma/ib_mad.h>
#include <rdma/uverbs_ioctl.h>

#include "base/compat.h"
#include "base/quota.h"
#include "object/dm.h"
#include "object/odp.h"
#include "object/extents.h"
#include "transport/ud.h"
#include "device/dev.h"

/* The device's clock counts nanoseconds. */
#define PEAL_CLOCK_KHZ	1000000

#define PEAL_DEVICE_CAPS							\
	(IB_DEVICE_CURR_QP_STATE_MOD | IB_DEVICE_RC_RNR_NAK_GEN | IB_DEVICE_SYS_IMAGE_GUID | \
	 IB_DEVICE_BAD_PKEY_CNTR | IB_DEVICE_BAD_QKEY_CNTR | IB_DEVICE_PORT_ACTIVE_EVENT | \
	 IB_DEVICE_UD_AV_PORT_ENFORCE | \
	 IB_DEVICE_MEM_WINDOW | IB_DEVICE_MEM_WINDOW_TYPE_2B | IB_DEVICE_MEM_MGT_EXTENSIONS | \
	 IB_DEVICE_SRQ_RESIZE | IB_DEVICE_XRC | IB_DEVICE_ATOMIC_WRITE | \
	 IB_DEVICE_FLUSH_GLOBAL | IB_DEVICE_RAW_IP_CSUM | IB_DEVICE_MANAGED_FLOW_STEERING)

/*
 * The limits of one context, because a program can have no more than that. The smallest rings of a
 * queue fit in one page. On a small host the limit of pages is met first.
 */
static void peal_query_limits(struct ib_device_attr *attr, const struct peal_limits *limits)
{
	u32 max_rd_atomic = peal_limits_most(limits, PEAL_LIMIT_RD_ATOMIC);
	u32 max_sge = peal_limits_most(limits, PEAL_LIMIT_SGE);
	u32 max_wr = peal_limits_most(limits, PEAL_LIMIT_WR);
	u32 max_mr = min(peal_quota_limit(PEAL_QUOTA_KEY),
			 peal_limits_most(limits, PEAL_LIMIT_MR));
	u64 pages = peal_page_quota_limit() - 1;	/* the context has a doorbell page */
	u64 cqes = ((pages << PAGE_SHIFT) - PEAL_CQ_RING_OFFSET) / sizeof(struct peal_cqe);

	attr->max_mr_size = U64_MAX;
	attr->page_size_cap = PAGE_SIZE | SZ_2M | SZ_1G;
	attr->max_qp = min3((u64)peal_quota_limit(PEAL_QUOTA_QP), pages,
			    (u64)peal_limits_most(limits, PEAL_LIMIT_QP));
	attr->max_qp_wr = max_wr;
	attr->max_send_sge = max_sge;
	attr->max_recv_sge = max_sge;
	attr->max_sge_rd = max_sge;
	if (peal_limits_have(limits, PEAL_NL_FEATURE_SRQ)) {
		attr->max_srq = min_t(u64, peal_quota_limit(PEAL_QUOTA_SRQ), pages);
		attr->max_srq_wr = max_wr;
		attr->max_srq_sge = max_sge;
	}
	attr->max_cq = min3((u64)peal_quota_limit(PEAL_QUOTA_CQ), pages,
			    (u64)peal_limits_most(limits, PEAL_LIMIT_CQ));
	attr->max_cqe = min_t(u64, rounddown_pow_of_two(cqes),
			      peal_limits_most(limits, PEAL_LIMIT_CQE));
	attr->max_mr = max_mr;
	attr->max_dm_size = peal_dm_limit();
	attr->max_fast_reg_page_list_len = PEAL_MAX_FAST_REG_PAGES;
	attr->max_mw = peal_limits_have(limits, PEAL_NL_FEATURE_MW) ? max_mr : 0;
	attr->max_pd = peal_quota_limit(PEAL_QUOTA_PD);
	if (peal_limits_have(limits, PEAL_NL_FEATURE_RAW))
		attr->max_raw_ethy_qp = attr->max_qp;
	attr->max_ah = peal_quota_limit(PEAL_QUOTA_AH);
	attr->max_mcast_grp = peal_quota_limit(PEAL_QUOTA_GROUP);
	attr->max_mcast_qp_attach = PEAL_CONTEXT_GROUP_QPS;
	attr->max_total_mcast_qp_attach = attr->max_mcast_grp * attr->max_mcast_qp_attach;
	attr->max_qp_rd_atom = max_rd_atomic;
	attr->max_qp_init_rd_atom = max_rd_atomic;
	attr->max_res_rd_atom = max_rd_atomic * PEAL_MAX_QP;
}

int peal_query_device(struct ib_device *ib, struct ib_device_attr *attr, struct ib_udata *udata)
{
	const struct peal_limits *limits = &peal_dev(ib)->nic.options.limits;

	if (udata && (udata->inlen || udata->outlen))
		return -EINVAL;
	*attr = (struct ib_device_attr){
		.vendor_id = PEAL_VENDOR_ID,
		.vendor_part_id = PEAL_PART_ID,
		.hw_ver = PEAL_HW_VERSION,
		.sys_image_guid = ib->node_guid,
		.device_cap_flags = PEAL_DEVICE_CAPS,
		.kernel_cap_flags = IBK_ALLOW_USER_UNREG | IBK_SG_GAPS_REG,
		.atomic_cap = IB_ATOMIC_GLOB,
		.masked_atomic_cap = IB_ATOMIC_NONE,
		.raw_packet_caps = IB_RAW_PACKET_CAP_IP_CSUM,
		.max_pkeys = 1,
		.cq_caps = { .max_cq_moderation_count = U16_MAX,
			     .max_cq_moderation_period = U16_MAX },
		.timestamp_mask = U64_MAX,
		.hca_core_clock = PEAL_CLOCK_KHZ,
		.local_ca_ack_delay = 0,
	};
	peal_query_limits(attr, limits);
	if (!peal_limits_have(limits, PEAL_NL_FEATURE_ATOMIC)) {
		attr->atomic_cap = IB_ATOMIC_NONE;
		attr->device_cap_flags &= ~IB_DEVICE_ATOMIC_WRITE;
	}
	if (!peal_limits_have(limits, PEAL_NL_FEATURE_MW))
		attr->device_cap_flags &= ~(IB_DEVICE_MEM_WINDOW | IB_DEVICE_MEM_WINDOW_TYPE_2B);
	if (!peal_limits_have(limits, PEAL_NL_FEATURE_XRC))
		attr->device_cap_flags &= ~IB_DEVICE_XRC;
	if (!peal_limits_have(limits, PEAL_NL_FEATURE_SRQ))
		attr->device_cap_flags &= ~(IB_DEVICE_SRQ_RESIZE | IB_DEVICE_XRC);
	if (!peal_odp_is_supported() || !peal_limits_have(limits, PEAL_NL_FEATURE_ODP))
		return 0;
	/*
	 * A datagram whose receive buffer is not in memory would be lost, so UD has no receives.
	 * The same is true of UC, whose bits stay clear.
	 */
	attr->kernel_cap_flags |= IBK_ON_DEMAND_PAGING;
	attr->odp_caps.general_caps = IB_ODP_SUPPORT | IB_ODP_SUPPORT_IMPLICIT;
	attr->odp_caps.per_transport_caps.rc_odp_caps =
		IB_ODP_SUPPORT_SEND | IB_ODP_SUPPORT_RECV | IB_ODP_SUPPORT_WRITE |
		IB_ODP_SUPPORT_READ | IB_ODP_SUPPORT_ATOMIC | IB_ODP_SUPPORT_SRQ_RECV |
		IB_ODP_SUPPORT_FLUSH | IB_ODP_SUPPORT_ATOMIC_WRITE;
	attr->odp_caps.per_transport_caps.ud_odp_caps = IB_ODP_SUPPORT_SEND;
	attr->odp_caps.per_transport_caps.xrc_odp_caps =
		attr->odp_caps.per_transport_caps.rc_odp_caps;
	return 0;
}

/*
 * The core calls query_device only once and keeps the answer, so its copy changes, too. Readers
 * take no lock, so each word is written at once.
 */
void peal_query_tell_core(struct peal_dev *dev)
{
	struct ib_device_attr attr;
	const u64 *from = (const u64 *)&attr;
	u64 *to = (u64 *)&dev->ib.attrs;
	size_t i;

	BUILD_BUG_ON(sizeof(attr) % sizeof(u64) || __alignof__(attr) < sizeof(u64));
	peal_query_device(&dev->ib, &attr, NULL);
	for (i = 0; i < sizeof(attr) / sizeof(u64); i++)
		WRITE_ONCE(to[i], from[i]);
}

/* The rates that an administrator can set, as the attributes of a port say them. */
static const struct peal_query_rate {
	u32 gbps;
	u16 speed;
	u8 width;
} peal_query_rates[] = {
	{ 10, IB_SPEED_FDR10, IB_WIDTH_1X },	/* of a software netdev, see below */
	{ 25, IB_SPEED_EDR, IB_WIDTH_1X },
	{ 40, IB_SPEED_FDR10, IB_WIDTH_4X },
	{ 50, IB_SPEED_HDR, IB_WIDTH_1X },
	{ 100, IB_SPEED_EDR, IB_WIDTH_4X },
	{ 200, IB_SPEED_HDR, IB_WIDTH_4X },
	{ 400, IB_SPEED_NDR, IB_WIDTH_4X },
};

/* Return: NULL if a port cannot show it. */
static const struct peal_query_rate *peal_query_find_rate(u32 gbps)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(peal_query_rates); i++)
		if (peal_query_rates[i].gbps == gbps)
			return &peal_query_rates[i];
	return NULL;
}

bool peal_query_has_rate(u32 gbps)
{
	return peal_query_find_rate(gbps);
}

/*
 * Programs choose among devices by their rate. A netdev without hardware has none. Some tell the
 * core nothing, and some a low number that means nothing, as tun does. They show 10 Gb/s at least,
 * as veth does. The core would guess for a netdev that does not tell its speed, such as the
 * loopback interface, and write that into the kernel log at each query. It fails while the netdev
 * is being removed.
 */
static void peal_query_speed(struct ib_device *ib, u32 port, struct ib_port_attr *attr)
{
	const struct net_device *ndev = peal_dev(ib)->nic.port.ndev;
	const struct peal_query_rate *rate;
	bool known;

	rate = peal_query_find_rate(peal_options_rate(&peal_dev(ib)->nic.options));
	if (!rate) {
		known = ndev->ethtool_ops && ndev->ethtool_ops->get_link_ksettings &&
			!ib_get_eth_speed(ib, port, &attr->active_speed, &attr->active_width);
		if (known && (ndev->dev.parent || attr->active_speed != IB_SPEED_SDR))
			return;
		rate = &peal_query_rates[0];
	}
	attr->active_speed = rate->speed;
	attr->active_width = rate->width;
}

int peal_query_port(struct ib_device *ib, u32 port, struct ib_port_attr *attr)
{
	const struct peal_table *table = &peal_dev(ib)->nic.table;
	struct net_device *ndev = peal_dev(ib)->nic.port.ndev;
	bool up = netif_running(ndev) && netif_carrier_ok(ndev);

	attr->state = up ? IB_PORT_ACTIVE : IB_PORT_DOWN;
	attr->phys_state = up ? IB_PORT_PHYS_STATE_LINK_UP : IB_PORT_PHYS_STATE_DISABLED;
	attr->max_mtu = IB_MTU_4096;
	attr->active_mtu = peal_port_mtu(&peal_dev(ib)->nic.port);
	attr->gid_tbl_len = PEAL_GID_TABLE_LEN;
	attr->pkey_tbl_len = 1;
	attr->max_msg_sz = PEAL_MAX_MSG;
	attr->max_vl_num = 1;
	attr->ip_gids = true;
	attr->port_cap_flags = IB_PORT_CM_SUP;
	attr->bad_pkey_cntr = peal_table_counter(table, PEAL_COUNTER_drop_pkey);
	attr->qkey_viol_cntr = peal_table_counter(table, PEAL_COUNTER_drop_qkey);
	peal_query_speed(ib, port, attr);
	return 0;
}

#ifdef PEAL_HAS_PORT_SPEED
/* It is the rate that the attributes of the port say, because a netdev lends peal no part of it. */
int peal_query_port_speed(struct ib_device *ib, u32 port, u64 *speed)
{
	struct ib_port_speed_info info;
	struct ib_port_attr attr = {};
	int ret;

	peal_query_speed(ib, port, &attr);
	ret = ib_port_attr_to_speed_info(&attr, &info);
	if (!ret)
		*speed = info.rate;
	return ret;
}
#endif

int peal_query_pkey(struct ib_device *ib, u32 port, u16 index, u16 *pkey)
{
	if (index)
		return -EINVAL;
	*pkey = IB_DEFAULT_PKEY_FULL;
	return 0;
}

int peal_query_immutable(struct ib_device *ib, u32 port, struct ib_port_immutable *immutable)
{
	immutable->core_cap_flags = RDMA_CORE_PORT_IBA_ROCE_UDP_ENCAP;
	immutable->max_mad_size = IB_MGMT_MAD_SIZE;
	immutable->pkey_tbl_len = 1;
	immutable->gid_tbl_len = PEAL_GID_TABLE_LEN;
	return 0;
}

enum rdma_link_layer peal_query_link_layer(struct ib_device *ib, u32 port)
{
	return IB_LINK_LAYER_ETHERNET;
}
