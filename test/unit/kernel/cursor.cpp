// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * kernel/object/cursor.c walks both sides of a copy.
 *
 * Holds: Byte n of one side goes to byte n of the other, and no other byte changes, for any lists,
 * pages and chunks. Every key is checked before that, except those of entries without bytes.
 * The keys here are numbers of regions. kernel/object/mr.c is not part of the test.
 */
#include <algorithm>
#include <deque>
#include <numeric>
#include <vector>

#include "../catch.hpp"
#include "support.hpp"
#include "kernel_parts.hpp"
#include "copy_ways.hpp"

using namespace peal::test;

namespace {

constexpr std::uint64_t PAGE = 4096;
constexpr std::uint32_t NOBODYS = 1000;
constexpr std::uint8_t UNTOUCHED = 0xee;

/*
 * A region whose pages lie in memory in random order, or in sequence if `whole`. If it is not
 * pinned memory of a program, it has no table of extents to walk.
 */
class Region {
	Exactly memory_;
	std::vector<std::uint64_t> order_;
	bool whole_;
	struct ib_umem umem_ = {};
	struct peal_mr mr_ = {};

	void each_run(void (*run)(struct peal_extents *, void *, u64))
	{
		for (std::uint64_t page : order_)
			run(&mr_.extents, memory_.data() + page * PAGE, PAGE);
	}

public:
	Region(Random &random, std::size_t pages, bool whole, bool pinned = true)
		: memory_(pages * PAGE, PAGE), order_(pages), whole_(whole)
	{
		std::iota(order_.begin(), order_.end(), 0);
		for (std::size_t i = pages; i > 1 && !whole; --i)
			std::swap(order_[i - 1], order_[random.below(i)]);
		mr_.umem = pinned ? &umem_ : nullptr;
		mr_.skip = random.below(PAGE);
		mr_.key.iova = random.bits() >> 1;
		mr_.key.length = pages * PAGE - mr_.skip;
		each_run(peal_extents_measure);
		REQUIRE(peal_extents_alloc(&mr_.extents) == 0);
		each_run(peal_extents_fill);
	}
	~Region() { peal_extents_free(&mr_.extents); }
	bool whole() const { return whole_; }
	Region(const Region &) = delete;
	Region &operator=(const Region &) = delete;
	struct peal_mr &mr() { return mr_; }
	std::uint64_t length() const { return mr_.key.length; }
	std::uint64_t skip() const { return mr_.skip; }
	std::uint8_t &byte(std::uint64_t offset)
	{
		offset += mr_.skip;
		return memory_.data()[order_[offset / PAGE] * PAGE + offset % PAGE];
	}
	void fill(Random &random)
	{
		for (std::uint64_t i = 0; i < length(); ++i)
			byte(i) = static_cast<std::uint8_t>(random.bits() % UNTOUCHED);
	}
	void clear()
	{
		for (std::uint64_t i = 0; i < length(); ++i)
			byte(i) = UNTOUCHED;
	}
};

/* The regions that keys refer to. lkey n is region n. */
std::deque<Region> regions;
std::vector<std::uint32_t> looked_up;
int users; /* of regions that count them */

struct List {
	std::vector<peal_sge> sges;

