// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Out-of-order packets and the wrap of packet numbers.
 *
 * Holds: The table does the same as a map. The handles are counted. None is lost, and none comes
 * twice.
 */
#include <map>
#include <memory>
#include <vector>

#include "../catch.hpp"
#include "../kernel/support.hpp"
#include "proto.hpp"

namespace {

using peal::test::Random;

/* Handles are only compared, so any distinct address will do. */
void *handle(std::uint32_t n)
{
	static char names[4096];

	return &names[n % sizeof(names)];
}

constexpr std::uint64_t KEEP = 1000;

struct Slots {
	std::unique_ptr<peal_reorder> reorder = std::make_unique<peal_reorder>();
	std::uint64_t now = 5000;

	bool keep(std::uint32_t expected, std::uint32_t psn, void *what)
	{
		return peal_reorder_insert(reorder.get(), expected, psn, what, now, KEEP);
	}
	void *expire() { return peal_reorder_expire(reorder.get(), now, KEEP); }
	std::uint64_t deadline() const { return peal_reorder_deadline(reorder.get()); }
	void *take(std::uint32_t psn) { return peal_reorder_take(reorder.get(), psn); }
	void *drop() { return peal_reorder_drop(reorder.get()); }
	bool has(std::uint32_t psn) const { return peal_reorder_has(reorder.get(), psn); }
	std::uint32_t first(std::uint32_t expected) const
	{
		return peal_reorder_first(reorder.get(), expected);
	}
};

} // namespace

TEST_CASE("distance is signed and wraps at 24 bits", "[psn]")
{
	CHECK(peal_psn_distance(5, 5) == 0);
	CHECK(peal_psn_distance(5, 6) == 1);
	CHECK(peal_psn_distance(6, 5) == -1);
	CHECK(peal_psn_distance(0xffffff, 0) == 1);
	CHECK(peal_psn_distance(0, 0xffffff) == -1);
	CHECK(peal_psn_distance(0, 0x7fffff) == 0x7fffff);
	CHECK(peal_psn_distance(0, 0x800000) == -0x800000);
	CHECK(peal_psn_distance(0x123456, 0x923455) == 0x7fffff);
	CHECK(peal_psn_distance(0x123456, 0x923456) == -0x800000);
	CHECK(peal_psn_add(0xffffff, 1) == 0);
	CHECK(peal_psn_add(0xfffffe, 0x800000) == 0x7ffffe);
}

TEST_CASE("only what is ahead, and not too far, is kept", "[reorder]")
{
	for (std::uint32_t expected : {0u, 100u, 0xffffffu, 0xffff90u}) {
		Slots slots;

		INFO("expected " << expected);
		CHECK_FALSE(slots.keep(expected, expected, handle(0)));
		CHECK_FALSE(slots.keep(expected, peal_psn_add(expected, PEAL_PSN_MASK), handle(0)));
		CHECK_FALSE(slots.keep(expected, peal_psn_add(expected, PEAL_REORDER_SLOTS),
				       handle(0)));
		CHECK_FALSE(slots.keep(expected, peal_psn_add(expected, 0x800000), handle(0)));
		CHECK(slots.deadline() == U64_MAX); /* nothing is kept */
		CHECK(slots.keep(expected, peal_psn_add(expected, 1), handle(1)));
		CHECK(slots.keep(expected, peal_psn_add(expected, PEAL_REORDER_SLOTS - 1),
				 handle(2)));
		CHECK_FALSE(slots.keep(expected, peal_psn_add(expected, 1), handle(3)));
		CHECK(slots.first(expected) == peal_psn_add(expected, 1));
		CHECK(slots.take(peal_psn_add(expected, 1)) == handle(1));
		CHECK(slots.take(peal_psn_add(expected, 1)) == nullptr);
		CHECK(slots.first(expected) == peal_psn_add(expected, PEAL_REORDER_SLOTS - 1));
		CHECK(slots.drop() == handle(2));
		CHECK(slots.drop() == nullptr);
		CHECK(slots.first(expected) == expected);
	}
}

