// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* See rings.hpp. */
#include "rings.hpp"

#include <new>

namespace peal::detail {

namespace {

int take_cq(const pealdv &calls, ibv_cq *cq, CompletionRing &to) noexcept
{
	pealdv_cq ring{};
	const int failed = calls.take_cq(cq, &ring);

	if (failed)
		return failed;
	to = CompletionRing(reinterpret_cast<std::byte *>(ring.ctl), ring.entries);
	to.resize(reinterpret_cast<std::byte *>(ring.cqes), ring.entries);
	return 0;
}

/* What the provider tells of a queue, as the ring of it. */
int take_queue(pealdv_take_queue_fn *call, ibv_qp *qp, RingShape &to,
	       std::uint32_t &qp_index) noexcept
{
	pealdv_queue ring{};
	const int failed = call(qp, &ring);

	if (failed)
		return failed;
	qp_index = ring.qp_index;
	to = {ring.ctl, static_cast<std::byte *>(ring.slots), ring.entries, ring.stride};
	return 0;
}

} // namespace

std::unique_ptr<rings> rings::take(const context &of, ibv_cq *send_cq, ibv_cq *recv_cq,
				   send_ring &sends, int &failed) noexcept
{
	pealdv_device device{};

	failed = 0;
	if (!of.direct.take_cq)
		return nullptr;
	failed = of.direct.query_device(of.verbs, &device);
	if (failed)
		return nullptr;
	sends.doorbell = Doorbell(device.doorbell, FileKick(device.kick_fd));
	std::unique_ptr<rings> made(new (std::nothrow) rings(sends.doorbell));
	if (!made)
		failed = ENOMEM;
	if (!failed)
		failed = take_cq(of.direct, send_cq, sends.completions);
	if (!failed)
		failed = take_cq(of.direct, recv_cq, made->received_);
	return failed ? nullptr : std::move(made);
}

int rings::take(const context &of, ibv_qp *qp, send_ring &sends) noexcept
{
	RingShape own{}, receives{};
	int failed = take_queue(of.direct.take_send_queue, qp, own, sends.qp_index);

	if (!failed)
		failed = take_queue(of.direct.take_receive_queue, qp, receives, qp_index_);
	if (failed)
		return failed;
	sends.ctl = own.ctl;
	sends.slots = own.slots;
	sends.stride = own.stride;
	sends.mask = own.entries - 1;
	try {
		receives_.attach(receives);
	} catch (...) {
		return ENOMEM;
	}
	return 0;
}

int rings::post_receive(std::uint64_t id, const ibv_sge &into) noexcept
{
	/* Nothing completes a WQE after the removal of the device. */
	if (doorbell_.gone()) [[unlikely]]
		return EIO;
	std::byte *const memory = receives_.claim(receives_.head(), id);
	if (!memory)
		return ENOMEM;
	RecvSlot(memory).add_sge(into.addr, into.length, into.lkey);
	receives_.publish(receives_.head() + 1);
	return receives_.wants_kick() ? doorbell_.kick(PEAL_KICK_RECV, qp_index_) : 0;
}

} // namespace peal::detail
