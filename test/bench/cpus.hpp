// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The CPUs of this process, the time, and how long a cache line takes from one CPU to another, for
 * the programs that measure natively. It knows nothing of RDMA.
 */
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include <sched.h>

namespace peal_bench {

using Clock = std::chrono::steady_clock;
constexpr std::size_t LINE = 64;

inline double ns_since(Clock::time_point begin)
{
	return std::chrono::duration<double, std::nano>(Clock::now() - begin).count();
}

// The CPUs that this process may use.
inline std::vector<int> cpus()
{
	std::vector<int> found;
	cpu_set_t set;
	sched_getaffinity(0, sizeof set, &set);
	for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
		if (CPU_ISSET(cpu, &set))
			found.push_back(cpu);
	return found;
}

inline void run_on(int cpu)
{
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	sched_setaffinity(0, sizeof set, &set);
}

// wait_until(VALUE, READY): spins until READY(VALUE). The only CPU goes to the other process at
// once.
template <class Ready>
void wait_until(const std::atomic<std::uint64_t> &value, bool alone, Ready ready)
{
	while (!ready(value.load(std::memory_order_acquire)))
		if (alone)
			sched_yield();
}

// Two threads change one cache line in turn.
inline double ns_of_handover(int here, int there)
{
	constexpr std::uint64_t COUNT = 100'000;
	alignas(LINE) std::atomic<std::uint64_t> turn = 0;
	std::thread other([&] {
		run_on(there);
		for (std::uint64_t i = 1; i < 2 * COUNT; i += 2) {
			wait_until(turn, false, [i](auto value) { return value == i; });
			turn.store(i + 1, std::memory_order_release);
		}
	});
	run_on(here);
	auto begin = Clock::now();
	for (std::uint64_t i = 0; i < 2 * COUNT; i += 2) {
		turn.store(i + 1, std::memory_order_release);
		wait_until(turn, false, [i](auto value) { return value == i + 2; });
	}
	double ns = ns_since(begin) / (2 * COUNT);
	other.join();
	return ns;
}

} // namespace peal_bench
