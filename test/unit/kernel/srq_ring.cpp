// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * kernel/object/wqe.c: the ring of a shared receive queue, and a receive queue that takes from it.
 *
 * Holds: WQEs are taken in the order of the ring, from any slot. The program is asked to kick
 * exactly while a queue pair waits. The queue pair that has waited longest comes first. The limit
 * is reached once. If a WQE is posted again, it is the next one, also after a resize. What the
 * program scribbles ends the queue, and never leads outside its memory.
 */
#include "../catch.hpp"
#include "work_queue.hpp"

using namespace peal::test;

namespace {

constexpr std::uint32_t DEPTH = 4;

struct Shared {
	PostedRing ring{DEPTH, 64};
	Exactly numbers_{DEPTH * sizeof(std::uint32_t), 16};
	peal_wqe_limits limits = {2, 0, 0, false, 0, false};
	peal_srq_ring srq = {};

	explicit Shared(std::uint32_t first = 0)
	{
		peal_srq_ring_init(&srq, &ring.ctl(), numbers(), ring.slots(), ring.entries,
				   ring.stride, &limits);
		srq.ring.next = ring.ctl().producer = first;
	}
	std::uint32_t *numbers() { return reinterpret_cast<std::uint32_t *>(numbers_.data()); }
	/* Posts slot `number` with one entry of `bytes`. */
	void post(std::uint32_t number, std::uint32_t bytes, std::uint32_t reserved = 0)
	{
		std::uint8_t *slot = ring.slot(number);

		std::memset(slot, 0, ring.stride);
		reinterpret_cast<peal_recv_wqe *>(slot)->num_sge = 1;
		reinterpret_cast<peal_recv_wqe *>(slot)->reserved[2] = reserved;
		reinterpret_cast<peal_sge *>(slot + 16)->length = bytes;
		post_number(number);
	}
	void post_number(std::uint32_t number)
	{
		numbers()[ring.ctl().producer++ & (DEPTH - 1)] = number;
	}
	bool wants_kick() const { return ring.ctl().flags == PEAL_RING_WANTS_KICK; }
	std::uint32_t due() { return peal_srq_ring_take_due(&srq); }
};

/* The receive queue of a queue pair that shares. */
struct Sharer {
	peal_rq rq = {};
	peal_wqe_limits limits = {};
	peal_reason reason = PEAL_REASON_FLUSHED;
	Exactly ctl_{sizeof(peal_ring_ctl), PEAL_CACHE_LINE}, slot_{64, 64};

	explicit Sharer(Shared &shared)
	{
		peal_rq_init(&rq, ctl_.data(), slot_.data(), 1, 64, &limits);
		peal_rq_share(&rq, &shared.srq);
		peal_rq_reset(&rq);
	}
	peal_rq_taken take() { return peal_rq_take(&rq, &reason); }
	peal_rq_taken take_next()
	{
		peal_rq_done(&rq);
		return take();
	}
	bool waits() const { return !list_empty(&rq.waiter); }
};

} // namespace

TEST_CASE("shared receives are taken in the order of the ring, whatever their slots", "[srq]")
{
	for (std::uint32_t first : {0U, 3U, 0xfffffffeU}) {
		Shared shared(first);
		Sharer a(shared), b(shared);
		const std::uint32_t order[] = {2, 0, 3, 1};

		for (std::uint32_t number : order)
			shared.post(number, 10 + number);
		for (std::uint32_t i = 0; i < DEPTH; ++i) {
			Sharer &sharer = i & 1 ? b : a;

			CAPTURE(first, i);
			REQUIRE(sharer.take_next() == PEAL_RQ_TAKEN);
			CHECK(sharer.reason == PEAL_REASON_NONE);
			CHECK(sharer.rq.wqe.index == order[i]);
			CHECK(sharer.rq.wqe.length == 10 + order[i]);
			CHECK(shared.ring.ctl().consumer == first + i + 1);
		}
		CHECK(a.take_next() == PEAL_RQ_EMPTY);
	}
}

TEST_CASE("a queue pair holds its shared receive until that is done", "[srq]")
{
	Shared shared;
	Sharer a(shared), b(shared);

	shared.post(0, 10);
	shared.post(1, 20);
	for (int chunk = 0; chunk < 3; ++chunk) {
		REQUIRE(a.take() == PEAL_RQ_TAKEN);
		CHECK(a.rq.wqe.length == 10);
	}
	REQUIRE(b.take() == PEAL_RQ_TAKEN);
	CHECK(b.rq.wqe.length == 20);
}

