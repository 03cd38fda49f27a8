// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The requester's parts alone: tables, estimate, window, PSN order.
 *
 * Does not hold: what a requester makes of them (scripts).
 */
#include "requester.hpp"

using namespace peal::test;

namespace {

/* Long enough not to limit a back-off. */
constexpr std::uint64_t SILENCE = 10000 * MS;

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
		peal_rto_back_off(&rto, SILENCE);
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
		peal_rto_back_off(&rto, SILENCE);
	CHECK(rto.ns == 48 * MS);
	peal_rto_heard(&rto, 0, 100);
	CHECK(rto.ns == 6 * MS);
	peal_rto_heard(&rto, 0, 100);
	CHECK(rto.ns == 3 * MS);
	peal_rto_back_off(&rto, SILENCE);
	peal_rto_heard(&rto, 0, 100);
	CHECK(rto.ns == 6 * MS);
	CHECK(rto.srtt == 1 * MS);
	peal_rto_heard(&rto, 0, 9 * MS);
	CHECK(rto.srtt == 2 * MS);
}

TEST_CASE("the answer to an earlier packet than the probe is no empty round trip", "[parts]")
{
	peal_rto rto = fresh();

	/* The path takes 10 ms. The first probe leaves after 5 ms. */
	peal_rto_start(&rto, 0, 0);
	peal_rto_sent_again(&rto, 0, 1);
	peal_rto_heard(&rto, 5 * MS, 10 * MS);
	CHECK(rto.srtt == 5 * MS);
	CHECK_FALSE(peal_rto_sees_queue(&rto));
	sample(rto, 10 * MS);
	CHECK(rto.empty == 10 * MS);
	CHECK_FALSE(peal_rto_sees_queue(&rto));
	sample(rto, 13 * MS);
	CHECK(peal_rto_sees_queue(&rto));
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

/* A window of @size packets of 4,096 bytes, all of which are in flight: up to @top. */
peal_window full_window(std::uint32_t size, std::uint32_t limit = 1000,
			std::uint32_t threshold = 2000)
{
	peal_window w = {};

	peal_window_configure(&w, limit, 12, 0);
	peal_window_reset(&w);
	w.size = size;
	w.threshold = threshold;
	return w;
}

/* Round trips without loss from @una on, each of as many packets as the window has. Return: una. */
std::uint32_t round_trips(peal_window &w, std::uint32_t una, int trips, bool queue)
{
	for (; trips; --trips) {
		const std::uint32_t size = w.size;

		una += size;
		peal_window_follow(&w, size, una, una, 0, 0, queue, false);
	}
	return una;
}

TEST_CASE("a window doubles up to the threshold that a queue has set", "[parts]")
{
	peal_window w = full_window(16);

	peal_window_follow(&w, 16, 16, 16, 0, 0, true, false);
	CHECK(w.size == 32);
	/* Not by packets that did not need it. */
	peal_window_follow(&w, 1, 17, 20, 0, 0, false, false);
	CHECK(w.size == 32);
	peal_window_lose(&w, 50, true, PEAL_LOSS_REQUEST);
	CHECK(w.size == 16);
	/* Once a round trip. */
	peal_window_lose(&w, 60, true, PEAL_LOSS_REQUEST);
	peal_window_silence(&w, 60, true);
	peal_window_mark(&w, 60);
	CHECK(w.size == 16);
	peal_window_follow(&w, 4, 49, 60, 0, 0, true, false);
	CHECK(w.size == 16);
	peal_window_follow(&w, 4, 53, 64, 0, 0, true, false);
	CHECK(w.size == 16);
	/* One packet a round trip. */
	round_trips(w, 64, 4, true);
	CHECK(w.size == 20);
	peal_window_configure(&w, 0, 12, 0);
	CHECK(w.size == 1);
}

TEST_CASE("a loss without a queue takes an eighth, which comes back at once", "[parts]")
{
	peal_window w = full_window(80);

	peal_window_lose(&w, 80, false, PEAL_LOSS_REQUEST);
	CHECK(w.size == 70);
	round_trips(w, 80, 1, false);
	CHECK(w.size > 80);
}

TEST_CASE("the first loss halves the window, and the next ones in the same round trip do not",
	  "[parts]")
{
	constexpr std::uint32_t never = 0x200000;
	peal_window w = full_window(100, 1000, never);

	peal_window_lose(&w, 100, false, PEAL_LOSS_REQUEST);
	CHECK(w.size == 50);
	CHECK(w.threshold == 50);

	w = full_window(100, 1000, never);
	peal_window_lose(&w, 100, false, PEAL_LOSS_RESPONSE);
	CHECK(w.size == 50);
	peal_window_lose(&w, 100, true, PEAL_LOSS_GOES_BACK);
	CHECK(w.size == 50);
	/* Unless a retransmission is lost. */
	peal_window_lose(&w, 100, true, PEAL_LOSS_AGAIN);
	CHECK(w.size == 25);
}

TEST_CASE("a loss of READ responses takes little shortly before the window may have grown back",
	  "[parts]")
{
	peal_window w = full_window(100);
	const auto lose_again = [&w](int trips) {
		const std::uint32_t una = round_trips(w, w.recovered, trips, true);
		const std::uint32_t before = w.size;

		peal_window_lose(&w, una, true, PEAL_LOSS_RESPONSE);
		return before - w.size;
	};

	peal_window_lose(&w, 100, true, PEAL_LOSS_RESPONSE);
	CHECK(w.size == 50);
	/* It needs 50 round trips. */
	CHECK(lose_again(40) == 2);
	CHECK(lose_again(6) == 2);
	/* Such a loss does not make it need more. */
	CHECK(lose_again(6) == 49);
	CHECK(lose_again(1) == (49 + 1) / 2);
	w = full_window(300);
	peal_window_lose(&w, 300, true, PEAL_LOSS_RESPONSE);
	CHECK(w.size == 150);
	CHECK(lose_again(140) == 290 / 32);
}

TEST_CASE("a window that READ responses fill at the peer stops growing", "[parts]")
{
	/* 1 MiB. */
	peal_window w = full_window(255);
	std::uint32_t una = 0;
	const auto trip = [&w, &una](bool waiting) {
		const std::uint32_t before = w.size;

		una += w.size;
		peal_window_follow(&w, w.size, una, una, 0, 0, true, waiting);
		return w.size - before;
	};

	CHECK(trip(true) == 255);
	CHECK(trip(true) == 0);
	CHECK(trip(false) == 490);
	/* The doubling ends, as with the first loss. */
	w = full_window(300, 1000, 0x200000);
	CHECK(trip(true) == -150U);
	CHECK(w.threshold == 150);
	CHECK(trip(true) == 1);
}

TEST_CASE("a window grows by what TCP's packets have, and by less after a mark", "[parts]")
{
	/* In eighths of a packet with its headers. */
	struct Growth {
		std::uint8_t mtu_shift;
		std::uint32_t route_mtu, full, marked, least;
	};
	const auto growth = GENERATE(Growth{10, 1500, 11, 7, 11}, Growth{10, 9000, 42, 42, 33},
				     Growth{12, 4500, 8, 5, 8}, Growth{12, 9000, 11, 11, 9},
				     Growth{12, 65536, 11, 11, 9}, Growth{12, 0, 8, 5, 8});
	peal_window w = {};
	/* The first round trip ends the recovery. */
	const auto grown_in_80_trips = [&w] {
		const std::uint32_t una = round_trips(w, w.recovered, 1, true);
		const std::uint32_t before = w.size;

		round_trips(w, una, 80, true);
		return Approx(w.size - before).margin(1);
	};

	peal_window_configure(&w, 10000, growth.mtu_shift, growth.route_mtu);
	peal_window_reset(&w);
	w.size = 300;
	w.threshold = 300;
	CHECK(grown_in_80_trips() == 10 * growth.full);
	peal_window_mark(&w, w.recovered);
	CHECK(grown_in_80_trips() == 10 * growth.marked);
	/* A loss takes half, so it grows at the full rate again. */
	peal_window_lose(&w, w.recovered, true,
			 GENERATE(PEAL_LOSS_REQUEST, PEAL_LOSS_PART, PEAL_LOSS_RESPONSE));
	CHECK(grown_in_80_trips() == 10 * growth.full);
	/* Each loss costs a peer that goes back a lot. */
	peal_window_lose(&w, w.recovered, true, GENERATE(PEAL_LOSS_GOES_BACK, PEAL_LOSS_AGAIN));
	CHECK(grown_in_80_trips() == 10 * growth.least);
}

TEST_CASE("a window grows while it recovers, unless the peer goes back or responses are lost",
	  "[parts]")
{
	const auto loss = GENERATE(PEAL_LOSS_REQUEST, PEAL_LOSS_GOES_BACK, PEAL_LOSS_RESPONSE);
	const bool queue = GENERATE(false, true);
	peal_window w = full_window(200);

	/* A second gap keeps una below `recovered` for another round trip. */
	peal_window_lose(&w, 200, queue, loss);
	const std::uint32_t size = w.size;
	for (std::uint32_t una = 1; una < 200; una++)
		peal_window_follow(&w, 1, una, 200, 0, 0, queue, false);
	CHECK(w.size == (queue && loss == PEAL_LOSS_REQUEST ? size + 1 : size));
}

TEST_CASE("of what the peer has dropped a quarter of the window is sent at once", "[parts]")
{
	const bool queue = GENERATE(false, true);
	peal_window w = full_window(320);

	/* Packets 0 to 319 are in flight, and 0 is lost. The peer keeps 127 of those behind it. */
	peal_window_lose(&w, 320, queue, PEAL_LOSS_GOES_BACK);
	CHECK(w.size == (queue ? 160 : 280));
	/* If it had dropped few, all could be sent. */
	peal_window_follow(&w, 1, 1, 320, 40, 0, queue, false);
	CHECK(w.size == (queue ? 160 : 280));
	peal_window_follow(&w, 127, 128, 320, 192, 0, queue, false);
	CHECK(w.size == (queue ? 40 : 280));
	/* Each ACK of these makes room for one more, until the window has its size again. */
	for (std::uint32_t una = 129; una <= 168; una++)
		peal_window_follow(&w, 1, una, 320, 0, 0, queue, false);
	CHECK(w.size == (queue ? 80 : 280));
	peal_window_follow(&w, 100, 268, 320, 0, 0, queue, false);
	CHECK(w.size == (queue ? 160 : 280));
}

TEST_CASE("a quarter of the window leaves at once, and an eighth after a loss", "[parts]")
{
	peal_window w = full_window(80, 1000, 0x200000);

	CHECK(peal_window_room(&w, 0, 1000) == 20);
	CHECK(peal_window_room(&w, 0, 41) == 20);
	CHECK(peal_window_room(&w, 0, 40) == 40);
	CHECK(peal_window_room(&w, 50, 40) == 30);
	peal_window_lose(&w, 80, true, PEAL_LOSS_REQUEST);
	CHECK(w.size == 40);
	CHECK(peal_window_room(&w, 0, 1000) == 5);
	CHECK(peal_window_room(&w, 0, 10) == 5);
}

TEST_CASE("a message that ends soon asks at its end only, unless there was a loss", "[parts]")
{
	peal_window w = full_window(80, 1000, 0x200000);

	CHECK_FALSE(peal_window_wants_ack(&w, 19, 19, 100));
	CHECK(peal_window_wants_ack(&w, 1, 20, 21));
	peal_window_ack_requested(&w);
	CHECK_FALSE(peal_window_wants_ack(&w, 20, 20, 20));
	CHECK_FALSE(peal_window_wants_ack(&w, 19, 39, 1));
	CHECK(peal_window_wants_ack(&w, 1, 40, 0));
	CHECK(peal_window_wants_ack(&w, 1, 80, 1));
	peal_window_lose(&w, 80, true, PEAL_LOSS_REQUEST);
	peal_window_ack_requested(&w);
	CHECK(peal_window_wants_ack(&w, 5, 5, 1));
}

TEST_CASE("losses that follow each other closely mean a queue", "[parts]")
{
	peal_window w = full_window(512);
	std::uint32_t una = 0;

	for (int i = 0; i < 2; ++i) {
		una += 7;
		peal_window_follow(&w, 7, una, una, 0, 0, false, false);
		peal_window_lose(&w, una, false, PEAL_LOSS_REQUEST);
	}
	CHECK(w.size == 392);
	una += 7;
	peal_window_follow(&w, 7, una, una, 0, 0, false, false);
	peal_window_lose(&w, una, false, PEAL_LOSS_REQUEST);
	CHECK(w.size == 196);
	CHECK(w.threshold == 196);
}

TEST_CASE("every fifth loss counts as one with a queue, if the peer goes back", "[parts]")
{
	const bool goes_back = GENERATE(false, true);
	peal_window w = full_window(512);
	std::uint32_t una = 0;

	for (int i = 0; i < 5; ++i) {
		CHECK(w.threshold > 1000);
		una += 100;
		peal_window_follow(&w, 100, una, una, 0, 0, false, false);
		peal_window_lose(&w, una, false,
				 goes_back ? PEAL_LOSS_GOES_BACK : PEAL_LOSS_REQUEST);
	}
	CHECK((w.threshold < 1000) == goes_back);
}

TEST_CASE("marks take half of their share, and 30 % at least", "[parts]")
{
	peal_window w = full_window(200);
	std::uint32_t una = 0;

	/* The first one is taken for a share of all. */
	peal_window_mark(&w, una);
	CHECK(w.size == 100);
	una = round_trips(w, una, 100, true);
	const std::uint32_t size = w.size;
	CHECK(size == 162);
	peal_window_mark(&w, una);
	CHECK(w.size == size - size * 3 / 10);
}

TEST_CASE("without marks and queue a window grows by an eighth after some round trips", "[parts]")
{
	peal_window w = full_window(160);

	peal_window_lose(&w, 0, true, PEAL_LOSS_REQUEST);
	CHECK(w.size == 80);
	const std::uint32_t una = round_trips(w, 0, 40, false);

	/* It may have been marks that told of the queue, until their share is forgotten. */
	CHECK(w.size == 120);
	round_trips(w, una, 60, false);
	CHECK(w.size == 1000);
}

TEST_CASE("after an unanswered probe a window starts anew and comes back", "[parts]")
{
	peal_window w = full_window(128);

	peal_window_silence(&w, 128, false);
	CHECK(w.size == 64);
	peal_window_restart(&w);
	peal_window_restart(&w);
	CHECK(w.size == 2);
	round_trips(w, 0, 5, true);
	CHECK(w.size == 64);
	round_trips(w, 126, 2, true);
	CHECK(w.size == 66);
}

TEST_CASE("slow answers in a row keep a window from growing, and more of them halve it", "[parts]")
{
	peal_window w = full_window(32);

	peal_window_follow(&w, 1, 1, 32, 0, 1, true, false);
	CHECK(w.size == 33);
	for (std::uint8_t slow = 2; slow < 8; slow++) {
		peal_window_follow(&w, 1, slow, 40, 0, slow, true, false);
		CHECK(w.size == 33);
	}
	peal_window_follow(&w, 1, 8, 40, 0, 8, true, false);
	CHECK(w.size == 17);
	peal_window_follow(&w, 1, 39, 60, 0, 255, true, false);
	CHECK(w.size == 17);
	peal_window_follow(&w, 1, 40, 60, 0, 255, true, false);
	CHECK(w.size == 9);
}

TEST_CASE("slow answers are counted while they come in a row", "[parts]")
{
	peal_rto rto = fresh(40 * MS);

	CHECK(peal_rto_slow(&rto) == 0);
	sample(rto, 2 * MS);
	sample(rto, 22 * MS);
	CHECK(peal_rto_slow(&rto) == 0);
	for (int i = 1; i <= 300; i++) {
		sample(rto, 22 * MS + 1);
		CHECK(peal_rto_slow(&rto) == std::min(i, 255));
	}
	sample(rto, 3 * MS);
	CHECK(peal_rto_slow(&rto) == 0);
}

TEST_CASE("packets numbered anew do not keep a window from growing", "[parts]")
{
	peal_window w = full_window(32);

	peal_window_silence(&w, 50, false);
	CHECK(w.size == 16);
	peal_window_set_psn(&w, 0x900000);
	peal_window_follow(&w, 10, 0x90000a, 0x90000a, 0, 0, false, false);
	CHECK(w.size == 26);
}

TEST_CASE("an answer that takes a quarter longer than the shortest tells of a queue", "[parts]")
{
	peal_rto rto = fresh(400 * MS);

	CHECK_FALSE(peal_rto_sees_queue(&rto));
	sample(rto, 8 * MS);
	sample(rto, 10 * MS);
	CHECK_FALSE(peal_rto_sees_queue(&rto));
	sample(rto, 10 * MS + 10001);
	CHECK(peal_rto_sees_queue(&rto));
	CHECK_FALSE(peal_rto_sees_long_queue(&rto));
	sample(rto, 16 * MS + 1);
	CHECK(peal_rto_sees_long_queue(&rto));
	sample(rto, 9 * MS);
	CHECK_FALSE(peal_rto_sees_queue(&rto));
}

TEST_CASE("a long queue stops the growth of a READ's window, and not of a WRITE's", "[parts]")
{
	const bool read = GENERATE(false, true);
	Requester r;
	/* One packet, answered after @trip. */
	const auto answer = [&](std::uint32_t at, std::uint64_t trip) {
		if (read)
			r.post_read(1);
		else
			r.post_packets(1);
		CHECK(r.send() == std::vector{at});
		r.now += trip;
		r.receive(read ? read_response(at) : ack(at));
		if (read)
			r.place();
	};
	const peal_window &w = r.get()->window;

	answer(0, MS);
	r.get()->window.waiting_from = 2;
	r.get()->window.size = 2;
	r.get()->window.threshold = 100;
	answer(1, 2 * MS + 1);
	CHECK(w.size == (read ? 2 : 3));
}

TEST_CASE("a missing response is noticed at any distance from the last one", "[parts]")
{
	Requester r;
	std::uint32_t at = 0;
	int kept;
	/* One response is missing. Return: how long the requester waits, in ns. */
	const auto lose_one = [&] {
		r.post_read(3);
		CHECK(r.send() == std::vector{at});
		r.now += MS;
		CHECK(r.receive(read_response(at)) == PEAL_RESPONSE_READ);
		r.place();
		CHECK(r.receive(read_response(at + 2), &kept) == PEAL_RESPONSE_KEPT);
		const std::uint64_t waited = r.deadline() - r.now;

		r.expire();
		CHECK(r.send() == std::vector{at + 1});
		r.now += MS;
		CHECK(r.receive(read_response(at + 1)) == PEAL_RESPONSE_READ);
		r.place();
		CHECK(peal_requester_take_reordered(r.get()) == &kept);
		CHECK(r.receive(read_response(at + 2)) == PEAL_RESPONSE_READ);
		r.place();
		CHECK(r.completed() == 1);
		at += 3;
		return waited;
	};

	CHECK(lose_one() < MS);
	/* More than half of all PSNs: the place of the last loss would now be ahead of una. */
	for (int i = 0; i < 0x900000 / 64; i++) {
		r.post_packets(64);
		for (const std::uint32_t end = at + 64; at != end;) {
			while (peal_requester_next(r.get(), r.now, 64, &r.out) == PEAL_BLOCKED_NONE)
				at += peal_packet_count(&r.out.header);
			REQUIRE(r.receive(ack(at - 1)) == PEAL_RESPONSE_TAKEN);
		}
		REQUIRE(r.completed() == 1);
	}
	CHECK(lose_one() < MS);
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
