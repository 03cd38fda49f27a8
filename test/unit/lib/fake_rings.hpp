// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The device's half of the rings, in memory of the test. It knows <rdma/peal-abi.h>, and neither
 * queue pairs nor the fake.
 */
#pragma once
#include <rdma/peal-abi.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "../../../userspace/ring/barrier.hpp"

namespace fake {

class CompletionHalf {
	std::unique_ptr<peal_cq_ctl> ctl_{new peal_cq_ctl{}};
	std::uint32_t entries_;
	std::unique_ptr<peal_cqe[]> cqes_;
	std::uint32_t next_ = 0;

public:
	explicit CompletionHalf(std::uint32_t least)
		: entries_(std::bit_ceil(least)), cqes_(new peal_cqe[entries_]())
	{
	}

	peal_cq_ctl *ctl() const { return ctl_.get(); }
	peal_cqe *cqes() const { return cqes_.get(); }
	std::uint32_t entries() const { return entries_; }

	/* False if the program has not made room. */
	bool push(const peal_cqe &cqe)
	{
		if (next_ - peal::load_acquire(ctl_->consumer) >= entries_)
			return false;
		peal_cqe &to = cqes_[next_ & (entries_ - 1)];
		const __u8 phase = next_ & entries_ ? 0 : PEAL_CQE_PHASE;

		std::memcpy(&to, &cqe, offsetof(peal_cqe, flags));
		peal::store_release(to.flags, phase); /* D */
		++next_;
		return true;
	}
};

class WorkHalf {
	std::unique_ptr<peal_ring_ctl> ctl_{new peal_ring_ctl{}};
	std::uint32_t entries_;
	std::uint32_t stride_;
	std::unique_ptr<std::uint64_t[]> slots_;
	std::uint32_t next_ = 0;

public:
	WorkHalf(std::uint32_t least, std::uint32_t stride)
		: entries_(std::bit_ceil(least)), stride_(stride),
		  slots_(new std::uint64_t[entries_ * stride / sizeof(std::uint64_t)]())
	{
		ctl_->flags = PEAL_RING_WANTS_KICK;
	}

	peal_ring_ctl *ctl() const { return ctl_.get(); }
	void *slots() const { return slots_.get(); }
	std::uint32_t entries() const { return entries_; }
	std::uint32_t stride() const { return stride_; }

	/* Calls visit(index, slot) for each WQE that is posted. */
	template <class Visit>
	void take(Visit visit)
	{
		while (next_ != peal::load_acquire(ctl_->producer)) { /* A */
			const std::size_t at = std::size_t{next_ & (entries_ - 1)} * stride_;

			visit(next_, reinterpret_cast<std::byte *>(slots_.get()) + at);
			++next_;
		}
	}
};

} // namespace fake
