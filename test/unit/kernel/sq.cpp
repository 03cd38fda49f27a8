// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * kernel/object/wqe.c: the send queue.
 *
 * Holds: WQEs are taken in order, even malformed ones. An impossible producer index is an error.
 * SQD reports once that the queue is drained. A reset forgets what was posted.
 * peal_sq_peek() accepts exactly the plain WQEs, and reads each of them as peal_sq_fetch() does.
 */
#include "../catch.hpp"
#include "work_queue.hpp"
#include "wqe.hpp"

using namespace peal::test;

namespace {

constexpr std::uint32_t DEPTH = 8;

struct Queue {
	PostedRing ring{DEPTH, 64};
	peal_wqe_limits limits = {2, 32, 0, false, 0, false};
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
	/* Fetches the next WQE as if the one before it had been completed. */
	peal_sq_fetched fetch_next()
	{
		peal_sq_finish(&sq);
		return fetch();
	}
};

/* A queue with one WQE in progress. */
struct Busy : Queue {
	Busy()
	{
		post(PEAL_OP_WRITE, 0);
		REQUIRE(fetch() == PEAL_SQ_FETCHED);
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
		CHECK(peal_sq_next(&queue.sq) == PEAL_SQ_NOTHING);
		queue.post(opcode, 1);
		CHECK(peal_sq_next(&queue.sq) == (leaves ? PEAL_SQ_MESSAGE : PEAL_SQ_OTHER));
		queue.ring.ctl().producer += DEPTH;
		CHECK(peal_sq_next(&queue.sq) == PEAL_SQ_OTHER);
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

/* Otherwise the CQE would name the operation of the WQE before. */
TEST_CASE("a producer index that makes no sense is not taken for the WQE before", "[sq]")
{
	Queue queue;

	queue.post(PEAL_OP_READ, 0);
	REQUIRE(queue.fetch() == PEAL_SQ_FETCHED);
	queue.ring.ctl().producer += 2 * DEPTH;
	REQUIRE(queue.fetch_next() == PEAL_SQ_MALFORMED);
	CHECK(queue.sq.wqe.opcode == PEAL_OP_INVALID);
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
	Busy queue;

	queue.post(PEAL_OP_WRITE, 1);
	peal_sq_begin_drain(&queue.sq);
	CHECK_FALSE(peal_sq_drain(&queue.sq));
	CHECK_FALSE(peal_sq_drain(&queue.sq));
	peal_sq_finish(&queue.sq);
	CHECK(peal_sq_drain(&queue.sq));
	CHECK_FALSE(peal_sq_drain(&queue.sq));
}

TEST_CASE("a reset forgets what was posted and what is under way", "[sq]")
{
	Busy queue;

	for (std::uint32_t i = 0; i < 5; ++i)
		queue.post(PEAL_OP_WRITE, i);
	peal_sq_reset(&queue.sq);
	CHECK_FALSE(queue.sq.busy);
	CHECK(queue.ring.ctl().consumer == 6);
	CHECK(queue.fetch() == PEAL_SQ_EMPTY);
	queue.post(PEAL_OP_WRITE, 99);
	REQUIRE(queue.fetch() == PEAL_SQ_FETCHED);
	CHECK(queue.sq.wqe.rkey == 99);
	CHECK(queue.sq.wqe.index == 6);
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

TEST_CASE("a look at the next WQE finds the plain ones", "[sq]")
{
	constexpr std::uint32_t wanted = 1U << PEAL_OP_SEND | 1U << PEAL_OP_SEND_IMM |
					 1U << PEAL_OP_WRITE | 1U << PEAL_OP_READ |
					 1U << PEAL_OP_CMP_SWAP | 1U << PEAL_OP_FETCH_ADD;
	Random random("plain WQEs");
	unsigned plain = 0;

	for (int round = 0; round < 100'000 / SLOWER; ++round) {
		const SendCaps caps = random_caps(random);
		const peal_wqe_limits limits = caps.limits();
		PostedRing ring{4, caps.stride()};
		peal_sq sq = {};
		peal_reason reason = PEAL_REASON_NONE;

		peal_sq_init(&sq, &ring.ctl(), ring.slots(), ring.entries, ring.stride, &limits);
		const SendView view{ring.post()};
		scramble(random, view, caps);
		const peal_send_wqe &header = view.header();
		/* XRC, whose requests name a shared receive queue. */
		if (random.one_in(2)) {
			sq.limits.max_target = 1000;
			view.header().srqn = static_cast<__u32>(random.below(1010));
		}
		if (random.one_in(2) && !(header.flags & PEAL_WQE_INLINE))
			view.header().num_sge = 1;
		const struct peal_op *op = peal_sq_peek(&sq, wanted);
		const peal_wqe seen = sq.wqe;
		const peal_sge entry = sq.sge[0];
		const bool good = peal_sq_fetch(&sq, &reason) == PEAL_SQ_FETCHED;
		const bool is_plain = wanted >> (header.opcode & 31) & 1 &&
				      header.opcode < PEAL_OP_COUNT &&
				      (header.flags & PEAL_WQE_INLINE || header.num_sge == 1);

		CAPTURE(round, random.seed, header.opcode, header.flags, header.num_sge);
		if (good && is_plain)
			REQUIRE(op);
		if (!op)
			continue;
		/* The caller checks the length. */
		const bool length_is_good =
			op->atomic ? seen.length == 8 : seen.length <= PEAL_MAX_MSG;
		REQUIRE(good == length_is_good);
		REQUIRE(op == peal_op(header.opcode));
		REQUIRE(seen.index == sq.wqe.index);
		REQUIRE(seen.opcode == sq.wqe.opcode);
		REQUIRE(seen.flags == sq.wqe.flags);
		REQUIRE(seen.num_sge == sq.wqe.num_sge);
		REQUIRE(seen.imm_or_rkey == sq.wqe.imm_or_rkey);
		REQUIRE(seen.rkey == sq.wqe.rkey);
		REQUIRE(seen.remote_addr == sq.wqe.remote_addr);
		REQUIRE(seen.srqn == sq.wqe.srqn);
		REQUIRE(seen.length == sq.wqe.length);
		REQUIRE(seen.inline_data == sq.wqe.inline_data);
		if (op->atomic)
			REQUIRE(!std::memcmp(&seen.atomic, &sq.wqe.atomic, sizeof(seen.atomic)));
		if (!seen.inline_data)
			REQUIRE(!std::memcmp(&entry, &sq.sge[0], sizeof(entry)));
		++plain;
	}
	CHECK(plain > 10'000 / SLOWER);
}
