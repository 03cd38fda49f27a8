// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The facts about each operation of a send queue. Posting reads them by the opcode of the verb,
 * and polling by that of the WQE.
 */
#pragma once
#include <infiniband/verbs.h>
#include <rdma/peal-abi.h>

#include <array>
#include <cstdint>

namespace peal {

/* One bit for each type of queue pair. 0 is a type that the kernel refuses to programs. */
enum Transport : std::uint8_t {
	TRANSPORT_RC = 1,
	TRANSPORT_UC = 2,
	TRANSPORT_UD = 4,
	TRANSPORT_XRC = 8,  /* an initiator. A target sends nothing, so it has no bit */
	TRANSPORT_RAW = 16, /* Ethernet frames */

	TRANSPORTS_RELIABLE = TRANSPORT_RC | TRANSPORT_XRC,
	TRANSPORTS_CONNECTED = TRANSPORTS_RELIABLE | TRANSPORT_UC,
	TRANSPORTS_ROCE = TRANSPORTS_CONNECTED | TRANSPORT_UD,
	TRANSPORTS_ALL = TRANSPORTS_ROCE | TRANSPORT_RAW,
};

/* The layout of a WQE: which header fields are used, and what follows. NONE: cannot be posted. */
enum class WrShape : std::uint8_t { NONE, SEND, RDMA, ATOMIC, BIND, INVALIDATE };

struct alignas(16) OpcodeFacts {
	std::uint8_t opcode = 0; /* enum peal_opcode */
	WrShape shape = WrShape::NONE;
	std::uint8_t transports = 0; /* that accept it (IBTA 9.2.1, table 38) */
	bool inline_allowed = false;
	bool immediate = false;			/* uses imm_data or invalidate_rkey */
	bool solicited = false;			/* the solicited flag has an effect */
	std::uint8_t wr_opcode = 0xff;		/* ibv_wr_opcode; 0xff: post_send has none */
	std::uint16_t builder = 0;		/* IBV_QP_EX_WITH_*, which asks for its ibv_wr_* */
	std::uint8_t wc_opcode = IBV_WC_SEND;	/* at the sender */
	std::uint8_t recv_flags = 0;		/* ibv_wc_flags */
	std::uint8_t recv_opcode = IBV_WC_RECV; /* at the receiver, if it consumes a receive */
};

/* Older releases of verbs.h do not have these. */
inline constexpr std::uint16_t QP_EX_WITH_FLUSH = 1 << 11;
inline constexpr std::uint8_t WC_FLUSH = 8;

/* Indexed by enum peal_opcode. Row 0 is for a flushed receive. A program has no REG_MR. */
inline constexpr std::array<OpcodeFacts, PEAL_OP_COUNT> OPCODES = [] {
	using enum WrShape;
	constexpr bool yes = true, no = false;
	constexpr OpcodeFacts rows[] = {
		{PEAL_OP_SEND, SEND, TRANSPORTS_ALL, yes, no, yes, IBV_WR_SEND,
		 IBV_QP_EX_WITH_SEND},
		{PEAL_OP_SEND_IMM, SEND, TRANSPORTS_ROCE, yes, yes, yes, IBV_WR_SEND_WITH_IMM,
		 IBV_QP_EX_WITH_SEND_WITH_IMM, IBV_WC_SEND, IBV_WC_WITH_IMM},
		{PEAL_OP_SEND_INV, SEND, TRANSPORTS_RELIABLE, yes, yes, yes, IBV_WR_SEND_WITH_INV,
		 IBV_QP_EX_WITH_SEND_WITH_INV, IBV_WC_SEND, IBV_WC_WITH_INV},
		{PEAL_OP_WRITE, RDMA, TRANSPORTS_CONNECTED, yes, no, no, IBV_WR_RDMA_WRITE,
		 IBV_QP_EX_WITH_RDMA_WRITE, IBV_WC_RDMA_WRITE},
		{PEAL_OP_WRITE_IMM, RDMA, TRANSPORTS_CONNECTED, yes, yes, yes,
		 IBV_WR_RDMA_WRITE_WITH_IMM, IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM, IBV_WC_RDMA_WRITE,
		 IBV_WC_WITH_IMM, IBV_WC_RECV_RDMA_WITH_IMM},
		{PEAL_OP_READ, RDMA, TRANSPORTS_RELIABLE, no, no, no, IBV_WR_RDMA_READ,
		 IBV_QP_EX_WITH_RDMA_READ, IBV_WC_RDMA_READ},
		{PEAL_OP_CMP_SWAP, ATOMIC, TRANSPORTS_RELIABLE, no, no, no,
		 IBV_WR_ATOMIC_CMP_AND_SWP, IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP, IBV_WC_COMP_SWAP},
		{PEAL_OP_FETCH_ADD, ATOMIC, TRANSPORTS_RELIABLE, no, no, no,
		 IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD,
		 IBV_WC_FETCH_ADD},
		{PEAL_OP_BIND_MW, BIND, TRANSPORTS_CONNECTED, no, no, no, IBV_WR_BIND_MW,
		 IBV_QP_EX_WITH_BIND_MW, IBV_WC_BIND_MW},
		{PEAL_OP_LOCAL_INV, INVALIDATE, TRANSPORTS_CONNECTED, no, yes, no, IBV_WR_LOCAL_INV,
		 IBV_QP_EX_WITH_LOCAL_INV, IBV_WC_LOCAL_INV},
		{PEAL_OP_ATOMIC_WRITE, RDMA, TRANSPORTS_RELIABLE, yes, no, no, IBV_WR_ATOMIC_WRITE,
		 IBV_QP_EX_WITH_ATOMIC_WRITE, IBV_WC_ATOMIC_WRITE},
		/* An ibv_send_wr has no fields for it. */
		{PEAL_OP_FLUSH, INVALIDATE, TRANSPORTS_RELIABLE, no, no, no, 0xff, QP_EX_WITH_FLUSH,
		 WC_FLUSH},
	};
	std::array<OpcodeFacts, PEAL_OP_COUNT> facts{};

	for (const OpcodeFacts &row : rows)
		facts[row.opcode] = row;
	return facts;
}();

/* The same rows, indexed by ibv_wr_opcode. The last one is for opcodes that peal does not have. */
inline constexpr std::array<OpcodeFacts, IBV_WR_ATOMIC_WRITE + 2> WR_OPCODES = [] {
	std::array<OpcodeFacts, IBV_WR_ATOMIC_WRITE + 2> facts{};

	for (const OpcodeFacts &row : OPCODES)
		if (row.wr_opcode < facts.size())
			facts[row.wr_opcode] = row;
	return facts;
}();

inline constexpr const OpcodeFacts &NO_OPCODE = WR_OPCODES.back();

/*
 * Returns one bit for each ibv_wr_opcode that post_plain() can post on a queue pair of this type.
 * Such an opcode takes scatter-gather entries, but neither immediate data nor a key to invalidate.
 * Frames have flags of their own.
 */
constexpr std::uint32_t plain_opcodes(std::uint8_t transport) noexcept
{
	std::uint32_t bits = 0;

	for (std::size_t i = 0; i < WR_OPCODES.size(); ++i) {
		const OpcodeFacts &facts = WR_OPCODES[i];

		if (facts.transports & transport & TRANSPORTS_ROCE && !facts.immediate &&
		    (facts.shape == WrShape::SEND || facts.shape == WrShape::RDMA ||
		     facts.shape == WrShape::ATOMIC))
			bits |= std::uint32_t{1} << i;
	}
	return bits;
}
static_assert(WR_OPCODES.size() <= 32);

} // namespace peal
