// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Takes the rings of a queue pair from peal's provider (infiniband/pealdv.h), so that a connection
 * writes and reads them without libibverbs. It is their only user, and needs no lock, because one
 * thread at a time uses a connection.
 *
 * The send queue is in peal/path.hpp, because programs write it themselves.
 */
#pragma once
#include <infiniband/verbs.h>

#include <memory>

#include "context.hpp"
#include "peal/path.hpp"

namespace peal::detail {

class rings {
public:
	/*
	 * Before a queue pair is made: takes both completion queues. Null without an errno means
	 * that the device has no rings to take.
	 */
	static std::unique_ptr<rings> take(const context &, ibv_cq *send_cq, ibv_cq *recv_cq,
					   send_ring &, int &failed) noexcept;
	/* Takes the queues of the queue pair, which completes in them. Returns 0 or an errno. */
	int take(const context &, ibv_qp *, send_ring &) noexcept;

	int post_receive(std::uint64_t id, const ibv_sge &) noexcept;

	/* Calls visit(id, cqe) for each completion of a receive. */
	template <class Visit>
	void for_each_received(Visit visit) noexcept
	{
		while (const peal_cqe *cqe = received_.peek()) {
			if (const auto id = receives_.complete(cqe->wqe_index))
				visit(*id, *cqe);
			received_.advance();
		}
		received_.publish();
	}

private:
	explicit rings(const Doorbell &doorbell) noexcept : doorbell_(doorbell) {}

	Doorbell doorbell_;
	std::uint32_t qp_index_ = 0;
	WorkRing receives_;
	CompletionRing received_;
};

} // namespace peal::detail
