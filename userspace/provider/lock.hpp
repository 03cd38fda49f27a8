// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The lock of one queue: SQ, RQ or CQ. It excludes for a few dozen instructions, or not at all if
 * the program has promised to be single-threaded.
 *
 * It is not a std::mutex, because an unlock here is a plain store. That is half the
 * cost, and it never makes a system call to wake a waiter, so a poll makes none.
 * It is not a pure spin lock, because a holder may be preempted. A waiter therefore
 * yields and finally sleeps. Otherwise a waiter of real-time priority could keep the
 * holder off the CPU.
 */
#pragma once
#include <sched.h>
#include <time.h>

#include <atomic>

#include "../ring/barrier.hpp"

namespace peal {

class Lock {
	std::atomic<bool> held_ = false;
	const bool needed_;

	static constexpr int SPINS = 128;
	static constexpr int YIELDS = 32;

public:
	explicit Lock(bool needed) noexcept : needed_(needed) {}

	void lock() noexcept
	{
		if (!needed_ || try_lock())
			return;
		wait();
	}

	bool try_lock() noexcept
	{
		return !needed_ || !held_.exchange(true, std::memory_order_acquire);
	}

	void unlock() noexcept
	{
		if (needed_)
			held_.store(false, std::memory_order_release);
	}

private:
	[[gnu::noinline]] void wait() noexcept
	{
		for (int round = 0;; ++round) {
			for (int i = 0; i < SPINS; ++i) {
				if (!held_.load(std::memory_order_relaxed) && try_lock())
					return;
				cpu_relax();
			}
			if (round < YIELDS) {
				sched_yield();
			} else {
				const timespec time{0, 50'000};

				nanosleep(&time, nullptr);
			}
		}
	}
};

} // namespace peal
