// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Queue pairs: creation, attributes, state, destruction. */
#include "qp.hpp"

#include <algorithm>
#include <cstring>
#include <mutex>

#include "entry.hpp"
#include "library.hpp"
#include "ops.hpp"

namespace peal {

namespace {

bool is_target(const ibv_qp_init_attr_ex &attr) noexcept
{
	return c_enum(attr.qp_type) == IBV_QPT_XRC_RECV;
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

/* Maps both rings. Their slots hold what the kernel has granted. */
void map_rings(Qp &qp, const peal_create_qp_resp &shape)
{
	const std::uint64_t send_data = std::max<std::uint64_t>(
		std::uint64_t{qp.cap.max_send_sge} * sizeof(peal_sge), qp.cap.max_inline_data);
	const auto slots = [](std::uint64_t offset, std::uint64_t entries, std::uint64_t stride,
			      std::uint64_t bytes) {
		return MappedArray{.offset = offset,
				   .entries = entries,
				   .stride = stride,
				   .begin = sizeof(peal_qp_ctl),
				   .bytes = bytes,
				   .most = PEAL_MAX_QP_WR,
				   .align = alignof(peal_sge)};
	};

	if (shape.qp_index >= PEAL_MAX_QP)
		throw_errno(EPROTO);
	qp.mapping = map_ring(
		qp.context.device.fd(), shape,
		{slots(shape.sq_offset, shape.sq_entries, shape.sq_stride,
		       std::max<std::uint64_t>(PEAL_WQE_UNIT, sizeof(peal_send_wqe) + send_data)),
		 slots(shape.rq_offset, shape.rq_entries, shape.rq_stride,
		       sizeof(peal_recv_wqe) +
			       std::uint64_t{qp.cap.max_recv_sge} * sizeof(peal_sge))});
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
	if (qp.send_queue.taken)
		qp.sq_to_take = qp.sq.give_away();
	if (qp.recv_queue.taken)
		qp.rq_to_take = qp.rq.give_away();
	qp.keeps_rings_aside = qp.send_queue.taken || qp.recv_queue.taken;
}

/* Returns the kernel's error. `events` is the number of async events that it has reported. */
int destroy_qp_command(const Context &context, std::uint32_t handle, std::uint32_t &events) noexcept
{
	ib_uverbs_destroy_qp_resp response{};
	const int error = context.device.command(IB_USER_VERBS_CMD_DESTROY_QP,
						 ib_uverbs_destroy_qp{0, handle, 0}, response);

	events = response.events_reported;
	return error;
}

/* Returns the limits in the kernel's answer. */
template <class Response>
ibv_qp_cap granted(const Response &response) noexcept
{
	ibv_qp_cap cap{};

	cap.max_send_wr = response.max_send_wr;
	cap.max_recv_wr = response.max_recv_wr;
	cap.max_send_sge = response.max_send_sge;
	cap.max_recv_sge = response.max_recv_sge;
	cap.max_inline_data = response.max_inline_data;
	return cap;
}

/* `requested` contains the PD. Its cap is set to the granted values. */
Qp &create(ibv_qp_init_attr_ex &requested)
{
	ibv_qp_init_attr_ex attr = requested;

	/* An XRC initiator receives nothing. */
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
	/* Nobody would give the slots of the shared receive queue back. */
	if (attr.srq && Cq::of(attr.recv_cq).taken)
		throw_errno(EOPNOTSUPP);
	auto owned = std::make_unique<Qp>(Context::of(attr.pd->context), attr);
	Qp &qp = *owned;
	const peal_create_qp_req driver_request{};
	ib_uverbs_create_qp request{};
	ib_uverbs_create_qp_resp response{};
	peal_create_qp_resp shape{};

	/* The kernel returns this in async events, and libibverbs uses it as an ibv_qp pointer. */
	request.user_handle = reinterpret_cast<std::uintptr_t>(&qp.qp);
	request.pd_handle = attr.pd->handle;
	request.send_cq_handle = attr.send_cq->handle;
	if (attr.recv_cq)
		request.recv_cq_handle = attr.recv_cq->handle;
	request.max_send_wr = attr.cap.max_send_wr;
	request.max_recv_wr = attr.cap.max_recv_wr;
	request.max_send_sge = attr.cap.max_send_sge;
	request.max_recv_sge = attr.cap.max_recv_sge;
	request.max_inline_data = attr.cap.max_inline_data;
	request.sq_sig_all = attr.sq_sig_all != 0;
	request.qp_type = c_enum8(attr.qp_type);
	if (attr.srq) {
		request.is_srq = 1;
		request.srq_handle = attr.srq->handle;
	}
	check(qp.context.device.command(IB_USER_VERBS_CMD_CREATE_QP, request, response,
					uverbs::in(driver_request), uverbs::out(shape)));
	Rollback destroy([&] {
		std::uint32_t events;

		destroy_qp_command(qp.context, response.qp_handle, events);
	});
	qp.qp.handle = response.qp_handle;
	qp.qp.qp_type = attr.qp_type; /* valid, because the kernel accepted it */
	qp.qp.qp_num = response.qpn;
	qp.cap = granted(response);
	qp.plain_opcodes = qp.cap.max_send_sge ? plain_opcodes(qp.transport) : 0;
	map_rings(qp, shape);
	qp.context.qp_table.insert(qp.qp_index, qp.qp.qp_num, &qp);
	requested.cap = qp.cap;
	destroy.dismiss();
	return *owned.release();
}

/*
 * Makes or opens an XRC target by the command `number`. The caller has set the members of `request`
 * that only this command has. A target has no rings and no doorbell, so the provider keeps nothing
 * but its handle. The kernel makes it for all processes of the domain.
 */
template <class Request>
ibv_qp *create_target(ibv_xrcd *xrcd, void *qp_context, std::uint32_t number, Request request)
{
	ibv_qp_init_attr_ex attr{};

	attr.qp_type = IBV_QPT_XRC_RECV;
	attr.qp_context = qp_context;
	attr.xrcd = xrcd;
	auto owned = std::make_unique<Qp>(Context::of(xrcd->context), attr);
	ibv_qp *qp = &owned->qp;
	ib_uverbs_create_qp_resp response{};

	request.user_handle = reinterpret_cast<std::uintptr_t>(qp);
	request.pd_handle = Xrcd::of(xrcd).handle;
	request.qp_type = IBV_QPT_XRC_RECV;
	check(owned->context.device.command(number, request, response));
	qp->handle = response.qp_handle;
	qp->qp_type = IBV_QPT_XRC_RECV;
	qp->qp_num = response.qpn;
	return &owned.release()->qp;
}

} // namespace

Qp::Qp(Context &owner, const ibv_qp_init_attr_ex &attr)
	: context(owner), domain(attr.pd),
	  no_queue(is_target(attr) ? std::make_unique<Cq>(owner, false) : nullptr),
	  send_queue(no_queue ? *no_queue : Cq::of(attr.send_cq)),
	  recv_queue(no_queue	    ? *no_queue
		     : attr.recv_cq ? Cq::of(attr.recv_cq)
				    : send_queue),
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
	Qp &qp = create(extended);
	attr->cap = extended.cap;
	return &qp.qp;
}

/*
 * EINVAL: an unknown attribute. EOPNOTSUPP: a known one that peal does not support. CREATE_FLAGS
 * with no flag set are accepted.
 */
ibv_qp *qp_create_ex(ibv_context *context, ibv_qp_init_attr_ex *attr)
{
	constexpr std::uint32_t ours = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS |
				       IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	constexpr std::uint32_t known = ours | IBV_QP_INIT_ATTR_XRCD |
					IBV_QP_INIT_ATTR_MAX_TSO_HEADER |
					IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH;
	const std::uint64_t builders =
		attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS ? attr->send_ops_flags : 0;
	std::uint64_t supported = 0;

	if (attr->comp_mask & ~known)
		throw_errno(EINVAL);
	if (is_target(*attr)) {
		/* A target needs a domain. Its other attributes are ignored. It posts nothing. */
		if (!(attr->comp_mask & IBV_QP_INIT_ATTR_XRCD) || !attr->xrcd ||
		    attr->xrcd->context != context)
			throw_errno(EINVAL);
		return create_target(attr->xrcd, attr->qp_context, IB_USER_VERBS_CMD_CREATE_QP,
				     ib_uverbs_create_qp{});
	}
	if (attr->comp_mask & ~ours)
		throw_errno(EOPNOTSUPP);
	if (!(attr->comp_mask & IBV_QP_INIT_ATTR_PD) || !attr->pd)
		throw_errno(EINVAL);
	for (const OpcodeFacts &opcode : OPCODES)
		if (opcode.transports & transport_of(c_enum(attr->qp_type)))
			supported |= opcode.builder;
	if (!library().has_atomic_write())
		supported &= ~std::uint64_t{IBV_QP_EX_WITH_ATOMIC_WRITE};
	if (!library().has_flush())
		supported &= ~std::uint64_t{QP_EX_WITH_FLUSH};
	if ((attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS && attr->create_flags) ||
	    builders & ~supported)
		throw_errno(EOPNOTSUPP);
	if (attr->pd->context != context)
		throw_errno(EINVAL);
	Qp &qp = create(*attr);

	if (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)
		set_builders(qp, builders);
	return &qp.qp;
}

/* Another process may have changed the state, which only the kernel knows. */
ibv_qp *qp_open(ibv_context *context, ibv_qp_open_attr *attr)
{
	constexpr std::uint32_t needed =
		IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
	ib_uverbs_open_qp request{};

	if ((attr->comp_mask & ~std::uint32_t{IBV_QP_OPEN_ATTR_CONTEXT}) != needed || !attr->xrcd ||
	    attr->xrcd->context != context || c_enum(attr->qp_type) != IBV_QPT_XRC_RECV)
		throw_errno(EINVAL);
	request.qpn = attr->qp_num;
	return create_target(
		attr->xrcd, attr->comp_mask & IBV_QP_OPEN_ATTR_CONTEXT ? attr->qp_context : nullptr,
		IB_USER_VERBS_CMD_OPEN_QP, request);
}

namespace {

ib_uverbs_qp_dest to_dest(const ibv_ah_attr &ah) noexcept
{
	ib_uverbs_qp_dest dest{};

	static_assert(sizeof(dest.dgid) == sizeof(ah.grh.dgid));
	std::memcpy(dest.dgid, &ah.grh.dgid, sizeof(dest.dgid));
	dest.flow_label = ah.grh.flow_label;
	dest.dlid = ah.dlid;
	dest.sgid_index = ah.grh.sgid_index;
	dest.hop_limit = ah.grh.hop_limit;
	dest.traffic_class = ah.grh.traffic_class;
	dest.sl = ah.sl;
	dest.src_path_bits = ah.src_path_bits;
	dest.static_rate = ah.static_rate;
	dest.is_global = ah.is_global;
	dest.port_num = ah.port_num;
	return dest;
}

ibv_ah_attr from_dest(const ib_uverbs_qp_dest &dest) noexcept
{
	ibv_ah_attr ah{};

	std::memcpy(&ah.grh.dgid, dest.dgid, sizeof(dest.dgid));
	ah.grh.flow_label = dest.flow_label;
	ah.dlid = dest.dlid;
	ah.grh.sgid_index = dest.sgid_index;
	ah.grh.hop_limit = dest.hop_limit;
	ah.grh.traffic_class = dest.traffic_class;
	ah.sl = dest.sl;
	ah.src_path_bits = dest.src_path_bits;
	ah.static_rate = dest.static_rate;
	ah.is_global = dest.is_global;
	ah.port_num = dest.port_num;
	return ah;
}

int modify_command(Qp &qp, const ibv_qp_attr &attr, int mask) noexcept
{
	ib_uverbs_modify_qp request{};

	/* Read only the attributes in the mask, because the others may be uninitialised. */
	if (mask & IBV_QP_AV)
		request.dest = to_dest(attr.ah_attr);
	if (mask & IBV_QP_ALT_PATH)
		request.alt_dest = to_dest(attr.alt_ah_attr);
	request.qp_handle = qp.qp.handle;
	request.attr_mask = static_cast<std::uint32_t>(mask);
	request.qkey = attr.qkey;
	request.rq_psn = attr.rq_psn;
	request.sq_psn = attr.sq_psn;
	request.dest_qp_num = attr.dest_qp_num;
	request.qp_access_flags = attr.qp_access_flags;
	request.pkey_index = attr.pkey_index;
	request.alt_pkey_index = attr.alt_pkey_index;
	request.qp_state = c_enum8(attr.qp_state);
	request.cur_qp_state = c_enum8(attr.cur_qp_state);
	request.path_mtu = c_enum8(attr.path_mtu);
	request.path_mig_state = c_enum8(attr.path_mig_state);
	request.en_sqd_async_notify = attr.en_sqd_async_notify;
	request.max_rd_atomic = attr.max_rd_atomic;
	request.max_dest_rd_atomic = attr.max_dest_rd_atomic;
	request.min_rnr_timer = attr.min_rnr_timer;
	request.port_num = attr.port_num;
	request.timeout = attr.timeout;
	request.retry_cnt = attr.retry_cnt;
	request.rnr_retry = attr.rnr_retry;
	request.alt_port_num = attr.alt_port_num;
	request.alt_timeout = attr.alt_timeout;
	return qp.context.device.command(IB_USER_VERBS_CMD_MODIFY_QP, request);
}

} // namespace

int qp_modify(ibv_qp *ibqp, ibv_qp_attr *attr, int mask)
{
	Qp &qp = Qp::of(ibqp);
	int error = 0;

	if (mask & IBV_QP_RATE_LIMIT)
		return EOPNOTSUPP;
	if (mask & IBV_QP_STATE && c_enum(attr->qp_state) == IBV_QPS_RESET) {
		/* Only the program knows the indices then. */
		if (qp.keeps_rings_aside)
			return EBUSY;
		/*
		 * Take all locks before the command. If they were taken after it, another thread
		 * could bring the queue pair up again in between, and its posts would be forgotten.
		 * Take all of them at once, because a poller may hold a CQ's lock and wait for
		 * modify_lock in qp_modify.
		 */
		const auto reset = [&] {
			error = modify_command(qp, *attr, mask);
			if (!error)
				forget_posts(qp);
		};

		with_pollers_out(qp, reset, qp.modify_lock, qp.sq_lock, qp.rq_lock);
		return error;
	}
	std::lock_guard guard(qp.modify_lock);
	error = modify_command(qp, *attr, mask);
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
	attr->qp_state = static_cast<ibv_qp_state>(response.qp_state);
	attr->cur_qp_state = static_cast<ibv_qp_state>(response.cur_qp_state);
	attr->path_mtu = static_cast<ibv_mtu>(response.path_mtu);
	attr->path_mig_state = static_cast<ibv_mig_state>(response.path_mig_state);
	attr->qkey = response.qkey;
	attr->rq_psn = response.rq_psn;
	attr->sq_psn = response.sq_psn;
	attr->dest_qp_num = response.dest_qp_num;
	attr->qp_access_flags = response.qp_access_flags;
	attr->cap = granted(response);
	attr->ah_attr = from_dest(response.dest);
	attr->alt_ah_attr = from_dest(response.alt_dest);
	attr->pkey_index = response.pkey_index;
	attr->alt_pkey_index = response.alt_pkey_index;
	attr->en_sqd_async_notify = 0; /* the kernel does not report it */
	attr->sq_draining = response.sq_draining;
	attr->max_rd_atomic = response.max_rd_atomic;
	attr->max_dest_rd_atomic = response.max_dest_rd_atomic;
	attr->min_rnr_timer = response.min_rnr_timer;
	attr->port_num = response.port_num;
	attr->timeout = response.timeout;
	attr->retry_cnt = response.retry_cnt;
	attr->rnr_retry = response.rnr_retry;
	attr->alt_port_num = response.alt_port_num;
	attr->alt_timeout = response.alt_timeout;
	attr->rate_limit = 0;
	init_attr->qp_context = ibqp->qp_context;
	init_attr->send_cq = ibqp->send_cq;
	init_attr->recv_cq = ibqp->recv_cq;
	init_attr->srq = ibqp->srq;
	init_attr->qp_type = ibqp->qp_type;
	init_attr->sq_sig_all = response.sq_sig_all;
	init_attr->cap = attr->cap;
	return 0;
}

int qp_destroy(ibv_qp *ibqp)
{
	Qp *qp = &Qp::of(ibqp);
	std::uint32_t events = 0;
	const int error = destroy_qp_command(qp->context, ibqp->handle, events);

	if (!object_is_gone(error))
		return error;
	/* No poller can find the queue pair afterwards, and none is using it. */
	if (!qp->no_queue)
		with_pollers_out(*qp, [qp] {
			return_shared(*qp);
			qp->context.qp_table.remove(qp->qp_index, qp);
			drop_stale_completions(*qp);
		});
	if (!error)
		wait_for_acks(*ibqp, [&] { return ibqp->events_completed == events; });
	delete qp;
	return 0;
}

} // namespace peal
