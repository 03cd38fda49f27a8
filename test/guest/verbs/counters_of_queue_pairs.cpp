// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Counters that an administrator configures with `rdma statistic`.
 *
 * Holds: A queue pair that is bound to counters counts there and for the port, and others only for
 * the port. Optional counters count while they are enabled, each message by its operation, and are
 * not shown otherwise.
 * Does not hold: the automatic modes (tools/queue_pair_statistics).
 */
#include "commands.hpp"
#include "verbs.hpp"

#include <optional>
#include <regex>

using namespace peal_test;

namespace {

std::string link()
{
	return "link " + device_name() + "/1";
}

/* Return: the number behind `name`, if it is there. */
std::optional<std::uint64_t> value(const std::string &text, const std::string &name)
{
	std::smatch match;

	if (!std::regex_search(text, match, std::regex("\\b" + name + " ([0-9]+)")))
		return std::nullopt;
	return std::stoull(match[1]);
}

/* Return: the value of a counter of the port, or nothing if it is not shown. */
std::optional<std::uint64_t> of_port(const std::string &name)
{
	return value(read_command("rdma statistic show " + link()), name);
}

std::optional<std::uint64_t> of_qp(const ibv_qp *qp, const std::string &name)
{
	const auto number = std::to_string(qp->qp_num);

	return value(read_command("rdma statistic qp show " + link() + " lqpn " + number), name);
}

void bind(const ibv_qp *qp)
{
	must(run("rdma statistic qp bind " + link() + " lqpn " + std::to_string(qp->qp_num)),
	     "rdma statistic qp bind");
}

/* Optional counters that are enabled until this object ends. */
struct Optional {
	explicit Optional(const std::string &names)
	{
		must(run("rdma statistic set " + link() + " optional-counters " + names),
		     "rdma statistic set");
	}
	~Optional() { run("rdma statistic unset " + link() + " optional-counters"); }
};

/* Messages of every operation, as many of each as the table says. */
struct Traffic {
	Traffic(const Pair &pair)
		: pair(pair), from(pair.a.pd, page_bytes), to(pair.b.pd, page_bytes)
	{
	}
	void run(int sends, int writes, int reads, int atomics) const
	{
		for (int i = 0; i < sends; i++) {
			post_recv(pair.b.qp, 1, {to.sge(0, 64)});
			post(pair.a.qp, Send(IBV_WR_SEND, {from.sge(0, 64)}));
		}
		for (int i = 0; i < writes; i++)
			post(pair.a.qp, Send(IBV_WR_RDMA_WRITE, {from.sge(0, 64)})
						.remote(to.address(), to.rkey()));
		for (int i = 0; i < reads; i++)
			post(pair.a.qp, Send(IBV_WR_RDMA_READ, {from.sge(0, 64)})
						.remote(to.address(), to.rkey()));
		for (int i = 0; i < atomics; i++)
			post(pair.a.qp, Send(IBV_WR_ATOMIC_FETCH_AND_ADD, {from.sge(0, 8)})
						.atomic(to.address(), to.rkey(), 1));
		wait_success(pair.a.send_cq, std::size_t(sends + writes + reads + atomics));
	}
	const Pair &pair;
	const Region from, to;
};

} // namespace

TEST_CASE("a bound queue pair counts in its own counters, and others do not")
{
	Device device;
	const Pair one(device), two(device), other(device);
	const Traffic first(one), second(two), unbound(other);
	const auto before = of_port("messages").value();

	bind(one.a.qp);
	bind(two.a.qp);
	first.run(3, 4, 0, 0);
	second.run(0, 0, 5, 0);
	unbound.run(7, 0, 0, 0);
	CHECK(of_qp(one.a.qp, "messages") == 7);
	CHECK(of_qp(one.a.qp, "bytes") == 7 * 64);
	CHECK(of_qp(two.a.qp, "messages") == 5);
	CHECK_FALSE(of_qp(other.a.qp, "messages"));
	CHECK(of_port("messages") == before + 19);
}

TEST_CASE("optional counters count each operation while they are enabled")
{
	Device device;
	const Pair pair(device);
	const Traffic traffic(pair);
	const auto supported = read_command("rdma statistic mode supported " + link());

	for (const std::string name : {"sends", "writes", "reads", "atomics", "remote_flushes"}) {
		INFO(supported);
		CHECK(supported.find(name) != std::string::npos);
		CHECK_FALSE(of_port(name));
	}
	bind(pair.a.qp);
	traffic.run(1, 1, 1, 1);
	{
		const Optional enabled("sends,reads,atomics");
		const auto sends = of_port("sends").value(), reads = of_port("reads").value(),
			   atomics = of_port("atomics").value();

		CHECK_FALSE(of_port("writes"));
		traffic.run(2, 3, 4, 5);
		CHECK(of_port("sends") == sends + 2);
		CHECK(of_port("reads") == reads + 4);
		CHECK(of_port("atomics") == atomics + 5);
		CHECK(of_qp(pair.a.qp, "sends") == 2);
		CHECK(of_qp(pair.a.qp, "reads") == 4);
		CHECK_FALSE(of_qp(pair.a.qp, "writes"));
	}
	CHECK_FALSE(of_port("sends"));
	traffic.run(1, 1, 1, 1);
	const Optional enabled("sends,writes");
	CHECK(of_qp(pair.a.qp, "sends") == 2);
	CHECK(of_qp(pair.a.qp, "writes") == 0);
	traffic.run(1, 6, 0, 0);
	CHECK(of_qp(pair.a.qp, "sends") == 3);
	CHECK(of_qp(pair.a.qp, "writes") == 6);
}