	/* Exactly `bytes` bytes from anywhere in region `key`, in entries of any length. */
	List(Random &random, std::uint32_t key, std::uint64_t bytes)
	{
		const struct peal_key &region = regions[key].mr().key;
		std::uint64_t at = 0;

		/*
		 * Entries follow each other with gaps, because the bytes of a
		 * destination must not overlap.
		 */
		while (bytes) {
			const bool last = sges.size() + 1 == PEAL_MAX_SGE;
			const std::uint64_t room = region.length - at - bytes;
			const std::uint64_t some = random.one_in(4) ? 0 : 1 + random.below(bytes);
			const std::uint64_t piece = last ? bytes : some;

			at += random.below(room / 4 + 1);
			sges.push_back({region.iova + at, static_cast<__u32>(piece),
					piece ? key : NOBODYS});
			at += piece;
			bytes -= piece;
		}
		while (sges.size() < PEAL_MAX_SGE && random.one_in(2))
			sges.push_back({random.bits(), 0, NOBODYS});
	}
	std::uint32_t count() const { return static_cast<std::uint32_t>(sges.size()); }
	/* Return: byte n of the list. */
	std::uint8_t &byte(std::uint64_t n) const
	{
		std::size_t i = 0;

		for (; n >= sges[i].length; ++i)
			n -= sges[i].length;
		Region &region = regions[sges[i].lkey];
		return region.byte(sges[i].addr - region.mr().key.iova + n);
	}
	peal_reason open(struct peal_cursor &cursor) const
	{
		return peal_cursor_local(&cursor, nullptr, nullptr, sges.data(), count(),
					 PEAL_GATHER);
	}
};

struct Regions {
	Regions(Random &random, std::size_t count)
	{
		for (std::size_t i = 0; i < count; ++i)
			regions.emplace_back(random, 1 + random.below(12), random.one_in(4),
					     !random.one_in(4));
		looked_up.clear();
	}
	~Regions() { regions.clear(); }
};

/* Begins a cursor over one range. */
void peal_cursor_target(struct peal_cursor *cursor, const struct peal_target *target,
			std::uint64_t bytes)
{
	peal_cursor_inline(cursor, nullptr, bytes);
	cursor->target[0] = *target;
	cursor->counted = peal_target_is_counted(target);
}

void poison(struct peal_cursor &cursor)
{
	std::memset(&cursor, 0xa5, sizeof(cursor));
}

std::uint64_t count_touched(Region &region)
{
	std::uint64_t touched = 0;

	for (std::uint64_t i = 0; i < region.length(); ++i)
		touched += region.byte(i) != UNTOUCHED;
	return touched;
}

} // namespace

/* Replaces kernel/object/mr.c. */
extern "C" enum peal_reason peal_mr_local(struct peal_table *, const struct ib_pd *,
					  const struct peal_sge *sge, enum peal_key_use,
					  struct peal_target *target)
{
	looked_up.push_back(sge->lkey);
	if (sge->lkey >= regions.size())
		return PEAL_REASON_LKEY_UNKNOWN;
	target->mr = &regions[sge->lkey].mr();
	target->offset = sge->addr - target->mr->key.iova;
	users += target->mr->passing;
	return PEAL_REASON_NONE;
}

extern "C" void peal_mr_end_use(struct peal_mr *)
{
	--users;
}

/* Memory that is not pinned is found in pieces of up to 32 bytes. */
extern "C" void *peal_target_kernel_at(const struct peal_target *target, u64 offset, u64 *bytes)
{
	const std::uintptr_t at = target->offset + offset;

	for (Region &region : regions) {
		if (&region.mr() != target->mr)
			continue;
		*bytes = std::min<u64>(*bytes, 32 - (region.skip() + at) % 32);
		return &region.byte(at);
	}
	*bytes = std::min<u64>(*bytes, 32 - at % 32);
	return reinterpret_cast<void *>(at);
}

/* The ranges that were asked for, as {offset, bytes}. */
std::vector<std::pair<u64, u64>> asked;

extern "C" enum peal_odp_state peal_target_look(const struct peal_target *, u64 offset, u64 bytes,
						bool)
{
	asked.emplace_back(offset, bytes);
	return PEAL_ODP_PRESENT;
}

