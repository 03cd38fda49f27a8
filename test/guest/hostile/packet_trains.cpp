// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// vm: cpus 1
// run: long
// transport: wire
/*
 * Trains of forged packets make a device do a bounded amount of work before their sender continues.
 * They come from a UDP socket of this host, with segmentation.
 *
 * Holds: The packets that a device owes because of a train are sent in several parts, and so are
 * the effects of a packet for which others waited. An answer within the budget is sent at once; no
 * program receives it here. The end of a train to a large group is lost. A packet that is kept does
 * not hold the pages of the rest of its train. A wrong ICRC drops one packet of a train. A train of
 * requests has one acknowledgment. The last packet of a message is processed together with those in
 * front of it only if it is right. A train for more shared receive queues than one turn can notify
 * loses no message. Does not hold: the fate of each packet (wire/odd_frames_are_dropped,
 * hostile/random_packets).
 */
#include "datagram.hpp"
#include "trains.hpp"
#include "usage.hpp"
#include "xrc.hpp"

using namespace peal_test;

namespace {

constexpr std::uint64_t packet_price = 64;
constexpr std::uint8_t write_first = 0x06, write_middle = 0x07, write_last = 0x08;
constexpr std::uint32_t write_mtu = 256, write_packets = 32;

/*
 * The packets of a WRITE of @length bytes to the begin of @to, as FIRST says. LAST carries @rest
 * bytes.
 */
std::vector<Bytes> write_of_packets(const Victim &victim, const Region &to, std::uint32_t length,
				    std::uint32_t rest)
{
	const auto payload = pattern_of((write_packets - 1) * write_mtu + rest, 1);
	std::vector<Bytes> bodies{victim.access(write_first, victim.psn, to, length)};

	for (std::uint32_t n = 1; n < write_packets; n++)
		bodies.push_back(victim.request(n + 1 < write_packets ? write_middle : write_last,
						victim.psn + n));
	bodies.back()[8] |= 0x80; /* AckReq */
	for (std::size_t n = 0; n < bodies.size(); n++) {
		const auto from = payload.begin() + static_cast<std::ptrdiff_t>(n * write_mtu);

		bodies[n].insert(bodies[n].end(), from,
				 n + 1 < bodies.size() ? from + write_mtu : payload.end());
	}
	return bodies;
}

} // namespace

TEST_CASE("replies to a train leave in parts")
{
	constexpr std::uint64_t mtu = 256;
	Device device;
	Victim victim(device, IBV_MTU_256);
	const Region area(victim.end.pd, 32 << 20);
	Forger forger;

	/* A long READ, and then packets that repeat what is known. */
	std::vector<Bytes> train{victim.access(read_request, victim.psn, area, 32 << 20)};
	while (train.size() < cars) {
		train.push_back(victim.request(send_only, victim.psn - 100));
		train.back().resize(train.front().size());
	}
	const auto before = counter("packets_sent");
	{
		const Undisturbed undisturbed;

		forger.send_train(train);
		const auto sent = counter("packets_sent") - before;
		std::printf("%llu packets at once\n", static_cast<unsigned long long>(sent));
		CHECK(sent > budget / (mtu + packet_price) / 2);
		CHECK(sent < budget / (mtu + packet_price) * 2);
	}
	CHECK(eventually([&] { return counter("packets_sent") - before > 10 * budget / mtu; }));
}

TEST_CASE("packets that waited for a train take effect in parts")
{
	constexpr std::uint32_t mtu = 4096, ahead = 60, few = 32;
	Device device;
	std::vector<std::unique_ptr<Victim>> victims;
	std::vector<std::unique_ptr<Region>> areas;
	std::vector<Bytes> train;
	std::vector<Forger::Train> early;
	Forger forger;

	static_assert(few * ahead * mtu > 4 * budget);
	const auto kept = counter("reorder_kept");
	/* All are built first, because a packet is kept for a limited time only. */
	while (victims.size() < few) {
		auto &victim =
			*victims.emplace_back(std::make_unique<Victim>(device, IBV_MTU_4096));
		auto &area = *areas.emplace_back(std::make_unique<Region>(victim.end.pd, mtu));

		for (std::uint32_t n = 1; n <= ahead; n++)
			early.push_back(forger.build(
				{victim.access(write_only, victim.psn + n, area, mtu)}));
		train.push_back(victim.access(write_only, victim.psn, area, 4));
	}
	const auto last = forger.build(train);

	for (const auto &packet : early)
		forger.send(packet);
	REQUIRE(eventually([&] { return counter("reorder_kept") - kept == few * ahead; }));
	const auto executed = [&] {
		std::uint64_t sum = 0;

		for (const auto &victim : victims)
			sum += victim->progress();
		return sum;
	};
	{
		const Undisturbed undisturbed;

		forger.send(last);
		const auto at_once = executed();
		std::printf("%llu packets at once\n", static_cast<unsigned long long>(at_once));
		CHECK(at_once > budget / mtu / 2);
		CHECK(at_once < budget / mtu * 2);
	}
	CHECK(eventually([&] { return executed() == few * (ahead + 1); }));
}