TEST_CASE("WANTS_KICK is set exactly while a sender waits", "[srq]")
{
	Shared shared;
	Sharer a(shared), b(shared);

	CHECK_FALSE(shared.wants_kick());
	CHECK(a.take() == PEAL_RQ_EMPTY);
	CHECK(a.waits());
	CHECK(shared.wants_kick());
	CHECK(b.take() == PEAL_RQ_EMPTY);
	shared.post(0, 10);
	CHECK(b.take() == PEAL_RQ_TAKEN);
	CHECK_FALSE(b.waits());
	CHECK(shared.wants_kick());
	shared.post(1, 10);
	CHECK(a.take() == PEAL_RQ_TAKEN);
	CHECK_FALSE(a.waits());
	CHECK_FALSE(shared.wants_kick());
}

TEST_CASE("a sender that retries by its timer asks for no kick", "[srq]")
{
	Shared shared;
	Sharer a(shared), b(shared);

	peal_rq_set_no_kicks(&a.rq, true);
	CHECK(a.take() == PEAL_RQ_EMPTY);
	CHECK_FALSE(a.waits());
	CHECK_FALSE(shared.wants_kick());
	CHECK(b.take() == PEAL_RQ_EMPTY);
	peal_rq_set_no_kicks(&b.rq, true);
	CHECK_FALSE(b.waits());
	CHECK_FALSE(shared.wants_kick());
}

TEST_CASE("the longest wait is ended first, and only if there is a receive", "[srq]")
{
	Shared shared;
	Sharer a(shared), b(shared), c(shared);

	for (Sharer *sharer : {&b, &a, &c, &b, &a})
		CHECK(sharer->take() == PEAL_RQ_EMPTY);
	CHECK(peal_srq_ring_next_waiter(&shared.srq) == nullptr);
	shared.post(0, 10);
	CHECK(peal_srq_ring_next_waiter(&shared.srq) == &b.rq.waiter);
	CHECK_FALSE(b.waits());
	CHECK(peal_srq_ring_next_waiter(&shared.srq) == &a.rq.waiter);
	CHECK(shared.wants_kick());
	CHECK(peal_srq_ring_next_waiter(&shared.srq) == &c.rq.waiter);
	CHECK_FALSE(shared.wants_kick());
	CHECK(peal_srq_ring_next_waiter(&shared.srq) == nullptr);
}

TEST_CASE("an error or a reset ends a wait for shared receives", "[srq]")
{
	Shared shared;
	Sharer a(shared), b(shared);

	a.take();
	b.take();
	peal_rq_refuse(&a.rq);
	CHECK_FALSE(a.waits());
	CHECK(shared.wants_kick());
	peal_rq_reset(&b.rq);
	CHECK_FALSE(b.waits());
	CHECK_FALSE(shared.wants_kick());
}

TEST_CASE("an error flushes only the shared receive that is held", "[srq]")
{
	Shared shared;
	Sharer a(shared);

	shared.post(0, 10);
	shared.post(1, 20);
	a.take();
	peal_rq_refuse(&a.rq);
	CHECK(peal_rq_take_flushed(&a.rq));
	peal_rq_done(&a.rq);
	CHECK_FALSE(peal_rq_take_flushed(&a.rq));
	CHECK(shared.srq.ring.next == 1);
}

TEST_CASE("the last receive is reached once until a reset", "[srq]")
{
	Shared shared;
	Sharer a(shared);

	CHECK(peal_rq_is_last(&a.rq));
	CHECK_FALSE(peal_rq_is_last(&a.rq));
	peal_rq_reset(&a.rq);
	CHECK(peal_rq_is_last(&a.rq));
}

TEST_CASE("a limit is reached once, when fewer receives are left", "[srq]")
{
	Shared shared;
	Sharer a(shared);

	for (std::uint32_t i = 0; i < DEPTH; ++i)
		shared.post(i, 10);
	peal_srq_ring_arm(&shared.srq, 3);
	CHECK(shared.due() == 0);
	a.take_next();
	CHECK(shared.due() == 0); /* three are left */
	CHECK(peal_srq_ring_limit(&shared.srq) == 3);
	a.take_next();
	CHECK(shared.due() == PEAL_SRQ_DUE_LIMIT);
	CHECK(peal_srq_ring_limit(&shared.srq) == 0);
	a.take_next();
	CHECK(shared.due() == 0);
}

TEST_CASE("a limit that is reached already is due at once", "[srq]")
{
	Shared shared;

	shared.post(0, 10);
	peal_srq_ring_arm(&shared.srq, 1);
	CHECK(shared.due() == 0);
	peal_srq_ring_arm(&shared.srq, 0);
	CHECK(shared.due() == 0);
	peal_srq_ring_arm(&shared.srq, 2);
	CHECK(shared.due() == PEAL_SRQ_DUE_LIMIT);
}

