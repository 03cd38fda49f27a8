// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * kernel/object/wqe.c: the receive queue.
 *
 * Holds: Receives are taken in order, one at a time, even malformed ones. The program is asked to
 * kick exactly while a sender waits or the queue is in error. A reset forgets everything.
 */
#include "../catch.hpp"
#include "work_queue.hpp"

using namespace peal::test;

namespace {

constexpr std::uint32_t DEPTH = 4;

struct Queue {
	PostedRing ring{DEPTH, 64};
	peal_wqe_limits limits = {2, 0, 0, false, 0, false};
	peal_rq rq = {};
	peal_reason reason = PEAL_REASON_FLUSHED;

	explicit Queue(std::uint32_t first = 0)
	{
		peal_rq_init(&rq, &ring.ctl(), ring.slots(), ring.entries, ring.stride, &limits);
		ring.ctl().producer = first;
		peal_rq_reset(&rq);
	}
	/* A receive with one entry of `bytes`. */
	void post(std::uint32_t bytes, std::uint32_t reserved = 0)
	{
		std::uint8_t *slot = ring.post();

		reinterpret_cast<peal_recv_wqe *>(slot)->num_sge = 1;
		reinterpret_cast<peal_recv_wqe *>(slot)->reserved[2] = reserved;
		reinterpret_cast<peal_sge *>(slot + 16)->length = bytes;
	}
	peal_rq_taken take() { return peal_rq_take(&rq, &reason); }
	peal_rq_taken take_next()
	{
		peal_rq_done(&rq);
		return take();
	}
	bool wants_kick() const { return ring.ctl().flags == PEAL_RING_WANTS_KICK; }
};

} // namespace

TEST_CASE("an empty receive queue asks the program to kick", "[rq]")
{
	Queue queue;

	CHECK_FALSE(queue.wants_kick());
	CHECK(queue.take() == PEAL_RQ_EMPTY);
	CHECK(queue.reason == PEAL_REASON_NONE);
	CHECK(queue.wants_kick());
	CHECK_FALSE(queue.rq.holding);
	CHECK(queue.take() == PEAL_RQ_EMPTY);
	CHECK(queue.wants_kick());
}

TEST_CASE("a receive that was waited for ends the asking", "[rq]")
{
	Queue queue;

	queue.take();
	queue.post(10);
	CHECK(queue.take() == PEAL_RQ_TAKEN);
	CHECK_FALSE(queue.wants_kick());
	CHECK(queue.ring.ctl().flags == 0);
}

TEST_CASE("a receive that is there is taken without asking", "[rq]")
{
	Queue queue;

	queue.post(10);
	CHECK(queue.take() == PEAL_RQ_TAKEN);
	CHECK_FALSE(queue.wants_kick());
}

TEST_CASE("receives are taken in the order they were posted", "[rq]")
{
	for (std::uint32_t first : {0U, 3U, 0xfffffffeU}) {
		Queue queue(first);

		for (std::uint32_t i = 0; i < DEPTH; ++i)
			queue.post(i);
		for (std::uint32_t i = 0; i < DEPTH; ++i) {
			CAPTURE(first, i);
			REQUIRE(queue.take_next() == PEAL_RQ_TAKEN);
			CHECK(queue.rq.wqe.index == first + i);
			CHECK(queue.rq.wqe.length == i);
		}
		CHECK(queue.take_next() == PEAL_RQ_EMPTY);
	}
}

TEST_CASE("a receive that is held is taken again, and no other", "[rq]")
{
	Queue queue;

	queue.post(10);
	queue.post(20);
	for (int chunk = 0; chunk < 3; ++chunk) {
		REQUIRE(queue.take() == PEAL_RQ_TAKEN);
		CHECK(queue.reason == PEAL_REASON_NONE);
		CHECK(queue.rq.wqe.length == 10);
		CHECK(queue.rq.ring.next == 1);
	}
	REQUIRE(queue.take_next() == PEAL_RQ_TAKEN);
	CHECK(queue.rq.wqe.length == 20);
}

TEST_CASE("the consumer index shows receives that are done", "[rq]")
{
	Queue queue(0xffffffff);

	queue.post(10);
	queue.take();
	CHECK(queue.rq.holding);
	peal_rq_done(&queue.rq);
	CHECK_FALSE(queue.rq.holding);
	CHECK(queue.ring.ctl().consumer == 0);
}

