// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The program's half of the completion ring.
 *
 * The caller of resize, peek, advance, publish, for_each and drop holds the CQ lock. Any thread may
 * call arm at any time.
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
	/* `base` is the start of the CQ's mapping, which must outlive the ring. */
	CompletionRing(std::byte *base, std::uint32_t entries) noexcept
		: ctl_(reinterpret_cast<peal_cq_ctl *>(base)),
		  cqe_(reinterpret_cast<peal_cqe *>(base + PEAL_CQ_RING_OFFSET)), entries_(entries)
	{
	}

	/* The memory of a ring. */
	struct Shape {
		peal_cq_ctl *ctl;
		peal_cqe *cqes;
		std::uint32_t entries;
	};

	/* Returns whether no CQE was read. */
	bool is_unused() const noexcept { return !next_; }

	/*
	 * Returns the memory of a ring that is unused. From then on no CQE ever comes, but arm()
	 * works.
	 */
	Shape give_away() noexcept
	{
		/* A CQE of zeros is not valid at index 0. */
		static peal_cqe never{};
		const Shape all{ctl_, cqe_, entries_};

		cqe_ = &never;
		entries_ = 1;
		return all;
	}

	/*
	 * Goes on with `entries` CQEs at `base`. The kernel has copied all CQEs that were not
	 * published, and each keeps its index. The control words stay where they are.
	 */
	void resize(std::byte *base, std::uint32_t entries) noexcept
	{
		cqe_ = reinterpret_cast<peal_cqe *>(base);
		entries_ = entries;
	}

	/*
	 * Returns the next CQE, or null. The kernel does not change it before publish().
	 * A CQE need not be cleared after reading, because its phase differs from the
	 * phase expected on the next lap.
	 */
	const peal_cqe *peek() const noexcept
	{
		const peal_cqe &next = slot(next_);

		return is_valid(next, next_) ? &next : nullptr;
	}

	void advance() noexcept { ++next_; }

	/* Lets the kernel reuse all CQEs that were advanced over. */
	void publish() noexcept
	{
		if (published_ == next_)
			return;
		published_ = next_;
		store_release(ctl_->consumer, next_); /* F */
	}

	/*
	 * Advances over the next `count` CQEs and publishes that, if all of them are there and
	 * `visit(cqe, i)` is true for each. Otherwise they stay. Returns whether it has advanced.
	 */
	template <class Visit>
	[[gnu::always_inline]] bool take(std::size_t count, Visit visit) noexcept
	{
		/* Copies, because each acquire makes the compiler load fields again. */
		peal_cqe *const cqes = cqe_;
		const std::uint32_t entries = entries_;
		std::uint32_t next = next_;

		for (std::size_t i = 0; i < count; ++i, ++next) {
			const peal_cqe &cqe = cqes[next & (entries - 1)];
			const bool lap = next & entries;
			const bool phase = load_acquire(cqe.flags) & PEAL_CQE_PHASE; /* D */

			if (phase == lap || !visit(cqe, i))
				return false;
		}
		next_ = next;
		store_release(ctl_->consumer, next); /* F */
		published_ = next;
		return true;
	}

	/* Calls `visit` for each CQE that was not advanced over, the oldest first. */
	template <class Visit>
	void for_each(Visit visit) const noexcept
	{
		for (std::uint32_t i = next_; i - next_ < entries_ && is_valid(i); ++i)
			visit(std::as_const(slot(i)));
	}

	/*
	 * Removes the CQEs for which `is_stale` is true, wherever they are, and gives
	 * their slots back. The other CQEs keep their order and move up to the newest
	 * valid slot, because only the oldest slots can be given back.
	 *
	 * The kernel may push CQEs at the same time. It writes only to slots after the
	 * valid ones, and reads no CQE that it has written. The slots before `end` are
	 * therefore the program's, and a CQE that comes after the first loop is not moved.
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
	 * Asks for an event. The caller must poll once more afterwards, because a CQE
	 * that came before the store raises no event. The exchange loop makes two threads
	 * that arm at the same time store two different values. It does not take the CQ
	 * lock, because a program may arm between start_poll and end_poll, while it holds
	 * that lock.
	 *
	 * The kernel looks only at the last value, so a request for solicited events must
	 * not replace an outstanding request for all events. The load of `fired` needs no
	 * order, because `fired` equals `old` only if the kernel has raised the event of
	 * `old`, and an older value only causes one unneeded event.
	 */
	void arm(std::uint32_t kind) noexcept
	{
		std::atomic_ref<__u32> word(ctl_->arm);
		__u32 old = word.load(std::memory_order_relaxed);
		__u32 next;

		do {
			const bool all = old & PEAL_CQ_ARM_NEXT && old != load_relaxed(ctl_->fired);

			next = (((old >> PEAL_CQ_ARM_SHIFT) + 1) << PEAL_CQ_ARM_SHIFT) |
			       (all ? PEAL_CQ_ARM_NEXT : kind);
		} while (!word.compare_exchange_weak(old, next, std::memory_order_seq_cst));
		full_barrier(); /* E */
	}

private:
	peal_cqe &slot(std::uint32_t index) const noexcept { return cqe_[index & (entries_ - 1)]; }

	bool is_valid(const peal_cqe &at, std::uint32_t index) const noexcept
	{
		const bool lap = index & entries_;
		const bool phase = load_acquire(at.flags) & PEAL_CQE_PHASE; /* D */

		return phase != lap;
	}
	bool is_valid(std::uint32_t index) const noexcept { return is_valid(slot(index), index); }

	/* Both CQEs are valid. `to` keeps its phase, because the phase belongs to slot and lap. */
	void move(std::uint32_t from, std::uint32_t to) noexcept
	{
		if (from == to)
			return;
		const int phase = slot(to).flags & PEAL_CQE_PHASE;
		peal_cqe cqe = slot(from);

		cqe.flags = static_cast<__u8>((cqe.flags & ~PEAL_CQE_PHASE) | phase);
		slot(to) = cqe;
	}
};

} // namespace peal
