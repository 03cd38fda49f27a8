// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Finds the queue pair of a CQE.
 *
 * Owns: the map from qp_index to Qp, and the rule by which a stale CQE never finds
 * a new or a freed queue pair.
 * Does not know: the contents of a Qp.
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

class QpTable {
	struct Slot {
		std::atomic<std::uint32_t> qp_num;
		std::atomic<Qp *> qp;
	};
	struct Free {
		void operator()(Slot *slots) const noexcept { std::free(slots); }
	};

	std::unique_ptr<Slot[], Free> slots_;
	std::mutex writer_;

public:
	/* Use calloc, so that only the pages of used indices take memory. */
	QpTable() : slots_(static_cast<Slot *>(std::calloc(PEAL_MAX_QP, sizeof(Slot))))
	{
		if (!slots_)
			throw std::bad_alloc();
	}

	/* Returns null if the index or the number is unknown. The poller holds its CQ's lock. */
	Qp *find(std::uint32_t index, std::uint32_t qp_num) const noexcept
	{
		if (index >= PEAL_MAX_QP)
			return nullptr;
		const Slot &slot = slots_[index];
		if (slot.qp_num.load(std::memory_order_acquire) != qp_num)
			return nullptr;
		Qp *const qp = slot.qp.load(std::memory_order_acquire);
		return slot.qp_num.load(std::memory_order_relaxed) == qp_num ? qp : nullptr;
	}

	/*
	 * Clear the number before changing the pointer, so that a reader of the new pointer
	 * also sees that the old number is gone.
	 */
	void insert(std::uint32_t index, std::uint32_t qp_num, Qp *qp)
	{
		std::lock_guard guard(writer_);

		slots_[index].qp_num.store(0, std::memory_order_relaxed);
		slots_[index].qp.store(qp, std::memory_order_release);
		slots_[index].qp_num.store(qp_num, std::memory_order_release);
	}

	/* Does nothing if another queue pair has the index now. Holds both CQ locks of `qp`. */
	void remove(std::uint32_t index, const Qp *qp)
	{
		std::lock_guard guard(writer_);

		if (slots_[index].qp.load(std::memory_order_relaxed) != qp)
			return;
		slots_[index].qp_num.store(0, std::memory_order_relaxed);
		slots_[index].qp.store(nullptr, std::memory_order_release);
	}
};

} // namespace peal
