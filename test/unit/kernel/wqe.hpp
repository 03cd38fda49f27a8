// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Slots of a send or receive ring, as a program may leave them.
 *
 * Owns: the sizes that kernel/object/qp.c gives a ring, and an independent check of which
 * WQEs are well-formed, written from peal-abi.h.
 * Does not know: reasons, because wqe.c chooses which of several faults it names.
 */
#pragma once
#include <algorithm>
#include <vector>

#include "support.hpp"
#include "kernel_parts.hpp"

namespace peal::test {

/* What the program asked for, and what the kernel makes of it. */
struct SendCaps {
	std::uint32_t max_sge = PEAL_MAX_SGE;
	std::uint32_t max_inline = PEAL_MAX_INLINE;

	std::uint32_t stride() const
	{
		const std::uint32_t sges = std::max(max_sge, 1U) * 16;
		const std::uint32_t body = std::max({sges, max_inline, 32U});

		return (32 + body + 63) / 64 * 64;
	}
	peal_wqe_limits limits() const
	{
		const std::uint32_t inlined = std::max(max_inline, stride() - 32);

		return {std::max(max_sge, 1U),
			std::min<std::uint32_t>(inlined, PEAL_MAX_INLINE),
			0,
			false,
			0,
			false};
	}
};

struct RecvCaps {
	std::uint32_t max_sge = PEAL_MAX_SGE;

	std::uint32_t stride() const { return (16 + max_sge * 16 + 63) / 64 * 64; }
	peal_wqe_limits limits() const { return {max_sge, 0, 0, false, 0, false}; }
};

/* A view of a slot. Its fields are where peal-abi.h says. */
struct SendView {
	std::uint8_t *slot;

