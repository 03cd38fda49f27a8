// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The program's half of the ring of a shared receive queue. The kernel never gets a wr_id, so it
 * can neither read nor forge one.
 *
 * The slots complete in no order, so the ring holds their numbers, and the free ones are in lists.
 * A ring has two sides:
 *	the poster (SRQ lock)		head, claim, publish, wants_kick, prepare, finish, abandon
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
 *
 * A resize moves the WQEs that the kernel has not taken to another ring while the kernel goes on to
 * take them from the old one, and pollers go on to return slots. The notes about slots therefore
 * stay where they are, and a larger ring gets more of them beside. A WQE whose slot the new ring
 * does not have gets another slot. Only one of the two slots completes, which depends on what the
 * kernel had taken when it changed rings. A slot beyond a smaller ring is not used again after it
 * is returned. If the kernel has posted a WQE again meanwhile, the entries that were read are of no
 * use, and it refuses the new ring.
 */
#pragma once
#include <rdma/peal-abi.h>

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <utility>
#include <vector>

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

	struct Note {
		std::uint64_t wr_id;
		std::uint32_t next;  /* the slot after this one in its list */
		std::uint8_t posted; /* whether a CQE of the slot may come */
		std::uint8_t known;  /* the poster's: free, posted, or on its way back */
	};

	/*
	 * The notes of all slots that a ring had so far. The first ring's are in one array. Each of
	 * the others doubles their number. The poster adds arrays. A poller learns of a slot by its
	 * CQE, which comes after the array.
	 */
	class Notes {
		struct Free {
			void operator()(Note *notes) const noexcept { std::free(notes); }
		};
		static std::unique_ptr<Note[], Free> allocate(std::uint32_t count)
		{
			auto *const notes = static_cast<Note *>(std::calloc(count, sizeof(Note)));

			if (!notes)
				throw std::bad_alloc();
			return std::unique_ptr<Note[], Free>(notes);
		}

		std::unique_ptr<Note[], Free> first_;
		std::uint32_t first_size_ = 0; /* a power of two */
		std::uint32_t shift_ = 0;      /* its logarithm */
		std::array<std::atomic<Note *>, std::bit_width(unsigned{PEAL_MAX_SRQ_WR})> more_{};

	public:
		Notes() = default;
		Notes(const Notes &) = delete;
		Notes &operator=(const Notes &) = delete;
		~Notes()
		{
			for (auto &notes : more_)
				std::free(notes.load(std::memory_order_relaxed));
		}
		/* Makes notes for `count` slots, which is a power of two. Throws std::bad_alloc. */
		void grow(std::uint32_t count)
		{
			if (!first_) {
				first_ = allocate(count);
				first_size_ = count;
				shift_ = static_cast<std::uint32_t>(std::countr_zero(count));
			}
			for (std::size_t i = 0; std::size_t{first_size_} << i < count; ++i)
				if (!more_[i].load(std::memory_order_relaxed))
					more_[i].store(allocate(first_size_ << i).release(),
						       std::memory_order_release);
		}
		/* Any number may be asked for. Returns nullptr if no ring had the slot. */
		Note *find(std::uint32_t number) const noexcept
		{
			if (number < first_size_)
				return &first_[number];
			const auto i =
				static_cast<std::size_t>(std::bit_width(number >> shift_)) - 1;
			Note *const notes = i < more_.size()
						    ? more_[i].load(std::memory_order_acquire)
						    : nullptr;
			return notes ? &notes[number - (first_size_ << i)] : nullptr;
		}
		Note &operator[](std::uint32_t number) const noexcept { return *find(number); }
	};

	/* A WQE that a resize has copied to another slot. */
	struct Moved {
		std::uint32_t index, from, to;
	};

	/* The poster writes it. Pollers do not read it. */
	SharedRingShape shape_{};
	Notes notes_;
	/* The poster writes these. */
	alignas(PEAL_CACHE_LINE) std::uint32_t head_ = 0;
	std::uint32_t free_ = NONE;
	/* The pollers write this, and the poster empties it. */
	alignas(PEAL_CACHE_LINE) std::atomic<std::uint32_t> returned_ = NONE;

	void put_free(std::uint32_t number) noexcept
	{
		store_relaxed(notes_[number].next, free_);
		free_ = number;
	}

	/* Returns the number of a free slot, which is then the caller's, or NONE. */
	std::uint32_t take_free() noexcept
	{
		for (;;) {
			if (free_ == NONE)
				free_ = returned_.exchange(NONE, std::memory_order_acquire);
			const std::uint32_t number = free_;

			if (number == NONE)
				return NONE;
			free_ = load_relaxed(notes_[number].next);
			if (number < shape_.entries) [[likely]]
				return number;
			notes_[number].known = 0; /* a smaller ring does not have it */
		}
	}

	std::byte *slot(std::uint32_t number) const noexcept
	{
		return shape_.slots + std::size_t{number} * shape_.stride;
	}

	/* A poller may complete slot `number` from now on. */
	void set_posted(std::uint32_t number, std::uint64_t wr_id) noexcept
	{
		store_relaxed(notes_[number].wr_id, wr_id);
		store_relaxed(notes_[number].posted, std::uint8_t{1});
	}

