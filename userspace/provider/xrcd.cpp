// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Owns: creation and destruction of an XRC domain's handle.
 * Does not know: what the domain contains.
 */
#include "xrcd.hpp"

#include <memory>

#include "context.hpp"
#include "mapping.hpp"

namespace peal {

ibv_xrcd *xrcd_open(ibv_context *context, ibv_xrcd_init_attr *attr)
{
	constexpr std::uint32_t ours = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
	ib_uverbs_open_xrcd request{};
	ib_uverbs_open_xrcd_resp response{};

	if (attr->comp_mask & ~ours || !(attr->comp_mask & IBV_XRCD_INIT_ATTR_FD))
		throw_errno(EINVAL);
	auto xrcd = std::make_unique<Xrcd>();
	request.fd = static_cast<std::uint32_t>(attr->fd);
	if (attr->comp_mask & IBV_XRCD_INIT_ATTR_OFLAGS)
		request.oflags = static_cast<std::uint32_t>(attr->oflags);
	check(Context::of(context).device.command(IB_USER_VERBS_CMD_OPEN_XRCD, request, response));
	xrcd->context = context;
	xrcd->handle = response.xrcd_handle;
	return xrcd.release();
}

int xrcd_close(ibv_xrcd *ibxrcd)
{
	Xrcd *xrcd = &Xrcd::of(ibxrcd);
	const int error = Context::of(ibxrcd->context)
				  .device.command(IB_USER_VERBS_CMD_CLOSE_XRCD,
						  ib_uverbs_close_xrcd{xrcd->handle});

	if (!object_is_gone(error))
		return error;
	delete xrcd;
	return 0;
}

} // namespace peal
