// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * kernel/queue/sq.c: where the requester stands.
 *
 * Holds: WQEs are taken in order, malformed ones too; a producer index that
 * makes no sense is an error; retries and RNR retries are counted as IBTA
 * 9.7.5.2.8 and 9.7.6.1.3 want; packet sequence numbers have 24 bits; SQD
 * reports once that it has drained; a reset forgets what was posted.
 */
#include "../catch.hpp"
#include "work_queue.hpp"

using namespace peal::test;

namespace {

constexpr std::uint32_t DEPTH = 8;

struct Queue {
	PostedRing ring{DEPTH, 64};
	peal_wqe_limits limits = {2, 32, 0, false};
	peal_sq sq = {};
	peal_reason reason = PEAL_REASON_FLUSHED;

	/* Indices begin at `first`, as after a reset. */
	explicit Queue(std::uint32_t first = 0)
	{
		peal_sq_init(&sq, &ring.ctl(), ring.slots(), ring.entries, ring.stride, &limits);
		ring.ctl().producer = first;
		peal_sq_reset(&sq);
	}
	void post(unsigned opcode, std::uint32_t mark)
	{
		auto *wqe = reinterpret_cast<peal_send_wqe *>(ring.post());

		wqe->opcode = static_cast<__u8>(opcode);
		wqe->rkey = mark;
	}
	peal_sq_fetched fetch() { return peal_sq_fetch(&sq, &reason); }
	/* As if the one before had been completed. */
	peal_sq_fetched fetch_next()
	{
		peal_sq_finish(&sq, 0);
		return fetch();
	}
};

/* With one WQE under way. */
struct Busy : Queue {
	Busy(unsigned retry, unsigned rnr)
	{
		peal_sq_set_limits(&sq, static_cast<__u8>(retry), static_cast<__u8>(rnr));
		post(PEAL_OP_WRITE, 0);
		REQUIRE(fetch() == PEAL_SQ_FETCHED);
	}
	bool is_silent()
	{
		peal_sq_wait_answer(&sq, 1000, PEAL_REASON_PEER_UNKNOWN);
		return peal_sq_expire(&sq);
	}
	unsigned silent_tries()
	{
		unsigned tries = 0;

		while (tries < 100 && is_silent())
			++tries;
		return tries;
	}
	unsigned rnr_tries()
	{
		unsigned tries = 0;

		for (; tries < 100 && peal_sq_wait_receive(&sq, 1000); ++tries)
			peal_sq_expire(&sq);
		return tries;
	}
};

} // namespace

TEST_CASE("an empty send queue gives nothing", "[sq]")
{
	Queue queue;

	CHECK(queue.fetch() == PEAL_SQ_EMPTY);
	CHECK_FALSE(queue.sq.busy);
	CHECK(queue.sq.ring.next == 0);
}

TEST_CASE("WQEs are taken in the order they were posted", "[sq]")
{
	for (std::uint32_t first : {0U, 5U, 0x7ffffffcU, 0xfffffffcU}) {
		Queue queue(first);

		for (std::uint32_t i = 0; i < DEPTH; ++i)
			queue.post(PEAL_OP_WRITE, i);
		for (std::uint32_t i = 0; i < DEPTH; ++i) {
			CAPTURE(first, i);
			REQUIRE(queue.fetch_next() == PEAL_SQ_FETCHED);
			CHECK(queue.reason == PEAL_REASON_NONE);
			CHECK(queue.sq.wqe.index == first + i);
			CHECK(queue.sq.wqe.rkey == i);
			CHECK(queue.sq.busy);
			CHECK(queue.sq.done == 0);
		}
		CHECK(queue.fetch_next() == PEAL_SQ_EMPTY);
	}
}

TEST_CASE("many laps around the send ring and around 32 bits", "[sq]")
{
	Queue queue(0xffffff00);
	std::uint32_t posted = 0, taken = 0;
	Random random("laps");

	while (taken < 1000) {
		for (auto n = random.below(DEPTH - (posted - taken) + 1); n; --n)
			queue.post(PEAL_OP_WRITE, posted++);
		for (auto n = random.below(posted - taken + 1); n; --n) {
			REQUIRE(queue.fetch_next() == PEAL_SQ_FETCHED);
			REQUIRE(queue.sq.wqe.rkey == taken);
			REQUIRE(queue.sq.wqe.index == 0xffffff00 + taken);
			++taken;
		}
	}
}

