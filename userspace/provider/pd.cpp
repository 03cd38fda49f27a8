// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Protection, thread and parent domains, and XRC domains. The kernel counts the objects of a
 * protection domain, and each object counts itself at its parent domain (DomainHold).
 */
#include "ops.hpp"

#include <cstring>
#include <memory>

#include "context.hpp"
#include "pd.hpp"

namespace peal {

ibv_pd *pd_alloc(ibv_context *context)
{
	auto pd = std::make_unique<Pd>();
	ib_uverbs_alloc_pd_resp response{};

	check(Context::of(context).device.command(IB_USER_VERBS_CMD_ALLOC_PD, ib_uverbs_alloc_pd{},
						  response));
	pd->context = context;
	pd->handle = response.pd_handle;
	return pd.release();
}

ibv_pd *pd_import(ibv_context *context, std::uint32_t handle)
{
	auto pd = std::make_unique<Pd>();

	pd->context = context;
	pd->handle = handle;
	return pd.release();
}

void pd_unimport(ibv_pd *pd) noexcept
{
	delete &Pd::of(pd);
}

int pd_dealloc(ibv_pd *ibpd)
{
	Pd *pd = &Pd::of(ibpd);

	if (pd->users)
		return EBUSY;
	if (!pd->parent)
		return delete_if_gone(device_of(pd).command(IB_USER_VERBS_CMD_DEALLOC_PD,
							    ib_uverbs_dealloc_pd{pd->handle}),
				      pd);
	--pd->parent->users;
	if (pd->td)
		--pd->td->users;
	delete pd;
	return 0;
}

ibv_td *td_alloc(ibv_context *context, ibv_td_init_attr *attr)
{
	if (attr->comp_mask)
		throw_errno(EINVAL);
	auto td = std::make_unique<Td>();
	td->context = context;
	return td.release();
}

int td_dealloc(ibv_td *ibtd)
{
	Td *td = static_cast<Td *>(ibtd);

	if (td->users)
		return EBUSY;
	delete td;
	return 0;
}

WrIds Pd::alloc_wr_ids(std::uint32_t entries)
{
	const std::size_t bytes = std::size_t{entries} * sizeof(std::uint64_t);

	if (!allocators.alloc || !entries)
		return {};
	void *memory =
		allocators.alloc(this, allocators.context, bytes, PEAL_CACHE_LINE, RESOURCE_WR_IDS);
	if (memory == IBV_ALLOCATOR_USE_DEFAULT)
		return {};
	if (!memory)
		throw_errno(ENOMEM);
	std::memset(memory, 0, bytes);
	const auto release = [](void *owner, std::uint64_t *wr_ids) noexcept {
		Pd *pd = static_cast<Pd *>(owner);

		pd->allocators.free(pd, pd->allocators.context, wr_ids, RESOURCE_WR_IDS);
	};
	return WrIds(static_cast<std::uint64_t *>(memory), FreeWrIds{release, this});
}

ibv_pd *parent_domain_alloc(ibv_context *context, ibv_parent_domain_init_attr *attr)
{
	constexpr auto known =
		IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;

	if (!attr->pd || (attr->comp_mask & ~known))
		throw_errno(EINVAL);
	Pd &base = Pd::of(attr->pd);
	if (base.parent || base.context != context || (attr->td && attr->td->context != context))
		throw_errno(EINVAL);
	if (attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS &&
	    (!attr->alloc || !attr->free))
		throw_errno(EINVAL);

	auto pd = std::make_unique<Pd>();
	pd->context = context;
	pd->handle = base.handle;
	pd->parent = &base;
	pd->td = static_cast<Td *>(attr->td);
	if (attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS) {
		pd->allocators.alloc = attr->alloc;
		pd->allocators.free = attr->free;
	}
	if (attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT)
		pd->allocators.context = attr->pd_context;
	++base.users;
	if (pd->td)
		++pd->td->users;
	return pd.release();
}

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

	return delete_if_gone(device_of(ibxrcd).command(IB_USER_VERBS_CMD_CLOSE_XRCD,
							ib_uverbs_close_xrcd{xrcd->handle}),
			      xrcd);
}

} // namespace peal
