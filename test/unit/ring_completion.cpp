// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Completion ring: phases, laps, overflow and arming, tested with kernel/object/wqe.h. */
#include <atomic>
#include <thread>
#include <vector>

#include "catch.hpp"
#include "shared_memory.hpp"

using namespace peal;
using namespace peal::test;

namespace {

peal_cqe cqe_of(std::uint32_t index)
{
	peal_cqe cqe{};

	cqe.wqe_index = index;
	cqe.imm_or_rkey = ~index;
	return cqe;
}

bool poll(CqPair &cq, std::uint32_t expected)
{
	const peal_cqe *cqe = cq.user.peek();

	if (!cqe || cqe->wqe_index != expected || cqe->imm_or_rkey != ~expected)
		return false;
	cq.user.advance();
	cq.user.publish();
	return true;
}

} // namespace

TEST_CASE("nothing is valid in fresh memory")
{
	CqPair cq(GENERATE(1U, 2U, 64U));

	CHECK_FALSE(cq.user.peek());
}

TEST_CASE("CQEs come out once and in order over many laps")
{
	const std::uint32_t entries = GENERATE(1U, 2U, 4U, 32U);
	CqPair cq(entries);
	std::uint32_t pushed = 0, polled = 0;

	/* Bursts of every length up to the ring's, so that laps end at every place. */
	for (std::uint32_t burst = 1; polled < 1000; burst = burst % entries + 1) {
		for (std::uint32_t i = 0; i < burst; ++i) {
			const peal_cqe cqe = cqe_of(pushed++);

			REQUIRE_FALSE(kernel_cq_full(cq.kernel.get()));
			kernel_cq_push(cq.kernel.get(), &cqe);
		}
		while (polled < pushed)
			REQUIRE(poll(cq, polled++));
		REQUIRE_FALSE(cq.user.peek());
	}
}

TEST_CASE("CQEs are taken all together or not at all")
{
	const std::uint32_t entries = GENERATE(1U, 4U, 32U);
	CqPair cq(entries);
	std::uint32_t pushed = 0, taken = 0;

	for (std::uint32_t burst = 1; taken < 1000; burst = burst % entries + 1) {
		const auto take = [&](std::uint32_t count, std::uint32_t refused) {
			return cq.user.take(count, [&](const peal_cqe &cqe, std::size_t i) {
				CHECK(cqe.wqe_index == taken + i);
				return i != refused;
			});
		};

		for (std::uint32_t i = 0; i < burst; ++i) {
			const peal_cqe cqe = cqe_of(pushed++);

			kernel_cq_push(cq.kernel.get(), &cqe);
			/* The rest has not come yet, also where the ring has it from the last lap.
			 */
			REQUIRE_FALSE(take(i + 2, UINT32_MAX));
			REQUIRE_FALSE(take(i + 1, i));
		}
		REQUIRE(load_relaxed(cq.ctl().consumer) == taken);
		const std::uint32_t first = burst / 2;
		REQUIRE(take(first, UINT32_MAX));
		taken += first;
		REQUIRE(load_relaxed(cq.ctl().consumer) == taken);
		/* The other functions go on at the same place. */
		while (taken < pushed)
			REQUIRE(poll(cq, taken++));
		REQUIRE(load_relaxed(cq.ctl().consumer) == taken);
		REQUIRE_FALSE(take(1, UINT32_MAX));
	}
}

TEST_CASE("the kernel does not overwrite what was not given back")
{
	CqPair cq(2);
	const peal_cqe cqe = cqe_of(0);

	kernel_cq_push(cq.kernel.get(), &cqe);
	kernel_cq_push(cq.kernel.get(), &cqe);
	REQUIRE(kernel_cq_full(cq.kernel.get()));
	cq.user.advance();
	REQUIRE(kernel_cq_full(cq.kernel.get())); /* read, not published */
	cq.user.publish();
	REQUIRE_FALSE(kernel_cq_full(cq.kernel.get()));
}

