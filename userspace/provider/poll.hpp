// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Taking completions off a completion queue.
 *
 * Owns: what a CQE means in terms of the verbs, and which CQEs are dropped.
 * Does not know: creation, arming, threads (take_completion's caller has the lock).
 */
#pragma once
#include <infiniband/verbs.h>

#include <cstdint>

#include "cq.hpp"

namespace peal {

struct Completion {
	const peal_cqe *cqe; /* valid until the ring is published */
	std::uint64_t wr_id;
};

/* The next completion of a queue pair that is alive. Caller holds cq.lock. */
bool take_completion(Cq &cq, Completion &completion) noexcept;

/*
 * Queue pairs were destroyed or reset: what they left in the ring, which no poll would
 * return, takes no room any more. Caller holds cq.lock.
 */
void drop_stale(Cq &cq) noexcept;

ibv_wc_status wc_status(const peal_cqe &cqe) noexcept;
ibv_wc_opcode wc_opcode(const peal_cqe &cqe) noexcept;
unsigned int wc_flags(const peal_cqe &cqe) noexcept;

int cq_poll(ibv_cq *cq, int count, ibv_wc *wc) noexcept;

} // namespace peal
