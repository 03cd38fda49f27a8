// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Owns: creation and destruction of a work queue and of an indirection table.
 * Does not know: how work requests become WQEs (post).
 */
#include "wq.hpp"

#include <bit>
#include <cstring>
#include <memory>
#include <mutex>

#include "c_enum.hpp"
#include "pd.hpp"
#include "poll.hpp"
#include "post.hpp"

namespace peal {

namespace {

constexpr std::uint32_t extended(std::uint32_t command) noexcept
{
	return command | IB_USER_VERBS_CMD_FLAG_EXTENDED;
}

bool plausible(const peal_create_wq_resp &shape, std::uint64_t max_sge) noexcept
{
	const std::uint64_t bytes = sizeof(peal_recv_wqe) + max_sge * sizeof(peal_sge);
	const std::uint64_t entries = shape.entries;

	return !shape.comp_mask && shape.wq_index < PEAL_MAX_WQ && std::has_single_bit(entries) &&
	       entries <= PEAL_MAX_QP_WR && shape.slots_offset >= sizeof(peal_ring_ctl) &&
	       !(shape.slots_offset % alignof(peal_sge)) && shape.stride >= bytes &&
	       !(shape.stride % alignof(peal_sge)) &&
	       shape.slots_offset + entries * shape.stride <= shape.map_bytes;
}

void map_ring(Wq &wq, const peal_create_wq_resp &shape)
{
	if (!plausible(shape, wq.max_sge))
		throw_errno(EPROTO);
	wq.mapping = Mapping(wq.context.device.fd(), shape.map_offset, shape.map_bytes);
	std::byte *base = wq.mapping.data();

	wq.ring.attach({reinterpret_cast<peal_ring_ctl *>(base), base + shape.slots_offset,
			shape.entries, shape.stride},
		       Pd::of(wq.pd).alloc_wr_ids(shape.entries));
	wq.wq_index = shape.wq_index;
}

/* Returns the kernel's error. `events` is the number of async events that it has reported. */
int destroy_command(const Context &context, std::uint32_t handle, std::uint32_t &events) noexcept
{
	ib_uverbs_ex_destroy_wq request{};
	ib_uverbs_ex_destroy_wq_resp response{};

	request.wq_handle = handle;
	const int error = context.device.command(extended(IB_USER_VERBS_EX_CMD_DESTROY_WQ), request,
						 response);
	events = response.events_reported;
	return error;
}

ib_uverbs_ex_create_wq core_request(const ibv_wq_init_attr &init, const ibv_wq *wq) noexcept
{
	ib_uverbs_ex_create_wq request{};

	/* The kernel returns this in async events, and libibverbs uses it as an ibv_wq pointer. */
	request.user_handle = reinterpret_cast<std::uintptr_t>(wq);
	request.wq_type = c_enum(init.wq_type);
	request.pd_handle = init.pd->handle;
	request.cq_handle = init.cq->handle;
	request.max_wr = init.max_wr;
	request.max_sge = init.max_sge;
	if (init.comp_mask & IBV_WQ_INIT_ATTR_FLAGS)
		request.create_flags = init.create_flags;
	return request;
}

/* Objects of another context have handles that name others here. */
void check_init(const ibv_context *context, const ibv_wq_init_attr &init)
{
	if (init.comp_mask & ~std::uint32_t{IBV_WQ_INIT_ATTR_FLAGS} || !init.pd || !init.cq ||
	    init.pd->context != context || init.cq->context != context)
		throw_errno(EINVAL);
}

} // namespace

Wq::Wq(const ibv_wq_init_attr &init)
	: ibv_wq{}, context(Context::of(init.pd->context)), domain(init.pd), queue(Cq::of(init.cq)),
	  lock(!context.single_threaded && !Pd::of(init.pd).single_threaded())
{
	ibv_wq::context = init.pd->context;
	pd = init.pd;
	cq = init.cq;
	wq_type = init.wq_type;
	state = IBV_WQS_RESET;
	post_recv = post_wq_recv;
	++queue.users;
}

Wq::~Wq()
{
	--queue.users;
}

/* libibverbs sets the members for events. */
ibv_wq *wq_create(ibv_context *context, ibv_wq_init_attr *init)
{
	check_init(context, *init);
	auto wq = std::make_unique<Wq>(*init);
	const peal_create_wq_req driver_request{};
	ib_uverbs_ex_create_wq_resp response{};
	peal_create_wq_resp shape{};

	check(wq->context.device.command(extended(IB_USER_VERBS_EX_CMD_CREATE_WQ),
					 core_request(*init, wq.get()), response,
					 uverbs::in(driver_request), uverbs::out(shape)));
	Rollback destroy([&] {
		std::uint32_t events;

		destroy_command(wq->context, response.wq_handle, events);
	});
	wq->handle = response.wq_handle;
	wq->wq_num = response.wqn;
	wq->max_sge = response.max_sge;
	map_ring(*wq, shape);
	wq->context.wq_table.insert(wq->wq_index, wq->wq_num, wq.get());
	init->max_wr = response.max_wr;
	init->max_sge = response.max_sge;
	destroy.dismiss();
	return wq.release();
}

namespace {

int modify_command(Wq &wq, const ibv_wq_attr &attr) noexcept
{
	ib_uverbs_ex_modify_wq request{};

	/* Read only the attributes in the mask, because the others may be uninitialised. */
	request.attr_mask = attr.attr_mask;
	request.wq_handle = wq.handle;
	if (attr.attr_mask & IBV_WQ_ATTR_STATE)
		request.wq_state = c_enum(attr.wq_state);
	if (attr.attr_mask & IBV_WQ_ATTR_CURR_STATE)
		request.curr_wq_state = c_enum(attr.curr_wq_state);
	if (attr.attr_mask & IBV_WQ_ATTR_FLAGS) {
		request.flags = attr.flags;
		request.flags_mask = attr.flags_mask;
	}
	return wq.context.device.command(extended(IB_USER_VERBS_EX_CMD_MODIFY_WQ), request);
}

/* As with a queue pair, all locks are taken before the command. */
int modify_to_reset(Wq &wq, const ibv_wq_attr &attr)
{
	std::scoped_lock guard(wq.queue.lock, wq.lock);
	const int error = modify_command(wq, attr);

	if (error)
		return error;
	wq.state = IBV_WQS_RESET;
	wq.ring.reset();
	drop_stale(wq.queue);
	return 0;
}

} // namespace

int wq_modify(ibv_wq *ibwq, ibv_wq_attr *attr)
{
	Wq &wq = Wq::of(ibwq);
	const bool changes = attr->attr_mask & IBV_WQ_ATTR_STATE;

	/* The kernel's core refuses such a state, but then keeps the work queue locked for ever. */
	if ((changes && c_enum(attr->wq_state) > IBV_WQS_ERR) ||
	    (attr->attr_mask & IBV_WQ_ATTR_CURR_STATE && c_enum(attr->curr_wq_state) > IBV_WQS_ERR))
		return EINVAL;
	if (changes && c_enum(attr->wq_state) == IBV_WQS_RESET)
		return modify_to_reset(wq, *attr);
	std::lock_guard guard(wq.lock);
	const int error = modify_command(wq, *attr);

	if (!error && changes)
		wq.state = attr->wq_state;
	return error;
}

namespace {

/* Wait, because async events that the program has read point to `wq` until acknowledged. */
void wait_for_acks(ibv_wq &wq, std::uint32_t events) noexcept
{
	pthread_mutex_lock(&wq.mutex);
	while (wq.events_completed != events)
		pthread_cond_wait(&wq.cond, &wq.mutex);
	pthread_mutex_unlock(&wq.mutex);
}

/* No poller can find it afterwards, and none is using it. */
void leave_cq(Wq &wq) noexcept
{
	std::lock_guard guard(wq.queue.lock);

	wq.context.wq_table.remove(wq.wq_index, &wq);
	drop_stale(wq.queue);
}

} // namespace

int wq_destroy(ibv_wq *ibwq)
{
	Wq *wq = &Wq::of(ibwq);
	std::uint32_t events = 0;

	/* Check this here too, because the kernel does not check it after a removal. */
	if (wq->users)
		return EBUSY;
	const int error = destroy_command(wq->context, ibwq->handle, events);

	if (!object_is_gone(error))
		return error;
	leave_cq(*wq);
	if (!error)
		wait_for_acks(*ibwq, events);
	pthread_mutex_destroy(&ibwq->mutex);
	pthread_cond_destroy(&ibwq->cond);
	delete wq;
	return 0;
}

/* ---- indirection tables ---- */

IndTable::IndTable(ibv_context *owner, const ibv_rwq_ind_table_init_attr &init)
	: ibv_rwq_ind_table{}
{
	context = owner;
	const std::size_t entries = std::size_t{1} << init.log_ind_tbl_size;

	/* reserve() may reserve more. */
	wqs.reserve(entries);
	for (std::size_t i = 0; i < entries; ++i) {
		ibv_wq *wq = init.ind_tbl[i];

		if (!wq || wq->context != owner)
			throw_errno(EINVAL);
		wqs.push_back(&Wq::of(wq));
	}
	for (Wq *wq : wqs)
		++wq->users;
}

IndTable::~IndTable()
{
	for (Wq *wq : wqs)
		--wq->users;
}

namespace {

constexpr std::uint32_t MAX_LOG_ENTRIES = std::bit_width(unsigned{PEAL_MAX_IND_TABLE}) - 1;

/* The fixed part, and then the handles of the work queues. */
std::vector<std::byte> table_request(const IndTable &table, std::uint32_t log_entries)
{
	const std::uint32_t fixed[2] = {0, log_entries}; /* comp_mask first */
	std::vector<std::byte> message(sizeof(fixed) + table.wqs.size() * sizeof(__u32));
	std::byte *to = message.data();

	static_assert(sizeof(fixed) == sizeof(ib_uverbs_ex_create_rwq_ind_table));
	std::memcpy(to, fixed, sizeof(fixed));
	to += sizeof(fixed);
	for (const Wq *wq : table.wqs) {
		std::memcpy(to, &wq->handle, sizeof(__u32));
		to += sizeof(__u32);
	}
	return message;
}

} // namespace

ibv_rwq_ind_table *ind_table_create(ibv_context *context, ibv_rwq_ind_table_init_attr *init)
{
	if (init->comp_mask || !init->ind_tbl || init->log_ind_tbl_size > MAX_LOG_ENTRIES)
		throw_errno(EINVAL);
	auto table = std::make_unique<IndTable>(context, *init);
	const auto request = table_request(*table, init->log_ind_tbl_size);
	ib_uverbs_ex_create_rwq_ind_table_resp response{};

	check(Context::of(context).device.command_bytes(
		extended(IB_USER_VERBS_EX_CMD_CREATE_RWQ_IND_TBL), request, uverbs::out(response)));
	table->ind_tbl_handle = static_cast<int>(response.ind_tbl_handle);
	table->ind_tbl_num = static_cast<int>(response.ind_tbl_num);
	return table.release();
}

int ind_table_destroy(ibv_rwq_ind_table *ibtable)
{
	IndTable *table = &IndTable::of(ibtable);
	ib_uverbs_ex_destroy_rwq_ind_table request{};

	if (table->users)
		return EBUSY;
	request.ind_tbl_handle = static_cast<std::uint32_t>(ibtable->ind_tbl_handle);
	const int error =
		Context::of(ibtable->context)
			.device.command(extended(IB_USER_VERBS_EX_CMD_DESTROY_RWQ_IND_TBL),
					request);
	if (!object_is_gone(error))
		return error;
	delete table;
	return 0;
}

} // namespace peal
