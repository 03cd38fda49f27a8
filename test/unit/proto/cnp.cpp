// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * How often a queue pair notifies its peer of congestion, and what a notification does.
 *
 * Holds: At most one notification leaves in any 50 us. However many arrive, the window is reduced
 * once a round trip, and only while packets are in flight.
 * Does not hold: by how much the window is reduced.
 */
#include "../catch.hpp"

#include "proto/cnp.h"
#include "requester.hpp"

using namespace peal::test;

namespace {

/* Marked packets arrive at @step ns. Return: when notifications leave, within @until ns. */
std::vector<std::uint64_t> leaving(std::uint64_t begin, std::uint64_t step, std::uint64_t until)
{
	std::vector<std::uint64_t> times;
	peal_cnp cnp{};

	for (std::uint64_t now = begin; now < begin + until; now += step) {
		if (!peal_cnp_is_due(&cnp, now))
			continue;
		peal_cnp_sent(&cnp, now);
		times.push_back(now);
	}
	return times;
}

std::uint32_t window_of(Requester &r)
{
	return r.get()->window.size;
}

} // namespace

TEST_CASE("at most one notification leaves in 50 us", "[cnp]")
{
	CHECK(leaving(0, 1, 50'000) == std::vector<std::uint64_t>{0});
	CHECK(leaving(7, 1, 50'001) == std::vector<std::uint64_t>{7, 50'007});
	CHECK(leaving(1'000'000'000, 49'999, 200'000).size() == 3);
	for (const std::uint64_t step : {1ULL, 3ULL, 999ULL, 50'000ULL, 50'001ULL, 70'000ULL}) {
		const auto times = leaving(123'456'789, step, 1'000'000);

		CAPTURE(step);
		REQUIRE_FALSE(times.empty());
		CHECK(times.front() == 123'456'789);
		for (std::size_t i = 1; i < times.size(); ++i)
			CHECK(times[i] - times[i - 1] >= 50'000);
	}
}

TEST_CASE("each of several rare marks is notified", "[cnp]")
{
	CHECK(leaving(0, 50'000, 1'000'000).size() == 20);
}

TEST_CASE("a notification reduces the window while packets are in flight", "[cnp]")
{
	Requester r;
	const auto before = window_of(r);

	peal_requester_notified(r.get());
	CHECK(window_of(r) == before);
	r.post_packets(8);
	CHECK(r.send().size() == 8);
	peal_requester_notified(r.get());
	const auto after = window_of(r);
	CHECK(after < before);
	for (int i = 0; i < 1000; ++i)
		peal_requester_notified(r.get());
	CHECK(window_of(r) == after);
	/* It touches no PSN, and the answers complete the message. */
	r.receive(ack(7));
	CHECK(r.completed() == 1);
}