TEST_CASE("a resized ring goes on with the same CQEs")
{
	const std::uint32_t from = GENERATE(1U, 4U, 16U), to = GENERATE(1U, 2U, 8U, 64U);
	const std::uint32_t unread = GENERATE(0U, 1U, 2U, 7U);

	if (unread > from || unread > to)
		return;
	/* The resize comes at every place of a lap of both rings. */
	for (std::uint32_t place = 0; place < 2 * from + 2 * to; ++place) {
		CqPair cq(from);
		std::vector<peal_cqe> larger(to);
		std::uint32_t pushed = 0, polled = 0;
		const auto push = [&] {
			const peal_cqe cqe = cqe_of(pushed++);

			REQUIRE_FALSE(kernel_cq_full(cq.kernel.get()));
			kernel_cq_push(cq.kernel.get(), &cqe);
		};

		while (pushed < place) {
			push();
			REQUIRE(poll(cq, polled++));
		}
		for (std::uint32_t i = 0; i < unread; ++i)
			push();
		kernel_cq_resize(cq.kernel.get(), larger.data(), to);
		cq.user.resize(reinterpret_cast<std::byte *>(larger.data()), to);
		while (polled < pushed)
			REQUIRE(poll(cq, polled++));
		REQUIRE_FALSE(cq.user.peek());
		for (std::uint32_t i = 0; i < 3 * to; ++i) {
			push();
			REQUIRE(poll(cq, polled++));
			REQUIRE_FALSE(cq.user.peek());
		}
	}
}

namespace {

/* Which of the CQEs in the ring are stale, by index. */
struct Pattern {
	const char *name;
	bool (*is_stale)(std::uint32_t index);
};

constexpr Pattern patterns[] = {
	{"none", [](std::uint32_t) { return false; }},
	{"all", [](std::uint32_t) { return true; }},
	{"every other", [](std::uint32_t i) { return i % 2 == 0; }},
	{"all but every fifth", [](std::uint32_t i) { return i % 5 != 0; }},
	{"runs of three", [](std::uint32_t i) { return i / 3 % 2 == 0; }},
};

/*
 * Pushes `in_ring` CQEs from `first` on, and drops the stale ones. The others are polled in order.
 */
bool drop_and_poll(CqPair &cq, const Pattern &pattern, std::uint32_t first, std::uint32_t in_ring)
{
	for (std::uint32_t i = first; i < first + in_ring; ++i) {
		const peal_cqe cqe = cqe_of(i);

		kernel_cq_push(cq.kernel.get(), &cqe);
	}
	cq.user.drop([&](const peal_cqe &cqe) { return pattern.is_stale(cqe.wqe_index); });
	for (std::uint32_t i = first; i < first + in_ring; ++i)
		if (!pattern.is_stale(i) && !poll(cq, i))
			return false;
	return !cq.user.peek();
}

} // namespace

TEST_CASE("stale CQEs are taken out from among others, over many laps")
{
	const std::uint32_t entries = GENERATE(1U, 2U, 4U, 16U);
	const Pattern &pattern = patterns[GENERATE(range(0, 5))];
	CqPair cq(entries);
	std::uint32_t first = 0;

	INFO(entries << " entries, stale: " << pattern.name);
	/* From an empty ring to a full one, so that the walk wraps at every place. */
	for (std::uint32_t in_ring = 0; first < 500; in_ring = (in_ring + 1) % (entries + 1)) {
		REQUIRE(drop_and_poll(cq, pattern, first, in_ring));
		first += in_ring;
	}
}

