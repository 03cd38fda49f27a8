// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Address handles for datagrams, whose paths the kernel resolves, and multicast groups.
 */
#include "ops.hpp"

#include <cstring>
#include <memory>

#include "context.hpp"
#include "pd.hpp"

namespace peal {

namespace {

template <class Request>
int group_command(std::uint32_t number, const ibv_qp &qp, const ibv_gid &gid, std::uint16_t lid)
{
	Request request{};

	static_assert(sizeof(request.gid) == sizeof(gid));
	std::memcpy(request.gid, &gid, sizeof(request.gid));
	request.qp_handle = qp.handle;
	request.mlid = lid;
	return Context::of(qp.context).device.command(number, request);
}

} // namespace

/* libibverbs sets context and pd of the result. */
ibv_ah *ah_create(ibv_pd *pd, ibv_ah_attr *attr)
{
	const Context &context = Context::of(pd->context);
	auto ah = std::make_unique<Ah>(pd);
	const peal_create_ah_req driver_request{};
	peal_create_ah_resp driver_response{};
	ib_uverbs_create_ah request{};
	ib_uverbs_create_ah_resp response{};

	request.user_handle = reinterpret_cast<std::uintptr_t>(ah.get());
	request.pd_handle = pd->handle;
	static_assert(sizeof(request.attr.grh.dgid) == sizeof(attr->grh.dgid));
	std::memcpy(request.attr.grh.dgid, &attr->grh.dgid, sizeof(request.attr.grh.dgid));
	request.attr.grh.flow_label = attr->grh.flow_label;
	request.attr.grh.sgid_index = attr->grh.sgid_index;
	request.attr.grh.hop_limit = attr->grh.hop_limit;
	request.attr.grh.traffic_class = attr->grh.traffic_class;
	request.attr.dlid = attr->dlid;
	request.attr.sl = attr->sl;
	request.attr.src_path_bits = attr->src_path_bits;
	request.attr.static_rate = attr->static_rate;
	request.attr.is_global = attr->is_global;
	request.attr.port_num = attr->port_num;
	check(context.device.command(IB_USER_VERBS_CMD_CREATE_AH, request, response,
				     uverbs::in(driver_request), uverbs::out(driver_response)));
	ah->handle = response.ah_handle;
	ah->index = driver_response.ah_index;
	if (driver_response.comp_mask || !ah->index) {
		context.device.command(IB_USER_VERBS_CMD_DESTROY_AH,
				       ib_uverbs_destroy_ah{ah->handle});
		throw_errno(EPROTO);
	}
	return ah.release();
}

int ah_destroy(ibv_ah *ah)
{
	return delete_if_gone(device_of(ah).command(IB_USER_VERBS_CMD_DESTROY_AH,
						    ib_uverbs_destroy_ah{ah->handle}),
			      static_cast<Ah *>(ah));
}

int mcast_attach(ibv_qp *qp, const ibv_gid *gid, std::uint16_t lid)
{
	return group_command<ib_uverbs_attach_mcast>(IB_USER_VERBS_CMD_ATTACH_MCAST, *qp, *gid,
						     lid);
}

int mcast_detach(ibv_qp *qp, const ibv_gid *gid, std::uint16_t lid)
{
	return group_command<ib_uverbs_detach_mcast>(IB_USER_VERBS_CMD_DETACH_MCAST, *qp, *gid,
						     lid);
}

} // namespace peal
