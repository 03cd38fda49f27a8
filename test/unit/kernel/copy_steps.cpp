// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The copies of kernel/object/cursor.c and kernel/net/crc_x86.S, instruction by instruction.
 *
 * Holds: After every instruction of a copy, the bytes that have arrived are the first ones.
 * Each arrives at most once, and the last eight arrive in one instruction.
 * The processor's trap flag shows each step, so the test does not depend on a race.
 * It shows no reordering of stores inside the processor (copy_order.cpp does).
 */
#include "../catch.hpp"
#include "support.hpp"
#include "copy_ways.hpp"

#ifdef __x86_64__
#include <csignal>
#include <ucontext.h>

using namespace peal::test;

namespace {

constexpr std::uint8_t OLD = 0, NEW = 1;
constexpr unsigned ENDLESS = 100'000;

/* The state that the signal handler reads. */
struct Steps {
	volatile std::uint8_t *dst;
	std::size_t bytes, arrived;
	unsigned count, wrong;
};

Steps steps;

std::size_t count_arrived()
{
	std::size_t n = 0;

	while (n < steps.bytes && steps.dst[n] == NEW)
		++n;
	return n;
}

void on_step(int, siginfo_t *, void *context)
{
	const std::size_t arrived = count_arrived();
	bool wrong = arrived < steps.arrived;

	for (std::size_t i = arrived; i < steps.bytes; ++i)
		wrong |= steps.dst[i] != OLD;
	if (steps.bytes >= 8)
		wrong |= arrived > steps.bytes - 8 && arrived < steps.bytes;
	steps.arrived = arrived;
	steps.wrong += wrong;
	/* It may be a sanitizer's report, which must run. */
	if (++steps.count == ENDLESS)
		static_cast<ucontext_t *>(context)->uc_mcontext.gregs[REG_EFL] &= ~0x100;
}

/* Writes below the red zone. */
void trap_flag(bool on)
{
	if (on)
		__asm__ volatile("lea -128(%%rsp), %%rsp; pushfq; orq $0x100, (%%rsp); popfq;"
				 "lea 128(%%rsp), %%rsp" ::
					 : "memory", "cc");
	else
		__asm__ volatile("lea -128(%%rsp), %%rsp; pushfq; andq $-0x101, (%%rsp); popfq;"
				 "lea 128(%%rsp), %%rsp" ::
					 : "memory", "cc");
}

class Stepper {
	Exactly from_{8192, 4096}, to_{8192, 4096};
	struct sigaction before_;

public:
	Stepper()
	{
		struct sigaction action = {};

		action.sa_sigaction = on_step;
		action.sa_flags = SA_SIGINFO;
		sigaction(SIGTRAP, &action, &before_);
		std::memset(from_.data(), NEW, 8192);
	}
	~Stepper() { sigaction(SIGTRAP, &before_, nullptr); }
	void copy(const CopyWay &way, std::size_t to, std::size_t from, std::size_t bytes)
	{
		std::uint8_t *dst = to_.data() + to;

		std::memset(to_.data(), OLD, 8192);
		steps = {dst, bytes, 0, 0, 0};
		trap_flag(true);
		way.copy(dst, from_.data() + from, bytes);
		trap_flag(false);
	}
};

} // namespace

TEST_CASE("after each instruction, the bytes that have arrived are the first ones", "[copy][order]")
{
	Stepper stepper;

	for (const CopyWay &way : copy_ways) {
		way.choose();
		for (std::size_t bytes :
		     {1,  2,  7,   8,	9,   15,  16,  17,  24,	 64,  71,  72,
		      73, 80, 135, 136, 137, 200, 264, 519, 520, 521, 527, 600}) {
			for (std::size_t to : {0, 1, 4, 7, 8, 1024, 1027}) {
				stepper.copy(way, to, 0, bytes);
				CAPTURE(way.name, bytes, to);
				CHECK(steps.count > 0);
				CHECK(steps.count < ENDLESS);
				CHECK(steps.wrong == 0);
				CHECK(steps.arrived == bytes);
			}
		}
	}
}
#endif
