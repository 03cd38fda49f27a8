// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * kernel/object/extents.c finds the bytes of a fast registration.
 *
 * Holds: For every list of pages or pieces, the address of each byte is the same as in a list that
 * is searched from its beginning, and as many bytes are contiguous as it says. A full list takes no
 * more. A failed allocation is reported, and all memory is freed. The addresses are invented and
 * never used.
 */
#include <cerrno>
#include <vector>

#include "../catch.hpp"
#include "support.hpp"
#include "kernel_parts.hpp"

using namespace peal::test;

namespace {

constexpr std::uint64_t BASE = 0x0000600000000000;

struct List {
	struct peal_page_list list = {};
	std::vector<std::uint64_t> bytes; /* the address of each byte */

	List(std::uint32_t max, bool gaps) { REQUIRE(peal_page_list_init(&list, max, gaps) == 0); }
	~List() { peal_page_list_free(&list); }
	List(const List &) = delete;
	List &operator=(const List &) = delete;
	/* Compares every byte, and how many follow it. */
	void check(Random &random)
	{
		REQUIRE(peal_page_list_bytes(&list) == bytes.size());
		for (std::uint64_t at = 0; at < bytes.size(); at += 1 + random.below(7)) {
			const std::uint64_t wanted = 1 + random.below(bytes.size() - at);
			u64 found = wanted;
			const auto address = reinterpret_cast<std::uintptr_t>(
				peal_page_list_at(&list, at, &found));

			CAPTURE(at, wanted, found);
			REQUIRE(address == bytes[at]);
			REQUIRE((found > 0 && found <= wanted));
			REQUIRE(bytes[at + found - 1] == bytes[at] + found - 1);
		}
	}
};

} // namespace

TEST_CASE("random lists of pages: every byte is found", "[page_list]")
{
	Random random("pages");

	for (int round = 0; round < 300 / SLOWER; ++round) {
		const std::uint32_t shift = 4 + static_cast<std::uint32_t>(random.below(5));
		const std::uint64_t size = 1ULL << shift, skip = random.below(size);
		const auto count = static_cast<std::uint32_t>(1 + random.below(20));
		List it(count + static_cast<std::uint32_t>(random.below(3)), false);
		std::uint64_t page = BASE;

		for (std::uint32_t i = 0; i < count; ++i) {
			page = random.one_in(2) ? page + size : BASE + random.below(1000) * size;
			REQUIRE(peal_page_list_add(&it.list, page));
			for (std::uint64_t n = i ? 0 : skip; n < size; ++n)
				it.bytes.push_back(page + n);
		}
		peal_page_list_finish(&it.list, BASE + skip, static_cast<std::uint32_t>(size));
		it.check(random);
	}
}

TEST_CASE("random lists with gaps: every byte is found", "[page_list]")
{
	Random random("gaps");

	for (int round = 0; round < 300 / SLOWER; ++round) {
		const auto count = static_cast<std::uint32_t>(1 + random.below(20));
		List it(count, true);

		for (std::uint32_t i = 0; i < count; ++i) {
			const std::uint64_t piece = BASE + random.below(100000);
			const std::uint64_t length = random.below(random.one_in(5) ? 1 : 100);

			REQUIRE(peal_page_list_add_piece(&it.list, piece, length));
			for (std::uint64_t n = 0; n < length; ++n)
				it.bytes.push_back(piece + n);
		}
		it.check(random);
	}
}

TEST_CASE("a full list takes no more, and an empty one has no bytes", "[page_list]")
{
	for (bool gaps : {false, true}) {
		List it(3, gaps);

		for (int round = 0; round < 2; ++round) {
			peal_page_list_clear(&it.list);
			CHECK(peal_page_list_bytes(&it.list) == 0);
			for (int i = 0; i < 5; ++i)
				CHECK((gaps ? peal_page_list_add_piece(&it.list, BASE, 10)
					    : peal_page_list_add(&it.list, BASE)) == (i < 3));
			peal_page_list_finish(&it.list, BASE, 16);
			CHECK(peal_page_list_bytes(&it.list) == (gaps ? 30 : 48));
		}
	}
}

TEST_CASE("no memory for a list", "[page_list]")
{
	const long before = shim_allocations;
	struct peal_page_list list = {};

	shim_no_memory = true;
	CHECK(peal_page_list_init(&list, 3, true) == -ENOMEM);
	shim_no_memory = false;
	CHECK(shim_allocations == before);
}
