// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The copies of kernel/net/crc_x86.S, while the source changes after every instruction.
 *
 * Holds: The CRC is that of the bytes that arrive. A program may change its memory while a packet
 * is made of it, and the peer must not drop that packet.
 * The processor's trap flag shows each instruction, so the test does not depend on a race.
 */
#include "../catch.hpp"
#include "support.hpp"
#include "crc_ways.hpp"

#ifdef __x86_64__
#include <csignal>

using namespace peal::test;

namespace {

struct {
	volatile std::uint8_t *from;
	std::size_t bytes;
	unsigned steps;
} change;

void on_step(int, siginfo_t *, void *)
{
	for (std::size_t i = 0; i < change.bytes; ++i)
		change.from[i] = change.from[i] * 5 + 1;
	++change.steps;
}

/* Call `way` with the trap flag set. It is written below the red zone. */
u32 stepped(const CrcWay &way, u32 crc, void *to, const void *from, std::size_t n)
{
	__asm__ volatile("lea -128(%%rsp), %%rsp; pushfq; orq $0x100, (%%rsp); popfq;"
			 "lea 128(%%rsp), %%rsp" ::
				 : "memory", "cc");
	crc = way.copy(crc, to, from, n);
	__asm__ volatile("lea -128(%%rsp), %%rsp; pushfq; andq $-0x101, (%%rsp); popfq;"
			 "lea 128(%%rsp), %%rsp" ::
				 : "memory", "cc");
	return crc;
}

} // namespace

TEST_CASE("the CRC is that of what arrives, also if the source changes", "[crc][order]")
{
	Random random("changing source");
	struct sigaction action = {}, before;
	Exactly from(2048), to(2048);

	action.sa_sigaction = on_step;
	action.sa_flags = SA_SIGINFO;
	sigaction(SIGTRAP, &action, &before);
	for (const CrcWay &way : crc_ways()) {
		if (!way.least || !way.present)
			continue;
		for (std::size_t n :
		     {16,  17,	19,  31,  32,  47,  48,	 63,  64,  67,	79,  80,  100,	127, 128,
		      135, 192, 200, 255, 256, 271, 300, 511, 512, 527, 543, 600, 1040, 1053}) {
			random.fill(from.data(), 2048);
			change = {from.data(), n, 0};
			const u32 crc = stepped(way, 7, to.data(), from.data(), n);
			CAPTURE(way.name, n, random.seed);
			CHECK(change.steps > n / 64);
			CHECK(crc == crc_bitwise(7, to.data(), n));
		}
	}
	sigaction(SIGTRAP, &before, nullptr);
}
#endif