TEST_CASE("a malformed receive is taken, and the next one is the next", "[rq]")
{
	Queue queue;

	queue.post(10, 1);
	queue.post(20);
	REQUIRE(queue.take() == PEAL_RQ_MALFORMED);
	CHECK(queue.reason == PEAL_REASON_RECV_WQE);
	CHECK(queue.rq.wqe.index == 0);
	CHECK(queue.rq.holding);
	REQUIRE(queue.take_next() == PEAL_RQ_TAKEN);
	CHECK(queue.rq.wqe.index == 1);
	CHECK(queue.rq.wqe.length == 20);
}

TEST_CASE("a malformed receive that is held stays malformed", "[rq]")
{
	Queue queue;

	queue.post(10, 1);
	queue.post(20);
	for (int attempt = 0; attempt < 3; ++attempt) {
		REQUIRE(queue.take() == PEAL_RQ_MALFORMED);
		CHECK(queue.reason == PEAL_REASON_RECV_WQE);
		CHECK(queue.rq.wqe.index == 0);
		CHECK(queue.rq.ring.next == 1);
	}
	CHECK(queue.take_next() == PEAL_RQ_TAKEN);
}

TEST_CASE("a malformed receive that was waited for ends the asking", "[rq]")
{
	Queue queue;

	queue.take();
	queue.post(10, 1);
	CHECK(queue.take() == PEAL_RQ_MALFORMED);
	CHECK_FALSE(queue.wants_kick());
}

TEST_CASE("a receive producer index more than the depth ahead is an error", "[rq]")
{
	for (std::uint32_t first : {0U, 0xfffffffcU, 0xffffffffU}) {
		for (std::uint32_t ahead : {DEPTH + 1, 0x80000000U, 0xffffffffU}) {
			Queue queue(first);

			queue.ring.ctl().producer = first + ahead;
			CAPTURE(first, ahead);
			REQUIRE(queue.take() == PEAL_RQ_MALFORMED);
			CHECK(queue.reason == PEAL_REASON_RECV_RING_INDEX);
			CHECK(queue.rq.wqe.index == first);
			CHECK(queue.rq.holding);
			CHECK(queue.rq.ring.next == first + 1);
		}
	}
}

TEST_CASE("a full receive ring is no error", "[rq]")
{
	Queue queue(0xfffffffe);

	for (std::uint32_t i = 0; i < DEPTH; ++i)
		queue.post(i);
	CHECK(queue.take() == PEAL_RQ_TAKEN);
}

TEST_CASE("a queue that refuses asks for kicks whatever is taken", "[rq]")
{
	Queue queue;

	peal_rq_refuse(&queue.rq);
	CHECK(queue.rq.refusing);
	CHECK(queue.wants_kick());
	queue.post(10);
	CHECK(queue.take() == PEAL_RQ_TAKEN);
	CHECK(queue.wants_kick());
	CHECK(queue.take_next() == PEAL_RQ_EMPTY);
	CHECK(queue.wants_kick());
}

TEST_CASE("the first arrival is the first once", "[rq]")
{
	Queue queue;

	CHECK(peal_rq_establish(&queue.rq));
	CHECK_FALSE(peal_rq_establish(&queue.rq));
	peal_rq_reset(&queue.rq);
	CHECK(peal_rq_establish(&queue.rq));
	CHECK_FALSE(peal_rq_establish(&queue.rq));
}

TEST_CASE("a reset forgets receives and everything that was under way", "[rq]")
{
	Queue queue;

	for (std::uint32_t i = 0; i < DEPTH; ++i)
		queue.post(i);
	queue.take();
	peal_rq_refuse(&queue.rq);
	peal_rq_reset(&queue.rq);
	CHECK_FALSE(queue.rq.holding);
	CHECK_FALSE(queue.rq.refusing);
	CHECK_FALSE(queue.wants_kick());
	CHECK(queue.ring.ctl().consumer == DEPTH);
	CHECK(queue.take() == PEAL_RQ_EMPTY);
	queue.post(99);
	REQUIRE(queue.take() == PEAL_RQ_TAKEN);
	CHECK(queue.rq.wqe.length == 99);
	CHECK_FALSE(queue.wants_kick());
}
