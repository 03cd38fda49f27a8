// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Shared receive queues: creation, attributes, destruction.
 *
 * Owns: the ring, its lock, and the mapping that holds it.
 * Does not know: how work requests become WQEs (post), the queue pairs that use it.
 *
 * `lock` is the poster's. A poller frees slots without it. It is taken inside no other lock, and
 * nothing is taken inside it.
 */
#pragma once
#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <memory>

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

	/* The attributes are set to the granted values. */
	static std::unique_ptr<Srq> create(ibv_pd *pd, ibv_srq_init_attr &init);
	static std::unique_ptr<Srq> create_xrc(ibv_srq_init_attr_ex &init);
};

ibv_srq *srq_create(ibv_pd *pd, ibv_srq_init_attr *init);
ibv_srq *srq_create_ex(ibv_context *context, ibv_srq_init_attr_ex *init);
int srq_number(ibv_srq *srq, std::uint32_t *number) noexcept;
int srq_modify(ibv_srq *srq, ibv_srq_attr *attr, int mask);
int srq_query(ibv_srq *srq, ibv_srq_attr *attr);
int srq_destroy(ibv_srq *srq);

} // namespace peal