TEST_CASE("stale CQEs behind a live one leave their room to the kernel")
{
	constexpr std::uint32_t entries = 8, rounds = 100;
	CqPair cq(entries);
	const auto fill = [&](std::uint32_t index) {
		std::uint32_t pushed = 0;

		for (; !kernel_cq_full(cq.kernel.get()); ++pushed) {
			const peal_cqe cqe = cqe_of(index);

			kernel_cq_push(cq.kernel.get(), &cqe);
		}
		return pushed;
	};
	peal_cqe live = cqe_of(7);

	live.flags = PEAL_CQE_SOLICITED | PEAL_CQE_GRH;
	kernel_cq_push(cq.kernel.get(), &live);
	for (std::uint32_t round = 0; round < rounds; ++round) {
		REQUIRE(fill(99) == entries - 1);
		cq.user.drop([](const peal_cqe &cqe) { return cqe.wqe_index == 99; });
		const peal_cqe *oldest = cq.user.peek();
		REQUIRE(oldest);
		CHECK((oldest->flags & ~PEAL_CQE_PHASE) == live.flags);
	}
	CHECK(poll(cq, 7));
	CHECK_FALSE(cq.user.peek());
}

TEST_CASE("each arming is due once, and an arm value is never zero")
{
	CqPair cq(2);

	CHECK(kernel_cq_fire(cq.kernel.get()) == 0);
	cq.user.arm(PEAL_CQ_ARM_NEXT);
	const std::uint32_t first = kernel_cq_fire(cq.kernel.get());
	CHECK((first & PEAL_CQ_ARM_NEXT));
	CHECK(kernel_cq_fire(cq.kernel.get()) == 0);
	cq.user.arm(PEAL_CQ_ARM_NEXT);
	CHECK(kernel_cq_fire(cq.kernel.get()) != 0);
	store_release(cq.ctl().arm, ~0U ^ PEAL_CQ_ARM_NEXT); /* the counter wraps */
	cq.user.arm(PEAL_CQ_ARM_SOLICITED);
	CHECK(kernel_cq_fire(cq.kernel.get()) == PEAL_CQ_ARM_SOLICITED);
}

TEST_CASE("an outstanding arming for all is not replaced by one for solicited CQEs")
{
	CqPair cq(2);

	cq.user.arm(PEAL_CQ_ARM_NEXT);
	cq.user.arm(PEAL_CQ_ARM_SOLICITED);
	CHECK((kernel_cq_fire(cq.kernel.get()) & PEAL_CQ_ARM_NEXT));
	cq.user.arm(PEAL_CQ_ARM_NEXT);
	cq.user.arm(PEAL_CQ_ARM_SOLICITED);
	cq.user.arm(PEAL_CQ_ARM_SOLICITED);
	CHECK((kernel_cq_fire(cq.kernel.get()) & PEAL_CQ_ARM_NEXT));
	/* Its event has come, so nothing beyond the request is armed. */
	cq.user.arm(PEAL_CQ_ARM_SOLICITED);
	CHECK_FALSE((kernel_cq_fire(cq.kernel.get()) & PEAL_CQ_ARM_NEXT));
}

TEST_CASE("of two threads that arm the one that asks for all gets its event", "[threads]")
{
	constexpr std::uint32_t rounds = 2000 / SLOWDOWN;
	CqPair cq(2);
	std::atomic<std::uint32_t> round = 0, armed = 0;
	bool lost = false;

	std::thread other([&] {
		for (std::uint32_t i = 1; i <= rounds; ++i) {
			while (round < i)
				std::this_thread::yield();
			cq.user.arm(PEAL_CQ_ARM_SOLICITED);
			armed = i;
		}
	});
	for (std::uint32_t i = 1; i <= rounds; ++i) {
		round = i;
		cq.user.arm(PEAL_CQ_ARM_NEXT);
		while (armed < i)
			std::this_thread::yield();
		lost |= !(kernel_cq_fire(cq.kernel.get()) & PEAL_CQ_ARM_NEXT);
	}
	other.join();
	CHECK_FALSE(lost);
}

TEST_CASE("a tiny ring carries CQEs between two threads without loss", "[threads]")
{
	constexpr std::uint32_t count = 300'000 / SLOWDOWN;
	CqPair cq(GENERATE(1U, 4U));
	std::atomic<bool> failed = false;

	std::thread kernel([&] {
		for (std::uint32_t i = 0; i < count && !failed; ++i) {
			const peal_cqe cqe = cqe_of(i);

			while (kernel_cq_full(cq.kernel.get()) && !failed)
				std::this_thread::yield();
			kernel_cq_push(cq.kernel.get(), &cqe);
		}
	});
	for (std::uint32_t i = 0; i < count && !failed; ++i)
		failed = !eventually([&] { return cq.user.peek(); }) || !poll(cq, i);
	kernel.join();
	CHECK_FALSE(failed);
}