TEST_CASE("a kept packet does not hold the rest of its train")
{
	if (slowness() > 1)
		SKIP_CASE("KASAN keeps what is freed in quarantine");
	constexpr std::uint32_t ahead = 120, few = 12, bytes = 1000;
	available_memory(); /* from here the list of free pages is short */
	Device device;
	std::vector<std::unique_ptr<Victim>> victims;
	std::vector<Forger::Train> trains;
	Forger forger;

	/* One out-of-order packet among some that repeat what is known. Together they fill pages.
	 */
	while (victims.size() < few)
		victims.push_back(std::make_unique<Victim>(device, IBV_MTU_1024));
	for (const auto &victim : victims) {
		for (std::uint32_t n = 1; n <= ahead; n++) {
			std::vector<Bytes> train(32, victim->request(send_only, victim->psn - 100));

			train.front() = victim->request(send_only, victim->psn + n);
			for (auto &body : train)
				body.resize(body.size() + bytes);
			trains.push_back(forger.build(train));
		}
	}
	const auto kept = counter("reorder_kept");
	const auto available = available_memory();
	for (const auto &train : trains)
		forger.send(train);
	REQUIRE(eventually([&] { return counter("reorder_kept") - kept == few * ahead; }));
	const auto held = available - available_memory();
	std::printf("%ld KiB held for %u packets\n", held, few * ahead);
	CHECK(held < few * ahead * 8);
}

TEST_CASE("a train of requests has one acknowledgment")
{
	Device device;
	Victim victim(device, IBV_MTU_1024);
	const Region area(victim.end.pd, page_bytes);
	std::vector<Bytes> train;
	Forger forger;

	for (std::uint32_t n = 0; n < cars; n++) {
		train.push_back(victim.access(write_only, victim.psn + n, area, 4));
		train.back()[8] |= 0x80; /* AckReq */
	}
	const auto before = counter("packets_sent");
	forger.send_train(train);
	CHECK(eventually([&] { return victim.progress() == cars; }));
	CHECK(eventually([&] { return counter("packets_sent") - before >= 1; }));
	CHECK(counter("packets_sent") - before == 1);
}

TEST_CASE("a wrong ICRC in a train costs that packet only")
{
	constexpr std::uint32_t wrong[] = {0, 10, cars - 1};
	Device device;
	Victim victim(device, IBV_MTU_1024);
	const Region area(victim.end.pd, page_bytes);
	Forger forger;

	for (std::uint32_t n : wrong) {
		const std::uint32_t first = victim.psn + victim.progress();
		std::vector<Bytes> bodies;

		for (std::uint32_t i = 0; i < cars; i++)
			bodies.push_back(victim.access(write_only, first + i, area, 4));
		auto train = forger.build(bodies);
		const auto before = counter("drop_icrc"), kept = counter("reorder_kept");

		train.bytes[(n + 1) * train.piece - icrc_bytes] ^= 1;
		forger.send(train);
		INFO("packet " << n);
		CHECK(eventually([&] { return counter("drop_icrc") - before == 1; }));
		CHECK(eventually([&] { return counter("reorder_kept") - kept == cars - 1 - n; }));
		CHECK(eventually([&] { return victim.psn + victim.progress() == first + n; }));
		forger.send(bodies[n]);
		CHECK(eventually([&] { return victim.psn + victim.progress() == first + cars; }));
	}
}

