// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The program's half of a send or receive ring, and the layout of a WQE in a slot.
 *
 * A ring has two sides, and the callers serialise each side:
 *	the poster (SQ or RQ lock)	head, claim, publish, wants_kick
 *	the poller (CQ lock)		complete, is_posted
 * The two sides share only tail_ and the wr_ids, which the kernel never gets, so it can neither
 * read nor forge one. The poller releases a slot after it has read the slot's wr_id. The poster
 * acquires the slot before it writes a new wr_id. In the other direction the barriers A and D
 * order the poster's wr_id before the poller's load, through the kernel. A race detector does not
 * see the kernel's half, so the accesses to wr_ids are atomic and relaxed.
 *
 *	tail_ <= index < head_		posted, not completed
 *	head_ <= index < tail_ + entries	free
 */
#pragma once
#include <rdma/peal-abi.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
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

	const RingShape &shape() const noexcept { return shape_; }

	/*
	 * Returns the memory of a ring that was never posted to. From then on the ring is empty,
	 * as one that was not attached. Do not reset() it.
	 */
	RingShape give_away() noexcept { return std::exchange(shape_, {}); }

	/* The index of the next WQE; free-running. */
	std::uint32_t head() const noexcept { return head_; }

	/* Returns the slot of `index` (head() or later) and notes its wr_id. Null if it is in use.
	 */
	std::byte *claim(std::uint32_t index, std::uint64_t wr_id) noexcept
	{
		if (index - cached_tail_ >= shape_.entries) {
			cached_tail_ = tail_.load(std::memory_order_acquire);
			if (index - cached_tail_ >= shape_.entries)
				return nullptr;
		}
		const std::size_t number = slot_number(index);

		store_relaxed(wr_id_[number], wr_id);
		std::byte *const slot = shape_.slots + number * shape_.stride;
		if (!slot)
			__builtin_unreachable(); /* so that callers do not test it twice */
		return slot;
	}

	/* Lets the kernel take every WQE before index `next`. */
	void publish(std::uint32_t next) noexcept
	{
		head_ = next;
		store_release(shape_.ctl->producer, next); /* A */
	}

	/*
	 * Call this after publish() on a receive ring. Returns whether the kernel wants a kick for
	 * the post. Without the barrier the producer store could still be in the store buffer when
	 * the flag is loaded as clear. A sender that has just begun to wait would then wait for its
	 * whole RNR timer.
	 */
	bool wants_kick() const noexcept
	{
		full_barrier(); /* C */
		return load_relaxed(shape_.ctl->flags) & PEAL_RING_WANTS_KICK;
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

private:
	std::uint32_t slot_number(std::uint32_t index) const noexcept
	{
		return index & (shape_.entries - 1);
	}
};

/*
 * Writes a send WQE into a claimed slot. Call the constructor first, then segment() if the opcode
 * has a segment, then add the data. The caller has checked that all of it fits the slot.
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

	/* To change the header before publish(). */
	peal_send_wqe &header() const noexcept { return *wqe_; }

	bool has_data() const noexcept { return wqe_->num_sge || (wqe_->flags & PEAL_WQE_INLINE); }

	template <class Segment>
	void segment(const Segment &segment) noexcept
	{
		new (tail_) Segment(segment);
		tail_ += sizeof(Segment);
	}

	void add_sge(std::uint64_t addr, std::uint32_t length, std::uint32_t lkey) noexcept
	{
		segment(peal_sge{addr, length, lkey});
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
};

/* The same for a receive WQE. */
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

} // namespace peal
