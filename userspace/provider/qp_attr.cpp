// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Owns: field-by-field copies of queue pair attributes.
 * Does not know: the meaning of the attributes.
 */
#include "qp_attr.hpp"

#include <cstdint>
#include <cstring>

#include "c_enum.hpp"

namespace peal {

ib_uverbs_create_qp create_qp_request(const ibv_qp_init_attr_ex &attr, const ibv_qp *qp) noexcept
{
	ib_uverbs_create_qp request{};

	/* The kernel returns this in async events, and libibverbs uses it as an ibv_qp pointer. */
	request.user_handle = reinterpret_cast<std::uintptr_t>(qp);
	request.pd_handle = attr.pd->handle;
	request.send_cq_handle = attr.send_cq->handle;
	if (attr.recv_cq)
		request.recv_cq_handle = attr.recv_cq->handle;
	request.max_send_wr = attr.cap.max_send_wr;
	request.max_recv_wr = attr.cap.max_recv_wr;
	request.max_send_sge = attr.cap.max_send_sge;
	request.max_recv_sge = attr.cap.max_recv_sge;
	request.max_inline_data = attr.cap.max_inline_data;
	request.sq_sig_all = attr.sq_sig_all != 0;
	request.qp_type = c_enum8(attr.qp_type);
	if (attr.srq) {
		request.is_srq = 1;
		request.srq_handle = attr.srq->handle;
	}
	return request;
}

ibv_qp_cap granted_cap(const ib_uverbs_create_qp_resp &response) noexcept
{
	ibv_qp_cap cap{};

	cap.max_send_wr = response.max_send_wr;
	cap.max_recv_wr = response.max_recv_wr;
	cap.max_send_sge = response.max_send_sge;
	cap.max_recv_sge = response.max_recv_sge;
	cap.max_inline_data = response.max_inline_data;
	return cap;
}

namespace {

ib_uverbs_qp_dest to_dest(const ibv_ah_attr &ah) noexcept
{
	ib_uverbs_qp_dest dest{};

	static_assert(sizeof(dest.dgid) == sizeof(ah.grh.dgid));
	std::memcpy(dest.dgid, &ah.grh.dgid, sizeof(dest.dgid));
	dest.flow_label = ah.grh.flow_label;
	dest.dlid = ah.dlid;
	dest.sgid_index = ah.grh.sgid_index;
	dest.hop_limit = ah.grh.hop_limit;
	dest.traffic_class = ah.grh.traffic_class;
	dest.sl = ah.sl;
	dest.src_path_bits = ah.src_path_bits;
	dest.static_rate = ah.static_rate;
	dest.is_global = ah.is_global;
	dest.port_num = ah.port_num;
	return dest;
}

ibv_ah_attr from_dest(const ib_uverbs_qp_dest &dest) noexcept
{
	ibv_ah_attr ah{};

	std::memcpy(&ah.grh.dgid, dest.dgid, sizeof(dest.dgid));
	ah.grh.flow_label = dest.flow_label;
	ah.dlid = dest.dlid;
	ah.grh.sgid_index = dest.sgid_index;
	ah.grh.hop_limit = dest.hop_limit;
	ah.grh.traffic_class = dest.traffic_class;
	ah.sl = dest.sl;
	ah.src_path_bits = dest.src_path_bits;
	ah.static_rate = dest.static_rate;
	ah.is_global = dest.is_global;
	ah.port_num = dest.port_num;
	return ah;
}

} // namespace

ib_uverbs_modify_qp modify_qp_request(const ibv_qp &qp, const ibv_qp_attr &attr, int mask) noexcept
{
	ib_uverbs_modify_qp request{};

	/* Read only the attributes in the mask, because the others may be uninitialised. */
	if (mask & IBV_QP_AV)
		request.dest = to_dest(attr.ah_attr);
	if (mask & IBV_QP_ALT_PATH)
		request.alt_dest = to_dest(attr.alt_ah_attr);
	request.qp_handle = qp.handle;
	request.attr_mask = static_cast<std::uint32_t>(mask);
	request.qkey = attr.qkey;
	request.rq_psn = attr.rq_psn;
	request.sq_psn = attr.sq_psn;
	request.dest_qp_num = attr.dest_qp_num;
	request.qp_access_flags = attr.qp_access_flags;
	request.pkey_index = attr.pkey_index;
	request.alt_pkey_index = attr.alt_pkey_index;
	request.qp_state = c_enum8(attr.qp_state);
	request.cur_qp_state = c_enum8(attr.cur_qp_state);
	request.path_mtu = c_enum8(attr.path_mtu);
	request.path_mig_state = c_enum8(attr.path_mig_state);
	request.en_sqd_async_notify = attr.en_sqd_async_notify;
	request.max_rd_atomic = attr.max_rd_atomic;
	request.max_dest_rd_atomic = attr.max_dest_rd_atomic;
	request.min_rnr_timer = attr.min_rnr_timer;
	request.port_num = attr.port_num;
	request.timeout = attr.timeout;
	request.retry_cnt = attr.retry_cnt;
	request.rnr_retry = attr.rnr_retry;
	request.alt_port_num = attr.alt_port_num;
	request.alt_timeout = attr.alt_timeout;
	return request;
}

void fill_qp_attr(const ib_uverbs_query_qp_resp &response, ibv_qp_attr &attr) noexcept
{
	attr.qp_state = static_cast<ibv_qp_state>(response.qp_state);
	attr.cur_qp_state = static_cast<ibv_qp_state>(response.cur_qp_state);
	attr.path_mtu = static_cast<ibv_mtu>(response.path_mtu);
	attr.path_mig_state = static_cast<ibv_mig_state>(response.path_mig_state);
	attr.qkey = response.qkey;
	attr.rq_psn = response.rq_psn;
	attr.sq_psn = response.sq_psn;
	attr.dest_qp_num = response.dest_qp_num;
	attr.qp_access_flags = response.qp_access_flags;
	attr.cap.max_send_wr = response.max_send_wr;
	attr.cap.max_recv_wr = response.max_recv_wr;
	attr.cap.max_send_sge = response.max_send_sge;
	attr.cap.max_recv_sge = response.max_recv_sge;
	attr.cap.max_inline_data = response.max_inline_data;
	attr.ah_attr = from_dest(response.dest);
	attr.alt_ah_attr = from_dest(response.alt_dest);
	attr.pkey_index = response.pkey_index;
	attr.alt_pkey_index = response.alt_pkey_index;
	attr.en_sqd_async_notify = 0; /* the kernel does not report it */
	attr.sq_draining = response.sq_draining;
	attr.max_rd_atomic = response.max_rd_atomic;
	attr.max_dest_rd_atomic = response.max_dest_rd_atomic;
	attr.min_rnr_timer = response.min_rnr_timer;
	attr.port_num = response.port_num;
	attr.timeout = response.timeout;
	attr.retry_cnt = response.retry_cnt;
	attr.rnr_retry = response.rnr_retry;
	attr.alt_port_num = response.alt_port_num;
	attr.alt_timeout = response.alt_timeout;
	attr.rate_limit = 0;
}

void fill_qp_init_attr(const ib_uverbs_query_qp_resp &response, const ibv_qp &qp,
		       ibv_qp_init_attr &attr) noexcept
{
	attr.qp_context = qp.qp_context;
	attr.send_cq = qp.send_cq;
	attr.recv_cq = qp.recv_cq;
	attr.srq = qp.srq;
	attr.qp_type = qp.qp_type;
	attr.sq_sig_all = response.sq_sig_all;
	attr.cap.max_send_wr = response.max_send_wr;
	attr.cap.max_recv_wr = response.max_recv_wr;
	attr.cap.max_send_sge = response.max_send_sge;
	attr.cap.max_recv_sge = response.max_recv_sge;
	attr.cap.max_inline_data = response.max_inline_data;
}

} // namespace peal
