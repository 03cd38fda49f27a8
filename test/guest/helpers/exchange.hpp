// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Messages between two queue pairs, as a program at work sends them.
 *
 * Holds: one WRITE and one SEND, or one WRITE of new queue pairs, with checked bytes. Does not
 * hold: their possible failures.
 */
#pragma once

#include "verbs.hpp"

namespace peal_test {

struct WrongBytes : std::runtime_error {
	using std::runtime_error::runtime_error;
};

/* Posts an empty receive to the queue pair, or to the shared receive queue that it uses. */
inline int try_post_empty_recv(ibv_qp *qp, std::uint64_t id)
{
	return qp->srq ? try_post_srq_recv(qp->srq, id, {}) : try_post_recv(qp, id, {});
}

/*
 * Moves `size` bytes that depend on the number from a to b. Return: false when
 * the device refused or flushed.
 */
inline bool exchange(Pair &pair, Region &from, Region &to, std::size_t size, std::uint64_t number)
{
	auto &[a, b] = pair;
	const auto bytes = from.bytes(0, size);

	std::memset(bytes.data(), static_cast<int>(number), bytes.size());
	if (try_post_empty_recv(b.qp, number))
		return false;
	Send write(IBV_WR_RDMA_WRITE, {from.sge(0, size)});
	write.remote(to.address(), to.rkey());
	if (try_post(a.qp, write) || try_post(a.qp, Send(IBV_WR_SEND)))
		return false;
	for (auto *cq : {a.send_cq.get(), a.send_cq.get(), b.recv_cq.get()})
		if (wait_completion(cq).status != IBV_WC_SUCCESS)
			return false;
	const auto wrong = difference(to.bytes(0, size), bytes);
	if (!wrong.empty())
		throw WrongBytes("message " + std::to_string(number) + ": " + wrong);
	return true;
}

/* Two new queue pairs of the device move checked bytes. */
inline void check_works(Device &device)
{
	Pair pair(device);
	Region from(pair.a.pd, page_bytes), to(pair.b.pd, page_bytes);

	fill_pattern(from.bytes(0, 1000), 1);
	post(pair.a.qp,
	     Send(IBV_WR_RDMA_WRITE, {from.sge(0, 1000)}).remote(to.address(), to.rkey()));
	wait_success(pair.a.send_cq);
	CHECK(difference(to.bytes(0, 1000), from.bytes(0, 1000)) == "");
}

} // namespace peal_test
