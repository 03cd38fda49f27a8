// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Finds the queue pair of a CQE, or the XRC shared receive queue or the work queue.
 *
 * Owns: the maps from qp_index to Qp, from srq_index to Srq and from wq_index to Wq, and the rule
 * by which a stale CQE never finds a new or a freed object. Does not know: the contents of a Qp or
 * an Srq.
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
 *    insert() of the new owner may therefore come before remove() of the old one,
 *    which then leaves the entry alone. A poller that reads the old number and the
 *    new pointer sees that the number has changed when it reads it again.
 *
 * An XRC shared receive queue or a work queue completes to one CQ, whose lock the caller of
 * remove() holds.
 *
 * The writers' lock is held for a few stores only, so it may be taken inside CQ locks.
 */
#pragma once
#include <rdma/peal-abi.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>

namespace peal {

struct Qp;
struct Srq;
struct Wq;

template <class Object, std::uint32_t MOST>
class ObjectTable {
	struct Slot {
		std::atomic<std::uint32_t> number;
		std::atomic<Object *> object;
	};
	struct Free {
		void operator()(Slot *slots) const noexcept { std::free(slots); }
	};

	std::unique_ptr<Slot[], Free> slots_;
	std::mutex writer_;

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
			return nullptr;
		Object *const object = slot.object.load(std::memory_order_acquire);
		return slot.number.load(std::memory_order_relaxed) == number ? object : nullptr;
	}

	/*
	 * Clear the number before changing the pointer, so that a reader of the new pointer
	 * also sees that the old number is gone.
	 */
	void insert(std::uint32_t index, std::uint32_t number, Object *object)
	{
		std::lock_guard guard(writer_);

		slots_[index].number.store(0, std::memory_order_relaxed);
		slots_[index].object.store(object, std::memory_order_release);
		slots_[index].number.store(number, std::memory_order_release);
	}

	/* Does nothing if another object has the index now. The caller holds its CQs' locks. */
	void remove(std::uint32_t index, const Object *object)
	{
		std::lock_guard guard(writer_);

		if (index >= MOST || slots_[index].object.load(std::memory_order_relaxed) != object)
			return;
		slots_[index].number.store(0, std::memory_order_relaxed);
		slots_[index].object.store(nullptr, std::memory_order_release);
	}
};

using QpTable = ObjectTable<Qp, PEAL_MAX_QP>;

/* The XRC shared receive queues, by their index. The kernel hands the lowest index out. */
inline constexpr std::uint32_t MAX_XRC_SRQS = 1 << 16;
using SrqTable = ObjectTable<Srq, MAX_XRC_SRQS>;

using WqTable = ObjectTable<Wq, PEAL_MAX_WQ>;

} // namespace peal
