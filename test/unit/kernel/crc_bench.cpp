// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * How fast the code of kernel/net/crc.c is on this machine, beside memcpy, a string instruction and
 * a CRC by eight tables as that of the kernel's library before Linux 6.14. Everything is measured
 * in turns, so that a change of the machine's speed meets all alike. The figures are medians.
 *
 * Holds: source and destination in the cache. The destination is where a packet's payload is.
 * Does not hold: limits. Run it by hand: meson test --benchmark -v "kernel crc".
 */
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "support.hpp"
#include "crc_ways.hpp"
#include "no_regions.hpp"

#ifdef __x86_64__
#include <immintrin.h>
#endif

using namespace peal::test;

namespace {

constexpr std::size_t MOST = 65536, AFTER_HEADERS = 128 + 42 + 12;
constexpr int TURNS = 301;
constexpr double TURN_NS = 20'000;

class EightTables {
	std::array<std::array<u32, 256>, 8> tables_;

public:
	EightTables()
	{
		for (u32 i = 0; i < 256; ++i)
			tables_[0][i] = crc_bitwise(i, 0);
		for (int t = 1; t < 8; ++t)
			for (u32 i = 0; i < 256; ++i)
				tables_[t][i] = crc_bitwise(tables_[t - 1][i], 0);
	}
	u32 add(u32 crc, const std::uint8_t *bytes, std::size_t n) const
	{
		for (; n >= 8; n -= 8, bytes += 8) {
			std::uint64_t word;

			std::memcpy(&word, bytes, 8);
			word ^= crc;
			crc = 0;
			for (int i = 0; i < 8; ++i)
				crc ^= tables_[7 - i][word >> 8 * i & 0xff];
		}
		for (; n; --n)
			crc = crc >> 8 ^ tables_[0][(crc ^ *bytes++) & 0xff];
		return crc;
	}
};

struct Subject {
	std::string name;
	std::function<void(std::size_t n)> run;
	std::vector<double> ns = {};

	void turn(std::size_t n)
	{
		using Clock = std::chrono::steady_clock;
		const int times = 1 + static_cast<int>(TURN_NS / (20 + n / 20.));
		const auto begin = Clock::now();

		for (int i = 0; i < times; ++i)
			run(n);
		ns.push_back(
			std::chrono::duration<double, std::nano>(Clock::now() - begin).count() /
			times);
	}
	double median()
	{
		std::nth_element(ns.begin(), ns.begin() + TURNS / 2, ns.end());
		return ns[TURNS / 2];
	}
};

volatile u32 sink;

#ifdef __x86_64__
/* What a section may cost: the registers of a program are saved, and restored when it goes on. */
__attribute__((target("xsave,xsavec"))) void save_and_restore(void *area)
{
	_xsavec64(area, 0xe7);
	_xrstor64(area, 0xe7);
}
#endif

} // namespace

int main()
{
	Random random("benchmark");
	const Exactly from(MOST + 4096, 4096), to(MOST + 4096, 4096);
	std::uint8_t *const dst = to.data() + AFTER_HEADERS, *const src = from.data();
	const EightTables tables;
	std::vector<Subject> subjects = {
		{"memcpy",
		 [=](std::size_t n) {
			 std::memcpy(dst, src, n);
			 __asm__ volatile("" ::: "memory");
		 }},
		{"eight tables", [=, &tables](std::size_t n) { sink = tables.add(1, src, n); }},
	};

	random.fill(src, MOST);
#ifdef __x86_64__
	subjects.push_back({"rep movsb", [=](std::size_t n) {
				    void *to_ = dst;
				    const void *from_ = src;

				    __asm__ volatile("rep movsb"
						     : "+D"(to_), "+S"(from_), "+c"(n)
						     :
						     : "memory");
			    }});
	if (__builtin_cpu_supports("avx"))
		subjects.push_back(
			{"AVX copy", [=](std::size_t n) { peal_copy_avx(dst, src, n); }});
#endif
	for (const CrcWay &way : crc_ways()) {
		if (!way.least || !way.present)
			continue;
		subjects.push_back({way.name, [=](std::size_t n) { sink = way.add(1, src, n); }});
		subjects.push_back(
			{"   and copy", [=](std::size_t n) { sink = way.copy(1, dst, src, n); }});
	}
	std::printf("%-20s", "bytes");
	for (std::size_t n : {64, 256, 1024, 1040, 4096, 65536})
		std::printf("%19zu", n);
	std::vector<std::string> rows(subjects.size());
	for (std::size_t n : {64, 256, 1024, 1040, 4096, 65536}) {
		double alone = 0;

		for (Subject &subject : subjects)
			subject.ns.clear();
		for (int turn = 0; turn < TURNS; ++turn)
			for (Subject &subject : subjects)
				subject.turn(n);
		for (std::size_t i = 0; i < subjects.size(); ++i) {
			const double ns = subjects[i].median();
			const bool copies = subjects[i].name[0] == ' ';
			char cell[64], share[8] = "";

			if (copies)
				std::snprintf(share, sizeof(share), "%3.0f%%", 100 * alone / ns);
			std::snprintf(cell, sizeof(cell), "%8.1f %5.1f%5s", ns, n / ns, share);
			rows[i] += cell;
			alone = ns;
		}
	}
	std::printf("\n%-20s", "");
	for (int i = 0; i < 6; ++i)
		std::printf("      ns  GB/s     ");
	for (std::size_t i = 0; i < subjects.size(); ++i)
		std::printf("\n%-20s%s", subjects[i].name.c_str(), rows[i].c_str());
	std::printf("\nIn %%: the speed of the CRC alone that is left when it also copies.\n");
#ifdef __x86_64__
	if (__builtin_cpu_supports("avx")) {
		const Exactly area(4096);
		Subject save = {"save and restore",
				[&](std::size_t) { save_and_restore(area.data()); }};

		for (int turn = 0; turn < TURNS; ++turn)
			save.turn(0);
		std::printf("Saving and restoring a program's vector registers: %.0f ns\n",
			    save.median());
	}
#endif
	return 0;
}
