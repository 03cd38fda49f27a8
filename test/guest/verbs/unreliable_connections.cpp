// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// timeout: 120
/*
 * Unreliable connections on a path without loss.
 *
 * Holds: Each operation of UC works, in order, also when the program changes its CPU. A send that
 * fails stops only the send queue. The peer drops messages that it cannot take, and the sender does
 * not notice.
 * Does not hold: lost packets (test/sim), other machines (wire/every_operation).
 */
#include "verbs.hpp"

#include <sched.h>

using namespace peal_test;

namespace {

constexpr std::size_t long_message = 1000000;

QpOptions unreliable()
{
	QpOptions options;

	options.type = IBV_QPT_UC;
	return options;
}

/* Two queue pairs of this device, with memory at either end. */
struct UcPair {
	explicit UcPair(Device &device)
		: a(device, unreliable()), b(device, unreliable()), from(a.pd, 2 * long_message),
		  to(b.pd, 2 * long_message)
	{
		connect_uc(a, b);
		connect_uc(b, a);
	}
	Endpoint a, b;
	Region from, to;
};

void run_on(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		throw_errno("sched_setaffinity");
}

void check_send(UcPair &pair, std::size_t bytes, std::uint8_t seed)
{
	fill_pattern(pair.from.bytes(0, bytes), seed);
	post_recv(pair.b.qp, 1, {pair.to.sge(0, bytes)});
	post(pair.a.qp, Send(IBV_WR_SEND, {pair.from.sge(0, bytes)}));
	wait_success(pair.a.send_cq);
	CHECK(wait_success(pair.b.recv_cq).front().byte_len == bytes);
	CHECK(difference(pair.to.bytes(0, bytes), pair.from.bytes(0, bytes)) == "");
}

} // namespace

TEST_CASE("SEND, WRITE and their immediate data")
{
	Device device;
	UcPair pair(device);

	for (const std::size_t bytes :
	     {std::size_t{0}, std::size_t{1}, std::size_t{1025}, long_message})
		check_send(pair, bytes, 1);
	fill_pattern(pair.from.bytes(0, 5000), 2);
	post_recv(pair.b.qp, 2, {});
	post(pair.a.qp, Send(IBV_WR_RDMA_WRITE_WITH_IMM, {pair.from.sge(0, 5000)})
				.remote(pair.to.address(), pair.to.rkey())
				.imm(0x1234));
	wait_success(pair.a.send_cq);
	const auto wc = wait_success(pair.b.recv_cq).front();
	CHECK(wc.imm_data == 0x1234);
	CHECK(wc.byte_len == 5000);
	CHECK(difference(pair.to.bytes(0, 5000), pair.from.bytes(0, 5000)) == "");
}

TEST_CASE("nothing is overtaken, whatever CPU posts")
{
	Device device;
	UcPair pair(device);

	if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
		SKIP_CASE("needs two CPUs");
	for (int round = 0; round < 6; round++) {
		for (int i = 0; i < 8; i++)
			post_recv(pair.b.qp, static_cast<std::uint64_t>(i),
				  {pair.to.sge(0, long_message)});
		for (int i = 0; i < 8; i++) {
			run_on(i % 2);
			post(pair.a.qp, Send(IBV_WR_SEND_WITH_IMM,
					     {pair.from.sge(0, i % 4 ? long_message / 4 : 100)})
						.imm(static_cast<std::uint32_t>(i)));
		}
		wait_success(pair.a.send_cq, 8);
		const auto wcs = wait_success(pair.b.recv_cq, 8);
		for (std::uint32_t i = 0; i < 8; i++)
			CHECK(wcs[i].imm_data == i);
	}
}

TEST_CASE("a send that fails stops the send queue alone, and the program brings it back")
{
	Device device;
	UcPair pair(device);
	Pd other(ibv_alloc_pd(device), "alloc_pd");
	Region foreign(other, page_bytes);

	post(pair.a.qp, Send(IBV_WR_SEND, {foreign.sge(0, 64)}).id(1));
	check_status(wait_completion(pair.a.send_cq), IBV_WC_LOC_PROT_ERR, PEAL_REASON_LKEY_PD);
	CHECK(state_name(query_state(pair.a.qp)) == "SQE");
	post(pair.a.qp, Send(IBV_WR_SEND, {pair.from.sge(0, 64)}).id(2));
	check_status(wait_completion(pair.a.send_cq), IBV_WC_WR_FLUSH_ERR, PEAL_REASON_FLUSHED);

	/* The queue pair still receives. */
	post_recv(pair.a.qp, 3, {pair.from.sge(0, 64)});
	post(pair.b.qp, Send(IBV_WR_SEND, {pair.to.sge(0, 64)}));
	wait_success(pair.b.send_cq);
	wait_success(pair.a.recv_cq);

	ibv_qp_attr attr{};
	attr.qp_state = IBV_QPS_RTS;
	attr.cur_qp_state = IBV_QPS_SQE;
	must(ibv_modify_qp(pair.a.qp, &attr, IBV_QP_STATE | IBV_QP_CUR_STATE), "modify to RTS");
	check_send(pair, 5000, 7);
}

TEST_CASE("what the peer does not take is gone, and nothing else")
{
	Device device;
	UcPair pair(device);

	fill_pattern(pair.from.bytes(0, 3000), 9);
	/* The peer has no receive; the key is unknown; the operation is not allowed. */
	post(pair.a.qp, Send(IBV_WR_SEND, {pair.from.sge(0, 3000)}));
	wait_success(pair.a.send_cq);
	post(pair.a.qp,
	     Send(IBV_WR_RDMA_WRITE, {pair.from.sge(0, 3000)}).remote(pair.to.address(), 0xdead00));
	wait_success(pair.a.send_cq);
	CHECK(state_name(query_state(pair.a.qp)) == "RTS");
	CHECK(state_name(query_state(pair.b.qp)) == "RTS");
	CHECK(all_equal(pair.to.bytes(0, 3000), 0));
	check_send(pair, 3000, 11);
}
