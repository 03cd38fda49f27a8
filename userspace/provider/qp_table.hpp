// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Finds the queue pair that a CQE is about.
 *
 * Owns: qp_index -> Qp, and the rule by which a stale CQE never finds a new or a
 * freed queue pair.
 * Does not know: what a Qp is.
 *
 * A CQE may outlive its queue pair: it stays in the completion queue when the
 * queue pair is destroyed, and the kernel gives the index to another one. So:
 *
 *  - a CQE names the QP number too, which the kernel hands out cyclically, and
 *    find() gives the pointer only when the entry has that number;
 *  - remove() is called with both CQ locks of the queue pair held. A poller that
 *    finds queue pair X holds the lock of a CQ that X completes to, so X stays
 *    in the table, and in memory, until it unlocks;
 *  - the kernel may reuse an index as soon as it has destroyed its queue pair, so
 *    insert() may come before the remove() of the previous owner, which then leaves
 *    the entry alone. A poller that reads the old number and the new pointer finds
 *    the number gone when it looks again.
 *
 * The lock of the writers is held for a few stores: CQ locks may be held around it.
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
	/* calloc, so that only the pages of indices that are used become real. */
	QpTable() : slots_(static_cast<Slot *>(std::calloc(PEAL_MAX_QP, sizeof(Slot))))
	{
		if (!slots_)
			throw std::bad_alloc();
	}

	/* Null when index or number is unknown. The poller holds its CQ's lock. */
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

	/* The number goes before the pointer changes: who reads the new one sees that. */
	void insert(std::uint32_t index, std::uint32_t qp_num, Qp *qp)
	{
		std::lock_guard guard(writer_);

		slots_[index].qp_num.store(0, std::memory_order_relaxed);
		slots_[index].qp.store(qp, std::memory_order_release);
		slots_[index].qp_num.store(qp_num, std::memory_order_release);
	}

	/* Unless the index is another's by now. Both CQ locks of `qp` are held. */
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
