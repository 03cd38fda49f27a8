// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The requester's parts alone: tables, estimate, window, PSN order.
 */
#include "requester.hpp"

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

/* Messages that were sent, the last one perhaps in part. peal_inflight_find() searches them. */
class Inflight {
public:
	explicit Inflight(Random &random) : random_(random), messages_(ENTRIES)
	{
		peal_inflight_init(&inflight_, messages_.data(), ENTRIES);
		peal_inflight_set_psn(&inflight_,
				      static_cast<u32>(random.below(PEAL_PSN_MASK + 1)));
		inflight_.head = inflight_.sending = inflight_.acking = inflight_.tail =
			static_cast<u32>(random.below(1ULL << 32));
		for (auto left = random.below(ENTRIES + 1); left; left--)
			post();
		send(random.below(packets_ + 1));
		acknowledge(random.below(peal_inflight_outstanding(&inflight_) + 1));
	}
	/* Searches one message after the other. */
	u32 search(u32 psn) const
	{
		for (u32 i = inflight_.acking; i != inflight_.sending; i++) {
			const auto *f = peal_inflight_at(&inflight_, i);
			if (peal_psn_ahead(f->psn, psn) < f->packets)
				return i;
		}
		return inflight_.sending;
	}
	const peal_inflight &inflight() const { return inflight_; }

private:
	void post()
	{
		peal_wr m{};

		m.opcode = random_.below(3) ? PEAL_OP_LOCAL_INV : PEAL_OP_WRITE;
		m.length = random_.below(20 * MTU);
		peal_inflight_post(&inflight_, &m, PEAL_RC, 8);
		packets_ += peal_inflight_at(&inflight_, inflight_.head - 1)->packets;
	}
	void send(std::uint64_t packets)
	{
		while (inflight_.sending != inflight_.head) {
			if (peal_inflight_at(&inflight_, inflight_.sending)->local)
				peal_inflight_local_begun(&inflight_);
			else if (packets--)
				peal_inflight_sent(&inflight_, 1);
			else
				return;
		}
	}
	void acknowledge(std::uint64_t packets)
	{
		peal_inflight_execute(&inflight_,
				      peal_psn_add(inflight_.una, static_cast<u32>(packets)));
		peal_inflight_follow(&inflight_);
	}

	Random &random_;
	std::vector<peal_message> messages_;
	peal_inflight inflight_{};
	std::uint64_t packets_ = 0;
};

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

TEST_CASE("a round trip that became ten times longer is learnt", "[parts]")
{
	Requester r;
	std::uint64_t again = 0;

	for (int i = 0; i < 50; ++i) {
		r.post_packets(1);
		const Psns sent = r.send();

		r.now += 1 * MS;
		r.receive(ack(sent.back()));
		r.completed();
	}
	for (int i = 0; i < 50; ++i) {
		r.post_packets(1);
		const std::uint32_t sent = r.send().back();
		const std::uint64_t answer = r.now + 10 * MS;

		again = 0;
		while (r.deadline() < answer) {
			r.expire();
			again += r.send().size();
		}
		CAPTURE(i, again, r->rto.srtt, r->rto.ns);
		r.now = answer;
		r.receive(ack(sent));
		r.completed();
	}
	CHECK(again == 0);
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

TEST_CASE("a PSN's message is found as one finds it by looking at each", "[parts]")
{
	Random random("inflight");
	unsigned looked = 0;

	for (int round = 0; round < 2000; ++round) {
		const Inflight sent(random);
		const peal_inflight &t = sent.inflight();
		for (u32 n = peal_inflight_outstanding(&t); n; --n, ++looked) {
			const u32 which = peal_psn_add(t.una, n - 1);
			REQUIRE(peal_inflight_find(&t, which) == sent.search(which));
		}
	}
	CHECK(looked > 10000);
}
