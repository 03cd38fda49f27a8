// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Taking completions off a completion queue.
 *
 * Owns: the translation of a CQE to the verbs, and which CQEs are dropped.
 * Does not know: creation, arming, threads (the caller of take_completion holds the lock).
 */
#pragma once
#include <infiniband/verbs.h>

#include <cstdint>

#include "cq.hpp"

namespace peal {

struct Qp;

struct Completion {
	const peal_cqe *cqe; /* valid until the ring is published */
	std::uint64_t wr_id;
};

/*
 * Takes the next completion that is not stale. Returns false if there is none. The caller
 * holds cq.lock.
 */
bool take_completion(Cq &cq, Completion &completion) noexcept;

/*
 * Drops the CQEs that destroyed or reset queue pairs left in the ring, so that they take no
 * slots. No poll would return them. The caller holds cq.lock.
 */
void drop_stale(Cq &cq) noexcept;

/*
 * `qp` was reset. Drops its receives of a shared receive queue, and frees their slots. If the
 * program is between start_poll and end_poll, they stay and are returned later. The caller holds
 * the lock of qp.recv_queue.
 */
void drop_shared(Qp &qp) noexcept;

/* `qp` was destroyed, so that its CQEs will be dropped. Frees those slots. Locked as above. */
void return_shared(Qp &qp) noexcept;

ibv_wc_status wc_status(const peal_cqe &cqe) noexcept;
ibv_wc_opcode wc_opcode(const peal_cqe &cqe) noexcept;
unsigned int wc_flags(const peal_cqe &cqe) noexcept;

int cq_poll(ibv_cq *cq, int count, ibv_wc *wc) noexcept;

} // namespace peal
