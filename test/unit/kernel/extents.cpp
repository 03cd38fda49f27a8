// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * kernel/object/extents.c finds the bytes of a memory region.
 *
 * Holds: For every list of runs, the address of each byte and the number of contiguous bytes after
 * it are the same as in a list that is searched from its beginning. The table is as small as
 * extents.h promises. A failed allocation of the table is reported, and every table is freed. The
 * addresses are invented and never used.
 */
#include <algorithm>
#include <cerrno>
#include <vector>

#include "../catch.hpp"
#include "support.hpp"
#include "kernel_parts.hpp"

using namespace peal::test;

namespace {

constexpr std::uint64_t PAGE = 4096, HUGE = 2 << 20, GIANT = 1 << 30;
/* Like a direct map, it is high, and far from both ends of the address space. */
constexpr std::uint64_t BASE = 0x0000600000000000;

struct Run {
	std::uint64_t address, bytes;
};

struct Found {
	std::uint64_t address, bytes;
	bool operator==(const Found &) const = default;
};

std::ostream &operator<<(std::ostream &out, const Found &found)
{
	return out << std::hex << found.address << " + " << found.bytes << std::dec;
}

void *pointer(std::uint64_t address)
{
	return reinterpret_cast<void *>(static_cast<std::uintptr_t>(address));
}

class Extents {
	struct peal_extents x_ = {};

public:
	explicit Extents(const std::vector<Run> &runs)
	{
		for (const Run &run : runs)
			peal_extents_measure(&x_, pointer(run.address), run.bytes);
		REQUIRE(peal_extents_alloc(&x_) == 0);
		for (const Run &run : runs)
			peal_extents_fill(&x_, pointer(run.address), run.bytes);
	}
	~Extents() { peal_extents_free(&x_); }
	Extents(const Extents &) = delete;
	Extents &operator=(const Extents &) = delete;
	std::uint64_t bytes() const { return x_.bytes; }
	std::uint32_t granules() const { return x_.count; }
	Found at(std::uint64_t offset, std::uint64_t wanted) const
	{
		u64 bytes = wanted;
		void *found = peal_extents_at(&x_, offset, &bytes);

		return {reinterpret_cast<std::uintptr_t>(found), bytes};
	}
};

/* Searches run after run. */
Found search(const std::vector<Run> &runs, std::uint64_t offset, std::uint64_t wanted)
{
	std::size_t i = 0;

	for (; offset >= runs[i].bytes; ++i)
		offset -= runs[i].bytes;
	Found found = {runs[i].address + offset, runs[i].bytes - offset};
	for (; i + 1 < runs.size() && runs[i].address + runs[i].bytes == runs[i + 1].address; ++i)
		found.bytes += runs[i + 1].bytes;
	found.bytes = std::min(found.bytes, wanted);
	return found;
}

/* Offsets at which one run ends and the next one begins elsewhere. */
std::vector<std::uint64_t> breaks(const std::vector<Run> &runs)
{
	std::vector<std::uint64_t> result;
	std::uint64_t offset = 0;

	for (std::size_t i = 0; i + 1 < runs.size(); ++i) {
		offset += runs[i].bytes;
		if (runs[i].address + runs[i].bytes != runs[i + 1].address)
			result.push_back(offset);
	}
	return result;
}

std::uint64_t total(const std::vector<Run> &runs)
{
	std::uint64_t bytes = 0;

	for (const Run &run : runs)
		bytes += run.bytes;
	return bytes;
}

/* Uses the largest granule whose borders include all breaks. */
std::uint64_t fewest_granules(const std::vector<Run> &runs)
{
	const std::vector<std::uint64_t> at = breaks(runs);
	std::uint64_t size = PAGE;

	if (at.size() < 2)
		return at.size() + 1;
	const auto agree = [&](std::uint64_t wider) {
		return std::all_of(at.begin(), at.end(), [&](std::uint64_t offset) {
			return (offset - at[0]) % wider == 0;
		});
	};
	while (agree(size * 2))
		size *= 2;
	return (at[0] + size - 1) / size + (total(runs) - at[0] + size - 1) / size;
}

/* Checks every border with its neighbours, the first and the last byte, with several lengths. */
void check_borders(const std::vector<Run> &runs)
{
	const Extents extents(runs);
	const std::uint64_t bytes = total(runs);
	std::vector<std::uint64_t> offsets = {0, 1, PAGE - 1, bytes - 1};
	std::uint64_t border = 0;

	for (const Run &run : runs) {
		border += run.bytes;
		offsets.insert(offsets.end(), {border - PAGE, border - 1, border, border + 1});
	}
	REQUIRE(extents.bytes() == bytes);
	for (std::uint64_t offset : offsets) {
		for (std::uint64_t wanted :
		     {std::uint64_t{1}, std::uint64_t{8}, PAGE, 3 * PAGE, HUGE, HUGE + 1, bytes}) {
			if (offset >= bytes)
				continue;
			wanted = std::min(wanted, bytes - offset);
			CAPTURE(offset, wanted);
			CHECK(extents.at(offset, wanted) == search(runs, offset, wanted));
		}
	}
}

/* Runs of `bytes` bytes, of which no two are adjacent. */
std::vector<Run> scattered(std::size_t count, std::uint64_t bytes)
{
	std::vector<Run> runs;

	for (std::size_t i = 0; i < count; ++i)
		runs.push_back({BASE + (count - i) * 4 * bytes, bytes});
	return runs;
}

/* A region of 2 MiB pages that begins `first` bytes before the end of one. */
std::vector<Run> huge_pages(std::size_t count, std::uint64_t first, std::uint64_t last)
{
	std::vector<Run> runs = scattered(count, HUGE);

	runs.front() = {runs.front().address + HUGE - first, first};
	runs.back().bytes = last;
	return runs;
}

std::vector<Run> random_runs(Random &random)
{
	const std::uint64_t unit = random.one_in(3) ? HUGE : PAGE << random.below(4);
	const std::size_t count = 1 + random.below(random.one_in(8) ? 300 : 12);
	std::vector<Run> runs;
	std::uint64_t next = BASE;

	for (std::size_t i = 0; i < count; ++i) {
		if (!random.one_in(3))
			next = BASE + random.below(1 << 20) * HUGE;
		const std::uint64_t bytes = unit * (1 + random.below(random.one_in(3) ? 16 : 1));
		runs.push_back({next, bytes});
		next += bytes;
	}
	if (random.one_in(2)) {
		const std::uint64_t cut = random.below(runs[0].bytes / PAGE) * PAGE;
		runs[0] = {runs[0].address + cut, runs[0].bytes - cut};
	}
	if (random.one_in(2))
		runs.back().bytes = PAGE * (1 + random.below(runs.back().bytes / PAGE));
	return runs;
}

} // namespace

