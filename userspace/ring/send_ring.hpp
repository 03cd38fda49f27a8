// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The send ring: the layout of a send WQE in its slot.
 *
 * Owns: the bytes of a slot between has_room() and publish().
 * Does not know: verbs, the opcodes that a program may use, limits (the caller has
 * checked that the WQE fits the slot).
 */
#pragma once
#include <rdma/peal-abi.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>

#include "work_ring.hpp"

namespace peal {

/*
 * Call the constructor first, then atomic(), flush() or bind() if the opcode needs it, then add the
 * data.
 */
class SendSlot {
	peal_send_wqe *wqe_ = nullptr;
	std::byte *tail_ = nullptr; /* the next segment is written here */

public:
	SendSlot() = default;
	SendSlot(std::byte *slot, const peal_send_wqe &header) noexcept
		: wqe_(new (slot) peal_send_wqe(header)), tail_(slot + sizeof(peal_send_wqe))
	{
	}

	bool has_data() const noexcept { return wqe_->num_sge || (wqe_->flags & PEAL_WQE_INLINE); }

	void atomic(std::uint64_t compare_add, std::uint64_t swap) noexcept
	{
		append(peal_atomic_seg{compare_add, swap});
	}

	/* For datagrams. The target is in the header, so any time before publish() is right. */
	void target(std::uint32_t ah_index, std::uint32_t qpn, std::uint32_t qkey) noexcept
	{
		wqe_->ah_index = ah_index;
		wqe_->ud = {qpn, qkey};
	}

	/* For XRC, at any time before publish(), as target(). */
	void name_srq(std::uint32_t srqn) noexcept { wqe_->srqn = srqn; }

	void flush(const peal_flush_seg &segment) noexcept { append(segment); }

	void bind(const peal_bind_seg &segment) noexcept { append(segment); }

	void add_sge(std::uint64_t addr, std::uint32_t length, std::uint32_t lkey) noexcept
	{
		append(peal_sge{addr, length, lkey});
		++wqe_->num_sge;
	}

	void add_inline(const void *data, std::uint32_t length) noexcept
	{
		if (length)
			std::memcpy(tail_, data, length);
		tail_ += length;
		wqe_->inline_len += length;
	}

	/* Says that inline data follow the header instead of SGEs. The data may be empty. */
	void mark_inline() noexcept { wqe_->flags |= PEAL_WQE_INLINE; }

	/* For raw packets, when the WQE is in the slot. */
	static void request_checksums(std::byte *slot) noexcept
	{
		reinterpret_cast<peal_send_wqe *>(slot)->flags |= PEAL_WQE_IP_CSUM;
	}

private:
	template <class Segment>
	void append(const Segment &segment) noexcept
	{
		new (tail_) Segment(segment);
		tail_ += sizeof(Segment);
	}
};

class SendRing : public WorkRing {};

} // namespace peal
