// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The receive ring: the layout of a receive WQE, and the check whether a post needs
 * a kick.
 *
 * Owns: the bytes of a slot between has_room() and publish(), and barrier C.
 * Does not know: verbs, limits (the caller has checked that the entries fit), the
 * kick itself.
 */
#pragma once
#include <rdma/peal-abi.h>

#include <cstddef>
#include <cstdint>
#include <new>

#include "work_ring.hpp"

namespace peal {

class RecvSlot {
	peal_recv_wqe *wqe_;
	peal_sge *next_;

public:
	explicit RecvSlot(std::byte *slot) noexcept
		: wqe_(new (slot) peal_recv_wqe{}),
		  next_(reinterpret_cast<peal_sge *>(slot + sizeof(peal_recv_wqe)))
	{
	}

	void add_sge(std::uint64_t addr, std::uint32_t length, std::uint32_t lkey) noexcept
	{
		new (next_++) peal_sge{addr, length, lkey};
		++wqe_->num_sge;
	}
};

class RecvRing : public WorkRing {
public:
	/*
	 * Call this after publish(). Returns whether the kernel wants a kick for the post.
	 * Without the barrier the producer store could still be in the store buffer when
	 * the flag is loaded as clear. A sender that has just begun to wait would then
	 * wait for its whole RNR timer.
	 */
	bool wants_kick() const noexcept
	{
		full_barrier(); /* C */
		return load_relaxed(ctl().flags) & PEAL_RING_WANTS_KICK;
	}
};

} // namespace peal