TEST_CASE("random lists, in random chunks: every byte arrives, no other changes", "[cursor]")
{
	Random random("lists");

	for (int round = 0; round < 2000 / SLOWER; ++round) {
		Regions all(random, 2);
		const auto longest = std::min(regions[0].length(), regions[1].length());
		const auto bytes = random.below(random.one_in(3) ? 100 % longest + 1 : longest);
		const List from(random, 0, bytes), to(random, 1, bytes);

		regions[0].fill(random);
		regions[1].clear();
		for (std::uint64_t done = 0; done < bytes;) {
			const auto chunk = 1 + random.below(bytes - done);
			struct peal_cursor src, dst;

			poison(src);
			poison(dst);
			REQUIRE(from.open(src) == PEAL_REASON_NONE);
			REQUIRE(to.open(dst) == PEAL_REASON_NONE);
			peal_cursor_skip(&src, done);
			peal_cursor_skip(&dst, done);
			peal_cursor_copy(&dst, &src, chunk);
			done += chunk;
		}
		std::uint64_t wrong = 0;
		for (std::uint64_t i = 0; i < bytes; ++i)
			wrong += from.byte(i) != to.byte(i);
		if (wrong || count_touched(regions[1]) != bytes)
			FAIL(wrong << " wrong: round " << round << " with seed " << random.seed);
	}
}

TEST_CASE("random lists into a packet, with the CRC of what arrived", "[cursor]")
{
	Random random("gathered");

	for (int round = 0; round < 500 / SLOWER; ++round) {
		Regions all(random, 1);
		const auto longest = regions[0].length();
		const auto bytes = random.below(random.one_in(3) ? 100 % longest + 1 : longest);
		const List from(random, 0, bytes);
		std::vector<std::uint8_t> packet(bytes + 1, UNTOUCHED);
		u32 crc = static_cast<u32>(random.bits());
		const u32 begin = crc;
		struct peal_cursor src;

		regions[0].fill(random);
		poison(src);
		REQUIRE(from.open(src) == PEAL_REASON_NONE);
		peal_crc_source source = peal_crc_from(&src, bytes);
		for (std::uint64_t done = 0, chunk; done < bytes; done += chunk) {
			chunk = 1 + random.below(bytes - done);
			crc = peal_crc_gather(crc, packet.data() + done, 0, &source, chunk, false);
		}
		REQUIRE(peal_crc_gather(crc, packet.data(), 0, &source, 0, false) == crc);
		std::uint64_t wrong = packet[bytes] != UNTOUCHED;
		for (std::uint64_t i = 0; i < bytes; ++i)
			wrong += from.byte(i) != packet[i];
		if (wrong || crc != peal_icrc_add(begin, packet.data(), bytes))
			FAIL(wrong << " wrong: round " << round << " with seed " << random.seed);
	}
}

TEST_CASE("a target and a list: random chunks in one walk", "[cursor]")
{
	Random random("targets");

	for (int round = 0; round < 2000 / SLOWER; ++round) {
		Regions all(random, 2);
		const auto bytes = random.below(std::min(regions[0].length(), regions[1].length()));
		const auto offset = random.below(regions[0].length() - bytes + 1);
		const List to(random, 1, bytes);
		const struct peal_target target = {&regions[0].mr(), offset};
		struct peal_cursor src, dst;

		poison(src);
		poison(dst);
		regions[0].fill(random);
		regions[1].clear();
		peal_cursor_target(&src, &target, bytes);
		REQUIRE(to.open(dst) == PEAL_REASON_NONE);
		for (std::uint64_t done = 0, chunk; done < bytes; done += chunk) {
			chunk = 1 + random.below(bytes - done);
			peal_cursor_copy(&dst, &src, chunk);
		}
		std::uint64_t wrong = 0;
		for (std::uint64_t i = 0; i < bytes; ++i)
			wrong += regions[0].byte(offset + i) != to.byte(i);
		if (wrong || count_touched(regions[1]) != bytes)
			FAIL(wrong << " wrong: round " << round << " with seed " << random.seed);
	}
}

