// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// vm: icount
// run: long
// transport: wire
/*
 * Packets that arrive one behind the other make a device do a bounded amount of work in softirq,
 * also if each of them is alone in its skb. The test counts instructions, because the guest's clock
 * counts those (scripts/vm --icount).
 *
 * Holds: What requests cause at once is bounded by the time that passes, and by a small part for
 * each request. Nothing is lost; the rest leaves later. The bytes that arrive count. The timers of
 * other queue pairs have their own share. Does not hold: the cost of a packet in the network stack.
 */
#include "commands.hpp"
#include "counters.hpp"
#include "trains.hpp"

using namespace peal_test;

namespace {

constexpr std::uint32_t mtu = 4096, bytes = 1 << 20;
constexpr std::uint64_t part = 96 << 10, step = mtu + 64;

std::int64_t nanoseconds()
{
	timespec now{};

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* The length of a jiffy. The coarse clock moves in steps of it. */
std::int64_t jiffy()
{
	timespec resolution{};

	clock_getres(CLOCK_MONOTONIC_COARSE, &resolution);
	return resolution.tv_nsec;
}

/* The beginning of the present jiffy. */
std::int64_t jiffy_began()
{
	timespec now{};

	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* The stack divides each train before the packets get to the loopback interface's queue. */
class Divided {
public:
	Divided() { REQUIRE(run("ip link set lo gso_max_segs 1") == 0); }
	~Divided() { run("ip link set lo gso_max_segs 65535"); }
	Divided(const Divided &) = delete;
	Divided &operator=(const Divided &) = delete;
};

} // namespace

/* Trains of WRITEs that use up the budget of a jiffy, and then a READ in the same jiffy. */
TEST_CASE("the bytes that arrive count")
{
	constexpr unsigned writes = 15;
	Device device;
	Forger forger;
	bool same_jiffy = false;

	for (int round = 0; round < 10 && !same_jiffy; round++) {
		Victim victim(device, IBV_MTU_4096);
		Region area(victim.end.pd, bytes);
		std::vector<Forger::Train> trains;
		std::uint32_t psn = victim.psn;

		for (std::uint64_t all = 0; all <= budget; all += writes * step) {
			std::vector<Bytes> bodies;

			while (bodies.size() < writes)
				bodies.push_back(victim.access(write_only, psn++, area, mtu));
			trains.push_back(forger.build(bodies));
		}
		const auto read = forger.build({victim.access(read_request, psn, area, bytes)});
		const Undisturbed undisturbed;
		const auto before = counter_at_once("packets_sent");
		const auto last = jiffy_began();
		auto began = last;

		while (began == last)
			began = jiffy_began();
		for (const auto &train : trains)
			forger.send(train);
		forger.send(read);
		same_jiffy = jiffy_began() == began;

		const auto sent = counter_at_once("packets_sent") - before;
		const auto acks = trains.size() * writes / 32;
		std::printf("%llu packets at once, %s\n", static_cast<unsigned long long>(sent),
			    same_jiffy ? "in one jiffy" : "in more than one jiffy");
		if (!same_jiffy)
			continue;
		CHECK(sent >= part / step);
		CHECK(sent <= acks + part / step + 2);
	}
	CHECK(same_jiffy);
}

TEST_CASE("requests of one poll are answered in parts")
{
	Device device;
	std::vector<std::unique_ptr<Victim>> victims;
	std::vector<std::unique_ptr<Region>> areas;
	std::vector<Bytes> train;
	Forger forger;
	const Divided divided;

	while (victims.size() < cars) {
		auto &victim =
			*victims.emplace_back(std::make_unique<Victim>(device, IBV_MTU_4096));
		auto &area = *areas.emplace_back(std::make_unique<Region>(victim.end.pd, bytes));

		train.push_back(victim.access(read_request, victim.psn, area, bytes));
	}
	const auto before = counter("packets_sent");
	{
		const Undisturbed undisturbed;
		const auto begin = nanoseconds();

		forger.send_train(train);
		const auto jiffies = static_cast<std::uint64_t>((nanoseconds() - begin) / jiffy());
		const auto sent = counter_at_once("packets_sent") - before;
		std::printf("%llu KiB at once, in %llu jiffies\n",
			    static_cast<unsigned long long>(sent * step >> 10),
			    static_cast<unsigned long long>(jiffies));
		/* Each request gets its part, and all together the budget of each jiffy. */
		CHECK(sent * step >= cars * part / 2);
		CHECK(sent * step <= cars * (part + step) + (jiffies + 2) * budget);
	}
	CHECK(eventually([&] { return counter("packets_sent") - before >= cars * bytes / mtu; }));
}
