// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Protection domains, thread domains, and parent domains, which join the two.
 *
 * Owns: the program's promise that one thread at a time uses the objects of a parent
 * domain with a thread domain, and the reference counts for which the verbs return
 * EBUSY.
 * Does not know: the code that relies on the promise.
 */
#pragma once
#include <infiniband/verbs.h>
#include <rdma/peal-abi.h>

#include <atomic>
#include <cstdint>
#include <utility>

#include "../ring/work_ring.hpp"

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

	bool single_threaded() const noexcept { return td; }

	/* Returns null if the program has no allocator or leaves it to peal. */
	WrIds alloc_wr_ids(std::uint32_t entries);
};

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

ibv_pd *pd_alloc(ibv_context *context);
int pd_dealloc(ibv_pd *pd);
/* A domain that the kernel has already. A wrong handle shows when the domain is used. */
ibv_pd *pd_import(ibv_context *context, std::uint32_t handle);
void pd_unimport(ibv_pd *pd) noexcept;
ibv_td *td_alloc(ibv_context *context, ibv_td_init_attr *attr);
int td_dealloc(ibv_td *td);
ibv_pd *parent_domain_alloc(ibv_context *context, ibv_parent_domain_init_attr *attr);

} // namespace peal
