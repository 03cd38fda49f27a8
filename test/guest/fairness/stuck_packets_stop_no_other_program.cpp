// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// timeout: 240
// transport: wire
/*
 * Packets of one program that wait in transmit queues stop no other program.
 *
 * Holds: Other programs continue when a traffic class is starved, when many programs fill that
 * class, when programs end and leave packets there, and when neighbours do not answer. The
 * responses of an XRC domain stop no other domain.
 * Does not hold: queues that are only slow, packets whose device or module goes away
 * (lifecycle/network_changes).
 */
#include "datagram.hpp"
#include "innocent.hpp"
#include "neighbour.hpp"
#include "xrc.hpp"

using namespace peal_test;

namespace {

/*
 * On the loopback device, packets with service level 1 wait until this object ends.
 * Everything else passes, because the guest's other packets have priority 0 or follow their
 * TOS, so they are in another band.
 */
class Hold {
public:
	Hold()
	{
		run("modprobe -aq sch_prio sch_plug");
		works_ = !run("tc qdisc add dev lo root handle 1: prio bands 3 priomap "
			      "0 2 0 0 0 0 0 0 0 0 0 0 0 0 0 0") &&
			 !run("tc qdisc add dev lo parent 1:3 plug limit 100000000");
	}
	~Hold() { run("tc qdisc delete dev lo root 2>/dev/null"); }
	Hold(const Hold &) = delete;
	Hold &operator=(const Hold &) = delete;
	bool works() const { return works_; }
	/* The packets that waited are lost. */
	void release() const { REQUIRE(run("tc qdisc delete dev lo root") == 0); }

private:
	bool works_ = false;
};

/* A program whose datagrams the Hold keeps back. */
struct Stuck {
	static constexpr std::uint32_t packets = 2000;

	Stuck() : end(device, ud_options(deep())), memory(end.pd, page_bytes), ah(make_ah())
	{
		ud_ready(end.qp);
	}
	static QpOptions deep()
	{
		QpOptions options;
		options.send_wr = packets;
		options.cqe = packets;
		return options;
	}
	/* Return: how many were sent before the queue stopped. */
	std::size_t fill(Duration quiet = absence)
	{
		for (std::uint32_t n = 0; n < packets; n++)
			post(end.qp, Datagram(ah, 0x77, {memory.sge(0, 8)}));
		while (!drain_more(quiet))
			;
		return sent;
	}
	void finish() { wait_success(end.send_cq, packets - sent); }

	Device device;
	Endpoint end;
	Region memory;
	Ah ah;
	std::size_t sent = 0;

private:
	Ah make_ah()
	{
		auto attr = ah_attr(static_cast<std::uint8_t>(device.gid_index()), device.gid());

		attr.sl = 1;
		return {ibv_create_ah(end.pd, &attr), "create_ah"};
	}
	/* Return: whether none was sent for that long. */
	bool drain_more(Duration quiet)
	{
		std::size_t more = 0;

		eventually([&] { return (more = drain(end.send_cq).size()) > 0; }, quiet);
		sent += more;
		return !more;
	}
};

} // namespace

TEST_CASE("a program whose packets are held up leaves other programs room")
{
	if (!on_wire())
		SKIP_CASE("within a device there are no packets");
	const Hold hold;
	if (!hold.works())
		SKIP_CASE("the kernel has no qdisc prio or plug");
	Device device;
	Innocent innocent(device);
	Stuck stuck;

	REQUIRE(stuck.fill(1s) < Stuck::packets);
	const auto waits = counter("full_queues");
	for (int i = 0; i < 20; i++)
		innocent.message();
	CHECK(counter("full_queues") == waits);
	/* Nothing of the other program was sent meanwhile. */
	CHECK(drain(stuck.end.send_cq).empty());
	hold.release();
	stuck.finish();
}

