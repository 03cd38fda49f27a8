// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* See rings.hpp. */
#include "rings.hpp"

#include <array>
#include <new>

namespace peal::detail {

namespace {

/* By enum ibv_wr_opcode, for the requests that a connection makes. */
constexpr auto opcodes = [] {
	std::array<std::uint8_t, 8> made{};

	made[IBV_WR_RDMA_WRITE] = PEAL_OP_WRITE;
	made[IBV_WR_RDMA_WRITE_WITH_IMM] = PEAL_OP_WRITE_IMM;
	made[IBV_WR_SEND] = PEAL_OP_SEND;
	made[IBV_WR_SEND_WITH_IMM] = PEAL_OP_SEND_IMM;
	made[IBV_WR_RDMA_READ] = PEAL_OP_READ;
	made[IBV_WR_ATOMIC_CMP_AND_SWP] = PEAL_OP_CMP_SWAP;
	made[IBV_WR_ATOMIC_FETCH_AND_ADD] = PEAL_OP_FETCH_ADD;
	return made;
}();

int take_cq(const pealdv &calls, ibv_cq *cq, CompletionRing &to) noexcept
{
	pealdv_cq ring{};
	const int failed = calls.take_cq(cq, &ring);

	if (failed)
		return failed;
	to = CompletionRing(reinterpret_cast<std::byte *>(ring.ctl), ring.entries);
	to.resize(reinterpret_cast<std::byte *>(ring.cqes), ring.entries);
	return 0;
}

int take_queue(pealdv_take_queue_fn *call, ibv_qp *qp, WorkRing &to,
	       std::uint32_t &qp_index) noexcept
{
	pealdv_queue ring{};
	const int failed = call(qp, &ring);

	if (failed)
		return failed;
	qp_index = ring.qp_index;
	try {
		to.attach({ring.ctl, static_cast<std::byte *>(ring.slots), ring.entries,
			   ring.stride});
	} catch (...) {
		return ENOMEM;
	}
	return 0;
}

} // namespace

std::unique_ptr<rings> rings::take(const context &of, ibv_cq *send_cq, ibv_cq *recv_cq,
				   int &failed) noexcept
{
	pealdv_device device{};

	failed = 0;
	if (!of.direct.take_cq)
		return nullptr;
	failed = of.direct.query_device(of.verbs, &device);
	std::unique_ptr<rings> made(failed ? nullptr : new (std::nothrow) rings(device));
	if (!failed && !made)
		failed = ENOMEM;
	if (!failed)
		failed = take_cq(of.direct, send_cq, made->sent_);
	if (!failed)
		failed = take_cq(of.direct, recv_cq, made->received_);
	return failed ? nullptr : std::move(made);
}

int rings::take(const context &of, ibv_qp *qp) noexcept
{
	const int failed = take_queue(of.direct.take_send_queue, qp, sends_, qp_index_);

	return failed ? failed : take_queue(of.direct.take_receive_queue, qp, receives_, qp_index_);
}

void rings::build(std::uint32_t before, const ibv_send_wr &wr) noexcept
{
	std::byte *const memory = sends_.claim(sends_.head() + before, wr.wr_id);

	if (!memory)
		return;
	SendSlot slot(memory, {});
	peal_send_wqe &header = slot.header();

	header.opcode = opcodes[wr.opcode];
	header.flags = PEAL_WQE_SIGNALED;
	header.imm_or_rkey = wr.imm_data;
	if (header.opcode == PEAL_OP_CMP_SWAP || header.opcode == PEAL_OP_FETCH_ADD) {
		header.remote_addr = wr.wr.atomic.remote_addr;
		header.rkey = wr.wr.atomic.rkey;
		slot.segment(peal_atomic_seg{wr.wr.atomic.compare_add, wr.wr.atomic.swap});
	} else {
		header.remote_addr = wr.wr.rdma.remote_addr;
		header.rkey = wr.wr.rdma.rkey;
	}
	if (wr.send_flags & IBV_SEND_INLINE) {
		slot.add_inline(reinterpret_cast<const void *>(wr.sg_list->addr),
				wr.sg_list->length);
		slot.mark_inline();
	} else if (wr.num_sge) {
		slot.add_sge(wr.sg_list->addr, wr.sg_list->length, wr.sg_list->lkey);
	}
}

int rings::post(std::uint32_t count) noexcept
{
	/* Nothing completes a WQE after the removal of the device. */
	if (doorbell_.gone()) [[unlikely]]
		return EIO;
	sends_.publish(sends_.head() + count);
	return doorbell_.ring(qp_index_);
}

int rings::post_receive(std::uint64_t id, const ibv_sge &into) noexcept
{
	if (doorbell_.gone()) [[unlikely]]
		return EIO;
	std::byte *const memory = receives_.claim(receives_.head(), id);
	if (!memory)
		return ENOMEM;
	RecvSlot(memory).add_sge(into.addr, into.length, into.lkey);
	receives_.publish(receives_.head() + 1);
	return receives_.wants_kick() ? doorbell_.kick(PEAL_KICK_RECV, qp_index_) : 0;
}

} // namespace peal::detail
