// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Protection domains, thread domains, and parent domains, which join the two. XRC domains and
 * address handles.
 */
#pragma once
#include <infiniband/verbs.h>
#include <rdma/peal-abi.h>

#include <atomic>
#include <cstdint>
#include <utility>

#include "../ring/work_ring.hpp"
#include "context.hpp"

namespace peal {

/*
 * The functions of a program that give memory to the objects of a parent domain. peal asks them
 * for the arrays of wr_ids, which are all that it keeps in memory of the program for a queue. The
 * rings are memory of the kernel.
 */
struct Allocators {
	decltype(ibv_parent_domain_init_attr::alloc) alloc = nullptr;
	decltype(ibv_parent_domain_init_attr::free) free = nullptr;
	void *context = nullptr;
};

/* What `resource_type` is in the calls of Allocators: the driver's number, and a kind. */
constexpr std::uint64_t RESOURCE_WR_IDS = (std::uint64_t{PEAL_DRIVER_ID} << 32) + 1;

struct Td : ibv_td {
	std::atomic<unsigned> users = 0;
};

struct Pd : ibv_pd {
	/*
	 * Number of parent domains on this one, or of objects of this parent domain. The kernel
	 * counts only the objects of the real PD.
	 */
	std::atomic<unsigned> users = 0;
	Pd *parent = nullptr; /* for a parent domain: its real PD */
	Td *td = nullptr;
	Allocators allocators;

	static Pd &of(ibv_pd *pd) noexcept { return *static_cast<Pd *>(pd); }

	/* Returns null if the program has no allocator or leaves it to peal. */
	WrIds alloc_wr_ids(std::uint32_t entries);
};

/* Returns whether the queues of `pd` need locks. A thread domain promises that they do not. */
inline bool needs_locks(const Context &context, ibv_pd *pd) noexcept
{
	return !context.single_threaded && !(pd && Pd::of(pd).td);
}

/*
 * The hold of an object on its parent domain. Memory from the domain's allocators must go before.
 * A real PD is not touched, because it may be gone before its objects after a removal of the
 * device.
 */
class DomainHold {
	Pd *parent_domain_;

public:
	explicit DomainHold(ibv_pd *pd) noexcept
		: parent_domain_(pd && Pd::of(pd).parent ? &Pd::of(pd) : nullptr)
	{
		if (parent_domain_)
			++parent_domain_->users;
	}
	~DomainHold()
	{
		if (parent_domain_)
			--parent_domain_->users;
	}
	DomainHold(const DomainHold &) = delete;
	DomainHold &operator=(const DomainHold &) = delete;
	void swap(DomainHold &other) noexcept { std::swap(parent_domain_, other.parent_domain_); }
};

/* XRC domains. Processes share one through a file. */
struct Xrcd : ibv_xrcd {
	std::uint32_t handle = 0;

	static Xrcd &of(ibv_xrcd *xrcd) noexcept { return *static_cast<Xrcd *>(xrcd); }
};

struct Ah : ibv_ah {
	DomainHold domain;
	std::uint32_t index = 0; /* peal_create_ah_resp.ah_index */

	explicit Ah(ibv_pd *owner) noexcept : ibv_ah{}, domain(owner) {}
	static const Ah &of(const ibv_ah *ah) noexcept { return *static_cast<const Ah *>(ah); }
};

} // namespace peal