TEST_CASE("the bytes of contiguous regions are found", "[extents]")
{
	check_borders({{BASE, PAGE}});
	check_borders({{BASE, 17 * PAGE}});
	check_borders({{BASE, PAGE}, {BASE + PAGE, PAGE}, {BASE + 2 * PAGE, 5 * PAGE}});
	check_borders({{BASE, 5 * GIANT}});
}

TEST_CASE("the bytes of split regions are found", "[extents]")
{
	check_borders({{BASE, PAGE}, {BASE + 8 * PAGE, PAGE}});
	check_borders({{BASE + 8 * PAGE, PAGE}, {BASE, PAGE}});
	check_borders({{BASE, PAGE}, {BASE + HUGE, 100 * PAGE}});
	check_borders({{BASE, 100 * PAGE}, {BASE + HUGE, PAGE}});
	check_borders({{BASE, 3 * PAGE}, {BASE + HUGE, 5 * PAGE}, {BASE + GIANT, 7 * PAGE}});
	check_borders({{BASE, PAGE}, {BASE + HUGE, PAGE}, {BASE + HUGE + PAGE, PAGE}});
	check_borders({{BASE, PAGE}, {BASE + PAGE, PAGE}, {BASE + HUGE, 2 * PAGE}});
}

TEST_CASE("the same page may be in a region twice", "[extents]")
{
	check_borders({{BASE, PAGE}, {BASE, PAGE}, {BASE, PAGE}});
	check_borders({{BASE, 4 * PAGE}, {BASE + PAGE, 4 * PAGE}});
}

TEST_CASE("the bytes of huge pages are found wherever the region begins", "[extents]")
{
	for (std::uint64_t pages : {1U, 2U, 3U, 17U, 256U, 511U, 512U})
		check_borders(huge_pages(5, pages * PAGE, HUGE));
	check_borders(huge_pages(2, PAGE, PAGE));
	check_borders(huge_pages(3, PAGE, PAGE));
	check_borders(scattered(3, GIANT));
}