TEST_CASE("the end of a message is taken with the packets in front of it only if it is right")
{
	constexpr std::uint32_t whole = write_packets * write_mtu;
	Device device;
	Forger forger;

	const auto writes = [&](const char *what, std::uint32_t length, std::uint32_t rest,
				const auto &spoil, const char *name, std::uint32_t executed) {
		Victim victim(device, IBV_MTU_256);
		const Region area(victim.end.pd, whole);
		auto bodies = write_of_packets(victim, area, length, rest);
		const Bytes last = bodies.back();

		INFO(what);
		forger.send(bodies.front());
		bodies.erase(bodies.begin());
		const auto before = counter(name);
		forger.send(spoil(bodies));
		CHECK(eventually([&] { return counter(name) - before == 1; }));
		CHECK(eventually([&] { return victim.progress() == executed; }));
		/* The right one ends the message, unless the queue pair has refused it. */
		if (std::strcmp(name, "naks_sent_invalid") == 0)
			return;
		forger.send(last);
		CHECK(eventually([&] { return victim.progress() == write_packets; }));
		const std::size_t bytes = whole - write_mtu + rest;
		CHECK(difference(area.bytes(0, bytes), pattern_of(bytes, 1)).empty());
		CHECK(all_equal(area.bytes(bytes, whole - bytes), 0));
	};
	const auto build = [&](const std::vector<Bytes> &bodies) { return forger.build(bodies); };

	for (const std::uint32_t rest : {write_mtu, write_mtu - 4, 4U})
		writes("all is right", whole - write_mtu + rest, rest, build, "packets_sent",
		       write_packets);
	writes(
		"a wrong ICRC", whole, write_mtu,
		[&](const std::vector<Bytes> &bodies) {
			auto train = forger.build(bodies);

			train.bytes.back() ^= 1;
			return train;
		},
		"drop_icrc", write_packets - 1);
	writes(
		"another PSN", whole, write_mtu,
		[&](std::vector<Bytes> &bodies) {
			bodies.back()[11]++;
			return forger.build(bodies);
		},
		"reorder_kept", write_packets - 1);
	writes("more bytes than FIRST says", whole - 4, write_mtu, build, "naks_sent_invalid",
	       write_packets - 1);
	writes("fewer bytes than FIRST says", whole, write_mtu - 4, build, "naks_sent_invalid",
	       write_packets - 1);
}

TEST_CASE("a train for many shared receive queues loses no message")
{
	constexpr std::uint8_t xrc_send_only = 0xa4;
	constexpr std::uint32_t most = 12;
	Device device;
	const Link link;
	const auto domain = xrc::open_domain(device);
	const Qp target = xrc::create_target(device, domain);
	std::vector<std::unique_ptr<xrc::Shared>> shared;
	std::uint32_t psn = link.psn;
	Forger forger;
	const auto request = [&](std::uint32_t n) {
		Bytes body;

		Bth{.opcode = xrc_send_only, .qpn = target->qp_num, .psn = psn + n, .ack = true}
			.put_to(body);
		put(body, shared[n]->number, 4);
		body.resize(body.size() + 64);
		return body;
	};
	auto rtr = rtr_attr(device, 0x77, gid_of(host), link);

	to_init(target, link);
	must(ibv_modify_qp(target, &rtr, rtr_mask), "modify to RTR");
	for (std::uint32_t n = 0; n <= most; n++)
		shared.push_back(std::make_unique<xrc::Shared>(device, domain));
	/* The last packet comes first, so it is kept until the train in front of it has come. */
	for (std::uint32_t length = 1; length <= most; length++) {
		const auto kept = counter("reorder_kept");
		std::vector<Bytes> train;

		for (std::uint32_t n = 0; n <= length; n++)
			shared[n]->post(0);
		forger.send(request(length));
		REQUIRE(eventually([&] { return counter("reorder_kept") == kept + 1; }));
		for (std::uint32_t n = 0; n < length; n++)
			train.push_back(request(n));
		forger.send_train(train);
		for (std::uint32_t n = 0; n <= length; n++) {
			INFO("message " << n << " of " << length + 1);
			wait_success(shared[n]->cq);
		}
		psn += length + 1;
	}
}

TEST_CASE("a train to a large group does not reach everybody")
{
	constexpr const char *group = "239.77.0.1";
	constexpr std::uint64_t members = 60, bytes = 512;
	const auto gid = gid_of(group);
	Device device;
	std::vector<std::unique_ptr<Endpoint>> ends;
	Forger forger(group);
	Bytes body;

	/* There are no receives, so each datagram is dropped and counted for each member. */
	while (ends.size() < members) {
		ends.push_back(std::make_unique<Endpoint>(device, ud_options(Victim::small())));
		ud_ready(ends.back()->qp);
		must(ibv_attach_mcast(ends.back()->qp, &gid, 0), "attach_mcast");
	}
	Bth{.opcode = datagram_only, .qpn = 0xffffff}.put_to(body);
	put(body, common_qkey, 4);
	put(body, 0x77, 4);
	body.resize(body.size() + bytes);
	const auto reached = counter("drop_receive"), lost = counter("drop_resource");

	forger.send_train(std::vector<Bytes>(cars, body));
	CHECK(eventually([&] {
		return counter("drop_receive") - reached +
			       members * (counter("drop_resource") - lost) ==
		       members * cars;
	}));
	const auto deliveries = counter("drop_receive") - reached;
	std::printf("%llu of %llu deliveries\n", static_cast<unsigned long long>(deliveries),
		    static_cast<unsigned long long>(members * cars));
	CHECK(deliveries >= budget / 2048);
	CHECK(deliveries <= budget / 1024 + members);
	for (const auto &end : ends)
		must(ibv_detach_mcast(end->qp, &gid, 0), "detach_mcast");
}
