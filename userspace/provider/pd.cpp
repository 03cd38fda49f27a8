// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Owns: the life of protection, thread and parent domains.
 * Does not know: the objects created on them, which the kernel counts.
 */
#include "pd.hpp"

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

	if (pd->parent) {
		parent_domain_dealloc(pd);
		return 0;
	}
	if (pd->users)
		return EBUSY;
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

/*
 * Refuses allocators, because the rings are memory of the kernel and an allocator would be
 * ignored.
 */
ibv_pd *parent_domain_alloc(ibv_context *context, ibv_parent_domain_init_attr *attr)
{
	constexpr auto known =
		IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;

	if (!attr->pd || (attr->comp_mask & ~known))
		throw_errno(EINVAL);
	if (attr->comp_mask)
		throw_errno(EOPNOTSUPP);
	Pd &base = Pd::of(attr->pd);
	if (base.parent)
		throw_errno(EINVAL);

	auto pd = std::make_unique<Pd>();
	pd->context = context;
	pd->handle = base.handle;
	pd->parent = &base;
	pd->td = static_cast<Td *>(attr->td);
	++base.users;
	if (pd->td)
		++pd->td->users;
	return pd.release();
}

} // namespace peal
