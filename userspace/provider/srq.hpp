// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Shared receive queues.
 *
 * `lock` is the poster's. A poller frees slots without it. It is taken inside no other lock, and
 * nothing is taken inside it.
 */
#pragma once
#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>

#include "../ring/shared_recv_ring.hpp"
#include "context.hpp"
#include "cq.hpp"
#include "lock.hpp"
#include "mapping.hpp"
#include "pd.hpp"

namespace peal {

struct Srq : ibv_srq {
	Context &context;
	DomainHold domain;
	std::uint32_t srq_index = 0;
	std::uint32_t max_sge = 0; /* as granted */
	Mapping mapping;	   /* the control words, and the ring until the first resize */
	Mapping resized;	   /* the ring since the last resize */
	Lock lock;
	SharedRecvRing ring;
	std::atomic<unsigned> users = 0; /* queue pairs */
	Cq *cq = nullptr;		 /* XRC: where receives complete */
	std::uint32_t number = 0;	 /* XRC: messages name the queue by it */

	static Srq &of(ibv_srq *srq) noexcept { return *static_cast<Srq *>(srq); }

	explicit Srq(ibv_pd *pd) noexcept;
};

} // namespace peal
