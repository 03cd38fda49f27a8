// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * What every guest test binary shares: Catch2, the seed, the clock, skipping.
 *
 * Holds: one spelling for Catch2 2 and 3, a seed that is printed and replayed with --seed,
 * deadlines that are long enough for software emulation, exit status 77 when every test
 * case of a binary was skipped.
 * Does not hold: anything about verbs (verbs.hpp) or the rings (raw.hpp).
 */
#pragma once

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <utility>

namespace peal_test {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using Duration = Clock::duration;

/* How many times longer things may take than on a stock kernel. scripts/vm sets it. */
inline int slowness()
{
	const char *times = std::getenv("PEAL_SLOWNESS");
	return times ? std::atoi(times) : 1;
}

/*
 * Long enough for an emulated machine that shares its processors. A test
 * waits this long only if it fails.
 */
inline const Duration patience = 10s * slowness();

/* Long enough to believe that an event does not come. */
inline const Duration absence = 50ms * slowness();

/* How long an endless test runs: the seconds that the variable has. */
inline Duration time_from(const char *variable, int otherwise)
{
	const char *seconds = std::getenv(variable);
	return std::chrono::seconds(seconds ? std::atoi(seconds) : otherwise);
}

/* What main() sets up and sums up. */
struct Session {
	std::uint64_t seed = 0;
	unsigned skipped = 0;
	unsigned late_failures = 0; /* destructors cannot throw */
};

inline Session &session()
{
	static Session instance;
	return instance;
}

class Random {
public:
	explicit Random(std::uint64_t salt) : engine_(session().seed ^ salt * 0x9e3779b97f4a7c15U)
	{
	}

	/* Uniform in [low, high]. */
	std::uint64_t between(std::uint64_t low, std::uint64_t high)
	{
		return std::uniform_int_distribution<std::uint64_t>(low, high)(engine_);
	}
	std::uint64_t word() { return engine_(); }

private:
	std::mt19937_64 engine_;
};

inline std::string device_name()
{
	const char *name = std::getenv("PEAL_DEV");
	return name && *name ? name : "peal0";
}

/* Whether messages to the device itself are packets. scripts/test runs most tests both ways. */
inline bool on_wire()
{
	const char *transport = std::getenv("PEAL_TRANSPORT");

	return transport && std::string(transport) == "wire";
}

/* Whether `scripts/test all` runs. Otherwise a test leaves out parts that add little. */
inline bool thorough()
{
	return std::getenv("PEAL_THOROUGH") != nullptr;
}

inline void note_skip(const std::string &why)
{
	session().skipped++;
	std::printf("skipped: %s\n", why.c_str());
}

inline double milliseconds(Duration d)
{
	return std::chrono::duration<double, std::milli>(d).count();
}

class Stopwatch {
public:
	Duration elapsed() const { return Clock::now() - start_; }

private:
	Clock::time_point start_ = Clock::now();
};

} // namespace peal_test

/* Leaves the test case, because it misses something that it needs. */
#define SKIP_CASE(why)                                                                             \
	do {                                                                                       \
		::peal_test::note_skip(why);                                                       \
		return;                                                                            \
	} while (0)
