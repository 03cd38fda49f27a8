// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * How long kernel/object/cursor.c takes for what the engine moves under a lock (one turn) and
 * for one caller (one kick), on this machine.
 *
 * Holds: buffers in the cache and out of it; aligned, not aligned, and so close
 * modulo a page that string instructions are avoided.
 * Does not hold: limits. Run it by hand: meson test --benchmark -v.
 */
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "copy_ways.hpp"
#include "no_regions.hpp"

using namespace peal::test;

namespace {

constexpr std::size_t TURN = 64 << 10, KICK = 4 * TURN, ARENA = 256 << 20;
constexpr int ROUNDS = 200;

struct Buffers {
	std::uint8_t *from, *to;

	static std::uint8_t *arena()
	{
		void *memory = mmap(nullptr, ARENA, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

		return memory == MAP_FAILED ? nullptr : static_cast<std::uint8_t *>(memory);
	}
};

/* Return: whether the kernel of this machine reports this feature of the CPU. */
bool cpu_has(const std::string &flag)
{
	std::ifstream file("/proc/cpuinfo");
	std::string word;

	while (file >> word)
		if (word == flag)
			return true;
	return false;
}

bool usable(const CopyWay &way)
{
	return (!way.erms || cpu_has("erms")) && (!way.rep_good || cpu_has("rep_good"));
}

double microseconds(const Buffers &at, std::size_t bytes)
{
	using Clock = std::chrono::steady_clock;
	const auto begin = Clock::now();

	peal_copy(at.to, at.from, bytes);
	return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

/*
 * With `stride` 0 it copies the same bytes each time. Otherwise it
 * copies bytes that are in no cache.
 */
void measure(const CopyWay &way, const char *what, const Buffers &arenas, std::size_t bytes,
	     std::size_t stride, std::size_t skew)
{
	std::vector<double> times;

	for (int round = 0; round < ROUNDS; ++round) {
		const std::size_t at = round * stride % (ARENA - KICK - 4096);

		times.push_back(microseconds({arenas.from + at, arenas.to + at + skew}, bytes));
	}
	std::sort(times.begin(), times.end());
	std::printf("%-10s %4zu KiB  %-28s median %7.1f us  99 %% %7.1f us\n", way.name,
		    bytes >> 10, what, times[ROUNDS / 2], times[ROUNDS * 99 / 100]);
}

} // namespace

int main()
{
	const Buffers arenas{Buffers::arena(), Buffers::arena()};

	if (!arenas.from || !arenas.to)
		return 1;
	for (const CopyWay &way : copy_ways) {
		if (!usable(way))
			continue;
		way.choose();
		for (const std::size_t bytes : {TURN, KICK}) {
			measure(way, "in the cache", arenas, bytes, 0, 0);
			measure(way, "in memory", arenas, bytes, KICK + (1 << 20), 0);
			measure(way, "in memory, not aligned", arenas, bytes, KICK + (1 << 20),
				1001);
			measure(way, "in memory, 8 bytes apart", arenas, bytes, KICK + (1 << 20),
				8);
		}
	}
	return 0;
}
