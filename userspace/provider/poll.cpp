// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Owns: the translation of a CQE to the verbs, and which CQEs are dropped.
 * Does not know: creation, arming.
 *
 * Data path: nothing here allocates, throws, or calls the kernel. No field of a
 * CQE is used as an index before it is bounded.
 */
#include "poll.hpp"

#include <array>
#include <mutex>
#include <optional>

#include "qp.hpp"

namespace peal {

namespace {

struct OpcodeRow {
	ibv_wc_opcode send; /* at the sender */
	ibv_wc_opcode recv; /* at the receiver, if the opcode consumes a receive */
	unsigned int recv_flags;
};

/* Older releases of verbs.h do not have it. */
constexpr auto WC_FLUSH = static_cast<ibv_wc_opcode>(8);

/* Indexed by enum peal_opcode. Row 0 is for a flushed receive. */
constexpr std::array<OpcodeRow, PEAL_OP_COUNT> OPCODES = [] {
	std::array<OpcodeRow, PEAL_OP_COUNT> row{};

	row.fill({IBV_WC_SEND, IBV_WC_RECV, 0});
	row[PEAL_OP_SEND_IMM].recv_flags = IBV_WC_WITH_IMM;
	row[PEAL_OP_SEND_INV].recv_flags = IBV_WC_WITH_INV;
	row[PEAL_OP_WRITE].send = IBV_WC_RDMA_WRITE;
	row[PEAL_OP_WRITE_IMM] = {IBV_WC_RDMA_WRITE, IBV_WC_RECV_RDMA_WITH_IMM, IBV_WC_WITH_IMM};
	row[PEAL_OP_READ].send = IBV_WC_RDMA_READ;
	row[PEAL_OP_CMP_SWAP].send = IBV_WC_COMP_SWAP;
	row[PEAL_OP_FETCH_ADD].send = IBV_WC_FETCH_ADD;
	row[PEAL_OP_ATOMIC_WRITE].send = IBV_WC_ATOMIC_WRITE;
	row[PEAL_OP_FLUSH].send = WC_FLUSH;
	row[PEAL_OP_BIND_MW].send = IBV_WC_BIND_MW;
	row[PEAL_OP_LOCAL_INV].send = IBV_WC_LOCAL_INV; /* a program has no REG_MR */
	return row;
}();

const OpcodeRow &opcode_row(const peal_cqe &cqe) noexcept
{
	const std::size_t row = cqe.opcode;

	return OPCODES[row < OPCODES.size() ? row : 0];
}

/*
 * Calls `action` with the ring of the WQE. Returns its result, or `none` if the queue pair is gone
 * or the CQE is invalid.
 */
template <class Result, class Action>
Result with_ring(Context &context, const peal_cqe &cqe, Result none, Action action) noexcept
{
	Qp *qp = context.qp_table.find(cqe.qp_index, cqe.qp_num);

	/* The number in a CQE of XRC is that of a target, which is never in the table. */
	if (!qp) [[unlikely]] {
		Srq *srq = cqe.kind == PEAL_CQE_XRC_RECV
				   ? context.srq_table.find(cqe.qp_index, cqe.srq_num)
				   : nullptr;

		return srq ? action(srq->ring) : none;
	}
	switch (cqe.kind) {
	case PEAL_CQE_SEND:
		return action(qp->sq);
	case PEAL_CQE_RECV:
		return qp->shared ? action(qp->shared->ring) : action(qp->rq);
	default:
		return none;
	}
}

/* Returns the wr_id, or nothing if the CQE is stale (see drop_stale) or invalid. */
std::optional<std::uint64_t> claim(Context &context, const peal_cqe &cqe) noexcept
{
	return with_ring(context, cqe, std::optional<std::uint64_t>(),
			 [&](auto &ring) { return ring.complete(cqe.wqe_index); });
}

bool is_receive_of(const peal_cqe &cqe, const Qp &qp) noexcept
{
	return cqe.kind == PEAL_CQE_RECV && cqe.qp_index == qp.qp_index &&
	       cqe.qp_num == qp.qp.qp_num;
}

void fill_wc(ibv_wc &wc, const Completion &completion) noexcept
{
	const peal_cqe &cqe = *completion.cqe;

	wc.wr_id = completion.wr_id;
	wc.status = wc_status(cqe);
	wc.opcode = wc_opcode(cqe);
	wc.vendor_err = cqe.vendor_err;
	wc.byte_len = cqe.byte_len;
	wc.imm_data = cqe.imm_or_rkey;
	wc.qp_num = cqe.qp_num;
	wc.src_qp = cqe.src_qp;
	wc.wc_flags = wc_flags(cqe);
	/* RoCE has no LIDs, and a connection has one P_Key. */
	wc.pkey_index = 0;
	wc.slid = 0;
	wc.sl = 0;
	wc.dlid_path_bits = 0;
}

} // namespace

ibv_wc_status wc_status(const peal_cqe &cqe) noexcept
{
	return cqe.status < IBV_WC_GENERAL_ERR ? static_cast<ibv_wc_status>(cqe.status)
					       : IBV_WC_GENERAL_ERR;
}

ibv_wc_opcode wc_opcode(const peal_cqe &cqe) noexcept
{
	const OpcodeRow &row = opcode_row(cqe);

	return cqe.kind == PEAL_CQE_SEND ? row.send : row.recv;
}

unsigned int wc_flags(const peal_cqe &cqe) noexcept
{
	if (cqe.kind == PEAL_CQE_SEND || cqe.status != IBV_WC_SUCCESS)
		return 0;
	return opcode_row(cqe).recv_flags | (cqe.flags & PEAL_CQE_GRH ? unsigned{IBV_WC_GRH} : 0) |
	       (cqe.flags & PEAL_CQE_IP_CSUM_OK ? unsigned{IBV_WC_IP_CSUM_OK} : 0);
}

bool take_completion(Cq &cq, Completion &completion) noexcept
{
	while (const peal_cqe *cqe = cq.ring.peek()) {
		const auto wr_id = claim(cq.context, *cqe);

		cq.ring.advance();
		if (wr_id) {
			completion = {cqe, *wr_id};
			return true;
		}
	}
	return false;
}

void drop_stale(Cq &cq) noexcept
{
	/*
	 * Drop nothing between start_poll and end_poll, because the program still reads
	 * `current`. Only a single-threaded CQ gets here then, because its lock does nothing.
	 */
	if (cq.current)
		return;
	cq.ring.drop([&](const peal_cqe &cqe) {
		return !with_ring(cq.context, cqe, false,
				  [&](auto &ring) { return ring.is_posted(cqe.wqe_index); });
	});
}

void drop_shared(Qp &qp) noexcept
{
	if (!qp.shared || qp.recv_queue.current)
		return;
	qp.recv_queue.ring.drop([&](const peal_cqe &cqe) {
		if (!is_receive_of(cqe, qp))
			return false;
		qp.shared->ring.complete(cqe.wqe_index);
		return true;
	});
}

void return_shared(Qp &qp) noexcept
{
	if (!qp.shared)
		return;
	qp.recv_queue.ring.for_each([&](const peal_cqe &cqe) {
		if (is_receive_of(cqe, qp))
			qp.shared->ring.complete(cqe.wqe_index);
	});
}

int cq_poll(ibv_cq *ibcq, int count, ibv_wc *wc) noexcept
{
	Cq &cq = Cq::of(ibcq);
	std::lock_guard guard(cq.lock);
	Completion completion;
	int done = 0;

	while (done < count && take_completion(cq, completion))
		fill_wc(wc[done++], completion);
	cq.ring.publish();
	return done;
}

} // namespace peal
