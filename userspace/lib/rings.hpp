// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The rings of a queue pair of peal, which a connection writes and reads without libibverbs. It
 * has taken them from the provider (infiniband/pealdv.h), so it is their only user, and needs no
 * lock: one thread at a time uses a connection.
 *
 * It knows neither connections nor slices.
 */
#pragma once
#include <infiniband/verbs.h>

#include <memory>

#include "../ring/completion_ring.hpp"
#include "../ring/doorbell.hpp"
#include "../ring/work_ring.hpp"
#include "context.hpp"

namespace peal::detail {

class rings {
public:
	/*
	 * Before a queue pair is made: takes both completion queues. Null without an errno means
	 * that the device has no rings to take.
	 */
	static std::unique_ptr<rings> take(const context &, ibv_cq *send_cq, ibv_cq *recv_cq,
					   int &failed) noexcept;
	/* Takes the queues of the queue pair, which completes in them. Returns 0 or an errno. */
	int take(const context &, ibv_qp *) noexcept;

	/*
	 * Writes the request behind `before` others that are not posted yet. The connection posts
	 * no more than the queue holds.
	 */
	void build(std::uint32_t before, const ibv_send_wr &) noexcept;
	/* Posts so many requests. Returns 0 or an errno, and then none was posted. */
	int post(std::uint32_t count) noexcept;
	int post_receive(std::uint64_t id, const ibv_sge &) noexcept;

	/* Calls visit(id, cqe) for each completion. */
	template <class Visit>
	void for_each_sent(Visit visit) noexcept
	{
		for_each(sent_, sends_, visit);
	}
	template <class Visit>
	void for_each_received(Visit visit) noexcept
	{
		for_each(received_, receives_, visit);
	}

private:
	explicit rings(const pealdv_device &of) noexcept
		: doorbell_(of.doorbell, FileKick(of.kick_fd))
	{
	}

	template <class Visit>
	static void for_each(CompletionRing &from, WorkRing &of, Visit visit) noexcept
	{
		while (const peal_cqe *cqe = from.peek()) {
			if (const auto id = of.complete(cqe->wqe_index))
				visit(*id, *cqe);
			from.advance();
		}
		from.publish();
	}

	Doorbell doorbell_;
	std::uint32_t qp_index_ = 0;
	WorkRing sends_, receives_;
	CompletionRing sent_, received_;
};

} // namespace peal::detail
