// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * What the provider exports for programs that write the rings themselves (infiniband/pealdv.h).
 *
 * A ring that was taken is replaced by an empty one, so that posts and polls by libibverbs find no
 * room and no completion, and need no check for it. A queue pair that completes in such a queue has
 * empty rings from the beginning.
 */
#include "infiniband/pealdv.h"

#include <mutex>
#include <utility>

#include "qp.hpp"

#define PEALDV_API extern "C" [[gnu::visibility("default")]]

namespace {

using peal::Cq;
using peal::Qp;

int take_queue(const Qp &qp, peal::Lock &lock, const Cq &completes_in, peal::RingShape &from,
	       pealdv_queue &to) noexcept
{
	std::lock_guard guard(lock);

	if (!completes_in.taken)
		return EINVAL;
	if (!from.entries)
		return EBUSY;
	const peal::RingShape shape = std::exchange(from, {});
	to = {shape.ctl, shape.slots, shape.entries, shape.stride, qp.qp_index};
	return 0;
}

} // namespace

PEALDV_API int pealdv_query_device(ibv_context *context, pealdv_device *device) noexcept
{
	const peal::Context &of = peal::Context::of(context);

	*device = {reinterpret_cast<peal_doorbell *>(of.doorbell_page.data()), of.kick_file.get()};
	return 0;
}

PEALDV_API int pealdv_take_cq(ibv_cq *ibcq, pealdv_cq *ring) noexcept
{
	Cq &cq = Cq::of(ibcq);
	std::lock_guard guard(cq.lock);

	/* A CQE of a queue that was not taken would be lost. */
	if (cq.taken || cq.users || !cq.ring.is_unused())
		return EBUSY;
	const auto shape = cq.ring.give_away();
	*ring = {shape.ctl, shape.cqes, shape.entries};
	cq.taken = true;
	return 0;
}

PEALDV_API int pealdv_take_send_queue(ibv_qp *ibqp, pealdv_queue *ring) noexcept
{
	Qp &qp = Qp::of(ibqp);

	if (qp.no_queue)
		return EOPNOTSUPP;
	return take_queue(qp, qp.sq_lock, qp.send_queue, qp.sq_to_take, *ring);
}

PEALDV_API int pealdv_take_receive_queue(ibv_qp *ibqp, pealdv_queue *ring) noexcept
{
	Qp &qp = Qp::of(ibqp);

	if (qp.no_queue || qp.shared || qp.is_xrc() || !qp.cap.max_recv_wr)
		return EOPNOTSUPP;
	return take_queue(qp, qp.rq_lock, qp.recv_queue, qp.rq_to_take, *ring);
}