TEST_CASE("a contiguous region has one granule, however it is listed", "[extents]")
{
	CHECK(Extents({{BASE, PAGE}}).granules() == 1);
	CHECK(Extents({{BASE, 3 * PAGE}}).granules() == 1);
	CHECK(Extents({{BASE, 1024 * GIANT}}).granules() == 1);
	CHECK(Extents({{BASE, PAGE}, {BASE + PAGE, 6 * PAGE}}).granules() == 1);
	CHECK(shim_allocations == 0);
}

TEST_CASE("two runs have one granule each, however different", "[extents]")
{
	CHECK(Extents({{BASE, PAGE}, {BASE + GIANT, PAGE}}).granules() == 2);
	CHECK(Extents({{BASE, PAGE}, {BASE + GIANT, 511 * PAGE}}).granules() == 2);
	CHECK(Extents({{BASE, 511 * PAGE}, {BASE + GIANT, PAGE}}).granules() == 2);
	CHECK(Extents({{BASE, 3 * PAGE}, {BASE + GIANT, 5 * PAGE}}).granules() == 2);
	CHECK(Extents({{BASE, GIANT}, {BASE + 2 * GIANT, 64 * GIANT}}).granules() == 2);
}

TEST_CASE("huge pages have one granule each, wherever the region begins and ends", "[extents]")
{
	for (std::uint64_t first = 1; first <= 512; ++first) {
		for (std::uint64_t last : {1U, 2U, 100U, 512U}) {
			CAPTURE(first, last);
			CHECK(Extents(huge_pages(3, first * PAGE, last * PAGE)).granules() == 3);
			CHECK(Extents(huge_pages(8, first * PAGE, last * PAGE)).granules() == 8);
		}
	}
}

TEST_CASE("single pages have one granule each", "[extents]")
{
	for (std::size_t count : {1U, 2U, 3U, 64U, 1000U})
		CHECK(Extents(scattered(count, PAGE)).granules() == count);
}

TEST_CASE("random regions: every byte is found, and the table is the smallest", "[extents]")
{
	Random random("regions");

	for (int round = 0; round < 20'000 / SLOWER; ++round) {
		const std::vector<Run> runs = random_runs(random);
		const Extents extents(runs);
		const std::uint64_t bytes = total(runs);

		if (extents.granules() != fewest_granules(runs) ||
		    extents.granules() > bytes / PAGE || extents.bytes() != bytes)
			FAIL(extents.granules()
			     << " granules: round " << round << " with seed " << random.seed);
		for (int look = 0; look < 20; ++look) {
			const std::uint64_t offset = random.below(bytes);
			const std::uint64_t longest = bytes - offset;
			const std::uint64_t wanted =
				1 + random.below(std::min(longest, PAGE << random.below(14)));

			if (!(extents.at(offset, wanted) == search(runs, offset, wanted)))
				FAIL("offset " << offset << ": round " << round << " with seed "
					       << random.seed);
		}
	}
	CHECK(shim_allocations == 0);
}

TEST_CASE("a table that cannot be had is reported, and nothing is left", "[extents]")
{
	struct peal_extents x = {};

	peal_extents_measure(&x, pointer(BASE), PAGE);
	peal_extents_measure(&x, pointer(BASE + HUGE), PAGE);
	shim_no_memory = true;
	CHECK(peal_extents_alloc(&x) == -ENOMEM);
	shim_no_memory = false;
	peal_extents_free(&x);
	CHECK(shim_allocations == 0);
}

TEST_CASE("a region that was never measured is freed", "[extents]")
{
	struct peal_extents x = {};

	peal_extents_free(&x);
	CHECK(shim_allocations == 0);
}

TEST_CASE("freeing gives the table back once", "[extents]")
{
	for (const std::vector<Run> &runs : {scattered(1, PAGE), scattered(9, PAGE)}) {
		struct peal_extents x = {};

		for (const Run &run : runs)
			peal_extents_measure(&x, pointer(run.address), run.bytes);
		REQUIRE(peal_extents_alloc(&x) == 0);
		CHECK(shim_allocations == (runs.size() > 1));
		peal_extents_free(&x);
		CHECK(shim_allocations == 0);
		CHECK(x.granule == nullptr);
		peal_extents_free(&x);
		CHECK(shim_allocations == 0);
	}
}
