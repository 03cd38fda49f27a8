// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The program's half of the ring of a shared receive queue.
 *
 * Owns: the free slots, the wr_id of each slot, the order of posting, and barrier C. The kernel
 * never gets a wr_id, so it can neither read nor forge one.
 * Does not know: verbs, the contents of a slot (RecvSlot), locks, the kick.
 *
 * The slots complete in no order, so the ring holds their numbers, and the free ones are in lists.
 * A ring has two sides:
 *	the poster (SRQ lock)		take_free, slot, set_wr_id, enqueue, publish, wants_kick
 *	pollers (each its CQ's lock)	complete, is_posted
 * Pollers of several completion queues put slots on the list `returned_`, one by one. The poster
 * takes that whole list when its own is empty, so no slot can leave and come back between a
 * poller's load of the head and its exchange. The exchange releases the slot after its wr_id has
 * been read; the poster acquires it. In the other direction the barriers A and D order the
 * poster's stores before the poller's loads, through the kernel. A race detector does not see the
 * kernel's half, so the accesses to the arrays are atomic and relaxed.
 *
 * An entry of the ring is free whenever a slot is. When the WQE of index i + entries is posted, at
 * most entries - 1 of those before it are not complete, so at least i + 1 are. The kernel takes
 * them in the order of their indices, so it has read entry i.
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

/* The memory of the ring. `entries` is a power of two. */
struct SharedRingShape {
	peal_ring_ctl *ctl;
	__u32 *numbers;
	std::byte *slots;
	std::uint32_t entries;
	std::uint32_t stride;
};

class SharedRecvRing {
	static constexpr std::uint32_t NONE = UINT32_MAX;

	/* Both sides read these for each WQE. Nothing writes them after attach(). */
	SharedRingShape shape_{};
	std::unique_ptr<std::uint64_t[]> wr_id_;
	std::unique_ptr<std::uint32_t[]> next_;	 /* the slot after this one in its list */
	std::unique_ptr<std::uint8_t[]> posted_; /* whether a CQE of the slot may come */
	/* The poster writes these. */
	alignas(PEAL_CACHE_LINE) std::uint32_t head_ = 0;
	std::uint32_t free_ = NONE;
	/* The pollers write this, and the poster empties it. */
	alignas(PEAL_CACHE_LINE) std::atomic<std::uint32_t> returned_ = NONE;

public:
	SharedRecvRing() = default;

	/* Call once, before use. The memory must outlive the ring. Throws std::bad_alloc. */
	void attach(const SharedRingShape &shape)
	{
		wr_id_ = std::make_unique<std::uint64_t[]>(shape.entries);
		next_ = std::make_unique<std::uint32_t[]>(shape.entries);
		posted_ = std::make_unique<std::uint8_t[]>(shape.entries);
		for (std::uint32_t i = 0; i < shape.entries; ++i)
			next_[i] = i + 1 < shape.entries ? i + 1 : NONE;
		free_ = shape.entries ? 0 : NONE;
		shape_ = shape;
	}

	/* The index of the next WQE; free-running. */
	std::uint32_t head() const noexcept { return head_; }

	/* Returns the number of a free slot, which is then the caller's, or nothing. */
	std::optional<std::uint32_t> take_free() noexcept
	{
		if (free_ == NONE)
			free_ = returned_.exchange(NONE, std::memory_order_acquire);
		if (free_ == NONE)
			return std::nullopt;
		const std::uint32_t number = free_;
		free_ = load_relaxed(next_[number]);
		return number;
	}

	std::byte *slot(std::uint32_t number) const noexcept
	{
		return shape_.slots + std::size_t{number} * shape_.stride;
	}

	void set_wr_id(std::uint32_t number, std::uint64_t wr_id) noexcept
	{
		store_relaxed(wr_id_[number], wr_id);
	}

	/* Makes slot `number` the WQE of `index` (head() or later). */
	void enqueue(std::uint32_t index, std::uint32_t number) noexcept
	{
		store_relaxed(posted_[number], std::uint8_t{1});
		store_relaxed(shape_.numbers[index & (shape_.entries - 1)], __u32{number});
	}

	/* Lets the kernel take every WQE before index `next`. */
	void publish(std::uint32_t next) noexcept
	{
		head_ = next;
		store_release(shape_.ctl->producer, next); /* A */
	}

	/* Call this after publish(). Returns whether senders wait. See RecvRing. */
	bool wants_kick() const noexcept
	{
		full_barrier(); /* C */
		return load_relaxed(shape_.ctl->flags) & PEAL_RING_WANTS_KICK;
	}

	/* Returns whether complete() would accept a CQE of slot `number`. */
	bool is_posted(std::uint32_t number) const noexcept
	{
		return number < shape_.entries && load_relaxed(posted_[number]);
	}

	/*
	 * A CQE says that slot `number` is done. Returns its wr_id and frees the slot, or
	 * returns nothing if the CQE is invalid. No value of `number` makes this function
	 * access memory outside the ring's own.
	 */
	std::optional<std::uint64_t> complete(std::uint32_t number) noexcept
	{
		if (!is_posted(number))
			return std::nullopt;
		store_relaxed(posted_[number], std::uint8_t{0});
		const std::uint64_t wr_id = load_relaxed(wr_id_[number]);
		std::uint32_t first = returned_.load(std::memory_order_relaxed);
		do
			store_relaxed(next_[number], first);
		while (!returned_.compare_exchange_weak(first, number, std::memory_order_release,
							std::memory_order_relaxed));
		return wr_id;
	}
};

} // namespace peal
