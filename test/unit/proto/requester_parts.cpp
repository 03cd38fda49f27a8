// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The requester's parts alone: tables, estimate, window, PSN order.
 *
 * Does not hold: what a requester makes of them (scripts).
 */
#include "script.hpp"

using namespace peal::test;

namespace {

peal_rto fresh(std::uint64_t longest = 1000 * MS)
{
	peal_rto rto = {};

	peal_rto_limit(&rto, longest);
	peal_rto_reset(&rto);
	return rto;
}

void sample(peal_rto &rto, std::uint64_t ns)
{
	peal_rto_start(&rto, 5, 1000);
	peal_rto_answered(&rto, 6, 1000 + ns);
}

} // namespace

TEST_CASE("RNR timers are those of table 45", "[parts]")
{
	const double MILLISECONDS[32] = {
		655.36, 0.01,  0.02,  0.03,  0.04,  0.06,   0.08,   0.12,   0.16,   0.24,   0.32,
		0.48,	0.64,  0.96,  1.28,  1.92,  2.56,   3.84,   5.12,   7.68,   10.24,  15.36,
		20.48,	30.72, 40.96, 61.44, 81.92, 122.88, 163.84, 245.76, 327.68, 491.52,
	};

	for (unsigned i = 0; i < 256; ++i)
		CHECK(peal_rnr_timer_ns(static_cast<u8>(i)) ==
		      static_cast<std::uint64_t>(MILLISECONDS[i % 32] * 100 + 0.5) * 10 * US);
}

TEST_CASE("credits: each step is half or a third more than the one before", "[parts]")
{
	CHECK(peal_rnr_credits(0) == 0);
	CHECK(peal_rnr_credits(1) == 1);
	CHECK(peal_rnr_credits(2) == 2);
	CHECK(peal_rnr_credits(3) == 3);
	for (unsigned i = 4; i < 31; ++i)
		CHECK(peal_rnr_credits(static_cast<u8>(i)) ==
		      2 * peal_rnr_credits(static_cast<u8>(i - 2)));
	CHECK(peal_rnr_credits(30) == 32768);
}

TEST_CASE("the estimate is that of RFC 6298", "[parts]")
{
	peal_rto rto = fresh();

	CHECK(rto.ns == 5 * MS);
	sample(rto, 8 * MS);
	CHECK(rto.srtt == 8 * MS);
	CHECK(rto.rttvar == 4 * MS);
	CHECK(rto.ns == 24 * MS);
	sample(rto, 16 * MS);
	CHECK(rto.srtt == 9 * MS);
	CHECK(rto.rttvar == 5 * MS);
	CHECK(rto.ns == 29 * MS);
	for (int i = 0; i < 100; ++i)
		sample(rto, 1 * MS);
	CHECK(rto.ns < 2 * MS);
}

TEST_CASE("the estimate has bounds", "[parts]")
{
	peal_rto rto = fresh(2 * MS);

	CHECK(rto.ns == 2 * MS);
	for (int i = 0; i < 100; ++i)
		sample(rto, 10);
	CHECK(rto.ns == 100 * US);
	sample(rto, 1000 * MS);
	CHECK(rto.ns == 2 * MS);
	peal_rto_limit(&rto, 50 * US);
	CHECK(rto.ns == 50 * US);
	for (int i = 0; i < 100; ++i)
		peal_rto_back_off(&rto);
	CHECK(rto.ns == 50 * US);
}

TEST_CASE("a retransmitted packet gives no sample", "[parts]")
{
	peal_rto rto = fresh();

	peal_rto_start(&rto, 0xffffff, 0);
	peal_rto_sent_again(&rto, 0xfffff0, 0xffffff);
	CHECK(rto.timing);
	peal_rto_sent_again(&rto, 0, 5);
	CHECK(rto.timing);
	peal_rto_answered(&rto, 0xffffff, 9);
	CHECK(rto.timing);
	peal_rto_sent_again(&rto, 0xffffff, 0);
	CHECK_FALSE(rto.timing);
	peal_rto_answered(&rto, 1, 9);
	CHECK(rto.srtt == 0);
}

TEST_CASE("one sample at a time", "[parts]")
{
	peal_rto rto = fresh();

	peal_rto_start(&rto, 5, 0);
	peal_rto_start(&rto, 9, 1 * MS);
	peal_rto_answered(&rto, 6, 2 * MS);
	CHECK(rto.srtt == 2 * MS);
}

