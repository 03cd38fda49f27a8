// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * What send and receive rings have in common, on the program's side.
 *
 * Owns: the indices, which slots are free, and the wr_id of each slot. The
 * kernel never learns a wr_id, so it can neither read nor forge one.
 * Does not know: what is in a slot, locks, the doorbell.
 *
 * Two sides, each serialised by its caller:
 *	the poster (SQ or RQ lock)	has_room, slot, set_wr_id, publish
 *	the poller (CQ lock)		complete
 * They meet in tail_ alone: the poller releases a slot after it has read the
 * slot's wr_id, the poster acquires it before it writes a new one. The way back,
 * from the poster's wr_id to the poller, is A and D with the kernel between them.
 * (A race detector cannot see into the kernel: so wr_ids are atomic, relaxed.)
 *
 *	tail_ <= index < head_		posted, not completed
 *	head_ <= index < tail_ + entries	free
 */
#pragma once
#include <rdma/peal-abi.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "barrier.hpp"

namespace peal {

/* Where a ring lies in memory. `entries` is a power of two, or 0: no ring. */
struct RingShape {
	peal_ring_ctl *ctl;
	std::byte *slots;
	std::uint32_t entries;
	std::uint32_t stride;
};

class WorkRing {
	/* Both sides read this for each WQE, and nobody writes it. */
	RingShape shape_{};
	std::unique_ptr<std::uint64_t[]> wr_id_;
	/* The poster's. Lines of their own, as poster and poller may be two CPUs. */
	alignas(PEAL_LINE) std::uint32_t head_ = 0;
	std::uint32_t cached_tail_ = 0;
	/* The poller's. */
	alignas(PEAL_LINE) std::atomic<std::uint32_t> tail_ = 0;

public:
	/* A ring without entries: never has room, completes nothing. */
	WorkRing() = default;

	/* Once, before use. Throws std::bad_alloc. The memory outlives the ring. */
	void attach(const RingShape &shape)
	{
		wr_id_ = std::make_unique<std::uint64_t[]>(shape.entries);
		shape_ = shape;
	}

	/* The index that the next WQE gets; free-running. */
	std::uint32_t head() const noexcept { return head_; }

	/* Is the slot of `index` (head() or later) free? */
	bool has_room(std::uint32_t index) noexcept
	{
		if (index - cached_tail_ < shape_.entries)
			return true;
		cached_tail_ = tail_.load(std::memory_order_acquire);
		return index - cached_tail_ < shape_.entries;
	}

	std::byte *slot(std::uint32_t index) const noexcept
	{
		return shape_.slots + std::size_t{slot_number(index)} * shape_.stride;
	}

	void set_wr_id(std::uint32_t index, std::uint64_t wr_id) noexcept
	{
		store_relaxed(wr_id_[slot_number(index)], wr_id);
	}

	/* Announce every WQE before index `next`. */
	void publish(std::uint32_t next) noexcept
	{
		head_ = next;
		store_release(shape_.ctl->producer, next); /* A */
	}

	/* Is a CQE of WQE `index` one that complete() would take? */
	bool is_posted(std::uint32_t index) const noexcept
	{
		return index - tail_.load(std::memory_order_relaxed) < shape_.entries;
	}

	/*
	 * A CQE says that WQE `index` is done: its wr_id, and it and all before
	 * it (unsignaled ones) are free. Nothing when the CQE is older than the
	 * last reset, or nonsense; whatever the CQE says, only own memory that
	 * exists is touched.
	 */
	std::optional<std::uint64_t> complete(std::uint32_t index) noexcept
	{
		const std::uint32_t tail = tail_.load(std::memory_order_relaxed);

		if (index - tail >= shape_.entries)
			return std::nullopt;
		const std::uint64_t wr_id = load_relaxed(wr_id_[slot_number(index)]);
		tail_.store(index + 1, std::memory_order_release);
		return wr_id;
	}

	/*
	 * The queue pair went to RESET: the kernel has dropped what was posted
	 * by moving its index up to ours. Indices never go back, so a CQE from
	 * before the reset that is still in a completion queue is recognised in
	 * complete(). The caller holds off poster and poller.
	 */
	void reset() noexcept
	{
		publish(load_acquire(shape_.ctl->consumer));
		cached_tail_ = head_;
		tail_.store(head_, std::memory_order_relaxed);
	}

protected:
	const peal_ring_ctl &ctl() const noexcept { return *shape_.ctl; }

private:
	std::uint32_t slot_number(std::uint32_t index) const noexcept
	{
		return index & (shape_.entries - 1);
	}
};

} // namespace peal