TEST_CASE("inline data of every length, whole and in two chunks", "[cursor]")
{
	Random random("inline data");
	Regions all(random, 1);
	Exactly data(PEAL_MAX_INLINE);

	regions.clear();
	regions.emplace_back(random, 4, false);
	random.fill(data.data(), PEAL_MAX_INLINE);
	std::replace(data.data(), data.data() + PEAL_MAX_INLINE, UNTOUCHED, std::uint8_t{0});
	for (std::uint64_t bytes = 0; bytes <= PEAL_MAX_INLINE; ++bytes) {
		const std::uint64_t first = random.below(bytes + 1);
		const std::uint64_t offset = random.below(regions[0].length() - bytes + 1);
		const struct peal_target target = {&regions[0].mr(), offset};
		struct peal_cursor src, dst;
		std::uint64_t wrong = 0;

		poison(src);
		poison(dst);
		regions[0].clear();
		peal_cursor_inline(&src, data.data(), bytes);
		peal_cursor_target(&dst, &target, bytes);
		peal_cursor_copy(&dst, &src, first);
		peal_cursor_copy(&dst, &src, bytes - first);
		for (std::uint64_t i = 0; i < bytes; ++i)
			wrong += regions[0].byte(offset + i) != data.data()[i];
		CAPTURE(bytes, first, offset);
		REQUIRE(wrong == 0);
		REQUIRE(count_touched(regions[0]) == bytes);
	}
}

TEST_CASE("the reason is that of the first bad key", "[cursor]")
{
	Random random("bad keys");
	Regions all(random, 1);
	const std::vector<peal_sge> sges = {
		{regions[0].mr().key.iova, 1, 0}, {0, 1, NOBODYS}, {0, 1, NOBODYS + 1}};
	struct peal_cursor cursor;

	CHECK(peal_cursor_local(&cursor, nullptr, nullptr, sges.data(), 3, PEAL_SCATTER) ==
	      PEAL_REASON_LKEY_UNKNOWN);
	CHECK(looked_up == std::vector<std::uint32_t>{0, NOBODYS});
}

TEST_CASE("each use of a region that counts its users is ended once", "[cursor]")
{
	Random random("users");
	Regions all(random, 2);
	struct peal_cursor cursor;

	regions[1].mr().passing = true;
	for (int round = 0; round < 1000; ++round) {
		std::vector<peal_sge> sges(random.below(PEAL_MAX_SGE + 1));
		int counted = 0;

		for (auto &sge : sges) {
			sge = {0, static_cast<__u32>(random.below(2)),
			       static_cast<__u32>(random.below(2))};
			counted += sge.length && sge.lkey == 1;
		}
		const auto count = static_cast<std::uint32_t>(sges.size());
		poison(cursor);
		REQUIRE(peal_cursor_local(&cursor, nullptr, nullptr, sges.data(), count,
					  PEAL_SCATTER) == PEAL_REASON_NONE);
		CHECK(users == counted);
		peal_cursor_end(&cursor);
		CHECK(users == 0);
		peal_cursor_end(&cursor);
		CHECK(users == 0);
		if (sges.empty())
			continue;
		sges.back() = {0, 1, NOBODYS};
		REQUIRE(peal_cursor_local(&cursor, nullptr, nullptr, sges.data(), count,
					  PEAL_SCATTER) != PEAL_REASON_NONE);
		CHECK(users == 0);
	}
	const struct peal_target target = {&regions[1].mr(), 0};
	users = 1;
	peal_cursor_target(&cursor, &target, 1);
	peal_cursor_end(&cursor);
	CHECK(users == 0);
}