public:
	/* A resize between prepare() and finish() or abandon(). */
	struct Resize {
		SharedRingShape to;
		std::vector<std::uint32_t> free; /* the poster's free slots */
		std::vector<Moved> moved;
	};

	SharedRecvRing() = default;

	/* Call once, before use. The memory must outlive the ring. Throws std::bad_alloc. */
	void attach(const SharedRingShape &shape)
	{
		notes_.grow(shape.entries);
		for (std::uint32_t i = shape.entries; i-- > 0;) {
			notes_[i].known = 1;
			put_free(i);
		}
		shape_ = shape;
	}

	/* The index of the next WQE; free-running. */
	std::uint32_t head() const noexcept { return head_; }

	/* Bytes from slot to slot. */
	std::uint32_t stride() const noexcept { return shape_.stride; }

	/*
	 * Makes a free slot the WQE of `index` (head() or later), and notes its wr_id. Returns the
	 * slot, or null if none is free.
	 */
	std::byte *claim(std::uint32_t index, std::uint64_t wr_id) noexcept
	{
		const std::uint32_t number = take_free();

		if (number == NONE)
			return nullptr;
		set_posted(number, wr_id);
		store_relaxed(shape_.numbers[index & (shape_.entries - 1)], __u32{number});
		return slot(number);
	}

	/* Lets the kernel take every WQE before index `next`. */
	void publish(std::uint32_t next) noexcept
	{
		head_ = next;
		store_release(shape_.ctl->producer, next); /* A */
	}

	/* Call this after publish(). Returns whether senders wait. See WorkRing. */
	bool wants_kick() const noexcept
	{
		full_barrier(); /* C */
		return load_relaxed(shape_.ctl->flags) & PEAL_RING_WANTS_KICK;
	}

	/* Returns whether complete() would accept a CQE of slot `number`. */
	bool is_posted(std::uint32_t number) const noexcept
	{
		const Note *const note = notes_.find(number);

		return note && load_relaxed(note->posted);
	}

	/*
	 * A CQE says that slot `number` is done. Returns its wr_id and frees the slot, or
	 * returns nothing if the CQE is invalid. No value of `number` makes this function
	 * access memory outside the ring's own.
	 */
	std::optional<std::uint64_t> complete(std::uint32_t number) noexcept
	{
		Note *const note = notes_.find(number);

		if (!note || !load_relaxed(note->posted))
			return std::nullopt;
		store_relaxed(note->posted, std::uint8_t{0});
		const std::uint64_t wr_id = load_relaxed(note->wr_id);
		std::uint32_t first = returned_.load(std::memory_order_relaxed);
		do
			store_relaxed(note->next, first);
		while (!returned_.compare_exchange_weak(first, number, std::memory_order_release,
							std::memory_order_relaxed));
		return wr_id;
	}

	/*
	 * Copies the WQEs that the kernel may not have taken yet to the ring `to`, whose slots have
	 * the same stride. Nothing is posted before finish() or abandon(). Returns nothing if more
	 * slots are in use than `to` has. Throws std::bad_alloc.
	 */
	std::optional<Resize> prepare(const SharedRingShape &to)
	{
		/* The kernel has taken at least these, unless it refuses the new ring. */
		const std::uint32_t first = load_acquire(shape_.ctl->consumer);
		Resize resize{to, {}, {}};

		resize.free.reserve(std::size_t{shape_.entries} + 2 * std::size_t{to.entries});
		if (head_ - first > to.entries)
			return std::nullopt;
		notes_.grow(to.entries);
		resize.moved.reserve(head_ - first);
		for (std::uint32_t number; (number = take_free()) != NONE;)
			resize.free.push_back(number);
		std::size_t look = 0;
		for (std::uint32_t i = first; i != head_; ++i) {
			const std::uint32_t from =
				load_relaxed(shape_.numbers[i & (shape_.entries - 1)]);
			std::uint32_t number = from;

			if (from >= shape_.entries) { /* the program scribbled */
				abandon(resize);
				return std::nullopt;
			}
			if (number >= to.entries) {
				while (look < resize.free.size() && resize.free[look] >= to.entries)
					++look;
				if (look == resize.free.size()) {
					abandon(resize);
					return std::nullopt;
				}
				number = std::exchange(resize.free[look], NONE);
				resize.moved.push_back({i, from, number});
				set_posted(number, load_relaxed(notes_[from].wr_id));
			}
			std::memcpy(to.slots + std::size_t{number} * to.stride, slot(from),
				    to.stride);
			store_relaxed(to.numbers[i & (to.entries - 1)], __u32{number});
		}
		return resize;
	}

	/* The kernel uses the new ring since it had taken the WQEs before index `taken`. */
	void finish(const Resize &resize, std::uint32_t taken) noexcept
	{
		const std::uint32_t before = shape_.entries;

		shape_ = resize.to;
		for (const std::uint32_t number : resize.free)
			if (number < shape_.entries)
				put_free(number);
			else if (number != NONE)
				notes_[number].known = 0;
		for (const Moved &move : resize.moved) {
			const bool was_taken = static_cast<std::int32_t>(move.index - taken) < 0;
			const std::uint32_t unused = was_taken ? move.to : move.from;

			store_relaxed(notes_[unused].posted, std::uint8_t{0});
			if (was_taken)
				put_free(unused);
			else
				notes_[unused].known = 0;
		}
		for (std::uint32_t i = before; i < shape_.entries; ++i)
			if (!std::exchange(notes_[i].known, std::uint8_t{1}))
				put_free(i);
	}

	/* The old ring stays. */
	void abandon(const Resize &resize) noexcept
	{
		for (const std::uint32_t number : resize.free)
			if (number != NONE)
				put_free(number);
		for (const Moved &move : resize.moved) {
			store_relaxed(notes_[move.to].posted, std::uint8_t{0});
			put_free(move.to);
		}
	}
};

} // namespace peal
