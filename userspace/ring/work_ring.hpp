// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The program's half of a send or receive ring: what both kinds have in common.
 *
 * Owns: the indices, the free slots, and the wr_id of each slot. The kernel never
 * gets a wr_id, so it can neither read nor forge one.
 * Does not know: the contents of a slot, locks, the doorbell.
 *
 * A ring has two sides, and the callers serialise each side:
 *	the poster (SQ or RQ lock)	has_room, slot, set_wr_id, publish
 *	the poller (CQ lock)		complete
 * The two sides share only tail_. The poller releases a slot after it has read the
 * slot's wr_id. The poster acquires the slot before it writes a new wr_id. In the
 * other direction the barriers A and D order the poster's wr_id before the poller's
 * load, through the kernel. A race detector does not see the kernel's half, so the
 * accesses to wr_ids are atomic and relaxed.
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
#include <utility>

#include "barrier.hpp"

namespace peal {

/* The memory of a ring. `entries` is a power of two, or 0 for no ring. */
struct RingShape {
	peal_ring_ctl *ctl;
	std::byte *slots;
	std::uint32_t entries;
	std::uint32_t stride;
};

/* Frees an array of wr_ids, which comes from new[] unless its owner has a function for it. */
struct FreeWrIds {
	void (*free)(void *owner, std::uint64_t *memory) noexcept = nullptr;
	void *owner = nullptr;

	void operator()(std::uint64_t *memory) const noexcept
	{
		if (free)
			free(owner, memory);
		else
			delete[] memory;
	}
};
using WrIds = std::unique_ptr<std::uint64_t[], FreeWrIds>;

class WorkRing {
	/* Both sides read these for each WQE. Nothing writes them after attach(). */
	RingShape shape_{};
	WrIds wr_id_;
	/*
	 * The poster writes these. They have a cache line of their own, because the poster and
	 * the poller may run on two CPUs.
	 */
	alignas(PEAL_CACHE_LINE) std::uint32_t head_ = 0;
	std::uint32_t cached_tail_ = 0;
	/* The poller writes this. */
	alignas(PEAL_CACHE_LINE) std::atomic<std::uint32_t> tail_ = 0;

public:
	/* Makes a ring without entries. It has no room and completes no WQE. */
	WorkRing() = default;

	/*
	 * Call once, before use. The memory must outlive the ring. `wr_ids` has an element for
	 * each entry, or is null, and then the ring allocates it. Throws std::bad_alloc.
	 */
	void attach(const RingShape &shape, WrIds wr_ids = {})
	{
		wr_id_ = wr_ids ? std::move(wr_ids) : WrIds(new std::uint64_t[shape.entries]());
		shape_ = shape;
	}

	/* The index of the next WQE; free-running. */
	std::uint32_t head() const noexcept { return head_; }

	/* Returns whether the slot of `index` (head() or later) is free. */
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

	/* Lets the kernel take every WQE before index `next`. */
	void publish(std::uint32_t next) noexcept
	{
		head_ = next;
		store_release(shape_.ctl->producer, next); /* A */
	}

	/* Returns whether complete() would accept a CQE of WQE `index`. */
	bool is_posted(std::uint32_t index) const noexcept
	{
		return index - tail_.load(std::memory_order_relaxed) < shape_.entries;
	}

	/*
	 * A CQE says that WQE `index` is done. Returns its wr_id, and frees its slot and
	 * all slots before it (of unsignaled WQEs). Returns nothing if the CQE is older
	 * than the last reset, or is invalid. No value of `index` makes this function
	 * access memory outside the ring's own.
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
	 * Call this when the queue pair went to RESET. The kernel has dropped all posted
	 * WQEs by moving its consumer index up to the producer index. Indices never go
	 * back, so complete() recognises a CQE from before the reset that is still in a
	 * completion queue. The caller holds the locks of poster and poller.
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
