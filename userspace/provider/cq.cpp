// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Completion queues: creation, destruction, resize, moderation, arming. */
#include "cq.hpp"

#include <mutex>
#include <utility>

#include "entry.hpp"
#include "ops.hpp"

namespace peal {

namespace {

/* The CQEs of a mapping begin at `offset`. */
template <class Shape>
MappedArray cqes(const Shape &shape, std::uint64_t offset) noexcept
{
	return {.offset = offset,
		.entries = shape.entries,
		.stride = sizeof(peal_cqe),
		.begin = offset,
		.bytes = sizeof(peal_cqe),
		.most = PEAL_MAX_CQE,
		.align = alignof(peal_cqe)};
}

} // namespace

Cq::Cq(Context &owner, bool single_threaded, ibv_pd *parent_domain) noexcept
	: context(owner), domain(parent_domain),
	  lock(!single_threaded && needs_locks(owner, parent_domain))
{
	/* Clear both members of the union, because ibv_cq_ex is longer. Unset readers are null. */
	std::memset(static_cast<verbs_cq *>(this), 0, sizeof(verbs_cq));
}

Cq &Cq::create(Context &context, const CqRequest &request)
{
	auto cq = std::make_unique<Cq>(context, request.single_threaded, request.domain);
	const peal_create_cq_req driver_request{0, request.clocks};
	ib_uverbs_create_cq core{};
	ib_uverbs_create_cq_resp response{};
	peal_create_cq_resp shape{};

	/* The kernel returns this in events, and libibverbs uses it as an ibv_cq pointer. */
	core.user_handle = reinterpret_cast<std::uintptr_t>(&cq->cq);
	core.cqe = request.cqe;
	core.comp_vector = request.comp_vector;
	core.comp_channel = request.channel ? request.channel->fd : -1;
	check(context.device.command(IB_USER_VERBS_CMD_CREATE_CQ, core, response,
				     uverbs::in(driver_request), uverbs::out(shape)));
	Rollback destroy([&] {
		ib_uverbs_destroy_cq_resp ignored{};

		context.device.command(IB_USER_VERBS_CMD_DESTROY_CQ,
				       ib_uverbs_destroy_cq{0, response.cq_handle, 0}, ignored);
	});
	cq->mapping = map_ring(context.device.fd(), shape, {cqes(shape, PEAL_CQ_RING_OFFSET)});
	cq->ring = CompletionRing(cq->mapping.data(), shape.entries);
	cq->cq.handle = response.cq_handle;
	cq->cq.cqe = static_cast<int>(response.cqe);
	destroy.dismiss();
	return *cq.release();
}

ibv_cq *cq_create(ibv_context *context, int cqe, ibv_comp_channel *channel, int comp_vector)
{
	if (cqe <= 0 || comp_vector < 0)
		throw_errno(EINVAL);
	return &Cq::create(Context::of(context),
			   {static_cast<std::uint32_t>(cqe),
			    static_cast<std::uint32_t>(comp_vector), channel, false})
			.cq;
}

/* EINVAL: an unknown attribute. EOPNOTSUPP: a known one that peal does not support. */
ibv_cq_ex *cq_create_ex(ibv_context *context, ibv_cq_init_attr_ex *attr)
{
	constexpr std::uint32_t known_masks =
		IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
	constexpr std::uint32_t known_flags =
		IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
	constexpr std::uint64_t supported_fields = std::uint64_t{IBV_WC_STANDARD_FLAGS} |
						   IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
						   IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
	const std::uint32_t flags = attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS ? attr->flags : 0;
	ibv_pd *const domain =
		attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD ? attr->parent_domain : nullptr;

	if ((attr->comp_mask & ~known_masks) || (flags & ~known_flags))
		throw_errno(EINVAL);
	if ((attr->wc_flags & ~supported_fields) || (flags & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN))
		throw_errno(EOPNOTSUPP);
	if (domain && (domain->context != context || !static_cast<const Pd *>(domain)->parent))
		throw_errno(EINVAL);
	CqRequest request{attr->cqe, attr->comp_vector, attr->channel,
			  bool(flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED)};
	request.domain = domain;
	if (attr->wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP)
		request.clocks |= PEAL_CQ_CLOCK;
	if (attr->wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)
		request.clocks |= PEAL_CQ_WALL_CLOCK;
	Cq &cq = Cq::create(Context::of(context), request);

	set_readers(cq.cq_ex, attr->wc_flags);
	return &cq.cq_ex;
}

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
		wait_for_acks(*ibcq, [&] {
			return ibcq->comp_events_completed == reported.comp_events_reported &&
			       ibcq->async_events_completed == reported.async_events_reported;
		});
	pthread_mutex_destroy(&ibcq->mutex);
	pthread_cond_destroy(&ibcq->cond);
	delete cq;
	return 0;
}

int cq_resize(ibv_cq *ibcq, int cqe)
{
	Cq &cq = Cq::of(ibcq);
	const uverbs::Device &device = cq.context.device;
	peal_resize_cq_resp shape{};
	/* `out` gets the response to PREPARE. */
	const auto step = [&](peal_resize_cq_step number, uverbs::WritableBytes out) {
		const peal_resize_cq_req request{0, number};
		ib_uverbs_resize_cq_resp response{};

		check(device.command(
			IB_USER_VERBS_CMD_RESIZE_CQ,
			ib_uverbs_resize_cq{0, ibcq->handle, static_cast<std::uint32_t>(cqe)},
			response, uverbs::in(request), out));
	};

	if (cqe <= 0 || cqe > PEAL_MAX_CQE)
		return EINVAL;
	std::lock_guard hold(cq.lock);
	/*
	 * Between start_poll and end_poll the program reads `current` in the old ring. Only a
	 * single-threaded CQ gets here then, because its lock does nothing.
	 */
	if (cq.current || cq.taken)
		return EBUSY;
	step(PEAL_RESIZE_CQ_PREPARE, uverbs::out(shape));
	if (shape.entries < static_cast<std::uint32_t>(cqe))
		return EPROTO;
	Mapping ring = map_ring(device.fd(), shape, {cqes(shape, 0)});
	cq.ring.publish();
	step(PEAL_RESIZE_CQ_COMMIT, {});
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