TEST_CASE("a malformed shared receive is taken, and the queue goes on", "[srq]")
{
	Shared shared;
	Sharer a(shared), b(shared);

	shared.post(3, 10, 1);
	shared.post(1, 20);
	REQUIRE(a.take() == PEAL_RQ_MALFORMED);
	CHECK(a.reason == PEAL_REASON_RECV_WQE);
	CHECK(a.rq.wqe.index == 3);
	CHECK(a.rq.holding);
	CHECK(shared.due() == 0);
	CHECK(b.take() == PEAL_RQ_TAKEN);
}

TEST_CASE("a producer more than the depth ahead ends a shared receive queue", "[srq]")
{
	for (std::uint32_t ahead : {DEPTH + 1, 0x80000000U, 0xffffffffU}) {
		Shared shared;
		Sharer a(shared), b(shared);

		CAPTURE(ahead);
		shared.ring.ctl().producer = ahead;
		REQUIRE(a.take() == PEAL_RQ_MALFORMED);
		CHECK(a.reason == PEAL_REASON_SRQ_RING);
		CHECK_FALSE(a.rq.holding);
		CHECK(shared.due() == PEAL_SRQ_DUE_ERROR);
		shared.ring.ctl().producer = 0; /* too late */
		CHECK(b.take() == PEAL_RQ_MALFORMED);
		CHECK(b.reason == PEAL_REASON_SRQ_RING);
		CHECK(shared.due() == 0);
	}
}

TEST_CASE("a number that is no slot's ends a shared receive queue", "[srq]")
{
	for (std::uint32_t number : {DEPTH, 0x10000U, 0xffffffffU}) {
		Shared shared;
		Sharer a(shared);

		CAPTURE(number);
		shared.post_number(number);
		REQUIRE(a.take() == PEAL_RQ_MALFORMED);
		CHECK(a.reason == PEAL_REASON_SRQ_RING);
		CHECK_FALSE(a.rq.holding);
		CHECK(shared.due() == PEAL_SRQ_DUE_ERROR);
		CHECK_FALSE(peal_rq_take_flushed(&a.rq));
	}
}

TEST_CASE("waiters learn that the queue is in error", "[srq]")
{
	Shared shared;
	Sharer a(shared);

	a.take();
	shared.ring.ctl().producer = DEPTH + 1;
	CHECK(peal_srq_ring_next_waiter(&shared.srq) == &a.rq.waiter);
	CHECK(shared.due() == PEAL_SRQ_DUE_ERROR);
	CHECK(a.take() == PEAL_RQ_MALFORMED);
}

TEST_CASE("a slot that is posted twice is taken twice", "[srq]")
{
	Shared shared;
	Sharer a(shared), b(shared);

	shared.post(1, 10);
	shared.post_number(1);
	CHECK(a.take() == PEAL_RQ_TAKEN);
	CHECK(b.take() == PEAL_RQ_TAKEN);
	CHECK(b.rq.wqe.index == 1);
}

TEST_CASE("a receive that is posted again is the next one, with its contents", "[srq]")
{
	for (std::uint32_t first : {0U, 3U, 0xfffffffeU}) {
		Shared shared(first);
		Sharer a(shared), b(shared);
		const std::uint32_t order[] = {2, 0, 3, 1};

		CAPTURE(first);
		for (std::uint32_t number : order)
			shared.post(number, 10 + number);
		a.take();
		b.take();
		shared.ring.slot(2)[0] = 99; /* number of entries */
		CHECK_FALSE(peal_rq_repost(&a.rq));
		CHECK_FALSE(a.rq.holding);
		CHECK(shared.ring.ctl().consumer == first + 1);
		for (std::uint32_t number : {2U, 3U, 1U}) {
			REQUIRE(a.take_next() == PEAL_RQ_TAKEN);
			CHECK(a.rq.wqe.index == number);
			CHECK(a.rq.wqe.length == 10 + number);
		}
		CHECK(a.take_next() == PEAL_RQ_EMPTY);
		CHECK(b.rq.wqe.index == 0);
	}
}

TEST_CASE("all receives of a shared ring can be posted again", "[srq]")
{
	Shared shared;
	Sharer sharers[] = {Sharer(shared), Sharer(shared), Sharer(shared), Sharer(shared)};
	std::uint32_t seen = 0;

	for (std::uint32_t i = 0; i < DEPTH; ++i)
		shared.post(i, 10 + i);
	for (Sharer &sharer : sharers)
		REQUIRE(sharer.take() == PEAL_RQ_TAKEN);
	for (unsigned i : {2U, 0U, 1U, 3U})
		peal_rq_repost(&sharers[i].rq);
	CHECK(shared.ring.ctl().consumer == 0);
	for (std::uint32_t i = 0; i < DEPTH; ++i) {
		REQUIRE(sharers[0].take_next() == PEAL_RQ_TAKEN);
		CHECK(sharers[0].rq.wqe.length == 10 + sharers[0].rq.wqe.index);
		seen |= 1U << sharers[0].rq.wqe.index;
	}
	CHECK(seen == 15);
	CHECK(sharers[0].take_next() == PEAL_RQ_EMPTY);
	CHECK(shared.due() == 0);
}

