// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Protection domains, thread domains, and parent domains, which join the two.
 *
 * Owns: the promise that everything created on a parent domain with a thread
 * domain is used by one thread at a time, and the reference counts that the
 * verbs ask for (EBUSY).
 * Does not know: what uses that promise.
 */
#pragma once
#include <infiniband/verbs.h>

#include <atomic>

namespace peal {

struct Td : ibv_td {
	std::atomic<unsigned> users = 0;
};

struct Pd : ibv_pd {
	std::atomic<unsigned> users = 0; /* parent domains on this one */
	Pd *parent = nullptr;		 /* of a parent domain: the real one */
	Td *td = nullptr;

	static Pd &of(ibv_pd *pd) noexcept { return *static_cast<Pd *>(pd); }

	bool single_threaded() const noexcept { return td; }
};

ibv_pd *pd_alloc(ibv_context *context);
int pd_dealloc(ibv_pd *pd);
ibv_td *td_alloc(ibv_context *context, ibv_td_init_attr *attr);
int td_dealloc(ibv_td *td);
ibv_pd *parent_domain_alloc(ibv_context *context, ibv_parent_domain_init_attr *attr);

} // namespace peal
