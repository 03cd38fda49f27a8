// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The copies of kernel/object/cursor.c and kernel/net/crc_x86.S with one thread: the bytes.
 *
 * Holds: All sizes and alignments copy exactly the right bytes, and write no byte beside the
 * destination, even when source and destination overlap. String instructions are used for
 * long copies, but not where they are slow.
 */
#include <algorithm>

#include "../catch.hpp"
#include "support.hpp"
#include "copy_ways.hpp"

using namespace peal::test;

namespace {

constexpr std::size_t PAGE = 4096, LONGEST = 17 * PAGE, GUARD = 128;
constexpr std::uint8_t UNTOUCHED = 0xee;

class Copier {
	/* No byte of the source is UNTOUCHED. */
	Exactly from_{LONGEST + PAGE, PAGE}, to_{LONGEST + PAGE, PAGE};

public:
	Copier()
	{
		Random random("copied bytes");

		random.fill(from_.data(), LONGEST + PAGE);
		std::replace(from_.data(), from_.data() + LONGEST + PAGE, UNTOUCHED,
			     std::uint8_t{1});
	}

	/* `to` and `from` are offsets from page borders. */
	bool copies(const CopyWay &way, std::size_t to, std::size_t from, std::size_t bytes)
	{
		std::uint8_t *guard = to_.data() + to;
		std::uint8_t *dst = guard + GUARD;
		const std::uint8_t *src = from_.data() + GUARD + from;
		const auto untouched = [](std::uint8_t byte) { return byte == UNTOUCHED; };

		std::memset(guard, UNTOUCHED, bytes + 2 * GUARD);
		way.copy(dst, src, bytes);
		return std::memcmp(dst, src, bytes) == 0 && std::all_of(guard, dst, untouched) &&
		       std::all_of(dst + bytes, dst + bytes + GUARD, untouched);
	}
};

} // namespace

TEST_CASE("all sizes and alignments", "[copy]")
{
	Copier copier;

	for (const CopyWay &way : copy_ways) {
		way.choose();
		for (std::size_t bytes = 0; bytes <= 600; bytes += bytes < 64 ? 1 : 1 + SLOWER / 3)
			for (std::size_t to = 0; to <= 64; ++to)
				for (std::size_t from : {0, 1, 4, 7, 8, 9, 31, 63, 64})
					if (!copier.copies(way, to, from, bytes))
						FAIL(way.name << ", " << bytes << " bytes from "
							      << from << " to " << to);
	}
}

TEST_CASE("all pairs of alignments", "[copy]")
{
	Copier copier;

	for (const CopyWay &way : copy_ways) {
		way.choose();
		for (std::size_t bytes : {7, 8, 9, 72, 519, 520, 521, 600})
			for (std::size_t to = 0; to <= 64; ++to)
				for (std::size_t from = 0; from <= 64; ++from)
					if (!copier.copies(way, to + 1024, from, bytes) ||
					    !copier.copies(way, to, from, bytes))
						FAIL(way.name << ", " << bytes << " bytes from "
							      << from << " to " << to);
	}
}

TEST_CASE("long copies", "[copy]")
{
	Copier copier;

	for (const CopyWay &way : copy_ways) {
		way.choose();
		for (std::size_t bytes : {1000, 1024, 4095, 4096, 4097, 4104, 8192, 65535, 65536})
			for (std::size_t to : {0, 1, 8, 63, 64, 1024, 1025, 2047})
				for (std::size_t from : {0, 1, 8, 63, 64})
					if (!copier.copies(way, to, from, bytes))
						FAIL(way.name << ", " << bytes << " bytes from "
							      << from << " to " << to);
	}
}

TEST_CASE("nothing is written beside a destination that overlaps the source", "[copy]")
{
	Exactly memory(4096);
	const auto untouched = [](std::uint8_t byte) { return byte == UNTOUCHED; };

	for (const CopyWay &way : copy_ways) {
		way.choose();
		for (std::size_t bytes : {1, 7, 8, 15, 64, 100, 513, 600, 1024}) {
			for (int apart = -300; apart <= 300; ++apart) {
				std::uint8_t *dst = memory.data() + 1024;

				std::memset(memory.data(), UNTOUCHED, 4096);
				std::memset(dst + apart, 1, bytes);
				std::memset(dst, 2, bytes);
				way.copy(dst, dst + apart, bytes);
				const std::uint8_t *low = std::min(dst, dst + apart);
				const std::uint8_t *high = std::max(dst, dst + apart) + bytes;
				CAPTURE(way.name, bytes, apart);
				REQUIRE(std::all_of(memory.data(),
						    memory.data() + (low - memory.data()),
						    untouched));
				REQUIRE(std::all_of(
					high,
					static_cast<const std::uint8_t *>(memory.data()) + 4096,
					untouched));
			}
		}
	}
}

TEST_CASE("a copy onto itself changes nothing", "[copy]")
{
	Exactly memory(4096);
	std::uint8_t expected[4096];
	Random random("copied onto itself");

	random.fill(memory.data(), 4096);
	std::memcpy(expected, memory.data(), 4096);
	for (const CopyWay &way : copy_ways) {
		way.choose();
		for (std::size_t bytes : {0, 1, 8, 9, 600, 4000})
			way.copy(memory.data() + 3, memory.data() + 3, bytes);
		CHECK(std::memcmp(expected, memory.data(), 4096) == 0);
	}
}

#ifdef CONFIG_X86
// A copy by a string instruction asks twice for features: whether it pays, and which one.
constexpr unsigned long questions = 2;

TEST_CASE("short copies do without string instructions", "[copy]")
{
	const CopyWay &way = copy_ways.back();
	Copier copier;

	way.choose();
	for (std::size_t bytes = 0; bytes < 512 + 8; ++bytes)
		copier.copies(way, 1024, 0, bytes);
	CHECK(copy_questions() == 0);
	copier.copies(way, 1024, 0, 512 + 8);
	CHECK(copy_questions() == questions);
}

TEST_CASE("string instructions are not used where they are slow", "[copy]")
{
	const CopyWay &way = copy_ways.back();
	Copier copier;

	way.choose();
	for (std::size_t apart = 1; apart < 64; ++apart)
		copier.copies(way, apart, 0, 4096);
	CHECK(copy_questions() == 0);
	for (std::size_t apart = 64; apart < 128; ++apart)
		copier.copies(way, apart, 0, 4096);
	CHECK(copy_questions() == 64 * questions);
	copier.copies(way, 0, 0, 4096);
	CHECK(copy_questions() == 65 * questions);
}
#endif
