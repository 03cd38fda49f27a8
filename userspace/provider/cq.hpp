// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Completion queues, and the completions on them. */
#pragma once
#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>

#include "../ring/completion_ring.hpp"
#include "context.hpp"
#include "lock.hpp"
#include "mapping.hpp"
#include "pabi.hpp"
#include "pd.hpp"

namespace peal {

struct Qp;

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
	bool taken = false;		   /* the program polls the ring (direct.cpp) */
	std::atomic<unsigned> users = 0;   /* send queues and receive queues that complete here */

	static Cq &of(ibv_cq *cq) noexcept
	{
		return *static_cast<Cq *>(reinterpret_cast<verbs_cq *>(cq));
	}
	static Cq &of(ibv_cq_ex *cq) noexcept { return of(ibv_cq_ex_to_cq(cq)); }

	Cq(Context &owner, bool single_threaded, ibv_pd *parent_domain = nullptr) noexcept;
	static Cq &create(Context &context, const CqRequest &request);
};

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

/* Sets the functions of ibv_start_poll and its family. `wc_flags` says which a program wants. */
void set_readers(ibv_cq_ex &cq, std::uint64_t wc_flags) noexcept;

} // namespace peal
