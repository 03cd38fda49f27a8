// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Completion queues: creation, destruction, resize, moderation, arming.
 *
 * Owns: the completion ring, its mapping and its lock.
 * Does not know: the meaning of a completion (poll), how it is read (poll, cq_ex).
 */
#pragma once
#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <memory>

#include "../ring/completion_ring.hpp"
#include "context.hpp"
#include "lock.hpp"
#include "mapping.hpp"
#include "pabi.hpp"
#include "pd.hpp"

namespace peal {

struct CqRequest {
	std::uint32_t cqe;
	std::uint32_t comp_vector;
	ibv_comp_channel *channel;
	bool single_threaded;
	std::uint32_t clocks = 0; /* PEAL_CQ_*: the times that each completion has */
	ibv_pd *domain = nullptr; /* a parent domain */
};

struct Cq : verbs_cq {
	Context &context;
	DomainHold domain;
	Mapping mapping; /* the control words, and the CQEs until the first resize */
	Mapping resized; /* the CQEs since the last resize */
	/* Guards `ring` and `current`. Held from ibv_start_poll to ibv_end_poll. */
	Lock lock;
	CompletionRing ring;
	const peal_cqe *current = nullptr; /* set between start_poll and end_poll */
	std::atomic<unsigned> users = 0;   /* send queues and receive queues that complete here */

	static Cq &of(ibv_cq *cq) noexcept
	{
		return *static_cast<Cq *>(reinterpret_cast<verbs_cq *>(cq));
	}
	static Cq &of(ibv_cq_ex *cq) noexcept { return of(ibv_cq_ex_to_cq(cq)); }

	Cq(Context &owner, bool single_threaded, ibv_pd *parent_domain = nullptr) noexcept;
	static std::unique_ptr<Cq> create(Context &context, const CqRequest &request);
};

ibv_cq *cq_create(ibv_context *context, int cqe, ibv_comp_channel *channel, int comp_vector);
int cq_destroy(ibv_cq *cq);
int cq_modify(ibv_cq *cq, ibv_modify_cq_attr *attr);
int cq_resize(ibv_cq *cq, int cqe);
int cq_req_notify(ibv_cq *cq, int solicited_only) noexcept;

} // namespace peal
