// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Random numbers, memory and waiting for the tests of kernel files.
 *
 * Holds: every random run prints its seed, and PEAL_TEST_SEED=N runs it again.
 */
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <random>

namespace peal::test {

/* Fewer rounds with sanitizers, because they make everything ten times slower. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int SLOWER = 10;
#else
constexpr int SLOWER = 1;
#endif

class Random {
	static std::uint64_t choose_seed()
	{
		const char *wanted = std::getenv("PEAL_TEST_SEED");

		return wanted ? std::strtoull(wanted, nullptr, 0) : std::random_device{}();
	}

public:
	const std::uint64_t seed = choose_seed();

private:
	std::mt19937_64 engine_{seed};

public:
	explicit Random(const char *what)
	{
		std::cout << what << ": PEAL_TEST_SEED=" << seed << std::endl;
	}
	std::uint64_t bits() { return engine_(); }
	/* One of 0 .. n - 1. */
	std::uint64_t below(std::uint64_t n) { return engine_() % n; }
	bool one_in(std::uint64_t n) { return below(n) == 0; }
	void fill(void *memory, std::size_t bytes)
	{
		auto *to = static_cast<std::uint8_t *>(memory);

		for (std::size_t i = 0; i < bytes; ++i)
			to[i] = static_cast<std::uint8_t>(engine_());
	}
};

/* Heap memory of exactly that many bytes, so that AddressSanitizer sees the byte behind it. */
class Exactly {
	struct Free {
		void operator()(std::uint8_t *memory) const { std::free(memory); }
	};
	std::unique_ptr<std::uint8_t, Free> memory_;

public:
	explicit Exactly(std::size_t bytes, std::size_t alignment = 64)
		: memory_(static_cast<std::uint8_t *>(std::aligned_alloc(alignment, bytes)))
	{
		std::memset(memory_.get(), 0, bytes);
	}
	std::uint8_t *data() const { return memory_.get(); }
};

} // namespace peal::test
