// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Owns: the way from a work request to a published WQE and a rung doorbell.
 * Does not know: completions, ibv_wr_* (qp_ex).
 *
 * Data path: nothing here allocates or throws, and a system call is made only
 * when the engine sleeps, or when a sender waits for our receive.
 *
 * A list is announced once: one release store of the producer index and one
 * doorbell, also for the work requests before a bad one. The doorbell is rung
 * outside the lock: a kick may run the whole queue in this thread.
 */
#include "post.hpp"

#include <array>
#include <mutex>

namespace peal {

namespace {

constexpr WrRow send_row(peal_opcode opcode, bool immediate) noexcept
{
	return {opcode, WrShape::SEND, true, immediate, true};
}

constexpr std::array<WrRow, IBV_WR_SEND_WITH_INV + 1> ROWS = [] {
	std::array<WrRow, IBV_WR_SEND_WITH_INV + 1> row{};

	row[IBV_WR_SEND] = send_row(PEAL_OP_SEND, false);
	row[IBV_WR_SEND_WITH_IMM] = send_row(PEAL_OP_SEND_IMM, true);
	row[IBV_WR_SEND_WITH_INV] = send_row(PEAL_OP_SEND_INV, true);
	row[IBV_WR_RDMA_WRITE] = {PEAL_OP_WRITE, WrShape::RDMA, true, false, false};
	row[IBV_WR_RDMA_WRITE_WITH_IMM] = {PEAL_OP_WRITE_IMM, WrShape::RDMA, true, true, true};
	row[IBV_WR_RDMA_READ] = {PEAL_OP_READ, WrShape::RDMA, false, false, false};
	row[IBV_WR_ATOMIC_CMP_AND_SWP] = {PEAL_OP_CMP_SWAP, WrShape::ATOMIC, false, false, false};
	row[IBV_WR_ATOMIC_FETCH_AND_ADD] = {PEAL_OP_FETCH_ADD, WrShape::ATOMIC, false, false,
					    false};
	row[IBV_WR_BIND_MW] = {PEAL_OP_BIND_MW, WrShape::BIND, false, false, false};
	row[IBV_WR_LOCAL_INV] = {PEAL_OP_LOCAL_INV, WrShape::INVALIDATE, false, true, false};
	return row;
}();

constexpr WrRow NO_ROW{};

peal_send_wqe wqe_header(const Qp &qp, const WrRow &row, const ibv_send_wr &wr) noexcept
{
	peal_send_wqe header{};

	header.opcode = row.opcode;
	header.flags = wqe_flags(qp, row, wr.send_flags);
	if (row.immediate)
		header.imm_or_rkey = wr.imm_data;
	switch (row.shape) {
	case WrShape::RDMA:
		header.remote_addr = wr.wr.rdma.remote_addr;
		header.rkey = wr.wr.rdma.rkey;
		break;
	case WrShape::ATOMIC:
		header.remote_addr = wr.wr.atomic.remote_addr;
		header.rkey = wr.wr.atomic.rkey;
		break;
	case WrShape::BIND:
		header.rkey = wr.bind_mw.mw->rkey;
		break;
	default:
		break;
	}
	return header;
}

int copy_inline(const Qp &qp, SendSlot &slot, const ibv_send_wr &wr) noexcept
{
	std::uint32_t room = qp.cap.max_inline_data;

	for (int i = 0; i < wr.num_sge; ++i) {
		const ibv_sge &sge = wr.sg_list[i];

		if (sge.length > room)
			return EINVAL;
		room -= sge.length;
		slot.add_inline(reinterpret_cast<const void *>(sge.addr), sge.length);
	}
	slot.mark_inline(); /* of 0 bytes, too */
	return 0;
}

int fill_data(const Qp &qp, const WrRow &row, SendSlot &slot, const ibv_send_wr &wr) noexcept
{
	if (static_cast<std::uint32_t>(wr.num_sge) > sge_limit(qp, row))
		return EINVAL;
	if (wr.send_flags & IBV_SEND_INLINE)
		return row.inline_allowed ? copy_inline(qp, slot, wr) : EINVAL;
	for (int i = 0; i < wr.num_sge; ++i) {
		const ibv_sge &sge = wr.sg_list[i];

		slot.add_sge(sge.addr, sge.length, sge.lkey);
	}
	return 0;
}

int fill_slot(const Qp &qp, const WrRow &row, std::byte *memory, const ibv_send_wr &wr) noexcept
{
	SendSlot slot(memory, wqe_header(qp, row, wr));

	switch (row.shape) {
	case WrShape::ATOMIC:
		slot.atomic(wr.wr.atomic.compare_add,
			    row.opcode == PEAL_OP_CMP_SWAP ? wr.wr.atomic.swap : 0);
		return fill_data(qp, row, slot, wr);
	case WrShape::BIND:
		slot.bind(bind_segment(wr.bind_mw.bind_info, wr.bind_mw.rkey));
		return 0;
	case WrShape::INVALIDATE:
		return 0;
	default:
		return fill_data(qp, row, slot, wr);
	}
}

/* One work request into the slot of `index`, which is not published yet. */
int build_send(Qp &qp, std::uint32_t index, const ibv_send_wr &wr, ibv_mw_type window) noexcept
{
	const WrRow &row = wr_row(wr.opcode);

	if (row.shape == WrShape::NONE || (wr.send_flags & ~(PLAIN_SEND_FLAGS | IBV_SEND_INLINE)) ||
	    (row.shape == WrShape::BIND && wr.bind_mw.mw->type != window))
		return EINVAL;
	if (!qp.sq.has_room(index))
		return ENOMEM;
	qp.sq.set_wr_id(index, wr.wr_id);
	return fill_slot(qp, row, qp.sq.slot(index), wr);
}

/* Builds a list and announces what was built. Returns whether that is anything. */
bool build_send_list(Qp &qp, ibv_send_wr *&wr, ibv_mw_type window, int &error) noexcept
{
	std::lock_guard guard(qp.sq_lock);
	const std::uint32_t first = qp.sq.head();
	std::uint32_t next = first;

	error = send_state_error(qp);
	for (; wr && !error; wr = wr->next) {
		error = build_send(qp, next, *wr, window);
		if (error)
			break;
		++next;
	}
	if (next == first)
		return false;
	qp.sq.publish(next);
	return true;
}

int post_send_list(Qp &qp, ibv_send_wr *wr, ibv_send_wr **bad, ibv_mw_type window) noexcept
{
	ibv_send_wr *const first = wr;
	int error = 0;

	/* After a removal nobody completes what is posted: do not even begin. */
	if (qp.context.doorbell.gone()) {
		*bad = wr;
		return EIO;
	}
	const bool posted = build_send_list(qp, wr, window, error);
	if (error)
		*bad = wr;
	if (!posted)
		return error;
	if (const int kick_error = qp.context.doorbell.ring(qp.qp_index)) {
		*bad = first;
		return kick_error;
	}
	return error;
}

int build_recv(Qp &qp, std::uint32_t index, const ibv_recv_wr &wr) noexcept
{
	if (static_cast<std::uint32_t>(wr.num_sge) > qp.cap.max_recv_sge)
		return EINVAL;
	if (!qp.rq.has_room(index))
		return ENOMEM;
	qp.rq.set_wr_id(index, wr.wr_id);
	RecvSlot slot(qp.rq.slot(index));
	for (int i = 0; i < wr.num_sge; ++i)
		slot.add_sge(wr.sg_list[i].addr, wr.sg_list[i].length, wr.sg_list[i].lkey);
	return 0;
}

/* As build_send_list. The result says whether the kernel wants to be told. */
bool build_recv_list(Qp &qp, ibv_recv_wr *&wr, int &error) noexcept
{
	std::lock_guard guard(qp.rq_lock);
	const std::uint32_t first = qp.rq.head();
	std::uint32_t next = first;

	error = qp.qp.state == IBV_QPS_RESET ? EINVAL : 0;
	for (; wr && !error; wr = wr->next) {
		error = build_recv(qp, next, *wr);
		if (error)
			break;
		++next;
	}
	if (next == first)
		return false;
	qp.rq.publish(next);
	return qp.rq.wants_kick();
}

} // namespace

const WrRow &wr_row(unsigned int opcode) noexcept
{
	return opcode < ROWS.size() ? ROWS[opcode] : NO_ROW;
}

std::uint32_t sge_limit(const Qp &qp, const WrRow &row) noexcept
{
	switch (row.shape) {
	case WrShape::SEND:
	case WrShape::RDMA:
		return qp.cap.max_send_sge;
	case WrShape::ATOMIC:
		return 1; /* more might not fit the slot */
	default:
		return 0;
	}
}

/* SOLICITED is dropped where the verbs ignore it; the kernel would refuse it. */
std::uint8_t wqe_flags(const Qp &qp, const WrRow &row, unsigned int send_flags) noexcept
{
	unsigned int flags = 0;

	if (qp.signal_all || (send_flags & IBV_SEND_SIGNALED))
		flags |= PEAL_WQE_SIGNALED;
	if (row.solicited && (send_flags & IBV_SEND_SOLICITED))
		flags |= PEAL_WQE_SOLICITED;
	if (send_flags & IBV_SEND_FENCE)
		flags |= PEAL_WQE_FENCE;
	return static_cast<std::uint8_t>(flags);
}

/* From RTS on: in error the kernel flushes, in SQD it keeps the post for later. */
int send_state_error(const Qp &qp) noexcept
{
	switch (qp.qp.state) {
	case IBV_QPS_RESET:
	case IBV_QPS_INIT:
	case IBV_QPS_RTR:
		return EINVAL;
	default:
		return 0;
	}
}

peal_bind_seg bind_segment(const ibv_mw_bind_info &info, std::uint32_t new_rkey) noexcept
{
	peal_bind_seg segment{};

	segment.addr = info.addr;
	segment.length = info.length;
	segment.mr_lkey = info.mr ? info.mr->lkey : 0; /* length 0 unbinds */
	/* Programs set it as they do for a region; a window has no local side. */
	segment.access = info.mw_access_flags & ~unsigned{IBV_ACCESS_LOCAL_WRITE};
	segment.new_rkey = new_rkey;
	return segment;
}

int post_send(ibv_qp *qp, ibv_send_wr *wr, ibv_send_wr **bad) noexcept
{
	return post_send_list(Qp::of(qp), wr, bad, IBV_MW_TYPE_2);
}

int post_send_bind(ibv_qp *qp, ibv_send_wr *wr, ibv_send_wr **bad) noexcept
{
	return post_send_list(Qp::of(qp), wr, bad, IBV_MW_TYPE_1);
}

/*
 * There is no look at the engine's state: on a removal the kernel leaves
 * WANTS_KICK set, and the kick says EIO.
 */
int post_recv(ibv_qp *ibqp, ibv_recv_wr *wr, ibv_recv_wr **bad) noexcept
{
	Qp &qp = Qp::of(ibqp);
	ibv_recv_wr *const first = wr;
	int error = 0;
	const bool kick = build_recv_list(qp, wr, error);

	if (error)
		*bad = wr;
	if (!kick)
		return error;
	if (const int kick_error = qp.context.doorbell.kick_recv(qp.qp_index)) {
		*bad = first;
		return kick_error;
	}
	return error;
}

} // namespace peal
