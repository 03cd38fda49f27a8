// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* The attributes of a device and its port. Only the kernel knows the limits of peal. */
#include "ops.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>

#include "context.hpp"
#include "library.hpp"

namespace peal {

namespace {

ibv_device_attr base_attr(const ib_uverbs_query_device_resp &base) noexcept
{
	ibv_device_attr attr{};

	/* fw_ver consists of three 16-bit numbers. */
	std::snprintf(attr.fw_ver, sizeof(attr.fw_ver), "%u.%u.%u",
		      static_cast<unsigned>(base.fw_ver >> 32 & 0xffff),
		      static_cast<unsigned>(base.fw_ver >> 16 & 0xffff),
		      static_cast<unsigned>(base.fw_ver & 0xffff));
	attr.node_guid = base.node_guid;
	attr.sys_image_guid = base.sys_image_guid;
	attr.max_mr_size = base.max_mr_size;
	attr.page_size_cap = base.page_size_cap;
	attr.vendor_id = base.vendor_id;
	attr.vendor_part_id = base.vendor_part_id;
	attr.hw_ver = base.hw_ver;
	attr.device_cap_flags = base.device_cap_flags;
	attr.atomic_cap = static_cast<ibv_atomic_cap>(base.atomic_cap);
	attr.local_ca_ack_delay = base.local_ca_ack_delay;
	attr.phys_port_cnt = base.phys_port_cnt;
	attr.max_qp = static_cast<int>(base.max_qp);
	attr.max_qp_wr = static_cast<int>(base.max_qp_wr);
	attr.max_sge = static_cast<int>(base.max_sge);
	attr.max_sge_rd = static_cast<int>(base.max_sge_rd);
	attr.max_cq = static_cast<int>(base.max_cq);
	attr.max_cqe = static_cast<int>(base.max_cqe);
	attr.max_mr = static_cast<int>(base.max_mr);
	attr.max_pd = static_cast<int>(base.max_pd);
	attr.max_qp_rd_atom = static_cast<int>(base.max_qp_rd_atom);
	attr.max_ee_rd_atom = static_cast<int>(base.max_ee_rd_atom);
	attr.max_res_rd_atom = static_cast<int>(base.max_res_rd_atom);
	attr.max_qp_init_rd_atom = static_cast<int>(base.max_qp_init_rd_atom);
	attr.max_ee_init_rd_atom = static_cast<int>(base.max_ee_init_rd_atom);
	attr.max_ee = static_cast<int>(base.max_ee);
	attr.max_rdd = static_cast<int>(base.max_rdd);
	attr.max_mw = static_cast<int>(base.max_mw);
	attr.max_raw_ipv6_qp = static_cast<int>(base.max_raw_ipv6_qp);
	attr.max_raw_ethy_qp = static_cast<int>(base.max_raw_ethy_qp);
	attr.max_mcast_grp = static_cast<int>(base.max_mcast_grp);
	attr.max_mcast_qp_attach = static_cast<int>(base.max_mcast_qp_attach);
	attr.max_total_mcast_qp_attach = static_cast<int>(base.max_total_mcast_qp_attach);
	attr.max_ah = static_cast<int>(base.max_ah);
	attr.max_fmr = static_cast<int>(base.max_fmr);
	attr.max_map_per_fmr = static_cast<int>(base.max_map_per_fmr);
	attr.max_srq = static_cast<int>(base.max_srq);
	attr.max_srq_wr = static_cast<int>(base.max_srq_wr);
	attr.max_srq_sge = static_cast<int>(base.max_srq_sge);
	attr.max_pkeys = base.max_pkeys;
	return attr;
}

} // namespace

/*
 * The caller may be built with another release of verbs.h. An older `attr` is shorter, and
 * ibv_query_device passes only its first part. A newer `attr` is longer, and its rest is
 * set to zero.
 */
int device_query(ibv_context *context, const ibv_query_device_ex_input *input,
		 ibv_device_attr_ex *attr, std::size_t attr_size)
{
	ib_uverbs_ex_query_device_resp response{};
	ibv_device_attr_ex all{};

	if ((input && input->comp_mask) || attr_size < sizeof(ibv_device_attr))
		return EINVAL;
	const int error = Context::of(context).device.command(
		IB_USER_VERBS_EX_CMD_QUERY_DEVICE | IB_USER_VERBS_CMD_FLAG_EXTENDED,
		ib_uverbs_ex_query_device{}, response);
	if (error)
		return error;
	const auto &transport = response.odp_caps.per_transport_caps;
	all.orig_attr = base_attr(response.base);
	all.odp_caps.general_caps = response.odp_caps.general_caps;
	all.odp_caps.per_transport_caps.rc_odp_caps = transport.rc_odp_caps;
	all.odp_caps.per_transport_caps.uc_odp_caps = transport.uc_odp_caps;
	all.odp_caps.per_transport_caps.ud_odp_caps = transport.ud_odp_caps;
	all.xrc_odp_caps = response.xrc_odp_caps;
	all.completion_timestamp_mask = response.timestamp_mask;
	all.hca_core_clock = response.hca_core_clock;
	all.device_cap_flags_ex = response.device_cap_flags_ex;
	all.raw_packet_caps = response.raw_packet_caps;
	all.cq_mod_caps.max_cq_count = response.cq_moderation_caps.max_cq_moderation_count;
	all.cq_mod_caps.max_cq_period = response.cq_moderation_caps.max_cq_moderation_period;
	all.max_dm_size = response.max_dm_size;
	all.phys_port_cnt_ex = response.base.phys_port_cnt;
	std::memset(static_cast<void *>(attr), 0, attr_size);
	std::memcpy(static_cast<void *>(attr), &all, std::min(attr_size, sizeof(all)));
	return 0;
}

/* As with other devices, tv_nsec has the whole count of the clock's ticks, which are nanoseconds.
 */
int rt_values_query(ibv_context *, ibv_values_ex *values) noexcept
{
	timespec now{};

	if (values->comp_mask & ~std::uint32_t{IBV_VALUES_MASK_RAW_CLOCK})
		return EINVAL;
	if (clock_gettime(CLOCK_MONOTONIC_RAW, &now))
		return errno;
	values->raw_clock.tv_sec = 0;
	values->raw_clock.tv_nsec = now.tv_sec * 1000000000L + now.tv_nsec;
	return 0;
}

int port_query(ibv_context *context, std::uint8_t port, ibv_port_attr *attr)
{
	uverbs::QueryPortResponse response{};
	const int error = Context::of(context).device.method(
		UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_PORT,
		uverbs::attr_value(UVERBS_ATTR_QUERY_PORT_PORT_NUM, port),
		uverbs::attr_out(UVERBS_ATTR_QUERY_PORT_RESP, response));

	if (error)
		return error;
	const ib_uverbs_query_port_resp &legacy = response.legacy;
	std::memset(static_cast<void *>(attr), 0, library().port_attr_bytes);
	attr->state = static_cast<ibv_port_state>(legacy.state);
	attr->max_mtu = static_cast<ibv_mtu>(legacy.max_mtu);
	attr->active_mtu = static_cast<ibv_mtu>(legacy.active_mtu);
	attr->gid_tbl_len = static_cast<int>(legacy.gid_tbl_len);
	attr->port_cap_flags = legacy.port_cap_flags;
	attr->max_msg_sz = legacy.max_msg_sz;
	attr->bad_pkey_cntr = legacy.bad_pkey_cntr;
	attr->qkey_viol_cntr = legacy.qkey_viol_cntr;
	attr->pkey_tbl_len = legacy.pkey_tbl_len;
	attr->lid = legacy.lid;
	attr->sm_lid = legacy.sm_lid;
	attr->lmc = legacy.lmc;
	attr->max_vl_num = legacy.max_vl_num;
	attr->sm_sl = legacy.sm_sl;
	attr->subnet_timeout = legacy.subnet_timeout;
	attr->init_type_reply = legacy.init_type_reply;
	attr->active_width = legacy.active_width;
	attr->active_speed = legacy.active_speed;
	attr->phys_state = legacy.phys_state;
	attr->link_layer = legacy.link_layer;
	attr->flags = legacy.flags;
	attr->port_cap_flags2 = response.port_cap_flags2;
	if (library().port_attr_bytes >= sizeof(pabi_port_attr))
		reinterpret_cast<pabi_port_attr *>(attr)->active_speed_ex =
			response.active_speed_ex;
	return 0;
}

int port_query_speed(ibv_context *context, std::uint32_t port, std::uint64_t *speed)
{
	return Context::of(context).device.method(
		UVERBS_OBJECT_DEVICE, uverbs::METHOD_QUERY_PORT_SPEED,
		uverbs::attr_value(uverbs::ATTR_QUERY_PORT_SPEED_PORT_NUM, port),
		uverbs::attr_out(uverbs::ATTR_QUERY_PORT_SPEED_RESP, *speed));
}

} // namespace peal
