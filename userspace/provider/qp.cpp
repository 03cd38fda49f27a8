// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Owns: creation and destruction of a queue pair.
 * Does not know: the kernel's encoding of attributes (qp_attr), how work requests
 * become WQEs (post, qp_ex).
 */
#include "qp.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <mutex>
#include <optional>

#include "c_enum.hpp"
#include "pd.hpp"
#include "poll.hpp"
#include "qp_attr.hpp"
#include "xrcd.hpp"

namespace peal {

namespace {

bool needs_locks(const Context &context, ibv_pd *pd) noexcept
{
	return !context.single_threaded && !(pd && Pd::of(pd).single_threaded());
}

bool is_target(const ibv_qp_init_attr_ex &attr) noexcept
{
	return c_enum(attr.qp_type) == IBV_QPT_XRC_RECV;
}

/* An initiator receives nothing, so its other completion queue is the same. */
Cq &recv_queue_of(const ibv_qp_init_attr_ex &attr, Cq &send_queue) noexcept
{
	return attr.recv_cq ? Cq::of(attr.recv_cq) : send_queue;
}

std::uint8_t transport_of(std::uint32_t qp_type) noexcept
{
	switch (qp_type) {
	case IBV_QPT_RC:
		return TRANSPORT_RC;
	case IBV_QPT_UC:
		return TRANSPORT_UC;
	case IBV_QPT_UD:
		return TRANSPORT_UD;
	case IBV_QPT_XRC_SEND:
		return TRANSPORT_XRC;
	case IBV_QPT_RAW_PACKET:
		return TRANSPORT_RAW;
	default:
		return 0;
	}
}

/* Calls `action` with the locks of both CQs and `others` held. Both CQs may be the same. */
template <class Action, class... Others>
void with_pollers_out(Qp &qp, Action action, Others &...others)
{
	if (&qp.send_queue == &qp.recv_queue) {
		std::scoped_lock guard(qp.send_queue.lock, others...);
		action();
	} else {
		std::scoped_lock guard(qp.send_queue.lock, qp.recv_queue.lock, others...);
		action();
	}
}

/* The caller holds the CQs' locks. Stale CQEs are dropped, so that they do not fill the CQs. */
void drop_stale_completions(Qp &qp) noexcept
{
	drop_stale(qp.send_queue);
	if (&qp.send_queue != &qp.recv_queue)
		drop_stale(qp.recv_queue);
}

/* The caller holds all locks, because the poster and the poller use the indices. */
void forget_posts(Qp &qp) noexcept
{
	qp.state = IBV_QPS_RESET;
	if (qp.no_queue)
		return;
	qp.sq.reset();
	qp.rq.reset();
	drop_shared(qp);
	drop_stale_completions(qp);
}

/* Returns whether the ring lies inside the mapping and its slots hold `bytes`. */
bool ring_fits(const peal_create_qp_resp &shape, std::uint64_t offset, std::uint64_t entries,
	       std::uint64_t stride, std::uint64_t bytes) noexcept
{
	if (!entries)
		return true;
	return std::has_single_bit(entries) && entries <= PEAL_MAX_QP_WR &&
	       offset >= sizeof(peal_qp_ctl) && !(offset % alignof(peal_sge)) &&
	       !(stride % alignof(peal_sge)) && stride >= bytes &&
	       offset + entries * stride <= shape.map_bytes;
}

bool plausible(const peal_create_qp_resp &shape, const ibv_qp_cap &cap) noexcept
{
	const std::uint64_t send_data = std::max<std::uint64_t>(
		std::uint64_t{cap.max_send_sge} * sizeof(peal_sge), cap.max_inline_data);
	const std::uint64_t send_bytes =
		std::max<std::uint64_t>(PEAL_WQE_UNIT, sizeof(peal_send_wqe) + send_data);
	const std::uint64_t recv_bytes =
		sizeof(peal_recv_wqe) + std::uint64_t{cap.max_recv_sge} * sizeof(peal_sge);

	return !shape.comp_mask && shape.qp_index < PEAL_MAX_QP &&
	       shape.map_bytes >= sizeof(peal_qp_ctl) &&
	       ring_fits(shape, shape.sq_offset, shape.sq_entries, shape.sq_stride, send_bytes) &&
	       ring_fits(shape, shape.rq_offset, shape.rq_entries, shape.rq_stride, recv_bytes);
}

void map_rings(Qp &qp, const peal_create_qp_resp &shape)
{
	if (!plausible(shape, qp.cap))
		throw_errno(EPROTO);
	qp.mapping = Mapping(qp.context.device.fd(), shape.map_offset, shape.map_bytes);
	std::byte *base = qp.mapping.data();
	auto *ctl = reinterpret_cast<peal_qp_ctl *>(base);
	/* The kernel makes at least one slot, but a program that asked for none gets none. */
	const std::uint32_t rq_entries = qp.cap.max_recv_wr ? shape.rq_entries : 0;

	Pd &pd = Pd::of(qp.qp.pd);

	qp.sq.attach({&ctl->sq, base + shape.sq_offset, shape.sq_entries, shape.sq_stride},
		     pd.alloc_wr_ids(shape.sq_entries));
	qp.rq.attach({&ctl->rq, base + shape.rq_offset, rq_entries, shape.rq_stride},
		     pd.alloc_wr_ids(rq_entries));
	qp.qp_index = shape.qp_index;
}

/* Returns the kernel's error. `events` is the number of async events that it has reported. */
int destroy_command(const Context &context, std::uint32_t handle, std::uint32_t &events) noexcept
{
	ib_uverbs_destroy_qp_resp response{};
	const int error = context.device.command(IB_USER_VERBS_CMD_DESTROY_QP,
						 ib_uverbs_destroy_qp{0, handle, 0}, response);

	events = response.events_reported;
	return error;
}

} // namespace

Qp::Qp(Context &owner, const ibv_qp_init_attr_ex &attr)
	: context(owner), domain(attr.pd),
	  no_queue(is_target(attr) ? std::make_unique<Cq>(owner, false) : nullptr),
	  send_queue(no_queue ? *no_queue : Cq::of(attr.send_cq)),
	  recv_queue(no_queue ? *no_queue : recv_queue_of(attr, send_queue)),
	  shared(attr.srq ? &Srq::of(attr.srq) : nullptr), signal_all(attr.sq_sig_all),
	  transport(transport_of(c_enum(attr.qp_type))), sq_lock(needs_locks(owner, attr.pd)),
	  rq_lock(needs_locks(owner, attr.pd))
{
	/* Clear both members of the union, so that builders that were not requested are null. */
	std::memset(static_cast<verbs_qp *>(this), 0, sizeof(verbs_qp));
	qp.context = attr.pd ? attr.pd->context : attr.xrcd->context;
	qp.qp_context = attr.qp_context;
	qp.pd = attr.pd;
	qp.send_cq = attr.send_cq;
	qp.recv_cq = attr.recv_cq;
	qp.srq = attr.srq;
	qp.state = IBV_QPS_RESET;
	pthread_mutex_init(&qp.mutex, nullptr);
	pthread_cond_init(&qp.cond, nullptr);
	++send_queue.users;
	++recv_queue.users;
	if (shared)
		++shared->users;
}

Qp::~Qp()
{
	--send_queue.users;
	--recv_queue.users;
	if (shared)
		--shared->users;
	pthread_mutex_destroy(&qp.mutex);
	pthread_cond_destroy(&qp.cond);
}

/* An XRC initiator receives nothing. */
std::unique_ptr<Qp> Qp::create(ibv_qp_init_attr_ex &requested)
{
	ibv_qp_init_attr_ex attr = requested;

	if (c_enum(attr.qp_type) == IBV_QPT_XRC_SEND) {
		attr.recv_cq = nullptr;
		attr.srq = nullptr;
	}
	if (!attr.send_cq || (c_enum(attr.qp_type) != IBV_QPT_XRC_SEND && !attr.recv_cq))
		throw_errno(EINVAL);
	/* A handle of another context may name another object in this one. */
	const ibv_context *context = attr.pd->context;
	if (attr.send_cq->context != context ||
	    (attr.recv_cq && attr.recv_cq->context != context) ||
	    (attr.srq && attr.srq->context != context))
		throw_errno(EINVAL);
	auto owned = std::make_unique<Qp>(Context::of(attr.pd->context), attr);
	Qp &qp = *owned;
	const peal_create_qp_req driver_request{};
	ib_uverbs_create_qp_resp response{};
	peal_create_qp_resp shape{};

	check(qp.context.device.command(IB_USER_VERBS_CMD_CREATE_QP,
					create_qp_request(attr, &qp.qp), response,
					uverbs::in(driver_request), uverbs::out(shape)));
	Rollback destroy([&] {
		std::uint32_t events;

		destroy_command(qp.context, response.qp_handle, events);
	});
	qp.qp.handle = response.qp_handle;
	qp.qp.qp_type = attr.qp_type; /* valid, because the kernel accepted it */
	qp.qp.qp_num = response.qpn;
	qp.cap = granted_cap(response);
	map_rings(qp, shape);
	qp.context.qp_table.insert(qp.qp_index, qp.qp.qp_num, &qp);
	requested.cap = qp.cap;
	destroy.dismiss();
	return owned;
}

/*
 * A target has no rings and no doorbell, so the provider keeps nothing but its handle. The kernel
 * makes it for all processes of the domain.
 */
std::unique_ptr<Qp> Qp::create_target(const ibv_qp_init_attr_ex &attr)
{
	auto owned = std::make_unique<Qp>(Context::of(attr.xrcd->context), attr);
	Qp &qp = *owned;
	ib_uverbs_create_qp request{};
	ib_uverbs_create_qp_resp response{};

	request.user_handle = reinterpret_cast<std::uintptr_t>(&qp.qp);
	request.pd_handle = Xrcd::of(attr.xrcd).handle;
	request.qp_type = IBV_QPT_XRC_RECV;
	check(qp.context.device.command(IB_USER_VERBS_CMD_CREATE_QP, request, response));
	qp.qp.handle = response.qp_handle;
	qp.qp.qp_type = IBV_QPT_XRC_RECV;
	qp.qp.qp_num = response.qpn;
	return owned;
}

std::unique_ptr<Qp> Qp::open_target(const ibv_qp_open_attr &attr)
{
	ibv_qp_init_attr_ex init{};

	init.qp_type = IBV_QPT_XRC_RECV;
	init.xrcd = attr.xrcd;
	if (attr.comp_mask & IBV_QP_OPEN_ATTR_CONTEXT)
		init.qp_context = attr.qp_context;
	auto owned = std::make_unique<Qp>(Context::of(attr.xrcd->context), init);
	Qp &qp = *owned;
	ib_uverbs_open_qp request{};
	ib_uverbs_create_qp_resp response{};

	request.user_handle = reinterpret_cast<std::uintptr_t>(&qp.qp);
	request.pd_handle = Xrcd::of(attr.xrcd).handle;
	request.qpn = attr.qp_num;
	request.qp_type = IBV_QPT_XRC_RECV;
	check(qp.context.device.command(IB_USER_VERBS_CMD_OPEN_QP, request, response));
	qp.qp.handle = response.qp_handle;
	qp.qp.qp_type = IBV_QPT_XRC_RECV;
	qp.qp.qp_num = attr.qp_num;
	return owned;
}

/* Another process may have changed the state, which only the kernel knows. */
ibv_qp *qp_open(ibv_context *context, ibv_qp_open_attr *attr)
{
	constexpr std::uint32_t needed =
		IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;

	if ((attr->comp_mask & ~std::uint32_t{IBV_QP_OPEN_ATTR_CONTEXT}) != needed || !attr->xrcd ||
	    attr->xrcd->context != context || c_enum(attr->qp_type) != IBV_QPT_XRC_RECV)
		throw_errno(EINVAL);
	return &Qp::open_target(*attr).release()->qp;
}

ibv_qp *qp_create(ibv_pd *pd, ibv_qp_init_attr *attr)
{
	ibv_qp_init_attr_ex extended{};

	/* A target needs a domain, which only ibv_create_qp_ex can name. */
	if (c_enum(attr->qp_type) == IBV_QPT_XRC_RECV)
		throw_errno(EINVAL);

	/* The plain attributes are the first members of the extended ones. */
	std::memcpy(static_cast<void *>(&extended), attr, sizeof(*attr));
	extended.comp_mask = IBV_QP_INIT_ATTR_PD;
	extended.pd = pd;
	Qp *qp = Qp::create(extended).release();
	attr->cap = extended.cap;
	return &qp->qp;
}

namespace {

int modify_command(Qp &qp, const ibv_qp_attr &attr, int mask) noexcept
{
	return qp.context.device.command(IB_USER_VERBS_CMD_MODIFY_QP,
					 modify_qp_request(qp.qp, attr, mask));
}

/*
 * Take all locks before the command. If they were taken after it, another thread could
 * bring the queue pair up again in between, and its posts would be forgotten. Take all of
 * them at once, because a poller may hold a CQ's lock and wait for modify_lock in
 * qp_modify.
 */
int modify_to_reset(Qp &qp, const ibv_qp_attr &attr, int mask)
{
	int error = 0;
	const auto modify = [&] {
		error = modify_command(qp, attr, mask);
		if (!error)
			forget_posts(qp);
	};

	with_pollers_out(qp, modify, qp.modify_lock, qp.sq_lock, qp.rq_lock);
	return error;
}

} // namespace

int qp_modify(ibv_qp *ibqp, ibv_qp_attr *attr, int mask)
{
	Qp &qp = Qp::of(ibqp);

	if (mask & IBV_QP_RATE_LIMIT)
		return EOPNOTSUPP;
	if (mask & IBV_QP_STATE && c_enum(attr->qp_state) == IBV_QPS_RESET)
		return modify_to_reset(qp, *attr, mask);
	std::lock_guard guard(qp.modify_lock);
	const int error = modify_command(qp, *attr, mask);

	if (!error && mask & IBV_QP_STATE)
		qp.state = attr->qp_state;
	return error;
}

int qp_query(ibv_qp *ibqp, ibv_qp_attr *attr, int mask, ibv_qp_init_attr *init_attr)
{
	ib_uverbs_query_qp request{};
	ib_uverbs_query_qp_resp response{};

	request.qp_handle = ibqp->handle;
	request.attr_mask = static_cast<std::uint32_t>(mask);
	const int error =
		Qp::of(ibqp).context.device.command(IB_USER_VERBS_CMD_QUERY_QP, request, response);
	if (error)
		return error;
	fill_qp_attr(response, *attr);
	fill_qp_init_attr(response, *ibqp, *init_attr);
	return 0;
}

namespace {

/* Unless it fails, no poller can find the queue pair afterwards, and none is using it. */
int destroy_and_forget(Qp &qp, std::uint32_t &events)
{
	const int error = destroy_command(qp.context, qp.qp.handle, events);

	if (object_is_gone(error) && !qp.no_queue)
		with_pollers_out(qp, [&] {
			return_shared(qp);
			qp.context.qp_table.remove(qp.qp_index, &qp);
			drop_stale_completions(qp);
		});
	return error;
}

/* Wait, because async events that the program has read point to `qp` until acknowledged. */
void wait_for_acks(ibv_qp &qp, std::uint32_t events) noexcept
{
	pthread_mutex_lock(&qp.mutex);
	while (qp.events_completed != events)
		pthread_cond_wait(&qp.cond, &qp.mutex);
	pthread_mutex_unlock(&qp.mutex);
}

} // namespace

int qp_destroy(ibv_qp *ibqp)
{
	Qp *qp = &Qp::of(ibqp);
	std::uint32_t events = 0;
	const int error = destroy_and_forget(*qp, events);

	if (!object_is_gone(error))
		return error;
	if (!error)
		wait_for_acks(*ibqp, events);
	delete qp;
	return 0;
}

} // namespace peal