TEST_CASE("only a SEND or WRITE is said to follow", "[sq]")
{
	for (unsigned opcode = 0; opcode < 256; ++opcode) {
		const bool leaves = opcode >= PEAL_OP_SEND && opcode <= PEAL_OP_WRITE_IMM;
		Queue queue;

		CAPTURE(opcode);
		queue.post(PEAL_OP_WRITE, 0);
		REQUIRE(queue.fetch() == PEAL_SQ_FETCHED);
		CHECK_FALSE(peal_sq_is_followed(&queue.sq));
		queue.post(opcode, 1);
		CHECK(peal_sq_is_followed(&queue.sq) == leaves);
		queue.ring.ctl().producer += DEPTH;
		CHECK_FALSE(peal_sq_is_followed(&queue.sq));
	}
}

TEST_CASE("a malformed WQE is taken, and the next one is the next", "[sq]")
{
	Queue queue(0xffffffff);

	queue.post(PEAL_OP_INVALID, 0);
	queue.post(PEAL_OP_WRITE, 1);
	REQUIRE(queue.fetch() == PEAL_SQ_MALFORMED);
	CHECK(queue.reason == PEAL_REASON_WQE_OPCODE);
	CHECK(queue.sq.wqe.index == 0xffffffff);
	CHECK(queue.sq.busy);
	REQUIRE(queue.fetch_next() == PEAL_SQ_FETCHED);
	CHECK(queue.sq.wqe.index == 0);
	CHECK(queue.sq.wqe.rkey == 1);
}

TEST_CASE("the queue's limits are the ones it was made with", "[sq]")
{
	Queue queue;

	reinterpret_cast<peal_send_wqe *>(queue.ring.slot(0))->num_sge = 3;
	reinterpret_cast<peal_send_wqe *>(queue.ring.slot(0))->opcode = PEAL_OP_SEND;
	queue.ring.ctl().producer = 1;
	CHECK(queue.fetch() == PEAL_SQ_MALFORMED);
	CHECK(queue.reason == PEAL_REASON_WQE_NUM_SGE);
}

TEST_CASE("a producer index more than the depth ahead is an error", "[sq]")
{
	for (std::uint32_t first : {0U, 100U, 0xfffffff8U, 0xfffffffcU, 0xffffffffU}) {
		for (std::uint32_t ahead :
		     {DEPTH + 1, DEPTH + 2, 0x7fffffffU, 0x80000000U, 0xfffffffeU, 0xffffffffU}) {
			Queue queue(first);

			queue.ring.ctl().producer = first + ahead;
			CAPTURE(first, ahead);
			REQUIRE(queue.fetch() == PEAL_SQ_MALFORMED);
			CHECK(queue.reason == PEAL_REASON_RING_INDEX);
			CHECK(queue.sq.wqe.index == first);
			CHECK(queue.sq.ring.next == first + 1);
			CHECK(queue.sq.busy);
		}
	}
}

TEST_CASE("a producer index exactly the depth ahead is none", "[sq]")
{
	for (std::uint32_t first : {0U, 0xfffffff8U, 0xfffffffcU, 0xffffffffU}) {
		Queue queue(first);

		for (std::uint32_t i = 0; i < DEPTH; ++i)
			queue.post(PEAL_OP_WRITE, i);
		CAPTURE(first);
		CHECK(queue.fetch() == PEAL_SQ_FETCHED);
	}
}

/* The CQE would name the operation of the WQE before. */
TEST_CASE("a producer index that makes no sense is not taken for the WQE before", "[sq]")
{
	Queue queue;

	queue.post(PEAL_OP_READ, 0);
	REQUIRE(queue.fetch() == PEAL_SQ_FETCHED);
	queue.ring.ctl().producer += 2 * DEPTH;
	REQUIRE(queue.fetch_next() == PEAL_SQ_MALFORMED);
	CHECK(queue.sq.wqe.opcode == PEAL_OP_INVALID);
}

TEST_CASE("the peer may be silent once and then as often as there are retries", "[sq]")
{
	for (unsigned retries = 0; retries <= 7; ++retries) {
		Busy queue(retries, 0);

		CAPTURE(retries);
		CHECK(queue.silent_tries() == retries);
		CHECK(queue.sq.wait == PEAL_SQ_RUNS);
	}
}

