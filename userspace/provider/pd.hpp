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

#include <atomic>

namespace peal {

struct Td : ibv_td {
	std::atomic<unsigned> users = 0;
};

struct Pd : ibv_pd {
	std::atomic<unsigned> users = 0; /* number of parent domains on this one */
	Pd *parent = nullptr;		 /* for a parent domain: its real PD */
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