TEST_CASE("only the bytes of a chunk, of memory whose pages may go, are looked for", "[cursor]")
{
	Random random("pages");
	Regions all(random, 2);
	struct peal_cursor cursor;
	const u64 iova = regions[1].mr().key.iova;
	const std::vector<peal_sge> sges = {
		{iova, 100, 1}, {0, 50, 0}, {iova, 0, 1}, {iova, 200, 1}};

	regions[1].mr().passing = true;
	REQUIRE(peal_cursor_local(&cursor, nullptr, nullptr, sges.data(), 4, PEAL_SCATTER) ==
		PEAL_REASON_NONE);
	const auto ask = [&](u64 skip, u64 bytes) {
		asked.clear();
		CHECK(peal_cursor_look(&cursor, skip, bytes, true) == PEAL_ODP_PRESENT);
		return asked;
	};
	using Ranges = std::vector<std::pair<u64, u64>>;
	CHECK(ask(0, 350) == Ranges{{0, 100}, {0, 200}});
	CHECK(ask(0, 10) == Ranges{{0, 10}});
	CHECK(ask(90, 20) == Ranges{{90, 10}});
	CHECK(ask(100, 50).empty());
	CHECK(ask(149, 2) == Ranges{{0, 1}});
	CHECK(ask(200, 100) == Ranges{{50, 100}});
	peal_cursor_skip(&cursor, 160);
	CHECK(ask(0, 20) == Ranges{{10, 20}});
	CHECK(ask(30, 160) == Ranges{{40, 160}});
	peal_cursor_end(&cursor);
}

TEST_CASE("keys of entries without bytes are not looked up", "[cursor]")
{
	const std::vector<peal_sge> sges(PEAL_MAX_SGE, {~0ULL, 0, NOBODYS});
	struct peal_cursor cursor;

	looked_up.clear();
	for (std::uint32_t count = 0; count <= PEAL_MAX_SGE; ++count)
		CHECK(peal_cursor_local(&cursor, nullptr, nullptr, sges.data(), count,
					PEAL_SCATTER) == PEAL_REASON_NONE);
	CHECK(looked_up.empty());
}

TEST_CASE("sides without bytes are copied without looking at them", "[cursor]")
{
	const struct peal_target nowhere = {};
	const peal_sge nothing = {0, 0, NOBODYS};

	for (std::uint32_t count : {0U, 1U}) {
		struct peal_cursor src, dst;

		poison(src);
		REQUIRE(peal_cursor_local(&src, nullptr, nullptr, &nothing, count, PEAL_GATHER) ==
			PEAL_REASON_NONE);
		peal_cursor_target(&dst, &nowhere, 0);
		peal_cursor_skip(&src, 0);
		peal_cursor_skip(&dst, 0);
		peal_cursor_copy(&dst, &src, 0);
		peal_cursor_copy(&src, &dst, 0);
	}
}

TEST_CASE("a target of all kernel memory is an address", "[cursor]")
{
	struct peal_mr everything = {};
	std::uint8_t from[100], to[100] = {};
	struct peal_cursor src, dst;
	Random random("addresses");

	random.fill(from, sizeof(from));
	const struct peal_target source = {&everything, reinterpret_cast<std::uintptr_t>(from)};
	const struct peal_target target = {&everything, reinterpret_cast<std::uintptr_t>(to)};
	peal_cursor_target(&src, &source, sizeof(from));
	peal_cursor_target(&dst, &target, sizeof(to));
	peal_cursor_copy(&dst, &src, 60);
	peal_cursor_copy(&dst, &src, 40);
	CHECK(std::memcmp(from, to, sizeof(from)) == 0);
}

