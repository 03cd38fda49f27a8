// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* See receive_pool.hpp. */
#include "receive_pool.hpp"

#include <cerrno>
#include <new>

#include "cm.hpp"
#include "moved.hpp"
#include "peal/shared_receives.hpp"

namespace peal {

namespace detail {

void keep(receive_pool *of) noexcept
{
	of->users.fetch_add(1, std::memory_order_relaxed);
}

void release(receive_pool *of) noexcept
{
	if (of->users.fetch_sub(1, std::memory_order_acq_rel) == 1)
		delete of;
}

receive_pool::~receive_pool()
{
	/* Before the buffers, so that the device writes to none afterwards. */
	if (srq)
		ibv_destroy_srq(srq);
}

status receive_pool::make(std::uint16_t number, std::uint32_t each, ibv_xrcd *domain,
			  ibv_cq *cq) noexcept
{
	ibv_srq_init_attr_ex want{};

	if (!number || !each || number > device->attr.max_srq_wr)
		return error::make(
			EINVAL,
			"%s shares 1 to %d receives of at least one byte; choose another "
			"number",
			device->name(), device->attr.max_srq_wr);
	auto made = make_block(device.get(), number, each, rights::none);
	if (!made)
		return made.failure();
	buffers = std::move(made).value();
	count = number;
	bytes = each;
	want.attr.max_wr = number;
	want.attr.max_sge = 1;
	want.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
	want.srq_type = IBV_SRQT_BASIC;
	want.pd = device->pd;
	if (domain) {
		want.comp_mask |= IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
		want.srq_type = IBV_SRQT_XRC;
		want.xrcd = domain;
		want.cq = cq;
	}
	srq = ibv_create_srq_ex(device->verbs, &want);
	/* Connections that close wait for events. */
	if (!srq || !make_nonblocking(device->verbs->async_fd))
		return error::make(errno,
				   "%s makes no shared receive queue: %s; see what ibv_devinfo -v "
				   "says about max_srq",
				   device->name(), strerrordesc_np(errno));
	for (std::uint32_t i = 0; i < number; ++i)
		if (const int failed = post(i))
			return error::make(failed,
					   "%s takes no shared receive: %s; see whether it still "
					   "exists",
					   device->name(), strerrordesc_np(failed));
	return {};
}

int receive_pool::post(std::uint32_t buffer) noexcept
{
	ibv_sge entry{};
	ibv_recv_wr receive{}, *bad;

	entry.addr = reinterpret_cast<std::uintptr_t>(buffers->data) + std::size_t{buffer} * bytes;
	entry.length = bytes;
	entry.lkey = static_cast<std::uint32_t>(buffers->local);
	receive.wr_id = buffer;
	receive.sg_list = &entry;
	receive.num_sge = 1;
	return ibv_post_srq_recv(srq, &receive, &bad);
}

} // namespace detail

std::size_t shared_receives::size() const noexcept
{
	return of_ ? of_->count : 0;
}

std::size_t shared_receives::bytes() const noexcept
{
	return of_ ? of_->bytes : 0;
}

result<shared_receives> device::share_receives(std::uint16_t count, std::uint32_t bytes) noexcept
{
	if (!context_)
		return error::make(EBADF, "%s", detail::moved::device);
	detail::kept<detail::receive_pool> made(new (std::nothrow) detail::receive_pool);

	if (!made)
		return error::make(ENOMEM, "there is no memory for a receive queue; close others");
	made->device = context_;
	if (status done = made->make(count, bytes); !done)
		return error::make(done.code(), "%s", done.why());
	return shared_receives(std::move(made));
}

} // namespace peal