TEST_CASE("stale CQEs are taken out while the kernel goes on pushing", "[threads]")
{
	constexpr std::uint32_t count = 100'000 / SLOWDOWN;
	CqPair cq(GENERATE(2U, 8U));
	const auto is_stale = [](const peal_cqe &cqe) { return cqe.wqe_index % 3 != 0; };
	std::atomic<bool> failed = false, all_pushed = false;

	std::thread kernel([&] {
		for (std::uint32_t i = 0; i < count && !failed; ++i) {
			const peal_cqe cqe = cqe_of(i);

			while (kernel_cq_full(cq.kernel.get()) && !failed)
				std::this_thread::yield();
			kernel_cq_push(cq.kernel.get(), &cqe);
		}
		all_pushed = true;
	});
	for (std::uint32_t i = 0; i < count && !failed; i += 3) {
		failed = !eventually([&] {
			cq.user.drop(is_stale);
			/* One may have come in the meantime. */
			const peal_cqe *oldest = cq.user.peek();
			return oldest && !is_stale(*oldest);
		});
		failed = failed || !poll(cq, i);
	}
	/* The last ones may be stale ones that fill the ring. */
	if (!failed)
		failed = !eventually([&] {
			cq.user.drop(is_stale);
			return all_pushed.load();
		});
	kernel.join();
	CHECK_FALSE(failed);
}

TEST_CASE("a program that arms, polls once more and sleeps is always woken", "[threads]")
{
	constexpr std::uint32_t rounds = 100'000 / SLOWDOWN;
	CqPair cq(4);
	std::atomic<std::uint32_t> events = 0, wanted = 0;
	std::atomic<bool> failed = false;

	std::thread kernel([&] {
		for (std::uint32_t i = 0; i < rounds && !failed; ++i) {
			const peal_cqe cqe = cqe_of(i);

			while (wanted <= i && !failed)
				std::this_thread::yield();
			kernel_cq_push(cq.kernel.get(), &cqe);
			if (kernel_cq_fire(cq.kernel.get()))
				++events;
		}
	});
	for (std::uint32_t i = 0; i < rounds && !failed; ++i) {
		const std::uint32_t seen = events;

		wanted = i + 1;
		cq.user.arm(PEAL_CQ_ARM_NEXT);
		/* Sleeps until the event. The CQE must be there then. */
		if (!cq.user.peek() && !eventually([&] { return events != seen; }))
			failed = true;
		failed = failed || !eventually([&] { return cq.user.peek(); }) || !poll(cq, i);
	}
	kernel.join();
	CHECK_FALSE(failed);
}

TEST_CASE("a completion ring that was given away has no CQEs, and still arms")
{
	CqPair cq(4);
	const CompletionRing::Shape given = cq.user.give_away();
	const peal_cqe cqe = cqe_of(0);
	std::uint32_t seen = 0;

	CHECK(given.entries == 4);
	cq.user.arm(PEAL_CQ_ARM_NEXT);
	kernel_cq_push(cq.kernel.get(), &cqe);
	CHECK(kernel_cq_fire(cq.kernel.get()));
	CHECK_FALSE(cq.user.peek());
	cq.user.for_each([&](const peal_cqe &) { ++seen; });
	cq.user.drop([](const peal_cqe &) { return true; });
	CHECK(seen == 0);
	CHECK(load_relaxed(given.ctl->consumer) == 0);
	CHECK(given.cqes[0].imm_or_rkey == ~0U);
	/* The new owner goes on with the same memory. */
	CompletionRing owner(reinterpret_cast<std::byte *>(given.ctl), given.entries);
	CHECK(owner.is_unused());
	REQUIRE(owner.peek());
	owner.advance();
	CHECK_FALSE(owner.is_unused());
}