TEST_CASE("a packet is not taken for the one a lap later", "[reorder]")
{
	Slots slots;

	REQUIRE(slots.keep(10, 12, handle(1)));
	CHECK(slots.has(12));
	CHECK_FALSE(slots.has(12 + PEAL_REORDER_SLOTS));
	CHECK(slots.take(12 + PEAL_REORDER_SLOTS) == nullptr);
	CHECK(slots.first(12 + PEAL_REORDER_SLOTS - 1) == 12 + PEAL_REORDER_SLOTS - 1);
	CHECK(slots.take(12) == handle(1));
}

TEST_CASE("a kept packet is released after one to two times the limit", "[reorder]")
{
	Slots slots;

	CHECK(slots.deadline() == U64_MAX);
	REQUIRE(slots.keep(10, 12, handle(1)));
	CHECK(slots.deadline() == slots.now + KEEP);
	slots.now += KEEP - 1;
	CHECK(slots.expire() == nullptr);
	REQUIRE(slots.keep(10, 13, handle(2)));
	slots.now += 1;
	/* Both are noticed, but neither is known to have waited long enough. */
	CHECK(slots.expire() == nullptr);
	REQUIRE(slots.keep(10, 14, handle(3)));
	CHECK(slots.deadline() == slots.now + KEEP);
	slots.now += KEEP;
	CHECK(slots.expire() == handle(1));
	CHECK(slots.expire() == handle(2));
	CHECK(slots.expire() == nullptr);
	CHECK(slots.has(14));
	slots.now += KEEP;
	CHECK(slots.expire() == handle(3));
	CHECK(slots.expire() == nullptr);
	CHECK(slots.deadline() == U64_MAX);
	/* The next one has its whole time. */
	slots.now += 10 * KEEP;
	REQUIRE(slots.keep(10, 12, handle(4)));
	CHECK(slots.deadline() == slots.now + KEEP);
	CHECK(slots.expire() == nullptr);
	CHECK(slots.take(12) == handle(4));
}

TEST_CASE("an old kept packet is still found and taken", "[reorder]")
{
	Slots slots;

	REQUIRE(slots.keep(10, 12, handle(1)));
	slots.now += KEEP;
	CHECK(slots.expire() == nullptr);
	CHECK(slots.has(12));
	CHECK(peal_reorder_find(slots.reorder.get(), 12) == handle(1));
	CHECK(peal_reorder_find(slots.reorder.get(), 13) == nullptr);
	CHECK(slots.first(10) == 12);
	CHECK(slots.take(12) == handle(1));
}

TEST_CASE("any mixture of out-of-order packets comes out as a map says", "[reorder]")
{
	Random random("reorder");
	Slots slots;
	std::map<std::uint32_t, void *> model;
	std::uint32_t expected = random.bits() & PEAL_PSN_MASK;

	for (std::uint32_t round = 0; round < 200000u / peal::test::SLOWER; ++round) {
		const std::uint32_t psn =
			peal_psn_add(expected, random.below(PEAL_REORDER_SLOTS + 20) - 10);
		const std::int32_t ahead = peal_psn_distance(expected, psn);

		if (random.one_in(2)) {
			const bool may =
				ahead > 0 && ahead < PEAL_REORDER_SLOTS && !model.count(psn);

			REQUIRE(slots.keep(expected, psn, handle(round)) == may);
			if (may)
				model[psn] = handle(round);
		} else {
			expected = peal_psn_add(expected, 1);
			const auto kept = model.find(expected);

			REQUIRE(slots.take(expected) ==
				(kept == model.end() ? nullptr : kept->second));
			model.erase(expected);
		}
		REQUIRE((slots.deadline() == U64_MAX) == model.empty());
	}
	for (std::size_t left = model.size(); left; --left)
		CHECK(slots.drop() != nullptr);
	CHECK(slots.drop() == nullptr);
}
