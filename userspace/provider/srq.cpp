// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Shared receive queues: creation, attributes, resize, destruction. */
#include "srq.hpp"

#include <mutex>

#include "entry.hpp"
#include "ops.hpp"

namespace peal {

namespace {

/* Maps a ring whose slot numbers are at `numbers`, or later than `begin`, and its slots after them.
 */
template <class Shape>
Mapping map_srq_ring(const Srq &srq, const Shape &shape, std::uint64_t begin, std::uint64_t numbers)
{
	return map_ring(
		srq.context.device.fd(), shape,
		{{.offset = numbers,
		  .entries = shape.entries,
		  .stride = sizeof(__u32),
		  .begin = begin,
		  .bytes = sizeof(__u32),
		  .most = PEAL_MAX_SRQ_WR,
		  .align = alignof(__u32)},
		 {.offset = shape.slots_offset,
		  .entries = shape.entries,
		  .stride = shape.stride,
		  .begin = numbers + std::uint64_t{shape.entries} * sizeof(__u32),
		  .bytes = sizeof(peal_recv_wqe) + std::uint64_t{srq.max_sge} * sizeof(peal_sge),
		  .most = PEAL_MAX_SRQ_WR,
		  .align = alignof(peal_sge)}});
}

/* Returns the kernel's error. `events` is the number of async events that it has reported. */
int destroy_srq_command(const Context &context, std::uint32_t handle,
			std::uint32_t &events) noexcept
{
	ib_uverbs_destroy_srq_resp response{};
	const int error = context.device.command(IB_USER_VERBS_CMD_DESTROY_SRQ,
						 ib_uverbs_destroy_srq{0, handle, 0}, response);

	events = response.events_reported;
	return error;
}

/*
 * Creates a queue by the command `number`. The caller has set the members of `request` that only
 * one kind of queue has. `attr` is set to the granted values.
 */
template <class Request>
std::unique_ptr<Srq> create(ibv_pd *pd, ibv_srq_attr &attr, std::uint32_t number, Request request)
{
	auto srq = std::make_unique<Srq>(pd);
	const Context &context = srq->context;
	const peal_create_srq_req driver_request{};
	ib_uverbs_create_srq_resp response{};
	peal_create_srq_resp shape{};

	/* The kernel returns this in async events, and libibverbs uses it as an ibv_srq pointer. */
	request.user_handle = reinterpret_cast<std::uintptr_t>(static_cast<ibv_srq *>(srq.get()));
	request.pd_handle = pd->handle;
	request.max_wr = attr.max_wr;
	request.max_sge = attr.max_sge;
	request.srq_limit = attr.srq_limit;
	check(context.device.command(number, request, response, uverbs::in(driver_request),
				     uverbs::out(shape)));
	Rollback destroy([&] {
		std::uint32_t events;

		destroy_srq_command(context, response.srq_handle, events);
	});
	srq->handle = response.srq_handle;
	srq->max_sge = response.max_sge;
	srq->number = response.srqn;
	srq->srq_index = shape.srq_index;
	srq->mapping = map_srq_ring(*srq, shape, sizeof(peal_ring_ctl), shape.ring_offset);
	std::byte *base = srq->mapping.data();
	srq->ring.attach({reinterpret_cast<peal_ring_ctl *>(base),
			  reinterpret_cast<__u32 *>(base + shape.ring_offset),
			  base + shape.slots_offset, shape.entries, shape.stride});
	if constexpr (requires { request.xrcd_handle; }) {
		if (srq->srq_index >= MAX_XRC_SRQS)
			throw_errno(EPROTO);
		srq->context.srq_table.insert(srq->srq_index, srq->number, srq.get());
	}
	attr.max_wr = response.max_wr;
	attr.max_sge = response.max_sge;
	destroy.dismiss();
	return srq;
}

} // namespace

Srq::Srq(ibv_pd *owner) noexcept
	: ibv_srq{}, context(Context::of(owner->context)), domain(owner),
	  lock(needs_locks(context, owner))
{
}

/* libibverbs sets the other members of the result. */
ibv_srq *srq_create(ibv_pd *pd, ibv_srq_init_attr *init)
{
	return create(pd, init->attr, IB_USER_VERBS_CMD_CREATE_SRQ, ib_uverbs_create_srq{})
		.release();
}

/* libibverbs comes here for other types than the basic one, and sets no member of the result. */
ibv_srq *srq_create_ex(ibv_context *context, ibv_srq_init_attr_ex *init)
{
	constexpr std::uint32_t needed = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
					 IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
	ib_uverbs_create_xsrq request{};

	if (init->comp_mask & IBV_SRQ_INIT_ATTR_TYPE && c_enum(init->srq_type) != IBV_SRQT_XRC)
		throw_errno(EOPNOTSUPP);
	if (init->comp_mask != needed || !init->pd || !init->xrcd || !init->cq ||
	    init->pd->context != context || init->xrcd->context != context ||
	    init->cq->context != context)
		throw_errno(EINVAL);
	request.srq_type = IBV_SRQT_XRC;
	request.xrcd_handle = Xrcd::of(init->xrcd).handle;
	request.cq_handle = init->cq->handle;
	Srq *srq = create(init->pd, init->attr, IB_USER_VERBS_CMD_CREATE_XSRQ, request).release();

	srq->cq = &Cq::of(init->cq);
	++srq->cq->users;
	ibv_srq *ibsrq = srq;
	ibsrq->context = context;
	ibsrq->srq_context = init->srq_context;
	ibsrq->pd = init->pd;
	pthread_mutex_init(&ibsrq->mutex, nullptr);
	pthread_cond_init(&ibsrq->cond, nullptr);
	return ibsrq;
}

int srq_number(ibv_srq *ibsrq, std::uint32_t *number) noexcept
{
	const Srq &srq = Srq::of(ibsrq);

	if (!srq.cq)
		return EOPNOTSUPP;
	*number = srq.number;
	return 0;
}

namespace {

/*
 * The caller holds the lock. Returns false if the kernel has posted a WQE again since PREPARE,
 * which `prepare` may not have copied.
 */
bool try_resize(Srq &srq, std::uint32_t max_wr)
{
	peal_resize_srq_resp shape{}, done{};

	const auto step = [&](const peal_resize_srq_req &request, peal_resize_srq_resp &response) {
		return srq.context.device.method(
			UVERBS_OBJECT_SRQ, PEAL_METHOD_SRQ_RESIZE,
			uverbs::attr_handle(PEAL_ATTR_SRQ_RESIZE_HANDLE, srq.handle),
			uverbs::attr_in(PEAL_ATTR_SRQ_RESIZE_REQ, request),
			uverbs::attr_out(PEAL_ATTR_SRQ_RESIZE_RESP, response));
	};

	check(step({0, PEAL_RESIZE_SRQ_PREPARE, max_wr, 0}, shape));
	if (shape.stride != srq.ring.stride())
		throw_errno(EPROTO);
	Mapping mapping = map_srq_ring(srq, shape, 0, 0);
	const auto copied = srq.ring.prepare({reinterpret_cast<peal_ring_ctl *>(srq.mapping.data()),
					      reinterpret_cast<__u32 *>(mapping.data()),
					      mapping.data() + shape.slots_offset, shape.entries,
					      shape.stride});
	if (!copied)
		throw_errno(EINVAL);
	if (const int error = step({0, PEAL_RESIZE_SRQ_COMMIT, 0, 0}, done)) {
		srq.ring.abandon(*copied);
		if (error == EAGAIN)
			return false;
		throw_errno(error);
	}
	srq.ring.finish(*copied, done.taken);
	srq.resized = std::move(mapping);
	return true;
}

} // namespace

/* A resize comes first, so that a limit which needs the larger ring can be armed with it. */
int srq_modify(ibv_srq *ibsrq, ibv_srq_attr *attr, int mask)
{
	Srq &srq = Srq::of(ibsrq);
	ib_uverbs_modify_srq request{};

	if (mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT))
		return EINVAL;
	if (mask & IBV_SRQ_MAX_WR) {
		std::lock_guard hold(srq.lock);

		while (!try_resize(srq, attr->max_wr))
			;
	}
	/* Read only the attributes in the mask, because the others may be uninitialised. */
	if (!(mask & IBV_SRQ_LIMIT))
		return 0;
	request.srq_handle = srq.handle;
	request.attr_mask = IBV_SRQ_LIMIT;
	request.srq_limit = attr->srq_limit;
	return srq.context.device.command(IB_USER_VERBS_CMD_MODIFY_SRQ, request);
}

