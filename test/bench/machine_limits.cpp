// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * What this machine can do without any device: the limits that scripts/bench prints beside its
 * figures, and two processes that share memory, which have no transport between them. It owns these
 * loops and knows nothing of RDMA.
 *
 *	machine-limits all			each limit: nanoseconds of a step, and its name
 *	machine-limits shm-bw BYTES COUNT	a process copies COUNT messages into memory of
 *						another: nanoseconds of one message
 *	machine-limits shm-lat COUNT		two processes write in turn: nanoseconds of one way,
 *						median, 99 % and 99.9 %
 *
 * On one CPU the two processes yield it to each other. With more, each spins on a CPU of its own.
 */
#include "cpus.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>
#include <vector>

#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __x86_64__
#include <immintrin.h>
#endif

using namespace peal_bench;

namespace {

// ns_of_step(STEP): the median of several runs, each long enough for the clock.
template <class Step>
double ns_of_step(Step step)
{
	std::array<double, 5> runs;
	long count = 1;
	for (;; count *= 2) {
		auto begin = Clock::now();
		for (long i = 0; i < count; ++i)
			step();
		if (ns_since(begin) > 2e6)
			break;
	}
	for (double &run : runs) {
		auto begin = Clock::now();
		for (long i = 0; i < count; ++i)
			step();
		run = ns_since(begin) / double(count);
	}
	std::ranges::sort(runs);
	return runs[runs.size() / 2];
}

// Keeps the compiler from dropping what a loop writes.
void is_used(const void *memory)
{
	asm volatile("" : : "r"(memory) : "memory");
}

// CRC-32 as the ICRC has it, 4 bits at a time, for a CPU without carry-less multiplication.
std::uint32_t crc_by_table(std::uint32_t crc, const unsigned char *p, std::size_t size)
{
	static const auto table = [] {
		std::array<std::uint32_t, 16> t{};
		for (std::uint32_t i = 0; i < t.size(); ++i) {
			t[i] = i;
			for (int bit = 0; bit < 4; ++bit)
				t[i] = t[i] >> 1 ^ (t[i] & 1 ? 0xedb88320u : 0);
		}
		return t;
	}();
	while (size--) {
		crc ^= *p++;
		crc = crc >> 4 ^ table[crc & 15];
		crc = crc >> 4 ^ table[crc & 15];
	}
	return crc;
}

#ifdef __x86_64__
// Folds 64 bytes at a time. The constants are x^n modulo the polynomial, bit-reflected, for n of 64
// bytes and of 16.
__attribute__((target("pclmul,sse4.1"))) std::uint32_t crc_by_folding(std::uint32_t crc,
								      const unsigned char *p,
								      std::size_t size)
{
	const auto by64 = _mm_set_epi64x(0x1c6e41596, 0x154442bd4),
		   by16 = _mm_set_epi64x(0x0ccaa009e, 0x1751997d0);
	auto fold =
		[](__m128i lane, __m128i by, __m128i next) __attribute__((target("pclmul,sse4.1")))
	{
		return _mm_xor_si128(next, _mm_xor_si128(_mm_clmulepi64_si128(lane, by, 0x00),
							 _mm_clmulepi64_si128(lane, by, 0x11)));
	};
	auto load = [&](std::size_t at) __attribute__((target("pclmul,sse4.1")))
	{
		return _mm_loadu_si128(reinterpret_cast<const __m128i *>(p + at));
	};
	if (size < 64)
		return crc_by_table(crc, p, size);
	__m128i lanes[4] = {_mm_xor_si128(load(0), _mm_cvtsi32_si128(int(crc))), load(16), load(32),
			    load(48)};
	for (p += 64, size -= 64; size >= 64; p += 64, size -= 64)
		for (std::size_t lane = 0; lane < 4; ++lane)
			lanes[lane] = fold(lanes[lane], by64, load(16 * lane));
	for (std::size_t lane = 1; lane < 4; ++lane)
		lanes[lane] = fold(lanes[lane - 1], by16, lanes[lane]);
	// The last 16 bytes are few, so the table reduces them.
	alignas(16) unsigned char rest[16];
	_mm_store_si128(reinterpret_cast<__m128i *>(rest), lanes[3]);
	return crc_by_table(crc_by_table(0, rest, sizeof rest), p, size);
}
#endif

std::uint32_t crc(const unsigned char *p, std::size_t size)
{
#ifdef __x86_64__
	if (__builtin_cpu_supports("pclmul"))
		return ~crc_by_folding(~0u, p, size);
#endif
	return ~crc_by_table(~0u, p, size);
}

// Two processes wake each other with a byte in a pipe: one way. Each has a CPU of its own if there
// are two. It is what an event costs at least, because a program reads events as it reads a pipe.
double ns_of_wakeup()
{
	int there[2], back[2];
	char byte = 0;
	if (pipe(there) || pipe(back)) {
		std::perror("machine-limits: pipe");
		std::exit(1);
	}
	auto all = cpus();
	pid_t child = fork();
	if (child == 0) {
		if (all.size() > 1)
			run_on(all[1]);
		close(there[1]);
		while (read(there[0], &byte, 1) == 1 && write(back[1], &byte, 1) == 1) {
		}
		_exit(0);
	}
	double ns = 0;
	// The CPU of this process stays as it is, so another thread runs on the first one.
	std::thread([&] {
		if (all.size() > 1)
			run_on(all[0]);
		ns = ns_of_step([&] {
			     if (write(there[1], &byte, 1) != 1 || read(back[0], &byte, 1) != 1)
				     std::abort();
		     }) /
		     2;
	}).join();
	for (int fd : {there[0], there[1], back[0], back[1]})
		close(fd);
	waitpid(child, nullptr, 0);
	return ns;
}

int print_limits()
{
	constexpr std::size_t MOST = 8 << 20;
	std::vector<unsigned char> from(MOST, 1), to(MOST);
	if (crc(reinterpret_cast<const unsigned char *>("123456789"), 9) != 0xcbf43926 ||
	    crc(from.data(), 1000) != ~crc_by_table(~0u, from.data(), 1000))
		return std::fputs("machine-limits: the CRC is wrong\n", stderr), 1;
	std::printf("%.1f system call\n", ns_of_step([] { syscall(SYS_getppid); }));
	std::printf("%.1f wake-up of another process\n", ns_of_wakeup());
	struct {
		std::size_t bytes;
		const char *name;
	} const sizes[] = {{64, "64 B"},
			   {4096, "4 KiB"},
			   {65536, "64 KiB"},
			   {1 << 20, "1 MiB"},
			   {MOST, "8 MiB"}};
	for (auto [bytes, name] : sizes)
		std::printf("%.1f memcpy %s\n", ns_of_step([&, bytes = bytes] {
				    std::memcpy(to.data(), from.data(), bytes);
				    is_used(to.data());
			    }),
			    name);
	for (auto [bytes, name] : {sizes[0], sizes[1], sizes[2]})
		std::printf("%.1f CRC %s\n", ns_of_step([&, bytes = bytes] {
				    auto sum = crc(from.data(), bytes);
				    is_used(&sum);
			    }),
			    name);
	if (auto all = cpus(); all.size() > 1)
		std::printf("%.1f cache line to another CPU\n", ns_of_handover(all[0], all[1]));
	return 0;
}

// What the two processes share. Each counter has a cache line of its own.
struct Shared {
	alignas(LINE) std::atomic<std::uint64_t> sent;
	alignas(LINE) std::atomic<std::uint64_t> taken;
	alignas(LINE) unsigned char memory[];
};

Shared *share(std::size_t bytes)
{
	void *memory = mmap(nullptr, sizeof(Shared) + bytes, PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (memory == MAP_FAILED) {
		std::perror("machine-limits: mmap");
		std::exit(1);
	}
	return new (memory) Shared{};
}

// Runs `send` here, and in a child process what takes its messages. Each has a CPU of its own if
// there are two.
template <class Send>
int beside_receiver(Shared *shared, std::uint64_t count, Send send)
{
	auto all = cpus();
	bool alone = all.size() < 2;
	pid_t child = fork();
	if (child == 0) {
		if (!alone)
			run_on(all[1]);
		for (std::uint64_t i = 1; i <= count; ++i) {
			wait_until(shared->sent, alone, [i](auto value) { return value >= i; });
			shared->taken.store(i, std::memory_order_release);
		}
		_exit(0);
	}
	if (!alone)
		run_on(all[0]);
	send(alone);
	int status = 1;
	waitpid(child, &status, 0);
	return status != 0;
}

// The sender is at most as many messages ahead as perftest's default of 128, and as fit into 16
// MiB.
int bandwidth(std::size_t bytes, std::uint64_t count)
{
	const std::uint64_t slots = std::clamp<std::uint64_t>((16 << 20) / bytes, 1, 128);
	auto *shared = share(slots * bytes);
	std::vector<unsigned char> from(bytes, 1);
	return beside_receiver(shared, count, [&](bool alone) {
		auto begin = Clock::now();
		for (std::uint64_t i = 0; i < count; ++i) {
			wait_until(shared->taken, alone,
				   [=](auto value) { return i - value < slots; });
			std::memcpy(shared->memory + i % slots * bytes, from.data(), bytes);
			shared->sent.store(i + 1, std::memory_order_release);
		}
		wait_until(shared->taken, alone, [=](auto value) { return value == count; });
		std::printf("%.2f\n", ns_since(begin) / double(count));
		std::fflush(stdout);
	});
}

int latency(std::uint64_t count)
{
	auto *shared = share(0);
	std::vector<double> times(count);
	return beside_receiver(shared, count, [&](bool alone) {
		for (std::uint64_t i = 1; i <= count; ++i) {
			auto begin = Clock::now();
			shared->sent.store(i, std::memory_order_release);
			wait_until(shared->taken, alone, [i](auto value) { return value >= i; });
			times[i - 1] = ns_since(begin) / 2;
		}
		std::ranges::sort(times);
		auto at = [&](double part) { return times[std::size_t(double(count - 1) * part)]; };
		std::printf("%.2f %.2f %.2f\n", at(0.5), at(0.99), at(0.999));
		std::fflush(stdout);
	});
}

} // namespace

int main(int argc, char **argv)
{
	std::string_view what = argc > 1 ? argv[1] : "";
	auto number = [&](int i) { return std::strtoull(argv[i], nullptr, 10); };
	if (what == "all" && argc == 2)
		return print_limits();
	if (what == "shm-bw" && argc == 4 && number(2) > 0 && number(3) > 0)
		return bandwidth(number(2), number(3));
	if (what == "shm-lat" && argc == 3 && number(2) > 0)
		return latency(number(2));
	std::fputs("usage: machine-limits all | shm-bw BYTES COUNT | shm-lat COUNT\n", stderr);
	return 2;
}
