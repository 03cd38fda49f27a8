// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Work queues and indirection tables: creation, state, destruction.
 *
 * Owns: the ring of a work queue, its lock, and the mapping that holds it.
 * Does not know: how work requests become WQEs (post), the queue pairs that use a table.
 *
 * A change to RESET takes `lock` and the CQ's lock by std::lock, which waits for neither while it
 * holds the other. Any other change of the state takes only `lock`.
 */
#pragma once
#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <vector>

#include "../ring/recv_ring.hpp"
#include "context.hpp"
#include "cq.hpp"
#include "lock.hpp"
#include "mapping.hpp"
#include "pd.hpp"

namespace peal {

struct Wq : ibv_wq {
	Context &context;
	DomainHold domain;
	Cq &queue; /* where receives complete */
	std::uint32_t wq_index = 0;
	std::uint32_t max_sge = 0; /* as granted */
	Mapping mapping;
	Lock lock; /* the poster's; also guards ibv_wq.state */
	RecvRing ring;
	std::atomic<unsigned> users = 0; /* entries of indirection tables */

	static Wq &of(ibv_wq *wq) noexcept { return *static_cast<Wq *>(wq); }

	explicit Wq(const ibv_wq_init_attr &init);
	~Wq();
};

struct IndTable : ibv_rwq_ind_table {
	std::vector<Wq *> wqs;
	std::atomic<unsigned> users = 0; /* queue pairs */

	static IndTable &of(ibv_rwq_ind_table *table) noexcept
	{
		return *static_cast<IndTable *>(table);
	}

	IndTable(ibv_context *owner, const ibv_rwq_ind_table_init_attr &init);
	~IndTable();
	IndTable(const IndTable &) = delete;
	IndTable &operator=(const IndTable &) = delete;
};

ibv_wq *wq_create(ibv_context *context, ibv_wq_init_attr *init);
int wq_modify(ibv_wq *wq, ibv_wq_attr *attr);
int wq_destroy(ibv_wq *wq);

ibv_rwq_ind_table *ind_table_create(ibv_context *context, ibv_rwq_ind_table_init_attr *init);
int ind_table_destroy(ibv_rwq_ind_table *table);

} // namespace peal