TEST_CASE("contiguous regions are copied as one piece, and no region in more than its pages",
	  "[cursor]")
{
	Random random("pieces");

	for (int round = 0; round < 500 / SLOWER; ++round) {
		regions.clear();
		regions.emplace_back(random, 8, random.one_in(3));
		regions.emplace_back(random, 8, random.one_in(3));
		const auto bytes = 1 + random.below(7 * PAGE);
		const peal_sge from = {regions[0].mr().key.iova, static_cast<__u32>(bytes), 0};
		const peal_sge to = {regions[1].mr().key.iova, static_cast<__u32>(bytes), 1};
		struct peal_cursor src, dst;
		u32 runs = 1, pages = 1;

		for (std::uint64_t i = 1; i < bytes; ++i) {
			const auto *const near = &regions[0].byte(i), *const far =
									      &regions[1].byte(i);

			runs += near != &regions[0].byte(i - 1) + 1 ||
				far != &regions[1].byte(i - 1) + 1;
			pages += !(reinterpret_cast<std::uintptr_t>(near) % PAGE) ||
				 !(reinterpret_cast<std::uintptr_t>(far) % PAGE);
		}
		peal_cursor_local(&src, nullptr, nullptr, &from, 1, PEAL_GATHER);
		peal_cursor_local(&dst, nullptr, nullptr, &to, 1, PEAL_SCATTER);
		const u32 pieces = peal_cursor_copy(&dst, &src, bytes);
		REQUIRE(pieces >= runs);
		REQUIRE(pieces <=
			(runs == 1 && regions[0].whole() && regions[1].whole() ? 1 : pages));
	}
	regions.clear();
}

TEST_CASE("the last eight bytes of the last piece are read last, in one word", "[cursor]")
{
	static const volatile void *last;
	Random random("last");

	regions.clear();
	regions.emplace_back(random, 2, true);
	regions.emplace_back(random, 2, true);
	const std::uint64_t from = regions[0].mr().key.iova, to = regions[1].mr().key.iova;
	const peal_sge sources[] = {{from, 1000, 0}, {from + 1500, 1001, 0}};
	const peal_sge target = {to, 2001, 1};

	for (const CopyWay &way : copy_ways) {
		struct peal_cursor src, dst;

		way.choose();
		peal_cursor_local(&src, nullptr, nullptr, sources, 2, PEAL_GATHER);
		peal_cursor_local(&dst, nullptr, nullptr, &target, 1, PEAL_SCATTER);
		last = nullptr;
		shim_after_read = [](const volatile void *word) { last = word; };
		peal_cursor_copy(&dst, &src, 2001);
		shim_after_read = nullptr;
		CAPTURE(way.name);
		CHECK(last == &regions[0].byte(1500 + 1001 - 8));
	}
	regions.clear();
}

TEST_CASE("here is the next byte, and how many follow it", "[cursor]")
{
	Random random("here");
	Regions all(random, 1);
	regions.clear();
	regions.emplace_back(random, 8, true);
	const std::uint64_t iova = regions[0].mr().key.iova;
	const peal_sge sges[] = {{iova + 16, 8, 0}, {0, 0, NOBODYS}, {iova + 100, 3000, 0}};
	struct peal_cursor cursor;
	u64 bytes = 1 << 20;

	REQUIRE(peal_cursor_local(&cursor, nullptr, nullptr, sges, 3, PEAL_GATHER) ==
		PEAL_REASON_NONE);
	CHECK(peal_cursor_here(&cursor, &bytes) == &regions[0].byte(16));
	CHECK(bytes == 8);
	peal_cursor_skip(&cursor, 8);
	bytes = 1 << 20;
	CHECK(peal_cursor_here(&cursor, &bytes) == &regions[0].byte(100));
	CHECK(bytes == 3000);
	peal_cursor_skip(&cursor, 2999);
	bytes = 5;
	CHECK(peal_cursor_here(&cursor, &bytes) == &regions[0].byte(3099));
	CHECK(bytes == 1);

	/* The same bytes again, one piece after the other. */
	REQUIRE(peal_cursor_local(&cursor, nullptr, nullptr, sges, 3, PEAL_GATHER) ==
		PEAL_REASON_NONE);
	bytes = 1 << 20;
	CHECK(peal_cursor_take(&cursor, &bytes) == &regions[0].byte(16));
	CHECK(bytes == 8);
	bytes = 2999;
	CHECK(peal_cursor_take(&cursor, &bytes) == &regions[0].byte(100));
	CHECK(bytes == 2999);
	bytes = 5;
	CHECK(peal_cursor_take(&cursor, &bytes) == &regions[0].byte(3099));
	CHECK(bytes == 1);
}
