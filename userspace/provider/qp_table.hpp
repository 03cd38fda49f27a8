// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Finds the queue pair of a CQE by its qp_index, or the XRC shared receive queue by its srq_index.
 *
 * A CQE may outlive its queue pair, because it stays in the completion queue when
 * the queue pair is destroyed. The kernel may then give the index to another queue
 * pair. Three rules keep a stale CQE from finding the wrong one:
 *
 *  - A CQE names the QP number too. The kernel hands numbers out cyclically. find()
 *    returns the pointer only if the entry has the same number.
 *  - The caller of remove() holds both CQ locks of the queue pair. A poller that
 *    finds queue pair X holds the lock of a CQ that X completes to, so X stays in
 *    the table, and in memory, until the poller unlocks.
 *  - The kernel may reuse an index as soon as it has destroyed the queue pair.
 *    insert() of the new owner may therefore come before remove() of the old one.
 *    Until then the old one is on the list `displaced_`, where find() still finds it,
 *    because only its completions give the slots of a shared receive queue back. A
 *    poller that reads the old number and the new pointer sees that the number has
 *    changed when it reads it again.
 *
 * An XRC shared receive queue completes to one CQ, whose lock the caller of remove() holds.
 *
 * The writers' lock is held for a few stores only, so it may be taken inside CQ locks. A poller
 * takes it only while an object is displaced.
 */
#pragma once
#include <rdma/peal-abi.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

namespace peal {

struct Qp;
struct Srq;

template <class Object, std::uint32_t MOST>
class ObjectTable {
	struct Slot {
		std::atomic<std::uint32_t> number;
		std::atomic<Object *> object;
	};
	struct Free {
		void operator()(Slot *slots) const noexcept { std::free(slots); }
	};

	/* An object whose index has another owner already, and which is not removed yet. */
	struct Displaced {
		std::uint32_t index, number;
		Object *object;
	};

	std::unique_ptr<Slot[], Free> slots_;
	mutable std::mutex writer_;
	std::vector<Displaced> displaced_;	 /* guarded by writer_ */
	std::atomic<std::size_t> num_displaced_; /* read without it */

	/* The caller holds writer_. */
	void count_displaced() noexcept
	{
		num_displaced_.store(displaced_.size(), std::memory_order_relaxed);
	}

	/*
	 * The entry has another number. The caller has acquired that number, or the pointer that
	 * came with it, so it also sees what insert() has counted before.
	 */
	Object *find_displaced(std::uint32_t index, std::uint32_t number) const noexcept
	{
		if (!num_displaced_.load(std::memory_order_relaxed))
			return nullptr;
		std::lock_guard guard(writer_);
		for (const Displaced &old : displaced_)
			if (old.index == index && old.number == number)
				return old.object;
		return nullptr;
	}

public:
	/* Use calloc, so that only the pages of used indices take memory. */
	ObjectTable() : slots_(static_cast<Slot *>(std::calloc(MOST, sizeof(Slot))))
	{
		if (!slots_)
			throw std::bad_alloc();
	}

	/* Returns null if the index or the number is unknown. The poller holds its CQ's lock. */
	Object *find(std::uint32_t index, std::uint32_t number) const noexcept
	{
		if (index >= MOST)
			return nullptr;
		const Slot &slot = slots_[index];
		if (slot.number.load(std::memory_order_acquire) != number)
			return find_displaced(index, number);
		Object *const object = slot.object.load(std::memory_order_acquire);
		if (slot.number.load(std::memory_order_acquire) != number)
			return find_displaced(index, number);
		return object;
	}

	/*
	 * Clear the number before changing the pointer, so that a reader of the new pointer
	 * also sees that the old number is gone. Release it, so that a reader that misses the
	 * old number sees that its object is displaced. Throws std::bad_alloc.
	 */
	void insert(std::uint32_t index, std::uint32_t number, Object *object)
	{
		std::lock_guard guard(writer_);
		Slot &slot = slots_[index];
		Object *const old = slot.object.load(std::memory_order_relaxed);

		if (old) {
			displaced_.push_back(
				{index, slot.number.load(std::memory_order_relaxed), old});
			count_displaced();
		}
		slot.number.store(0, std::memory_order_release);
		slot.object.store(object, std::memory_order_release);
		slot.number.store(number, std::memory_order_release);
	}

	/* Leaves an object alone that has the index now. The caller holds the CQs' locks. */
	void remove(std::uint32_t index, const Object *object)
	{
		std::lock_guard guard(writer_);

		if (index >= MOST)
			return;
		Slot &slot = slots_[index];
		if (slot.object.load(std::memory_order_relaxed) == object) {
			slot.number.store(0, std::memory_order_relaxed);
			slot.object.store(nullptr, std::memory_order_release);
			return;
		}
		std::erase_if(displaced_,
			      [&](const Displaced &old) { return old.object == object; });
		count_displaced();
	}
};

using QpTable = ObjectTable<Qp, PEAL_MAX_QP>;

/* The XRC shared receive queues, by their index. The kernel hands the lowest index out. */
inline constexpr std::uint32_t MAX_XRC_SRQS = 1 << 16;
using SrqTable = ObjectTable<Srq, MAX_XRC_SRQS>;

} // namespace peal