TEST_CASE("receive queues that wait learn of a receive that is posted again", "[srq]")
{
	Shared shared;
	Sharer a(shared), b(shared);

	shared.post(1, 10);
	a.take();
	CHECK(b.take() == PEAL_RQ_EMPTY);
	CHECK(peal_rq_repost(&a.rq));
	CHECK(peal_srq_ring_next_waiter(&shared.srq) == &b.rq.waiter);
	CHECK(b.take() == PEAL_RQ_TAKEN);
	CHECK(b.rq.wqe.index == 1);
}

TEST_CASE("a receive that is posted again into a ring full of others ends the queue", "[srq]")
{
	Shared shared;
	Sharer a(shared), b(shared);

	shared.post(0, 10);
	a.take();
	for (std::uint32_t i = 0; i < DEPTH; ++i)
		shared.post(i, 10); /* slot 0 is in use */
	peal_rq_repost(&a.rq);
	CHECK(b.take() == PEAL_RQ_MALFORMED);
	CHECK(b.reason == PEAL_REASON_SRQ_RING);
	CHECK(shared.due() == PEAL_SRQ_DUE_ERROR);
	/* Nothing is posted to a queue in error. */
	const auto next = shared.srq.ring.next;
	b.rq.wqe.index = 0;
	CHECK_FALSE(peal_rq_repost(&b.rq));
	CHECK(shared.srq.ring.next == next);
}

TEST_CASE("a receive that was taken from a ring of another size is posted again", "[srq]")
{
	for (std::uint32_t entries : {2U, 8U}) {
		Shared shared;
		Sharer a(shared), b(shared), c(shared);
		Exactly numbers{entries * sizeof(std::uint32_t), 8};
		Exactly slots{std::size_t{entries} * shared.ring.stride, 64};
		std::uint32_t taken;

		CAPTURE(entries);
		std::memset(slots.data(), 0, std::size_t{entries} * shared.ring.stride);
		shared.post(3, 13);
		shared.post(1, 11);
		a.take();
		b.take();
		peal_srq_ring_prepare(&shared.srq);
		REQUIRE(peal_srq_ring_replace(&shared.srq,
					      reinterpret_cast<std::uint32_t *>(numbers.data()),
					      slots.data(), entries, &taken) == 0);
		CHECK(taken == 2);
		peal_rq_repost(&b.rq);
		peal_rq_repost(&a.rq);
		if (entries > 3) {
			REQUIRE(c.take() == PEAL_RQ_TAKEN);
			CHECK(c.rq.wqe.index == 3);
			CHECK(c.rq.wqe.length == 13);
		}
		REQUIRE(c.take_next() == PEAL_RQ_TAKEN);
		CHECK(c.rq.wqe.index == 1);
		CHECK(c.rq.wqe.length == 11);
		CHECK(c.take_next() == PEAL_RQ_EMPTY);
	}
}

TEST_CASE("a receive that is posted again during a resize makes it begin again", "[srq]")
{
	Shared shared;
	Sharer a(shared);
	std::uint32_t taken;
	const auto replace = [&] {
		return peal_srq_ring_replace(&shared.srq, shared.numbers(), shared.ring.slots(),
					     DEPTH, &taken);
	};

	shared.post(1, 10);
	a.take();
	peal_rq_repost(&a.rq);
	peal_srq_ring_prepare(&shared.srq);
	CHECK(replace() == 0);
	CHECK(taken == 0);
	peal_srq_ring_prepare(&shared.srq);
	a.take();
	peal_rq_repost(&a.rq);
	CHECK(replace() == -EAGAIN);
	CHECK(replace() == -EAGAIN);
	peal_srq_ring_prepare(&shared.srq);
	CHECK(replace() == 0);
}

TEST_CASE("the number of a slot is read once", "[srq]")
{
	static std::uint32_t *number;
	Shared shared;
	Sharer a(shared);

	shared.post(1, 10);
	number = shared.numbers();
	shim_after_read = [](const volatile void *word) {
		if (word == number)
			*number = 0xffffffff;
	};
	CHECK(a.take() == PEAL_RQ_TAKEN);
	shim_after_read = nullptr;
	CHECK(a.rq.wqe.index == 1);
	CHECK(*number == 0xffffffff);
}
