// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Owns: creation and destruction of an address handle, and the attachment to multicast groups.
 * Does not know: the path of a handle, which the kernel resolves.
 */
#include "ah.hpp"

#include <cstring>
#include <memory>

#include "context.hpp"

namespace peal {

namespace {

ib_uverbs_ah_attr to_kernel(const ibv_ah_attr &attr) noexcept
{
	ib_uverbs_ah_attr ah{};

	static_assert(sizeof(ah.grh.dgid) == sizeof(attr.grh.dgid));
	std::memcpy(ah.grh.dgid, &attr.grh.dgid, sizeof(ah.grh.dgid));
	ah.grh.flow_label = attr.grh.flow_label;
	ah.grh.sgid_index = attr.grh.sgid_index;
	ah.grh.hop_limit = attr.grh.hop_limit;
	ah.grh.traffic_class = attr.grh.traffic_class;
	ah.dlid = attr.dlid;
	ah.sl = attr.sl;
	ah.src_path_bits = attr.src_path_bits;
	ah.static_rate = attr.static_rate;
	ah.is_global = attr.is_global;
	ah.port_num = attr.port_num;
	return ah;
}

int destroy_command(const Context &context, std::uint32_t handle) noexcept
{
	return context.device.command(IB_USER_VERBS_CMD_DESTROY_AH, ib_uverbs_destroy_ah{handle});
}

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
	request.attr = to_kernel(*attr);
	check(context.device.command(IB_USER_VERBS_CMD_CREATE_AH, request, response,
				     uverbs::in(driver_request), uverbs::out(driver_response)));
	ah->handle = response.ah_handle;
	ah->index = driver_response.ah_index;
	if (driver_response.comp_mask || !ah->index) {
		destroy_command(context, ah->handle);
		throw_errno(EPROTO);
	}
	return ah.release();
}

int ah_destroy(ibv_ah *ibah)
{
	const int error = destroy_command(Context::of(ibah->context), ibah->handle);

	if (!object_is_gone(error))
		return error;
	delete static_cast<Ah *>(ibah);
	return 0;
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
