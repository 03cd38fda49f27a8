// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Send work requests: the translation of the verbs' fields to WQE fields.
 *
 * Owns: the table of opcodes, and the checks and conversions that ibv_post_send
 * and ibv_wr_* have in common. They are inline, because both run them for each work
 * request.
 * Does not know: how WQEs are published (post, qp_ex).
 *
 * The checks here only give the program an early error. The kernel checks every WQE
 * again, because it does not trust the program.
 */
#pragma once
#include <infiniband/verbs.h>

#include <array>
#include <cerrno>
#include <cstdint>

#include "qp.hpp"

namespace peal {

/* The layout of a WQE: which header fields are used, and what follows. NONE: cannot be posted. */
enum class WrShape : std::uint8_t { NONE, SEND, RDMA, ATOMIC, BIND, INVALIDATE };

struct WrRow {
	peal_opcode opcode;
	WrShape shape;
	bool inline_allowed;
	bool immediate;		 /* uses imm_data or invalidate_rkey */
	bool solicited;		 /* the solicited flag has an effect */
	std::uint8_t transports; /* types of queue pair that accept it */
};

/* Indexed by ibv_wr_opcode. The last row is for opcodes that peal does not have. */
inline constexpr std::array<WrRow, IBV_WR_ATOMIC_WRITE + 2> WR_ROWS = [] {
	std::array<WrRow, IBV_WR_ATOMIC_WRITE + 2> row{};

	constexpr std::uint8_t reliable = TRANSPORT_RC | TRANSPORT_XRC;
	constexpr std::uint8_t connected = reliable | TRANSPORT_UC;
	constexpr std::uint8_t all = connected | TRANSPORT_UD;

	row[IBV_WR_SEND] = {PEAL_OP_SEND, WrShape::SEND, true, false, true, all | TRANSPORT_RAW};
	row[IBV_WR_SEND_WITH_IMM] = {PEAL_OP_SEND_IMM, WrShape::SEND, true, true, true, all};
	row[IBV_WR_SEND_WITH_INV] = {PEAL_OP_SEND_INV, WrShape::SEND, true, true, true, reliable};
	row[IBV_WR_RDMA_WRITE] = {PEAL_OP_WRITE, WrShape::RDMA, true, false, false, connected};
	row[IBV_WR_RDMA_WRITE_WITH_IMM] = {PEAL_OP_WRITE_IMM, WrShape::RDMA, true, true, true,
					   connected};
	row[IBV_WR_RDMA_READ] = {PEAL_OP_READ, WrShape::RDMA, false, false, false, reliable};
	row[IBV_WR_ATOMIC_CMP_AND_SWP] = {PEAL_OP_CMP_SWAP, WrShape::ATOMIC, false, false, false,
					  reliable};
	row[IBV_WR_ATOMIC_FETCH_AND_ADD] = {PEAL_OP_FETCH_ADD, WrShape::ATOMIC, false, false, false,
					    reliable};
	row[IBV_WR_BIND_MW] = {PEAL_OP_BIND_MW, WrShape::BIND, false, false, false, connected};
	row[IBV_WR_LOCAL_INV] = {PEAL_OP_LOCAL_INV, WrShape::INVALIDATE, false, true, false,
				 connected};
	row[IBV_WR_ATOMIC_WRITE] = {
		PEAL_OP_ATOMIC_WRITE, WrShape::RDMA, true, false, false, reliable};
	return row;
}();

inline constexpr const WrRow &NO_WR_ROW = WR_ROWS.back();

/* FLUSH is not in the table, because an ibv_send_wr has no fields for it. */
inline constexpr WrRow FLUSH_ROW{PEAL_OP_FLUSH, WrShape::INVALIDATE,	     false, false,
				 false,		TRANSPORT_RC | TRANSPORT_XRC};

inline const WrRow &wr_row(unsigned int opcode) noexcept
{
	return opcode < WR_ROWS.size() - 1 ? WR_ROWS[opcode] : NO_WR_ROW;
}

/* Returns whether this type of queue pair accepts the opcode (IBTA 9.2.1, table 38). */
inline bool wr_allowed(const Qp &qp, const WrRow &row) noexcept
{
	return row.transports & qp.transport;
}

/* The most scatter-gather entries that a WQE of this row may have. */
inline std::uint32_t sge_limit(const Qp &qp, const WrRow &row) noexcept
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

/* Of the number of a shared receive queue only these bits count, as of that of a queue pair. */
inline constexpr std::uint32_t NUMBER_MASK = 0xffffff;

/* IBV_SEND_INLINE is checked separately, because only some opcodes allow it. */
inline constexpr unsigned int PLAIN_SEND_FLAGS =
	IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED;

/*
 * Returns whether a work request may have `flags`, which are those that not every queue pair has.
 * Only raw packets have checksums that the device fills in.
 */
inline bool rare_flags_allowed(const Qp &qp, unsigned int flags) noexcept
{
	return !flags || (flags == IBV_SEND_IP_CSUM && qp.transport == TRANSPORT_RAW);
}

/* Drops SOLICITED if the opcode ignores it. INLINE is set by SendSlot::mark_inline(). */
inline std::uint8_t wqe_flags(const Qp &qp, const WrRow &row, unsigned int send_flags) noexcept
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

/*
 * Returns EINVAL before RTS. Posts are allowed in all later states, because the kernel
 * flushes them in error and keeps them for later in SQD.
 */
inline int send_state_error(const Qp &qp) noexcept
{
	switch (qp.state.load(std::memory_order_relaxed)) {
	case IBV_QPS_RESET:
	case IBV_QPS_INIT:
	case IBV_QPS_RTR:
		return EINVAL;
	default:
		return 0;
	}
}

inline peal_bind_seg bind_segment(const ibv_mw_bind_info &info, std::uint32_t new_rkey) noexcept
{
	peal_bind_seg segment{};

	segment.addr = info.addr;
	segment.length = info.length;
	segment.mr_lkey = info.mr ? info.mr->lkey : 0; /* length 0 unbinds */
	/* Drop LOCAL_WRITE. Programs set it as for a region, but a window has no local access. */
	segment.access = info.mw_access_flags & ~unsigned{IBV_ACCESS_LOCAL_WRITE};
	segment.new_rkey = new_rkey;
	return segment;
}

} // namespace peal
