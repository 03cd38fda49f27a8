// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The completion ring, as its reader sees it.
 *
 * Owns: the consumer index, the phase test, the arm word.
 * Does not know: what a CQE means, which queue pair it belongs to, locks.
 *
 * peek, advance, publish and drop are the poller's (CQ lock); arm is anybody's.
 */
#pragma once
#include <rdma/peal-abi.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "barrier.hpp"

namespace peal {

class CompletionRing {
	peal_cq_ctl *ctl_ = nullptr;
	peal_cqe *cqe_ = nullptr;
	std::uint32_t entries_ = 0; /* a power of two */
	std::uint32_t next_ = 0;    /* free-running */
	std::uint32_t published_ = 0;

public:
	CompletionRing() = default;
	/* `base` is the start of the CQ's mapping, which outlives the ring. */
	CompletionRing(std::byte *base, std::uint32_t entries) noexcept
		: ctl_(reinterpret_cast<peal_cq_ctl *>(base)),
		  cqe_(reinterpret_cast<peal_cqe *>(base + PEAL_CQ_RING_OFFSET)), entries_(entries)
	{
	}

	/*
	 * The next CQE, or null. It stays as it is until publish(). A phase left
	 * from the previous lap differs from the one expected, so nobody clears
	 * a CQE after reading it.
	 */
	const peal_cqe *peek() const noexcept { return is_valid(next_) ? &slot(next_) : nullptr; }

	void advance() noexcept { ++next_; }

	/* The kernel may reuse everything that was advanced over. */
	void publish() noexcept
	{
		if (published_ == next_)
			return;
		published_ = next_;
		store_release(ctl_->consumer, next_); /* F */
	}

	/*
	 * Takes out the CQEs that `is_stale` names, wherever they are, and gives their
	 * room back. What is left keeps its order and moves up to the newest one, since
	 * only the oldest slots can be given back.
	 *
	 * The kernel may be pushing meanwhile: it writes behind its own index only, and
	 * looks at no CQE that it has written. So whatever is newest when the first walk
	 * ends is the end of both, and all slots before it are the program's.
	 */
	template <class Stale>
	void drop(Stale is_stale) noexcept
	{
		std::uint32_t end = next_;

		while (end - next_ < entries_ && is_valid(end))
			++end;
		std::uint32_t to = end;
		for (std::uint32_t from = end; from != next_;)
			if (!is_stale(std::as_const(slot(--from))))
				move(from, --to);
		next_ = to;
		publish();
	}

	/*
	 * Ask for an event. The caller polls once more afterwards: a CQE that
	 * came before the store raises none. The exchange loop makes two threads
	 * that arm at once leave two different values, in either order; it does
	 * not take the CQ lock, because a program may arm between start_poll and
	 * end_poll, when it holds that lock itself.
	 *
	 * The kernel looks at the last value only, so solicited events must not
	 * replace an outstanding request for all. Nothing is ordered by `fired`: it
	 * equals `old` only when the kernel has fired for that, and where it is seen
	 * late an event comes that nobody needed.
	 */
	void arm(std::uint32_t kind) noexcept
	{
		std::atomic_ref<__u32> word(ctl_->arm);
		__u32 old = word.load(std::memory_order_relaxed);

		while (!word.compare_exchange_weak(old, next_arm(old, kind_after(old, kind)),
						   std::memory_order_seq_cst))
			;
		full_barrier(); /* E */
	}

private:
	peal_cqe &slot(std::uint32_t index) const noexcept { return cqe_[index & (entries_ - 1)]; }

	bool is_valid(std::uint32_t index) const noexcept
	{
		const bool phase = load_acquire(slot(index).flags) & PEAL_CQE_PHASE; /* D */

		return phase != bool(index & entries_);
	}

	/* Both are valid. The phase belongs to the slot and the lap it is in, not to the CQE. */
	void move(std::uint32_t from, std::uint32_t to) noexcept
	{
		if (from == to)
			return;
		const int phase = slot(to).flags & PEAL_CQE_PHASE;
		peal_cqe cqe = slot(from);

		cqe.flags = static_cast<__u8>((cqe.flags & ~PEAL_CQE_PHASE) | phase);
		slot(to) = cqe;
	}

	std::uint32_t kind_after(std::uint32_t old, std::uint32_t kind) const noexcept
	{
		const bool all = old & PEAL_CQ_ARM_NEXT && old != load_relaxed(ctl_->fired);

		return all ? PEAL_CQ_ARM_NEXT : kind;
	}

	static std::uint32_t next_arm(std::uint32_t old, std::uint32_t kind) noexcept
	{
		return (((old >> PEAL_CQ_ARM_SHIFT) + 1) << PEAL_CQ_ARM_SHIFT) | kind;
	}
};

} // namespace peal
