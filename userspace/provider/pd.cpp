// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Owns: creation and destruction of protection, thread and parent domains.
 * Does not know: the objects created on them. The kernel counts those of a protection domain, and
 * each object those of a parent domain (DomainHold).
 */
#include "pd.hpp"

#include <cstring>
#include <memory>

#include "context.hpp"

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

namespace {

void parent_domain_dealloc(Pd *pd) noexcept
{
	--pd->parent->users;
	if (pd->td)
		--pd->td->users;
	delete pd;
}

} // namespace

int pd_dealloc(ibv_pd *ibpd)
{
	Pd *pd = &Pd::of(ibpd);

	if (pd->users)
		return EBUSY;
	if (pd->parent) {
		parent_domain_dealloc(pd);
		return 0;
	}
	const int error = Context::of(pd->context)
				  .device.command(IB_USER_VERBS_CMD_DEALLOC_PD,
						  ib_uverbs_dealloc_pd{pd->handle});
	if (!object_is_gone(error))
		return error;
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

namespace {

Allocators allocators_of(const ibv_parent_domain_init_attr &attr)
{
	Allocators allocators;

	if (attr.comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS) {
		if (!attr.alloc || !attr.free)
			throw_errno(EINVAL);
		allocators.alloc = attr.alloc;
		allocators.free = attr.free;
	}
	if (attr.comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT)
		allocators.context = attr.pd_context;
	return allocators;
}

void free_wr_ids(void *owner, std::uint64_t *memory) noexcept
{
	Pd *pd = static_cast<Pd *>(owner);

	pd->allocators.free(pd, pd->allocators.context, memory, RESOURCE_WR_IDS);
}

} // namespace

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
	return WrIds(static_cast<std::uint64_t *>(memory), FreeWrIds{free_wr_ids, this});
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

	auto pd = std::make_unique<Pd>();
	pd->context = context;
	pd->handle = base.handle;
	pd->parent = &base;
	pd->td = static_cast<Td *>(attr->td);
	pd->allocators = allocators_of(*attr);
	++base.users;
	if (pd->td)
		++pd->td->users;
	return pd.release();
}

} // namespace peal
