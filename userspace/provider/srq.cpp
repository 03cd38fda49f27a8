// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Owns: creation and destruction of a shared receive queue, and its attributes.
 * Does not know: how work requests become WQEs (post).
 */
#include "srq.hpp"

#include <bit>
#include <mutex>

#include "c_enum.hpp"
#include "pd.hpp"
#include "poll.hpp"
#include "xrcd.hpp"

namespace peal {

namespace {

bool plausible(const peal_create_srq_resp &shape, std::uint64_t max_sge) noexcept
{
	const std::uint64_t bytes = sizeof(peal_recv_wqe) + max_sge * sizeof(peal_sge);
	const std::uint64_t entries = shape.entries;
	const std::uint64_t ring_end = shape.ring_offset + entries * sizeof(__u32);

	return !shape.comp_mask && std::has_single_bit(entries) && entries <= PEAL_MAX_SRQ_WR &&
	       shape.ring_offset >= sizeof(peal_ring_ctl) && !(shape.ring_offset % sizeof(__u32)) &&
	       shape.slots_offset >= ring_end && !(shape.slots_offset % alignof(peal_sge)) &&
	       shape.stride >= bytes && !(shape.stride % alignof(peal_sge)) &&
	       shape.slots_offset + entries * shape.stride <= shape.map_bytes;
}

void map_ring(Srq &srq, const peal_create_srq_resp &shape)
{
	if (!plausible(shape, srq.max_sge))
		throw_errno(EPROTO);
	srq.mapping = Mapping(srq.context.device.fd(), shape.map_offset, shape.map_bytes);
	std::byte *base = srq.mapping.data();

	srq.ring.attach({reinterpret_cast<peal_ring_ctl *>(base),
			 reinterpret_cast<__u32 *>(base + shape.ring_offset),
			 base + shape.slots_offset, shape.entries, shape.stride});
	srq.srq_index = shape.srq_index;
}

ib_uverbs_create_srq core_request(const ibv_srq_init_attr &init, const ibv_pd &pd,
				  const ibv_srq *srq) noexcept
{
	ib_uverbs_create_srq request{};

	/* The kernel returns this in async events, and libibverbs uses it as an ibv_srq pointer. */
	request.user_handle = reinterpret_cast<std::uintptr_t>(srq);
	request.pd_handle = pd.handle;
	request.max_wr = init.attr.max_wr;
	request.max_sge = init.attr.max_sge;
	request.srq_limit = init.attr.srq_limit;
	return request;
}

/* Returns the kernel's error. `events` is the number of async events that it has reported. */
int destroy_command(const Context &context, std::uint32_t handle, std::uint32_t &events) noexcept
{
	ib_uverbs_destroy_srq_resp response{};
	const int error = context.device.command(IB_USER_VERBS_CMD_DESTROY_SRQ,
						 ib_uverbs_destroy_srq{0, handle, 0}, response);

	events = response.events_reported;
	return error;
}

/* The kernel has created `srq`. If its ring cannot be used, it is destroyed. */
void finish_creation(Srq &srq, const ib_uverbs_create_srq_resp &response,
		     const peal_create_srq_resp &shape)
{
	Rollback destroy([&] {
		std::uint32_t events;

		destroy_command(srq.context, response.srq_handle, events);
	});
	srq.handle = response.srq_handle;
	srq.max_sge = response.max_sge;
	map_ring(srq, shape);
	destroy.dismiss();
}

} // namespace

Srq::Srq(ibv_pd *owner) noexcept
	: ibv_srq{}, context(Context::of(owner->context)), domain(owner),
	  lock(!context.single_threaded && !Pd::of(owner).single_threaded())
{
}

std::unique_ptr<Srq> Srq::create(ibv_pd *pd, ibv_srq_init_attr &init)
{
	auto srq = std::make_unique<Srq>(pd);
	const peal_create_srq_req driver_request{};
	ib_uverbs_create_srq_resp response{};
	peal_create_srq_resp shape{};

	check(srq->context.device.command(IB_USER_VERBS_CMD_CREATE_SRQ,
					  core_request(init, *pd, srq.get()), response,
					  uverbs::in(driver_request), uverbs::out(shape)));
	finish_creation(*srq, response, shape);
	init.attr.max_wr = response.max_wr;
	init.attr.max_sge = response.max_sge;
	return srq;
}

namespace {

ib_uverbs_create_xsrq xrc_request(const ibv_srq_init_attr_ex &init, const Srq &srq) noexcept
{
	ib_uverbs_create_xsrq request{};

	request.user_handle = reinterpret_cast<std::uintptr_t>(static_cast<const ibv_srq *>(&srq));
	request.srq_type = IBV_SRQT_XRC;
	request.pd_handle = init.pd->handle;
	request.max_wr = init.attr.max_wr;
	request.max_sge = init.attr.max_sge;
	request.srq_limit = init.attr.srq_limit;
	request.xrcd_handle = Xrcd::of(init.xrcd).handle;
	request.cq_handle = init.cq->handle;
	return request;
}

} // namespace

std::unique_ptr<Srq> Srq::create_xrc(ibv_srq_init_attr_ex &init)
{
	auto srq = std::make_unique<Srq>(init.pd);
	const peal_create_srq_req driver_request{};
	ib_uverbs_create_srq_resp response{};
	peal_create_srq_resp shape{};

	check(srq->context.device.command(IB_USER_VERBS_CMD_CREATE_XSRQ, xrc_request(init, *srq),
					  response, uverbs::in(driver_request),
					  uverbs::out(shape)));
	if (shape.srq_index >= MAX_XRC_SRQS) {
		std::uint32_t events;

		destroy_command(srq->context, response.srq_handle, events);
		throw_errno(EPROTO);
	}
	finish_creation(*srq, response, shape);
	srq->number = response.srqn;
	srq->cq = &Cq::of(init.cq);
	++srq->cq->users;
	srq->context.srq_table.insert(srq->srq_index, srq->number, srq.get());
	init.attr.max_wr = response.max_wr;
	init.attr.max_sge = response.max_sge;
	return srq;
}

/* libibverbs comes here for other types than the basic one, and sets no member of the result. */
ibv_srq *srq_create_ex(ibv_context *context, ibv_srq_init_attr_ex *init)
{
	constexpr std::uint32_t needed = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
					 IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;

	if (init->comp_mask & IBV_SRQ_INIT_ATTR_TYPE && c_enum(init->srq_type) != IBV_SRQT_XRC)
		throw_errno(EOPNOTSUPP);
	if (init->comp_mask != needed || !init->pd || !init->xrcd || !init->cq ||
	    init->pd->context != context || init->xrcd->context != context ||
	    init->cq->context != context)
		throw_errno(EINVAL);
	auto srq = Srq::create_xrc(*init);
	ibv_srq *ibsrq = srq.release();

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

/* libibverbs sets the other members of the result. */
ibv_srq *srq_create(ibv_pd *pd, ibv_srq_init_attr *init)
{
	return Srq::create(pd, *init).release();
}

namespace {

int resize_step(const Srq &srq, const peal_resize_srq_req &request,
		peal_resize_srq_resp &response) noexcept
{
	return srq.context.device.method(
		UVERBS_OBJECT_SRQ, PEAL_METHOD_SRQ_RESIZE,
		uverbs::attr_handle(PEAL_ATTR_SRQ_RESIZE_HANDLE, srq.handle),
		uverbs::attr_in(PEAL_ATTR_SRQ_RESIZE_REQ, uverbs::in(request)),
		uverbs::attr_out(PEAL_ATTR_SRQ_RESIZE_RESP, uverbs::out(response)));
}

bool plausible(const Srq &srq, const peal_resize_srq_resp &shape) noexcept
{
	const std::uint64_t entries = shape.entries;

	return !shape.comp_mask && std::has_single_bit(entries) && entries <= PEAL_MAX_SRQ_WR &&
	       shape.slots_offset >= entries * sizeof(__u32) &&
	       !(shape.slots_offset % alignof(peal_sge)) && shape.stride == srq.ring.stride() &&
	       shape.slots_offset + entries * shape.stride <= shape.map_bytes;
}

/*
 * The caller holds the lock. Returns false if the kernel has posted a WQE again since PREPARE,
 * which `prepare` may not have copied.
 */
bool try_resize(Srq &srq, std::uint32_t max_wr)
{
	peal_resize_srq_resp shape{}, done{};

	check(resize_step(srq, {0, PEAL_RESIZE_SRQ_PREPARE, max_wr, 0}, shape));
	if (!plausible(srq, shape))
		throw_errno(EPROTO);
	Mapping mapping(srq.context.device.fd(), shape.map_offset, shape.map_bytes);
	const auto copied = srq.ring.prepare({reinterpret_cast<peal_ring_ctl *>(srq.mapping.data()),
					      reinterpret_cast<__u32 *>(mapping.data()),
					      mapping.data() + shape.slots_offset, shape.entries,
					      shape.stride});
	if (!copied)
		throw_errno(EINVAL);
	if (const int error = resize_step(srq, {0, PEAL_RESIZE_SRQ_COMMIT, 0, 0}, done)) {
		srq.ring.abandon(*copied);
		if (error == EAGAIN)
			return false;
		throw_errno(error);
	}
	srq.ring.finish(*copied, done.taken);
	srq.resized = std::move(mapping);
	return true;
}

void resize(Srq &srq, std::uint32_t max_wr)
{
	std::lock_guard hold(srq.lock);

	while (!try_resize(srq, max_wr))
		;
}

} // namespace

/* A resize comes first, so that a limit which needs the larger ring can be armed with it. */
int srq_modify(ibv_srq *ibsrq, ibv_srq_attr *attr, int mask)
{
	Srq &srq = Srq::of(ibsrq);
	ib_uverbs_modify_srq request{};

	if (mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT))
		return EINVAL;
	if (mask & IBV_SRQ_MAX_WR)
		resize(srq, attr->max_wr);
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

namespace {

/* Wait, because async events that the program has read point to `srq` until acknowledged. */
void wait_for_acks(ibv_srq &srq, std::uint32_t events) noexcept
{
	pthread_mutex_lock(&srq.mutex);
	while (srq.events_completed != events)
		pthread_cond_wait(&srq.cond, &srq.mutex);
	pthread_mutex_unlock(&srq.mutex);
}

} // namespace

namespace {

/* An XRC queue is gone. No poller can find it afterwards, and none is using it. */
void leave_cq(Srq &srq) noexcept
{
	std::lock_guard guard(srq.cq->lock);

	srq.context.srq_table.remove(srq.srq_index, &srq);
	drop_stale(*srq.cq);
	--srq.cq->users;
}

} // namespace

int srq_destroy(ibv_srq *ibsrq)
{
	Srq *srq = &Srq::of(ibsrq);
	std::uint32_t events = 0;

	/* Check this here too, because the kernel does not check it after a removal. */
	if (srq->users)
		return EBUSY;
	const int error = destroy_command(srq->context, ibsrq->handle, events);

	if (!object_is_gone(error))
		return error;
	if (srq->cq)
		leave_cq(*srq);
	if (!error)
		wait_for_acks(*ibsrq, events);
	pthread_mutex_destroy(&ibsrq->mutex);
	pthread_cond_destroy(&ibsrq->cond);
	delete srq;
	return 0;
}

} // namespace peal
