// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// timeout: 120
/*
 * Unreliable connections on a path without loss.
 *
 * Holds: Each operation of UC works, in order, also when the program changes its CPU. Messages of
 * one device are no packets, unless an administrator wants that. A send that fails stops only the
 * send queue. The peer drops and counts messages that it cannot take, and the sender does not
 * notice. Does not hold: lost packets (test/sim), other machines (wire/every_operation).
 */
#include "counters.hpp"
#include "program.hpp"

#include <atomic>
#include <sched.h>
#include <thread>

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
			REQUIRE(pin(i % 2));
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

	/* Packets of a message leave before the key that is wrong. The next message arrives. */
	post_recv(pair.b.qp, 4, {pair.to.sge(0, long_message)});
	post(pair.a.qp, Send(IBV_WR_SEND, {pair.from.sge(0, 10000), foreign.sge(0, 64)}).id(5));
	check_status(wait_completion(pair.a.send_cq), IBV_WC_LOC_PROT_ERR, PEAL_REASON_LKEY_PD);
	must(ibv_modify_qp(pair.a.qp, &attr, IBV_QP_STATE | IBV_QP_CUR_STATE), "modify to RTS");
	fill_pattern(pair.from.bytes(0, 5000), 8);
	post(pair.a.qp, Send(IBV_WR_SEND, {pair.from.sge(0, 5000)}));
	wait_success(pair.a.send_cq);
	CHECK(wait_success(pair.b.recv_cq).front().byte_len == 5000);
	CHECK(difference(pair.to.bytes(0, 5000), pair.from.bytes(0, 5000)) == "");
}

TEST_CASE("only messages that the peer refuses are lost")
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

TEST_CASE("lost messages are counted by their reason")
{
	Device device;
	const auto lost = [&](UcPair &pair, Send send, const std::string &reason) {
		const auto before = counter("drop_" + reason);
		INFO(reason);
		post(pair.a.qp, std::move(send));
		wait_success(pair.a.send_cq);
		CHECK(eventually([&] { return counter("drop_" + reason) == before + 1; }));
		CHECK(describe(drain(pair.b.recv_cq)) == "0 completions");
		CHECK(state_name(query_state(pair.a.qp)) == "RTS");
	};
	UcPair pair(device);
	const auto send = [&] { return Send(IBV_WR_SEND, {pair.from.sge(0, 100)}); };

	lost(pair, send(), "receive");
	lost(pair,
	     Send(IBV_WR_RDMA_WRITE, {pair.from.sge(0, 100)}).remote(pair.to.address(), 0xdead00),
	     "rights");
	post_recv(pair.b.qp, 1, {pair.to.sge(0, 99)});
	lost(pair, send(), "length");
	/* The receive is still there. */
	post(pair.a.qp, Send(IBV_WR_SEND, {pair.from.sge(0, 99)}));
	CHECK(wait_success(pair.b.recv_cq).front().wr_id == 1);
	wait_success(pair.a.send_cq);

	to_state(pair.b.qp, IBV_QPS_ERR);
	lost(pair, send(), "state");
	const auto qpn = pair.b.qp->qp_num;
	pair.b.qp = Qp();
	REQUIRE(qpn != 0);
	const auto before = counter("drop_qpn");
	post(pair.a.qp, send());
	wait_success(pair.a.send_cq);
	CHECK(eventually([&] { return counter("drop_qpn") == before + 1; }));
}

TEST_CASE("a message is late if its PSN is a little behind, and new otherwise")
{
	Device device;
	struct Case {
		std::uint32_t sent, expected;
		bool arrives;
	};

	for (const auto &at : std::vector<Case>{{1000, 1000, true},
						{999, 1000, false},
						{1000, 2024, false},
						{1000, 2025, true},
						{5000, 1000, true},
						{0xffffff, 0, false},
						{0, 0xffffff, true}}) {
		INFO("sent " << at.sent << ", expected " << at.expected);
		Endpoint a(device, unreliable()), b(device, unreliable());
		Region memory(b.pd, page_bytes), from(a.pd, page_bytes);
		connect_uc(a, b, at.sent, 0);
		connect_uc(b, a, 0, at.expected);
		post_recv(b.qp, 1, {memory.sge(0, 8)});
		post_recv(b.qp, 2, {memory.sge(0, 8)});
		post(a.qp, Send(IBV_WR_SEND, {from.sge(0, 8)}));
		wait_success(a.send_cq);
		if (at.arrives) {
			CHECK(wait_success(b.recv_cq).front().wr_id == 1);
			/* From here on both agree. */
			post(a.qp, Send(IBV_WR_SEND, {from.sge(0, 8)}));
			wait_success(a.send_cq);
			CHECK(wait_success(b.recv_cq).front().wr_id == 2);
		} else {
			CHECK(describe(drain(b.recv_cq)) == "0 completions");
		}
	}
}

TEST_CASE("messages of one device are no packets")
{
	if (on_wire())
		SKIP_CASE("on the wire they are");
	Device device;
	UcPair pair(device);
	const auto packets = counter("packets_sent"), direct = counter("direct_messages");

	check_send(pair, long_message, 3);
	check_send(pair, 10, 4);
	post(pair.a.qp, Send(IBV_WR_SEND, {pair.from.sge(0, 10)})); /* lost */
	wait_success(pair.a.send_cq);
	CHECK(counter("packets_sent") == packets);
	CHECK(counter("direct_messages") == direct + 3);
}

TEST_CASE("a peer that resets and goes leaves the sender alone")
{
	Device device;
	Endpoint a(device, unreliable());
	Region from(a.pd, long_message);
	std::atomic<std::uint32_t> rounds = 0;
	std::atomic<bool> stop = false;
	const auto b = std::make_unique<Endpoint>(device, unreliable());
	Region to(b->pd, long_message);

	connect_uc(a, *b);
	connect_uc(*b, a);
	std::thread resetter([&] {
		while (!stop) {
			to_state(b->qp, IBV_QPS_RESET);
			connect_uc(*b, a);
			for (int i = 0; i < 4; i++)
				post_recv(b->qp, 1, {to.sge(0, long_message)});
			drain(b->recv_cq);
			rounds++;
		}
	});
	for (int i = 0; i < 40 || rounds < 20; i++) {
		/* Longer than a chunk, so that the peer resets within a message. */
		post(a.qp, Send(IBV_WR_SEND, {from.sge(0, i % 2 ? long_message : 100)}));
		wait_success(a.send_cq);
	}
	stop = true;
	resetter.join();
	CHECK(state_name(query_state(a.qp)) == "RTS");
}