TEST_CASE("as many RNR answers are borne as there are RNR retries", "[sq]")
{
	for (unsigned retries = 0; retries <= 6; ++retries) {
		Busy queue(0, retries);

		CAPTURE(retries);
		CHECK(queue.rnr_tries() == retries);
		CHECK(queue.sq.wait == PEAL_SQ_RUNS);
	}
}

TEST_CASE("7 RNR retries are endless", "[sq]")
{
	Busy queue(0, 7);

	CHECK(queue.rnr_tries() == 100);
}

TEST_CASE("endless RNR waits grow to 8 ms, and begin anew with the next message", "[sq]")
{
	Busy queue(0, 7);
	const auto wait = [&](std::uint64_t ns) {
		REQUIRE(peal_sq_wait_receive(&queue.sq, ns));
		peal_sq_expire(&queue.sq);
		return queue.sq.until - shim_now;
	};

	shim_now = 5'000'000;
	for (std::int64_t expected = 10'000; expected < 8'000'000; expected *= 2)
		CHECK(wait(10'000) == expected);
	for (int i = 0; i < 100; ++i)
		CHECK(wait(10'000) == 8'000'000);
	CHECK(wait(655'360'000) == 655'360'000);
	queue.post(PEAL_OP_WRITE, 1);
	REQUIRE(queue.fetch_next() == PEAL_SQ_FETCHED);
	CHECK(wait(10'000) == 10'000);
}

TEST_CASE("the two kinds of retries do not use each other up", "[sq]")
{
	Busy queue(3, 2);

	CHECK(queue.rnr_tries() == 2);
	CHECK(queue.silent_tries() == 3);
}

TEST_CASE("progress gives all retries back", "[sq]")
{
	Busy queue(3, 2);

	CHECK(queue.rnr_tries() == 2);
	CHECK(queue.silent_tries() == 3);
	peal_sq_advance(&queue.sq, 100);
	peal_sq_advance(&queue.sq, 50);
	CHECK(queue.sq.done == 150);
	CHECK(queue.rnr_tries() == 2);
	CHECK(queue.silent_tries() == 3);
}

TEST_CASE("each WQE has all retries", "[sq]")
{
	Busy queue(3, 2);

	CHECK(queue.rnr_tries() == 2);
	CHECK(queue.silent_tries() == 3);
	queue.post(PEAL_OP_WRITE, 0);
	REQUIRE(queue.fetch_next() == PEAL_SQ_FETCHED);
	CHECK(queue.rnr_tries() == 2);
	CHECK(queue.silent_tries() == 3);
}

TEST_CASE("a wait has a kind, an end and a cause", "[sq]")
{
	Busy queue(1, 1);

	shim_now = 5'000'000;
	REQUIRE(peal_sq_wait_receive(&queue.sq, 640'000));
	CHECK(queue.sq.wait == PEAL_SQ_WAITS_RECEIVE);
	CHECK(queue.sq.until == 5'640'000);
	peal_sq_resume(&queue.sq);
	CHECK(queue.sq.wait == PEAL_SQ_RUNS);
	peal_sq_wait_answer(&queue.sq, 4096ULL << 31, PEAL_REASON_PEER_STATE);
	CHECK(queue.sq.wait == PEAL_SQ_WAITS_ANSWER);
	CHECK(queue.sq.until == 5'000'000 + (4096LL << 31));
	CHECK(queue.sq.why == PEAL_REASON_PEER_STATE);
}

TEST_CASE("a wait that is cut short costs no retry", "[sq]")
{
	Busy queue(1, 0);

	for (int i = 0; i < 10; ++i) {
		peal_sq_wait_answer(&queue.sq, 1000, PEAL_REASON_PEER_UNKNOWN);
		peal_sq_resume(&queue.sq);
	}
	CHECK(queue.silent_tries() == 1);
}

TEST_CASE("a message begins anew when the peer does not remember it", "[sq]")
{
	Busy queue(1, 1);

	peal_sq_advance(&queue.sq, 4096);
	CHECK(queue.silent_tries() == 1);
	peal_sq_restart(&queue.sq);
	CHECK(queue.sq.done == 0);
	CHECK(queue.sq.busy);
	CHECK_FALSE(queue.is_silent());
}

/* SQD allows the change. */
TEST_CASE("a change of the retry counts leaves a message under way where it is", "[sq]")
{
	Busy queue(1, 1);

	peal_sq_advance(&queue.sq, 4096);
	peal_sq_set_limits(&queue.sq, 2, 2);
	CHECK(queue.sq.done == 4096);
	CHECK(queue.silent_tries() == 2);
}

TEST_CASE("packet sequence numbers of sends have 24 bits", "[sq]")
{
	Busy queue(0, 0);

	peal_sq_set_psn(&queue.sq, 0xff123456);
	CHECK(queue.sq.psn == 0x123456);
	peal_sq_set_psn(&queue.sq, 0xffffff);
	peal_sq_finish(&queue.sq, 1);
	CHECK(queue.sq.psn == 0);
	peal_sq_set_psn(&queue.sq, 0xfffffe);
	peal_sq_finish(&queue.sq, 0x800000);
	CHECK(queue.sq.psn == 0x7ffffe);
	peal_sq_finish(&queue.sq, 0);
	CHECK(queue.sq.psn == 0x7ffffe);
	CHECK_FALSE(queue.sq.busy);
}

TEST_CASE("taking WQEs and resetting leave the packet sequence number alone", "[sq]")
{
	Queue queue;

	peal_sq_set_psn(&queue.sq, 77);
	queue.post(PEAL_OP_WRITE, 0);
	queue.fetch();
	CHECK(queue.sq.psn == 77);
	peal_sq_reset(&queue.sq);
	CHECK(queue.sq.psn == 77);
}

TEST_CASE("SQD reports once that the queue has drained", "[sq]")
{
	Queue queue;

	for (int time = 0; time < 3; ++time) {
		peal_sq_begin_drain(&queue.sq);
		CHECK(peal_sq_drain(&queue.sq));
		CHECK_FALSE(peal_sq_drain(&queue.sq));
		CHECK_FALSE(peal_sq_drain(&queue.sq));
	}
}

TEST_CASE("SQD waits for the WQE under way, not for those behind it", "[sq]")
{
	Busy queue(0, 0);

	queue.post(PEAL_OP_WRITE, 1);
	peal_sq_begin_drain(&queue.sq);
	CHECK_FALSE(peal_sq_drain(&queue.sq));
	CHECK_FALSE(peal_sq_drain(&queue.sq));
	peal_sq_finish(&queue.sq, 1);
	CHECK(peal_sq_drain(&queue.sq));
	CHECK_FALSE(peal_sq_drain(&queue.sq));
}

TEST_CASE("a reset forgets what was posted and what is under way", "[sq]")
{
	Busy queue(3, 3);

	for (std::uint32_t i = 0; i < 5; ++i)
		queue.post(PEAL_OP_WRITE, i);
	peal_sq_advance(&queue.sq, 10);
	peal_sq_wait_answer(&queue.sq, 1000, PEAL_REASON_PEER_STATE);
	peal_sq_reset(&queue.sq);
	CHECK_FALSE(queue.sq.busy);
	CHECK(queue.sq.wait == PEAL_SQ_RUNS);
	CHECK(queue.ring.ctl().consumer == 6);
	CHECK(queue.fetch() == PEAL_SQ_EMPTY);
	queue.post(PEAL_OP_WRITE, 99);
	REQUIRE(queue.fetch() == PEAL_SQ_FETCHED);
	CHECK(queue.sq.wqe.rkey == 99);
	CHECK(queue.sq.wqe.index == 6);
	CHECK(queue.sq.done == 0);
}

TEST_CASE("a reset makes sense of any producer index", "[sq]")
{
	for (std::uint32_t producer : {0U, 1U, DEPTH + 1, 0x80000000U, 0xffffffffU}) {
		Queue queue;

		queue.ring.ctl().producer = producer;
		peal_sq_reset(&queue.sq);
		CAPTURE(producer);
		CHECK(queue.fetch() == PEAL_SQ_EMPTY);
		CHECK(queue.ring.ctl().consumer == producer);
		queue.post(PEAL_OP_WRITE, 1);
		CHECK(queue.fetch() == PEAL_SQ_FETCHED);
	}
}

TEST_CASE("a reset lets SQD report again", "[sq]")
{
	Queue queue;

	CHECK(peal_sq_drain(&queue.sq));
	peal_sq_reset(&queue.sq);
	CHECK(peal_sq_drain(&queue.sq));
}
