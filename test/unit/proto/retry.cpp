// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * kernel/proto/timers.c: the number of retries, and the time between them.
 *
 * Holds: Retries and RNR retries are counted as IBTA 9.7.5.2.8 and 9.7.6.1.3 demand, and do not
 * use each other up. Progress gives all of them back. Endless RNR waits grow up to a limit.
 */
#include "../catch.hpp"

#include "proto.hpp"

namespace {

unsigned silent_tries(peal_retry &retry, unsigned limit)
{
	unsigned tries = 0;

	while (tries < 100 && peal_retry_use(&retry, static_cast<__u8>(limit)))
		++tries;
	return tries;
}

unsigned rnr_tries(peal_retry &retry, unsigned limit)
{
	unsigned tries = 0;

	while (tries < 100 && peal_retry_use_rnr(&retry, static_cast<__u8>(limit)))
		++tries;
	return tries;
}

} // namespace

TEST_CASE("there are as many retries against silence as the attribute says", "[retry]")
{
	for (unsigned limit = 0; limit <= 7; ++limit) {
		peal_retry retry = {};

		CAPTURE(limit);
		CHECK(silent_tries(retry, limit) == limit);
	}
}

TEST_CASE("as many RNR answers are borne as there are RNR retries", "[retry]")
{
	for (unsigned limit = 0; limit <= 6; ++limit) {
		peal_retry retry = {};

		CAPTURE(limit);
		CHECK(rnr_tries(retry, limit) == limit);
	}
}

TEST_CASE("7 RNR retries are endless", "[retry]")
{
	peal_retry retry = {};

	CHECK(rnr_tries(retry, 7) == 100);
}

TEST_CASE("the two kinds of retries do not use each other up", "[retry]")
{
	peal_retry retry = {};

	CHECK(rnr_tries(retry, 2) == 2);
	CHECK(silent_tries(retry, 3) == 3);
}

TEST_CASE("progress gives all retries back", "[retry]")
{
	peal_retry retry = {};

	CHECK(rnr_tries(retry, 2) == 2);
	CHECK(silent_tries(retry, 3) == 3);
	peal_retry_progress(&retry);
	peal_retry_received(&retry);
	CHECK(rnr_tries(retry, 2) == 2);
	CHECK(silent_tries(retry, 3) == 3);
}

TEST_CASE("endless RNR waits grow to 1 ms, and begin anew after a receive", "[retry]")
{
	peal_retry retry = {};
	const unsigned shortest = 1; /* 10 us */
	const auto wait = [&](unsigned timer) {
		REQUIRE(peal_retry_use_rnr(&retry, 7));
		return peal_retry_rnr_ns(&retry, static_cast<__u8>(timer));
	};

	for (std::uint64_t expected = 10'000; expected < 1'000'000; expected *= 2)
		CHECK(wait(shortest) == expected);
	for (int i = 0; i < 300; ++i)
		CHECK(wait(shortest) == 1'000'000);
	CHECK(wait(0) == 655'360'000);
	peal_retry_received(&retry);
	CHECK(wait(shortest) == 10'000);
}

TEST_CASE("RNR waits that are counted take the peer's time", "[retry]")
{
	peal_retry retry = {};

	for (int i = 0; i < 6; ++i) {
		REQUIRE(peal_retry_use_rnr(&retry, 6));
		CHECK(peal_retry_rnr_ns(&retry, 1) == 10'000);
	}
}