	peal_send_wqe &header() const { return *reinterpret_cast<peal_send_wqe *>(slot); }
	peal_sge &sge(std::size_t i) const { return reinterpret_cast<peal_sge *>(slot + 32)[i]; }
	peal_sge &atomic_sge() const { return *reinterpret_cast<peal_sge *>(slot + 48); }
	peal_flush_seg &flush() const { return *reinterpret_cast<peal_flush_seg *>(slot + 32); }
	peal_bind_seg &bind() const { return *reinterpret_cast<peal_bind_seg *>(slot + 32); }
};

inline bool is_atomic(unsigned opcode)
{
	return opcode == PEAL_OP_CMP_SWAP || opcode == PEAL_OP_FETCH_ADD;
}

/* The memory placement extensions. */
inline bool is_placement(unsigned opcode)
{
	return opcode == PEAL_OP_ATOMIC_WRITE || opcode == PEAL_OP_FLUSH;
}

inline bool flush_is_good(const peal_flush_seg &flush)
{
	return !flush.reserved0 && !flush.reserved1 && flush.length <= PEAL_MAX_MSG &&
	       flush.placement >= 1 && flush.placement <= 3 && flush.selectivity <= 1;
}

inline bool is_local(unsigned opcode)
{
	return opcode >= PEAL_OP_BIND_MW && opcode <= PEAL_OP_REG_MR;
}

inline bool has_bind_segment(unsigned opcode)
{
	return opcode == PEAL_OP_BIND_MW || opcode == PEAL_OP_REG_MR;
}

inline bool may_inline(unsigned opcode)
{
	return (opcode >= PEAL_OP_SEND && opcode <= PEAL_OP_WRITE_IMM) ||
	       opcode == PEAL_OP_ATOMIC_WRITE;
}

inline std::uint64_t sum(const peal_sge *sge, std::size_t count)
{
	std::uint64_t bytes = 0;

	for (std::size_t i = 0; i < count; ++i)
		bytes += sge[i].length;
	return bytes;
}

inline bool header_is_good(const peal_send_wqe &wqe, const peal_wqe_limits &limits)
{
	const bool inlined = wqe.flags & PEAL_WQE_INLINE;

	return wqe.opcode >= PEAL_OP_SEND && wqe.opcode < PEAL_OP_COUNT && wqe.flags <= 0x0f &&
	       !wqe.reserved0 && !wqe.reserved1 && !wqe.ah_index &&
	       (inlined ? may_inline(wqe.opcode) &&
				  (wqe.inline_len <= limits.max_inline ||
				   (wqe.opcode == PEAL_OP_ATOMIC_WRITE && wqe.inline_len == 8))
			: wqe.inline_len == 0) &&
	       wqe.num_sge <= (inlined ? 0 : limits.max_sge);
}

/* Return: whether peal_wqe_parse_send() may accept this slot. */
inline bool is_good(const SendView &view, const peal_wqe_limits &limits)
{
	const peal_send_wqe &wqe = view.header();

	if (!header_is_good(wqe, limits))
		return false;
	if (is_atomic(wqe.opcode))
		return wqe.num_sge == 1 && view.atomic_sge().length == 8;
	if (wqe.opcode == PEAL_OP_ATOMIC_WRITE)
		return wqe.flags & PEAL_WQE_INLINE ? wqe.inline_len == 8
						   : wqe.num_sge == 1 && view.sge(0).length == 8;
	if (wqe.opcode == PEAL_OP_FLUSH)
		return !wqe.num_sge && flush_is_good(view.flush());
	if (has_bind_segment(wqe.opcode))
		return !wqe.num_sge && !view.bind().reserved;
	if (wqe.opcode == PEAL_OP_LOCAL_INV)
		return !wqe.num_sge;
	return sum(&view.sge(0), wqe.num_sge) <= PEAL_MAX_MSG;
}

/* A send WQE after parsing. */
struct Parsed : peal_wqe {
	peal_sge sge[PEAL_MAX_SGE];
};

inline peal_reason parse_send(const void *slot, const peal_wqe_limits *limits, Parsed *send)
{
	return peal_wqe_parse_send(slot, limits, send, send->sge);
}

/*
 * Checks the rules that every result obeys, whatever the slot contained and still contains.
 * It looks at the private copy only. `slot` is just an address here.
 */
inline bool is_consistent(const Parsed &send, const peal_wqe_limits &limits,
			  const std::uint8_t *slot)
{
	if (send.opcode == 0 || send.opcode >= PEAL_OP_COUNT || send.flags & ~PEAL_WQE_FLAGS ||
	    send.num_sge > limits.max_sge || send.length > PEAL_MAX_MSG)
		return false;
	if (send.opcode == PEAL_OP_ATOMIC_WRITE && send.length != 8)
		return false;
	if (send.opcode == PEAL_OP_FLUSH &&
	    (send.num_sge != 0 || send.length != 0 || !flush_is_good(send.flush)))
		return false;
	if (send.flags & PEAL_WQE_INLINE && send.opcode == PEAL_OP_ATOMIC_WRITE)
		return send.num_sge == 0 && send.inline_data == slot + 32;
	if (send.flags & PEAL_WQE_INLINE)
		return may_inline(send.opcode) && send.num_sge == 0 &&
		       send.inline_data == slot + 32 && send.length <= limits.max_inline;
	if (send.inline_data)
		return false;
	if (is_atomic(send.opcode) && (send.num_sge != 1 || send.length != 8))
		return false;
	if (is_local(send.opcode) && (send.num_sge != 0 || send.length != 0))
		return false;
	if (has_bind_segment(send.opcode) && send.bind.reserved)
		return false;
	return send.length == sum(send.sge, send.num_sge);
}

inline SendCaps random_caps(Random &random)
{
	return {static_cast<std::uint32_t>(random.below(PEAL_MAX_SGE + 1)),
		static_cast<std::uint32_t>(random.below(PEAL_MAX_INLINE + 1))};
}

/* Random bytes, most of which are corrected so that every check is reached. */
inline void scramble(Random &random, const SendView &view, const SendCaps &caps)
{
	peal_send_wqe &wqe = view.header();

	random.fill(view.slot, caps.stride());
	if (!random.one_in(16))
		wqe.opcode %= PEAL_OP_COUNT + 1;
	if (!random.one_in(16))
		wqe.flags &= random.one_in(3) ? 0x0f : 0x07;
	if (!random.one_in(16))
		wqe.reserved0 = 0;
	if (!random.one_in(16)) {
		wqe.reserved1 = 0;
		wqe.ah_index = 0;
	}
	if (!random.one_in(16))
		wqe.num_sge = static_cast<__u8>(
			random.below(wqe.flags & PEAL_WQE_INLINE || is_local(wqe.opcode) ||
						     is_placement(wqe.opcode)
					     ? 2
					     : 40));
	if (!random.one_in(16))
		wqe.inline_len =
			static_cast<__u32>(wqe.flags & PEAL_WQE_INLINE ? random.below(600) : 0);
	if (!random.one_in(8) && is_atomic(wqe.opcode)) {
		wqe.num_sge = 1;
		view.atomic_sge().length = static_cast<__u32>(8 + random.below(2));
	}
	if (!random.one_in(4) && has_bind_segment(wqe.opcode))
		view.bind().reserved = 0;
	if (!random.one_in(4) && wqe.opcode == PEAL_OP_ATOMIC_WRITE) {
		view.sge(0).length = 8;
		if (wqe.inline_len)
			wqe.inline_len = 8;
	}
	if (!random.one_in(4) && wqe.opcode == PEAL_OP_FLUSH)
		view.flush() = {static_cast<__u32>(random.bits() >> 32 >> random.below(3)),
				static_cast<__u8>(random.below(5)),
				static_cast<__u8>(random.below(3)), 0, 0};
	for (std::uint32_t i = 0; i < std::max(caps.max_sge, 1U); ++i)
		if (!is_atomic(wqe.opcode) && !is_local(wqe.opcode) && !is_placement(wqe.opcode) &&
		    !random.one_in(50))
			view.sge(i).length >>= random.below(32);
}

} // namespace peal::test
