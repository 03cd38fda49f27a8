// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Owns: creation, destruction and resizing of a completion queue, and its arming.
 * Does not know: the meaning of a completion (poll), how it is read (poll, cq_ex).
 */
#include "cq.hpp"

#include <bit>
#include <mutex>
#include <utility>

namespace peal {

namespace {

ib_uverbs_create_cq core_request(const CqRequest &request, const ibv_cq *cq) noexcept
{
	ib_uverbs_create_cq core{};

	/* The kernel returns this in events, and libibverbs uses it as an ibv_cq pointer. */
	core.user_handle = reinterpret_cast<std::uintptr_t>(cq);
	core.cqe = request.cqe;
	core.comp_vector = request.comp_vector;
	core.comp_channel = request.channel ? request.channel->fd : -1;
	return core;
}

bool is_ring(std::uint32_t entries, std::uint64_t bytes) noexcept
{
	return std::has_single_bit(entries) && bytes / sizeof(peal_cqe) >= entries;
}

bool plausible(const peal_create_cq_resp &shape) noexcept
{
	return !shape.comp_mask && shape.map_bytes >= PEAL_CQ_RING_OFFSET &&
	       is_ring(shape.entries, shape.map_bytes - PEAL_CQ_RING_OFFSET);
}

bool plausible(const peal_resize_cq_resp &shape, std::uint32_t asked) noexcept
{
	return !shape.comp_mask && shape.entries >= asked &&
	       is_ring(shape.entries, shape.map_bytes);
}

} // namespace

Cq::Cq(Context &owner, bool single_threaded, ibv_pd *parent_domain) noexcept
	: context(owner), domain(parent_domain), lock(!single_threaded && !owner.single_threaded)
{
	/* Clear both members of the union, because ibv_cq_ex is longer. Unset readers are null. */
	std::memset(static_cast<verbs_cq *>(this), 0, sizeof(verbs_cq));
}

std::unique_ptr<Cq> Cq::create(Context &context, const CqRequest &request)
{
	auto cq = std::make_unique<Cq>(context, request.single_threaded, request.domain);
	const peal_create_cq_req driver_request{0, request.clocks};
	ib_uverbs_create_cq_resp response{};
	peal_create_cq_resp shape{};

	check(context.device.command(IB_USER_VERBS_CMD_CREATE_CQ, core_request(request, &cq->cq),
				     response, uverbs::in(driver_request), uverbs::out(shape)));
	Rollback destroy([&] {
		ib_uverbs_destroy_cq_resp ignored{};

		context.device.command(IB_USER_VERBS_CMD_DESTROY_CQ,
				       ib_uverbs_destroy_cq{0, response.cq_handle, 0}, ignored);
	});
	if (!plausible(shape))
		throw_errno(EPROTO);
	cq->mapping = Mapping(context.device.fd(), shape.map_offset, shape.map_bytes);
	cq->ring = CompletionRing(cq->mapping.data(), shape.entries);
	cq->cq.handle = response.cq_handle;
	cq->cq.cqe = static_cast<int>(response.cqe);
	destroy.dismiss();
	return cq;
}

ibv_cq *cq_create(ibv_context *context, int cqe, ibv_comp_channel *channel, int comp_vector)
{
	if (cqe <= 0 || comp_vector < 0)
		throw_errno(EINVAL);
	const CqRequest request{static_cast<std::uint32_t>(cqe),
				static_cast<std::uint32_t>(comp_vector), channel, false};

	return &Cq::create(Context::of(context), request).release()->cq;
}

namespace {

/* Wait, because events that the program has read point to `cq` until acknowledged. */
void wait_for_acks(ibv_cq &cq, const ib_uverbs_destroy_cq_resp &reported) noexcept
{
	pthread_mutex_lock(&cq.mutex);
	while (cq.comp_events_completed != reported.comp_events_reported ||
	       cq.async_events_completed != reported.async_events_reported)
		pthread_cond_wait(&cq.cond, &cq.mutex);
	pthread_mutex_unlock(&cq.mutex);
}

} // namespace

int cq_destroy(ibv_cq *ibcq)
{
	Cq *cq = &Cq::of(ibcq);
	ib_uverbs_destroy_cq_resp reported{};

	/* Check this here too, because the kernel does not check it after a removal. */
	if (cq->users)
		return EBUSY;
	const int error = cq->context.device.command(
		IB_USER_VERBS_CMD_DESTROY_CQ, ib_uverbs_destroy_cq{0, ibcq->handle, 0}, reported);

	if (!object_is_gone(error))
		return error;
	if (!error)
		wait_for_acks(*ibcq, reported);
	pthread_mutex_destroy(&ibcq->mutex);
	pthread_cond_destroy(&ibcq->cond);
	delete cq;
	return 0;
}

namespace {

/* One of the two calls of a resize. `shape` is written by PREPARE. */
int resize_step(const Cq &cq, peal_resize_cq_step step, std::uint32_t cqe,
		uverbs::WritableBytes shape = {}) noexcept
{
	const peal_resize_cq_req request{0, step};
	ib_uverbs_resize_cq_resp response{};

	return cq.context.device.command(IB_USER_VERBS_CMD_RESIZE_CQ,
					 ib_uverbs_resize_cq{0, cq.cq.handle, cqe}, response,
					 uverbs::in(request), shape);
}

} // namespace

int cq_resize(ibv_cq *ibcq, int cqe)
{
	Cq &cq = Cq::of(ibcq);
	peal_resize_cq_resp shape{};

	if (cqe <= 0 || cqe > PEAL_MAX_CQE)
		return EINVAL;
	const auto entries = static_cast<std::uint32_t>(cqe);
	std::lock_guard hold(cq.lock);
	/*
	 * Between start_poll and end_poll the program reads `current` in the old ring. Only a
	 * single-threaded CQ gets here then, because its lock does nothing.
	 */
	if (cq.current)
		return EBUSY;
	check(resize_step(cq, PEAL_RESIZE_CQ_PREPARE, entries, uverbs::out(shape)));
	if (!plausible(shape, entries))
		return EPROTO;
	Mapping ring(cq.context.device.fd(), shape.map_offset, shape.map_bytes);
	cq.ring.publish();
	check(resize_step(cq, PEAL_RESIZE_CQ_COMMIT, entries));
	cq.resized = std::move(ring);
	cq.ring.resize(cq.resized.data(), shape.entries);
	ibcq->cqe = static_cast<int>(shape.entries);
	return 0;
}

int cq_modify(ibv_cq *cq, ibv_modify_cq_attr *attr)
{
	const ib_uverbs_ex_modify_cq core{cq->handle,
					  attr->attr_mask,
					  {attr->moderate.cq_count, attr->moderate.cq_period},
					  0};

	return Cq::of(cq).context.device.command(
		IB_USER_VERBS_EX_CMD_MODIFY_CQ | IB_USER_VERBS_CMD_FLAG_EXTENDED, core);
}

/* Arming is a store and barrier E. It needs no system call. */
int cq_req_notify(ibv_cq *cq, int solicited_only) noexcept
{
	Cq::of(cq).ring.arm(solicited_only ? PEAL_CQ_ARM_SOLICITED : PEAL_CQ_ARM_NEXT);
	return 0;
}

} // namespace peal