TEST_CASE("backing off stays, and most of it goes when something is heard", "[parts]")
{
	peal_rto rto = fresh();

	sample(rto, 1 * MS);
	CHECK(rto.ns == 3 * MS);
	for (int i = 0; i < 4; ++i)
		peal_rto_back_off(&rto);
	CHECK(rto.ns == 48 * MS);
	peal_rto_heard(&rto, 0, 100);
	CHECK(rto.ns == 6 * MS);
	peal_rto_heard(&rto, 0, 100);
	CHECK(rto.ns == 3 * MS);
	peal_rto_back_off(&rto);
	peal_rto_heard(&rto, 0, 100);
	CHECK(rto.ns == 6 * MS);
	CHECK(rto.srtt == 1 * MS);
	peal_rto_heard(&rto, 0, 9 * MS);
	CHECK(rto.srtt == 2 * MS);
}

TEST_CASE("nothing answers sooner than half the shortest round trip", "[parts]")
{
	peal_rto rto = fresh();

	CHECK(peal_rto_plausible(&rto, 5, 5));
	sample(rto, 8 * MS);
	sample(rto, 2 * MS);
	sample(rto, 9 * MS);
	CHECK_FALSE(peal_rto_plausible(&rto, 0, 1 * MS - 1));
	CHECK(peal_rto_plausible(&rto, 0, 1 * MS));
	peal_rto_doubt(&rto);
	CHECK(peal_rto_plausible(&rto, 0, MS / 2));
}

TEST_CASE("windows grow by what is acknowledged and shrink once for each loss", "[parts]")
{
	peal_window w = {};

	peal_window_limit(&w, 100);
	CHECK(w.size == 32);
	peal_window_follow(&w, 10, 10, 0, 0);
	CHECK(w.size == 42);
	peal_window_halve(&w, 50);
	CHECK(w.size == 21);
	peal_window_halve(&w, 60);
	peal_window_shrink(&w, 60);
	CHECK(w.size == 21);
	peal_window_follow(&w, 39, 49, 0, 0);
	CHECK(w.size == 21);
	peal_window_follow(&w, 1, 50, 0, 0);
	CHECK(w.size == 22);
	peal_window_shrink(&w, 60);
	CHECK(w.size == 20);
	peal_window_follow(&w, 1000, 1050, 0, 0);
	CHECK(w.size == 100);
	peal_window_limit(&w, 0);
	CHECK(w.size == 1);
}

TEST_CASE("slow answers in a row keep a window from growing, and more of them halve it", "[parts]")
{
	peal_window w = {};

	peal_window_limit(&w, 100);
	peal_window_follow(&w, 1, 1, 0, 1);
	CHECK(w.size == 33);
	for (std::uint8_t slow = 2; slow < 8; slow++) {
		peal_window_follow(&w, 1, slow, 0, slow);
		CHECK(w.size == 33);
	}
	peal_window_follow(&w, 1, 8, 10, 8);
	CHECK(w.size == 17);
	peal_window_follow(&w, 1, 9, 20, 255);
	CHECK(w.size == 17);
	peal_window_follow(&w, 1, 10, 20, 255);
	CHECK(w.size == 9);
	peal_window_follow(&w, 10, 20, 30, 0);
	CHECK(w.size == 19);
}

TEST_CASE("slow answers are counted while they come in a row", "[parts]")
{
	peal_rto rto = fresh(40 * MS);

	CHECK(peal_rto_slow(&rto) == 0);
	sample(rto, 2 * MS);
	sample(rto, 12 * MS);
	CHECK(peal_rto_slow(&rto) == 0);
	for (int i = 1; i <= 300; i++) {
		sample(rto, 12 * MS + 1);
		CHECK(peal_rto_slow(&rto) == std::min(i, 255));
	}
	sample(rto, 3 * MS);
	CHECK(peal_rto_slow(&rto) == 0);
}

TEST_CASE("packets numbered anew do not keep a window from growing", "[parts]")
{
	peal_window w = {};

	peal_window_limit(&w, 100);
	peal_window_reset(&w);
	peal_window_halve(&w, 50);
	CHECK(w.size == 16);
	peal_window_recover(&w);
	peal_window_follow(&w, 10, 0x900000, 0x900000, 0);
	CHECK(w.size == 26);
}

TEST_CASE("PSN order: half the circle is later", "[parts]")
{
	for (std::uint32_t from : {0U, 5U, 0x7fffffU, 0x800000U, 0xffffffU}) {
		for (std::uint32_t ahead : {1U, 2U, 0x7fffffU}) {
			const std::uint32_t to = peal_psn_add(from, ahead);
			u32 raised = from;

			CHECK(peal_psn_before(from, to));
			CHECK_FALSE(peal_psn_before(to, from));
			CHECK(peal_psn_ahead(from, to) == ahead);
			peal_psn_raise(&raised, to);
			CHECK(raised == to);
			peal_psn_raise(&raised, from);
			CHECK(raised == to);
		}
		CHECK_FALSE(peal_psn_before(from, from));
	}
}