TEST_CASE("waiting packets of many programs are bounded, and each program has room")
{
	if (!on_wire())
		SKIP_CASE("within a device there are no packets");
	constexpr std::size_t programs = 40;
	/*
	 * 8 MiB for all programs and 64 KiB for each. Each of these packets weighs at least 896
	 * bytes: 960 where small packets have a cache of their own (since 6.3), before that 1280.
	 */
	constexpr std::size_t weight = 896, least = 64 * 1024 / weight;
	constexpr std::size_t most = 8 * 1024 * 1024 / weight + programs * least;
	const Hold hold;
	if (!hold.works())
		SKIP_CASE("the kernel has no qdisc prio or plug");
	std::vector<std::unique_ptr<Stuck>> all;
	std::size_t held = 0;

	for (std::size_t i = 0; i < programs; i++) {
		all.push_back(std::make_unique<Stuck>());
		const auto sent = all.back()->fill();
		CHECK(sent > 10);
		held += sent;
	}
	std::printf("%zu packets of %zu programs wait\n", held, programs);
	CHECK(held < most);
	/* The packets count for as long as they wait, even after their program has ended. */
	all.clear();
	for (std::size_t i = 0; i < programs; i++)
		held += Stuck().fill();
	std::printf("%zu packets wait after as many others\n", held);
	CHECK(held < most + programs * least);
	Device device;
	Innocent innocent(device);
	innocent.message();
	hold.release();
	Stuck last;
	last.fill();
	last.finish();
}

TEST_CASE("responses of one XRC domain that are held up leave other domains and programs room")
{
	if (!on_wire())
		SKIP_CASE("within a device there are no packets");
	/* 32 targets send 32 KiB each before the first answer, which is more than any quota. */
	constexpr int lanes = 32;
	const Hold hold;
	if (!hold.works())
		SKIP_CASE("the kernel has no qdisc prio or plug");
	Device device;
	Innocent innocent(device);
	const auto stuck = xrc::open_domain(device), other = xrc::open_domain(device);
	const xrc::Shared queue(device, stuck), others_queue(device, other);
	xrc::Lane lane(device, other);
	std::vector<std::unique_ptr<xrc::Lane>> held;
	Link slow;
	slow.timeout = 20; /* 4 s */
	const auto read = [](const xrc::Lane &from, const xrc::Shared &to) {
		from.post_to(to.number, Send(IBV_WR_RDMA_READ, {from.from.sge(0, 4 * xrc::bytes)})
						.remote(to.memory.address(), to.memory.rkey()));
	};

	const auto waits = counter("full_queues");
	for (int i = 0; i < lanes; i++) {
		held.push_back(std::make_unique<xrc::Lane>(device, stuck, slow, 1));
		read(*held.back(), queue);
	}
	REQUIRE(eventually([&] { return counter("full_queues") > waits; }));
	for (int i = 0; i < 20; i++) {
		innocent.message();
		read(lane, others_queue);
		wait_success(lane.a.send_cq);
	}
	for (const auto &each : held)
		CHECK(drain(each->a.send_cq).empty());
	hold.release();
	for (const auto &each : held)
		wait_success(each->a.send_cq);
}

TEST_CASE("peers that do not answer leave others their room")
{
	if (!on_wire())
		SKIP_CASE("within a device there are no packets");
	constexpr int peers = 8, packets = 150;
	QpOptions deep;
	deep.send_wr = deep.cqe = 2 * peers * packets;
	Device device;
	Innocent innocent(device);
	UdEnd from(device, common_qkey, deep);
	std::vector<Ah> silent;

	/* Each neighbour's queue holds 200 KiB for seconds. 1 MiB may wait in all. */
	for (std::uint8_t n = 0; n < peers; n++) {
		ibv_gid gid = device.gid();

		gid.raw[15] = static_cast<std::uint8_t>(100 + n);
		pretend_neighbour(gid);
		silent.push_back(
			create_ah(from.pd, static_cast<std::uint8_t>(device.gid_index()), gid));
	}
	forget_neighbours();
	const auto waits = counter("full_queues"), unsent = counter("packets_unsent");
	for (const Ah &ah : silent)
		for (int n = 0; n < packets; n++)
			post(from.qp, Datagram(ah, 0x77, {from.memory.sge(0, 1024)}));
	innocent.message();
	CHECK(counter("full_queues") == waits);
	wait_success(from.send_cq, peers * packets);
	/* The sum over all neighbours is bounded, too. */
	CHECK(counter("packets_unsent") > unsent);
}
