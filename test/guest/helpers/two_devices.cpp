// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Two devices of one kernel change from the wire to the direct path and back while requests wait.
 * direct/only_while_packets_pass runs this program, after it has made peal_a, peal_b and the wire
 * between them.
 *
 * Holds: No change loses a request, and none ends a connection that packets would keep.
 * Does not hold: the condition for the direct path (direct/only_while_packets_pass).
 */
#include "commands.hpp"
#include "counters.hpp"

#include <thread>

using namespace peal_test;

namespace {

/* A proof that packets pass is renewed after a second and is valid for three. */
constexpr Duration renewed = 1100ms, lapsed = 4s;

struct Wire {
	Device a{"peal_a"}, b{"peal_b"};
};

void set_direct(bool on)
{
	for (const char *name : {"peal_a", "peal_b"})
		REQUIRE(run(std::string("build/user/userspace/tools/peal-option ") + name +
			    " direct " + (on ? "1" : "0")) == 0);
}

void cut(bool on)
{
	for (const char *end : {"a", "b"})
		REQUIRE(run(std::string("tc -n wire_") + end + " qdisc " + (on ? "add" : "delete") +
			    " dev wire_" + end + " root netem loss 100%") == 0);
}

std::uint64_t messages(const std::string &transport)
{
	return counter(transport + "_messages", "peal_a");
}

/* Two ends that are connected to each other. */
struct Ends {
	explicit Ends(Wire &wire, const Link &link = {})
		: a(wire.a, options()), b(wire.b, options()), from(a.pd, bytes), to(b.pd, bytes)
	{
		fill_pattern(from.bytes(0, bytes), 1);
		ready(a, b, link);
		ready(b, a, link);
	}
	static QpOptions options()
	{
		QpOptions it;
		it.send_wr = requests;
		return it;
	}
	static void ready(Endpoint &at, Endpoint &peer, const Link &link)
	{
		auto attr = rtr_attr(at.device, peer.qp->qp_num, peer.device.gid(), link);

		to_init(at.qp, link);
		must(ibv_modify_qp(at.qp, &attr, rtr_mask), "modify to RTR");
		to_rts(at.qp, link);
	}
	/* Posts all at once. Only the last one completes. */
	void write_all()
	{
		std::vector<Send> list;
		ibv_send_wr *bad = nullptr;

		for (std::size_t i = 0; i < requests; i++)
			list.push_back(Send(IBV_WR_RDMA_WRITE, {from.sge(i * size, size)})
					       .remote(to.address(i * size), to.rkey())
					       .flags(i + 1 == requests ? IBV_SEND_SIGNALED : 0));
		must(post_list(a.qp, list, &bad), "post_send");
		wait_success(a.send_cq);
		CHECK(difference(to.bytes(0, bytes), from.bytes(0, bytes)) == "");
	}
	/* Returns when messages use the direct path. */
	void go_near()
	{
		const auto before = messages("direct");

		REQUIRE(eventually([&] {
			post(a.qp, Send(IBV_WR_RDMA_WRITE, {from.sge(0, 8)})
					   .remote(to.address(), to.rkey()));
			wait_success(a.send_cq);
			return messages("direct") > before;
		}));
	}
	/* Sends a message that waits for its receive. */
	void send_early() { post(a.qp, Send(IBV_WR_SEND, {from.sge(0, 100)})); }
	void receive_it()
	{
		post_recv(b.qp, 1, {to.sge(0, 100)});
		wait_success(a.send_cq);
		wait_success(b.recv_cq);
	}
	bool quiet(Duration time)
	{
		return !eventually([&] { return !drain(a.send_cq, 1).empty(); }, time);
	}

	static constexpr std::size_t requests = 50, size = 4096, bytes = requests * size;
	Endpoint a, b;
	Region from, to;
};

Link impatient()
{
	Link link;
	link.timeout = slowness() > 2 ? 14 : 8;
	return link;
}

} // namespace

TEST_CASE("requests that wait for the change to direct")
{
	Wire wire;
	const auto packets = messages("wire"), direct = messages("direct");

	for (int round = 0; round < 5; round++) {
		Ends ends(wire);

		/* The first challenge met a peer that was not ready. */
		std::this_thread::sleep_for(renewed);
		ends.write_all();
	}
	CHECK(messages("wire") > packets);
	CHECK(messages("direct") > direct);
}

TEST_CASE("direct is switched off under a message that waits")
{
	Wire wire;
	Ends ends(wire, impatient());

	ends.go_near();
	ends.send_early();
	set_direct(false);
	CHECK(ends.quiet(lapsed));
	const auto packets = messages("wire");
	ends.receive_it();
	ends.write_all();
	CHECK(messages("wire") > packets);
	set_direct(true);
}

TEST_CASE("a message that waits while the send queue is drained")
{
	Wire wire;
	Ends ends(wire, impatient());

	ends.go_near();
	ends.send_early();
	to_state(ends.a.qp, IBV_QPS_SQD);
	CHECK(ends.quiet(lapsed));
	ends.receive_it();
}

TEST_CASE("a wire that is mended")
{
	Wire wire;
	Link patient;
	patient.timeout = 20; /* 4.3 s, longer than a proof is valid */
	Ends ends(wire, patient);

	ends.go_near();
	ends.send_early();
	cut(true);
	CHECK(ends.quiet(lapsed));
	post_recv(ends.b.qp, 1, {ends.to.sge(0, 100)});
	cut(false);
	wait_success(ends.a.send_cq);
	wait_success(ends.b.recv_cq);
}