int srq_query(ibv_srq *srq, ibv_srq_attr *attr)
{
	ib_uverbs_query_srq request{};
	ib_uverbs_query_srq_resp response{};

	request.srq_handle = srq->handle;
	const int error =
		Srq::of(srq).context.device.command(IB_USER_VERBS_CMD_QUERY_SRQ, request, response);
	if (error)
		return error;
	attr->max_wr = response.max_wr;
	attr->max_sge = response.max_sge;
	attr->srq_limit = response.srq_limit;
	return 0;
}

int srq_destroy(ibv_srq *ibsrq)
{
	Srq *srq = &Srq::of(ibsrq);
	std::uint32_t events = 0;

	/* Check this here too, because the kernel does not check it after a removal. */
	if (srq->users)
		return EBUSY;
	const int error = destroy_srq_command(srq->context, ibsrq->handle, events);

	if (!object_is_gone(error))
		return error;
	if (srq->cq) {
		/* No poller can find the queue afterwards, and none is using it. */
		std::lock_guard guard(srq->cq->lock);

		srq->context.srq_table.remove(srq->srq_index, srq);
		drop_stale(*srq->cq);
		--srq->cq->users;
	}
	if (!error)
		wait_for_acks(*ibsrq, [&] { return ibsrq->events_completed == events; });
	pthread_mutex_destroy(&ibsrq->mutex);
	pthread_cond_destroy(&ibsrq->cond);
	delete srq;
	return 0;
}

} // namespace peal
