// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Queue pairs.
 *
 * Lock order: sq_lock and a CQ's lock have none, because a program may post between
 * ibv_start_poll and ibv_end_poll, and may poll between ibv_wr_start and ibv_wr_complete.
 * A function that needs several of modify_lock, sq_lock, rq_lock and the CQs' locks
 * therefore uses std::lock, which waits for none of them while it holds another. A change
 * to RESET takes all of them, so a program must not call it while it holds one. Any other
 * change of the state takes only modify_lock, so a program may call it there. QpTable's
 * lock is taken inside all of these.
 */
#pragma once
#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "../ring/work_ring.hpp"
#include "context.hpp"
#include "cq.hpp"
#include "lock.hpp"
#include "mapping.hpp"
#include "opcode.hpp"
#include "pabi.hpp"
#include "pd.hpp"
#include "srq.hpp"

namespace peal {

/* The WQEs between ibv_wr_start and ibv_wr_complete. The program's thread holds sq_lock then. */
struct WrBatch {
	std::uint32_t next = 0;		     /* index after the last WQE built */
	int error = 0;			     /* the first error; no WQE is built after it */
	const OpcodeFacts *opcode = nullptr; /* of the current WQE */
	SendSlot slot;			     /* of the current WQE */
};

struct Qp : verbs_qp {
	Context &context;
	DomainHold domain;
	/* An XRC target has no completion queues. It gets this one, which nothing is pushed to. */
	std::unique_ptr<Cq> no_queue;
	Cq &send_queue; /* where sends complete */
	Cq &recv_queue; /* where receives complete */
	Srq *shared;	/* where receives are taken from; null: from rq */
	std::uint32_t qp_index = 0;
	ibv_qp_cap cap{}; /* as granted */
	bool signal_all;
	std::uint32_t plain_opcodes = 0; /* one bit for each ibv_wr_opcode; see post_plain() */
	/*
	 * Rings for the program to take (direct.cpp). They complete in a queue that it has taken,
	 * where this provider would never see that a slot is free again.
	 */
	RingShape sq_to_take{};
	RingShape rq_to_take{};
	bool keeps_rings_aside = false;
	std::uint8_t transport; /* enum Transport */
	Mapping mapping;
	/* Held during a whole modify, so that two threads store `state` in the kernel's order. */
	std::mutex modify_lock;
	/*
	 * The state that the program set last; written under modify_lock. libibverbs has a copy
	 * of its own, but that is not reliable, because a query may store an old state there after
	 * another thread's modify.
	 */
	std::atomic<ibv_qp_state> state = IBV_QPS_RESET;

	Lock sq_lock;
	WorkRing sq;
	WrBatch batch;

	Lock rq_lock;
	WorkRing rq;

	Qp(Context &owner, const ibv_qp_init_attr_ex &attr);
	~Qp();

	static Qp &of(ibv_qp *qp) noexcept
	{
		return *static_cast<Qp *>(reinterpret_cast<verbs_qp *>(qp));
	}
	static Qp &of(ibv_qp_ex *qp) noexcept { return of(&qp->qp_base); }

	/* True if each send names its destination. */
	bool is_datagram() const noexcept { return transport == TRANSPORT_UD; }

	bool is_xrc() const noexcept { return transport == TRANSPORT_XRC; }
};

/* Sets the calls of ibv_wr_start and its family. `builders` says which ibv_wr_* (post.cpp). */
void set_builders(Qp &qp, std::uint64_t builders) noexcept;

} // namespace peal
