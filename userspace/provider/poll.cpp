// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Taking completions off a completion queue, by ibv_poll_cq and by ibv_start_poll and its family.
 *
 * Data path: nothing here allocates, throws, or calls the kernel. No field of a
 * CQE is used as an index before it is bounded.
 */
#include "cq.hpp"

#include <mutex>
#include <optional>

#include "opcode.hpp"
#include "qp.hpp"
#include "ops.hpp"

namespace peal {

namespace {

const OpcodeFacts &opcode_of(const peal_cqe &cqe) noexcept
{
	const std::size_t opcode = cqe.opcode;

	return OPCODES[opcode < OPCODES.size() ? opcode : 0];
}

ibv_wc_status wc_status(const peal_cqe &cqe) noexcept
{
	return cqe.status < IBV_WC_GENERAL_ERR ? static_cast<ibv_wc_status>(cqe.status)
					       : IBV_WC_GENERAL_ERR;
}

ibv_wc_opcode wc_opcode(const peal_cqe &cqe) noexcept
{
	const OpcodeFacts &opcode = opcode_of(cqe);

	return static_cast<ibv_wc_opcode>(cqe.kind == PEAL_CQE_SEND ? opcode.wc_opcode
								    : opcode.recv_opcode);
}

unsigned int wc_flags(const peal_cqe &cqe) noexcept
{
	if (cqe.kind == PEAL_CQE_SEND || cqe.status != IBV_WC_SUCCESS)
		return 0;
	return opcode_of(cqe).recv_flags | (cqe.flags & PEAL_CQE_GRH ? unsigned{IBV_WC_GRH} : 0) |
	       (cqe.flags & PEAL_CQE_IP_CSUM_OK ? unsigned{IBV_WC_IP_CSUM_OK} : 0);
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

struct Completion {
	const peal_cqe *cqe; /* valid until the ring is published */
	std::uint64_t wr_id;
};

/*
 * Takes the next completion that is neither stale (see drop_stale) nor invalid. Returns false if
 * there is none. The caller holds cq.lock.
 */
bool take_completion(Cq &cq, Completion &completion) noexcept
{
	while (const peal_cqe *cqe = cq.ring.peek()) {
		const auto wr_id =
			with_ring(cq.context, *cqe, std::optional<std::uint64_t>(),
				  [&](auto &ring) { return ring.complete(cqe->wqe_index); });

		cq.ring.advance();
		if (wr_id) {
			completion = {cqe, *wr_id};
			return true;
		}
	}
	return false;
}

bool is_receive_of(const peal_cqe &cqe, const Qp &qp) noexcept
{
	return cqe.kind == PEAL_CQE_RECV && cqe.qp_index == qp.qp_index &&
	       cqe.qp_num == qp.qp.qp_num;
}

} // namespace

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

	for (; done < count && take_completion(cq, completion); ++done, ++wc) {
		const peal_cqe &cqe = *completion.cqe;

		wc->wr_id = completion.wr_id;
		wc->status = wc_status(cqe);
		wc->opcode = wc_opcode(cqe);
		wc->vendor_err = cqe.vendor_err;
		wc->byte_len = cqe.byte_len;
		wc->imm_data = cqe.imm_or_rkey;
		wc->qp_num = cqe.qp_num;
		wc->src_qp = cqe.src_qp;
		wc->wc_flags = wc_flags(cqe);
		/* RoCE has no LIDs, and a connection has one P_Key. */
		wc->pkey_index = 0;
		wc->slid = 0;
		wc->sl = 0;
		wc->dlid_path_bits = 0;
	}
	cq.ring.publish();
	return done;
}

namespace {

int next_poll(ibv_cq_ex *ibcq) noexcept
{
	Cq &cq = Cq::of(ibcq);
	Completion completion;

	if (!take_completion(cq, completion))
		return ENOENT;
	cq.current = completion.cqe;
	ibcq->wr_id = completion.wr_id;
	ibcq->status = wc_status(*completion.cqe);
	return 0;
}

/* Takes the lock, and keeps it if it returns 0. */
int start_poll(ibv_cq_ex *ibcq, ibv_poll_cq_attr *attr) noexcept
{
	Cq &cq = Cq::of(ibcq);

	if (attr->comp_mask)
		return EINVAL;
	cq.lock.lock();
	if (!next_poll(ibcq))
		return 0;
	cq.ring.publish(); /* next_poll() may have dropped stale CQEs */
	cq.lock.unlock();
	return ENOENT;
}

void end_poll(ibv_cq_ex *ibcq) noexcept
{
	Cq &cq = Cq::of(ibcq);

	cq.current = nullptr;
	cq.ring.publish();
	cq.lock.unlock();
}

const peal_cqe &current(ibv_cq_ex *cq) noexcept
{
	return *Cq::of(cq).current;
}

ibv_wc_opcode read_opcode(ibv_cq_ex *cq) noexcept
{
	return wc_opcode(current(cq));
}

unsigned int read_wc_flags(ibv_cq_ex *cq) noexcept
{
	return wc_flags(current(cq));
}

/* Returns the member `Field` of the CQE without translation. */
template <class Result, auto Field>
Result read_field(ibv_cq_ex *cq) noexcept
{
	return current(cq).*Field;
}

/* For LIDs and service levels, which RoCE does not have. */
template <class T>
T read_zero(ibv_cq_ex *) noexcept
{
	return 0;
}

} // namespace

void set_readers(ibv_cq_ex &cq, std::uint64_t wc_flags) noexcept
{
	cq.start_poll = start_poll;
	cq.next_poll = next_poll;
	cq.end_poll = end_poll;
	cq.read_opcode = read_opcode;
	cq.read_vendor_err = read_field<std::uint32_t, &peal_cqe::vendor_err>;
	cq.read_wc_flags = read_wc_flags;
	if (wc_flags & IBV_WC_EX_WITH_BYTE_LEN)
		cq.read_byte_len = read_field<std::uint32_t, &peal_cqe::byte_len>;
	if (wc_flags & IBV_WC_EX_WITH_IMM)
		cq.read_imm_data = read_field<std::uint32_t, &peal_cqe::imm_or_rkey>;
	if (wc_flags & IBV_WC_EX_WITH_QP_NUM)
		cq.read_qp_num = read_field<std::uint32_t, &peal_cqe::qp_num>;
	if (wc_flags & IBV_WC_EX_WITH_SRC_QP)
		cq.read_src_qp = read_field<std::uint32_t, &peal_cqe::src_qp>;
	if (wc_flags & IBV_WC_EX_WITH_SLID)
		cq.read_slid = read_zero<std::uint32_t>;
	if (wc_flags & IBV_WC_EX_WITH_SL)
		cq.read_sl = read_zero<std::uint8_t>;
	if (wc_flags & IBV_WC_EX_WITH_DLID_PATH_BITS)
		cq.read_dlid_path_bits = read_zero<std::uint8_t>;
	if (wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP)
		cq.read_completion_ts = read_field<std::uint64_t, &peal_cqe::clock_ns>;
	if (wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)
		cq.read_completion_wallclock_ns = read_field<std::uint64_t, &peal_cqe::wall_ns>;
}

} // namespace peal
