// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Each way to compute a CRC-32 and to copy meanwhile, beside a reference that goes bit by bit.
 *
 * Holds: Every length up to 4,200 and every alignment of source and destination. A copy writes
 * exactly its destination, and neither reads a byte outside of its source.
 * Does not hold: which way a machine chooses (crc_choice.cpp), and that a copy reads its source
 * once (crc_steps.cpp).
 */
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <iostream>

#include "../catch.hpp"
#include "support.hpp"
#include "crc_ways.hpp"

using namespace peal::test;

namespace {

constexpr std::size_t PAGE = 4096, LONGEST = 4200, ALIGNMENTS = 64, GUARD = 64;
constexpr std::uint8_t UNTOUCHED = 0xee;

/* The ways that this CPU has. */
std::vector<CrcWay> present()
{
	std::vector<CrcWay> ways;

	for (const CrcWay &way : crc_ways()) {
		if (way.present)
			ways.push_back(way);
		else
			std::cout << "this CPU does not have " << way.name << std::endl;
	}
	return ways;
}

/* `bytes` bytes between two pages that fault. */
class Fenced {
	std::size_t bytes_;
	std::uint8_t *map_;

public:
	explicit Fenced(std::size_t pages) : bytes_(pages * PAGE)
	{
		void *map = mmap(nullptr, bytes_ + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS,
				 -1, 0);

		REQUIRE(map != MAP_FAILED);
		map_ = static_cast<std::uint8_t *>(map);
		REQUIRE(mprotect(begin(), bytes_, PROT_READ | PROT_WRITE) == 0);
	}
	~Fenced() { munmap(map_, bytes_ + 2 * PAGE); }
	Fenced(const Fenced &) = delete;
	Fenced &operator=(const Fenced &) = delete;
	std::uint8_t *begin() const { return map_ + PAGE; }
	std::uint8_t *end() const { return begin() + bytes_; }
};

class Bench {
	Exactly from_{2 * PAGE}, to_{2 * PAGE};

public:
	explicit Bench(Random &random)
	{
		random.fill(from_.data(), 2 * PAGE);
		/* So that a byte that was not copied shows. */
		std::replace(from_.data(), from_.data() + 2 * PAGE, UNTOUCHED, std::uint8_t{1});
		std::memset(to_.data(), UNTOUCHED, 2 * PAGE);
	}
	const std::uint8_t *from(std::size_t alignment) const { return from_.data() + alignment; }
	/* Return: whether both functions of `way` are right. `crc` goes in, and `right` comes out.
	 */
	bool right(const CrcWay &way, std::size_t from, std::size_t to, std::size_t n, u32 crc,
		   u32 expected) const
	{
		static const std::array<std::uint8_t, GUARD> guard = [] {
			std::array<std::uint8_t, GUARD> bytes;

			bytes.fill(UNTOUCHED);
			return bytes;
		}();
		const std::uint8_t *src = from_.data() + from;
		std::uint8_t *dst = to_.data() + GUARD + to;
		bool is_right = way.add(crc, src, n) == expected;

		is_right &= way.copy(crc, dst, src, n) == expected;
		is_right &= std::memcmp(dst, src, n) == 0;
		is_right &= std::memcmp(dst - GUARD, guard.data(), GUARD) == 0;
		is_right &= std::memcmp(dst + n, guard.data(), GUARD) == 0;
		std::memset(dst, UNTOUCHED, n);
		return is_right;
	}
};

} // namespace

TEST_CASE("every length from every alignment", "[crc]")
{
	Random random("every length");
	const Bench bench(random);

	/* With a sanitizer one of ten pairs, but each length and each alignment. */
	for (const CrcWay &way : present()) {
		for (std::size_t from = 0; from < ALIGNMENTS; ++from) {
			const u32 begin = static_cast<u32>(random.bits());
			const std::uint8_t *bytes = bench.from(from);
			u32 expected = begin;

			for (std::size_t n = 0; n <= LONGEST; ++n) {
				const std::size_t to = (7 * n + 13 * from) % ALIGNMENTS;

				if (n >= way.least && (n + from) % SLOWER == 0 &&
				    !bench.right(way, from, to, n, begin, expected))
					FAIL(way.name << ", " << n << " bytes from " << from
						      << " to " << to << ", seed " << random.seed);
				expected = crc_bitwise(expected, bytes[n]);
			}
		}
	}
}

TEST_CASE("a CRC and a copy from any alignment to any", "[crc]")
{
	Random random("pairs of alignments");
	const Bench bench(random);

	for (std::size_t n :
	     {0, 1, 15, 16, 17, 48, 63, 64, 65, 127, 128, 255, 256, 263, 1040, 1055}) {
		for (std::size_t from = 0; from < ALIGNMENTS; ++from) {
			const u32 expected = crc_bitwise(~0U, bench.from(from), n);

			for (const CrcWay &way : crc_ways())
				for (std::size_t to = 0; to < ALIGNMENTS; ++to)
					if (way.present && n >= way.least &&
					    !bench.right(way, from, to, n, ~0U, expected))
						FAIL(way.name << ", " << n << " bytes from " << from
							      << " to " << to);
		}
	}
}

TEST_CASE("no byte outside of the source is read, and none outside of the destination written",
	  "[crc]")
{
	const Fenced from(2), to(2);

	std::memset(from.begin(), 0x5a, 2 * PAGE);
	for (const CrcWay &way : present()) {
		for (std::size_t n = way.least; n <= LONGEST; n += n < 600 ? 1 : 97) {
			const u32 expected = way.add(1, from.begin(), n);

			REQUIRE(way.add(1, from.end() - n, n) == expected);
			REQUIRE(way.copy(1, to.begin(), from.end() - n, n) == expected);
			REQUIRE(way.copy(1, to.end() - n, from.begin(), n) == expected);
		}
	}
}

TEST_CASE("random pieces by random ways are one message", "[crc]")
{
	Random random("random pieces");
	const std::vector<CrcWay> ways = present();
	constexpr std::size_t MOST = 70'000;
	Exactly from(MOST + 64 - MOST % 64), to(MOST + 64 - MOST % 64);

	random.fill(from.data(), MOST);
	for (int round = 0; round < 300 / SLOWER; ++round) {
		const std::size_t begin = random.below(200);
		const std::size_t bytes = random.below(random.one_in(3) ? 300 : MOST - begin);
		u32 crc = static_cast<u32>(random.bits());
		const u32 expected = crc_bitwise(crc, from.data() + begin, bytes);

		std::memset(to.data(), 0, MOST);
		for (std::size_t at = begin, n; at < begin + bytes; at += n) {
			const std::size_t rest = begin + bytes - at;
			const CrcWay &way = ways[random.below(ways.size())];

			n = std::min<std::size_t>(rest,
						  1 + random.below(random.one_in(2) ? 40 : 5000));
			const CrcWay &able = n < way.least ? ways[0] : way;
			if (random.one_in(3)) {
				crc = able.add(crc, from.data() + at, n);
				std::memcpy(to.data() + at, from.data() + at, n);
			} else {
				crc = able.copy(crc, to.data() + at, from.data() + at, n);
			}
		}
		if (crc != expected || std::memcmp(to.data() + begin, from.data() + begin, bytes))
			FAIL("round " << round << " with seed " << random.seed);
	}
}
