// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Owns: the way from a work request to a published WQE and a rung doorbell.
 * Does not know: completions, ibv_wr_* (qp_ex).
 *
 * Data path: nothing here allocates or throws. A system call is made only when the
 * engine sleeps, or when the receive ring wants a kick.
 *
 * A whole list is published by one release store of the producer index and one
 * doorbell. If a work request is bad, the ones before it are published. The doorbell
 * is rung outside the lock, because a kick may run the whole queue in this thread.
 */
#include "post.hpp"

#include <mutex>

#include "ah.hpp"
#include "c_enum.hpp"
#include "wr.hpp"

namespace peal {

namespace {

peal_send_wqe wqe_header(const Qp &qp, const WrRow &row, const ibv_send_wr &wr) noexcept
{
	peal_send_wqe header{};

	header.opcode = row.opcode;
	header.flags = wqe_flags(qp, row, wr.send_flags);
	if (qp.is_xrc() && row.shape != WrShape::BIND && row.shape != WrShape::INVALIDATE)
		[[unlikely]]
		header.srqn = wr.qp_type.xrc.remote_srqn & NUMBER_MASK;
	if (row.immediate)
		header.imm_or_rkey = wr.imm_data;
	switch (row.shape) {
	case WrShape::SEND:
		if (qp.is_datagram()) {
			header.ah_index = Ah::of(wr.wr.ud.ah).index;
			header.ud = {wr.wr.ud.remote_qpn, wr.wr.ud.remote_qkey};
		}
		break;
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
	slot.mark_inline(); /* even for 0 bytes */
	return 0;
}

int fill_data(const Qp &qp, const WrRow &row, SendSlot &slot, const ibv_send_wr &wr) noexcept
{
	if (static_cast<std::uint32_t>(wr.num_sge) > sge_limit(qp, row))
		return EINVAL;
	if (wr.send_flags & IBV_SEND_INLINE)
		return copy_inline(qp, slot, wr);
	for (int i = 0; i < wr.num_sge; ++i) {
		const ibv_sge &sge = wr.sg_list[i];

		slot.add_sge(sge.addr, sge.length, sge.lkey);
	}
	return 0;
}

int fill_slot(const Qp &qp, const WrRow &row, std::byte *memory, const ibv_send_wr &wr) noexcept
{
	SendSlot slot(memory, wqe_header(qp, row, wr));

	if (row.shape == WrShape::INVALIDATE)
		return 0;
	if (row.shape == WrShape::BIND) {
		slot.bind(bind_segment(wr.bind_mw.bind_info, wr.bind_mw.rkey));
		return 0;
	}
	if (row.shape == WrShape::ATOMIC)
		slot.atomic(wr.wr.atomic.compare_add,
			    row.opcode == PEAL_OP_CMP_SWAP ? wr.wr.atomic.swap : 0);
	/* The only call, so that it is inlined. */
	return fill_data(qp, row, slot, wr);
}

/* Writes one work request into the slot of `index`, which is not published yet. */
int build_send(Qp &qp, std::uint32_t index, const ibv_send_wr &wr, ibv_mw_type window) noexcept
{
	const WrRow &row = wr_row(c_enum(wr.opcode));

	const unsigned int inline_flag = row.inline_allowed ? unsigned{IBV_SEND_INLINE} : 0;
	const unsigned int rare_flags = wr.send_flags & ~(PLAIN_SEND_FLAGS | inline_flag);

	if (!wr_allowed(qp, row) || !rare_flags_allowed(qp, rare_flags) ||
	    (row.shape == WrShape::BIND && wr.bind_mw.mw->type != window))
		return EINVAL;
	if (!qp.sq.has_room(index))
		return ENOMEM;
	qp.sq.set_wr_id(index, wr.wr_id);
	const int error = fill_slot(qp, row, qp.sq.slot(index), wr);

	if (rare_flags) [[unlikely]]
		SendSlot::request_checksums(qp.sq.slot(index));
	return error;
}

/* Builds and publishes a list. Returns whether at least one WQE was published. */
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

	/* Refuse the post, because nothing completes a WQE after the removal of the device. */
	if (qp.context.doorbell.gone()) [[unlikely]] {
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

int build_recv(RecvRing &ring, std::uint32_t max_sge, std::uint32_t index,
	       const ibv_recv_wr &wr) noexcept
{
	if (static_cast<std::uint32_t>(wr.num_sge) > max_sge)
		return EINVAL;
	if (!ring.has_room(index))
		return ENOMEM;
	ring.set_wr_id(index, wr.wr_id);
	RecvSlot slot(ring.slot(index));
	for (int i = 0; i < wr.num_sge; ++i)
		slot.add_sge(wr.sg_list[i].addr, wr.sg_list[i].length, wr.sg_list[i].lkey);
	return 0;
}

/* Builds and publishes a list. Returns whether the kernel wants a kick for it. */
bool build_recv_list(Qp &qp, ibv_recv_wr *&wr, int &error) noexcept
{
	std::lock_guard guard(qp.rq_lock);
	const std::uint32_t first = qp.rq.head();
	std::uint32_t next = first;

	error = qp.shared || qp.state.load(std::memory_order_relaxed) == IBV_QPS_RESET ? EINVAL : 0;
	for (; wr && !error; wr = wr->next) {
		error = build_recv(qp.rq, qp.cap.max_recv_sge, next, *wr);
		if (error)
			break;
		++next;
	}
	if (next == first)
		return false;
	qp.rq.publish(next);
	return qp.rq.wants_kick();
}

int build_srq_recv(Srq &srq, std::uint32_t index, const ibv_recv_wr &wr) noexcept
{
	if (static_cast<std::uint32_t>(wr.num_sge) > srq.max_sge)
		return EINVAL;
	const auto number = srq.ring.take_free();

	if (!number)
		return ENOMEM;
	srq.ring.set_wr_id(*number, wr.wr_id);
	RecvSlot slot(srq.ring.slot(*number));
	for (int i = 0; i < wr.num_sge; ++i)
		slot.add_sge(wr.sg_list[i].addr, wr.sg_list[i].length, wr.sg_list[i].lkey);
	srq.ring.enqueue(index, *number);
	return 0;
}

/* As build_recv_list(). */
bool build_srq_recv_list(Srq &srq, ibv_recv_wr *&wr, int &error) noexcept
{
	std::lock_guard guard(srq.lock);
	const std::uint32_t first = srq.ring.head();
	std::uint32_t next = first;

	for (; wr; wr = wr->next) {
		error = build_srq_recv(srq, next, *wr);
		if (error)
			break;
		++next;
	}
	if (next == first)
		return false;
	srq.ring.publish(next);
	return srq.ring.wants_kick();
}

} // namespace

int post_send(ibv_qp *qp, ibv_send_wr *wr, ibv_send_wr **bad) noexcept
{
	return post_send_list(Qp::of(qp), wr, bad, IBV_MW_TYPE_2);
}

int post_send_bind(ibv_qp *qp, ibv_send_wr *wr, ibv_send_wr **bad) noexcept
{
	return post_send_list(Qp::of(qp), wr, bad, IBV_MW_TYPE_1);
}

int post_recv(ibv_qp *ibqp, ibv_recv_wr *wr, ibv_recv_wr **bad) noexcept
{
	Qp &qp = Qp::of(ibqp);
	ibv_recv_wr *const first = wr;
	int error = 0;

	if (qp.context.doorbell.gone()) [[unlikely]] {
		*bad = wr;
		return EIO;
	}
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

int post_srq_recv(ibv_srq *ibsrq, ibv_recv_wr *wr, ibv_recv_wr **bad) noexcept
{
	Srq &srq = Srq::of(ibsrq);
	ibv_recv_wr *const first = wr;
	int error = 0;

	if (srq.context.doorbell.gone()) [[unlikely]] {
		*bad = wr;
		return EIO;
	}
	const bool kick = build_srq_recv_list(srq, wr, error);

	if (error)
		*bad = wr;
	if (!kick)
		return error;
	if (const int kick_error = srq.context.doorbell.kick_srq(srq.srq_index)) {
		*bad = first;
		return kick_error;
	}
	return error;
}

} // namespace peal
