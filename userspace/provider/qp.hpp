// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Queue pairs: creation, state, destruction.
 *
 * Owns: the two rings, their locks, and the mapping that holds them.
 * Does not know: how work requests become WQEs (post, qp_ex).
 *
 * Lock order: there is none that a program would have to keep. It may post between
 * ibv_start_poll and ibv_end_poll, and poll between ibv_wr_start and ibv_wr_complete. So
 * whoever wants several of modify_lock, sq_lock, rq_lock and the CQs' locks waits for none
 * of them while it holds another (std::lock): a change to RESET wants all, any other
 * change of the state modify_lock alone, and may come where a program holds one of the
 * others; a change to RESET may not. QpTable's lock is inside all.
 */
#pragma once
#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "../ring/recv_ring.hpp"
#include "../ring/send_ring.hpp"
#include "context.hpp"
#include "cq.hpp"
#include "lock.hpp"
#include "mapping.hpp"
#include "pabi.hpp"

namespace peal {

struct WrRow;

/* One bit for each kind of queue pair; 0: one that the kernel does not make for programs. */
enum Transport : std::uint8_t { TRANSPORT_RC = 1, TRANSPORT_UC = 2, TRANSPORT_UD = 4 };

/* What ibv_wr_start .. ibv_wr_complete builds. Guarded by sq_lock, which is held between. */
struct WrBatch {
	std::uint32_t next = 0;	    /* index after the last WQE built */
	int error = 0;		    /* the first one; nothing is built after it */
	const WrRow *row = nullptr; /* of the current WQE */
	SendSlot slot;		    /* the current WQE */
};

struct Qp : verbs_qp {
	/*
	 * ibv_qp_ex has grown between releases with the same private ABI: a newer
	 * library looks for verbs_qp.comp_mask further back. It must find zero
	 * there ("no ibv_qp_ex"), and not our members.
	 */
	std::byte slack[128] = {};

	Context &context;
	Cq &send_queue; /* where sends complete */
	Cq &recv_queue; /* where receives complete */
	std::uint32_t qp_index = 0;
	ibv_qp_cap cap{}; /* as granted */
	bool signal_all;
	std::uint8_t transport; /* enum Transport */
	Mapping mapping;
	/* Held by a whole modify: two threads note their states in the kernel's order. */
	std::mutex modify_lock;
	/*
	 * As the program set it last; written under modify_lock. libibverbs keeps one, too, and a
	 * query may put an old one there after another thread's modify.
	 */
	std::atomic<ibv_qp_state> state = IBV_QPS_RESET;

	Lock sq_lock;
	SendRing sq;
	WrBatch batch;

	Lock rq_lock;
	RecvRing rq;

	Qp(ibv_pd *pd, const ibv_qp_init_attr_ex &attr) noexcept;
	~Qp();

	static Qp &of(ibv_qp *qp) noexcept
	{
		return *static_cast<Qp *>(reinterpret_cast<verbs_qp *>(qp));
	}
	static Qp &of(ibv_qp_ex *qp) noexcept { return of(&qp->qp_base); }

	/* Each send names its destination. */
	bool is_datagram() const noexcept { return transport == TRANSPORT_UD; }

	/* `attr` with the PD in it; its cap becomes what was granted. */
	static std::unique_ptr<Qp> create(ibv_qp_init_attr_ex &attr);
};

ibv_qp *qp_create(ibv_pd *pd, ibv_qp_init_attr *attr);
int qp_modify(ibv_qp *qp, ibv_qp_attr *attr, int mask);
int qp_query(ibv_qp *qp, ibv_qp_attr *attr, int mask, ibv_qp_init_attr *init_attr);
int qp_destroy(ibv_qp *qp);

} // namespace peal
