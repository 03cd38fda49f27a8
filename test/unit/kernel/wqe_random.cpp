// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * kernel/object/wqe.c with send WQEs of a hostile program.
 *
 * Holds: For any bytes, parsing reads nothing outside the slot, accepts exactly the well-formed
 * WQEs, and its result is consistent in itself, even while another thread of the program
 * rewrites the slot.
 */
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "../catch.hpp"
#include "wqe.hpp"

using namespace peal::test;

namespace {

/* Two pages. The second one cannot be touched, and the slot ends where it begins. */
class BeforeTheWall {
	std::size_t page_ = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
	void *pages_ = mmap(nullptr, 2 * page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			    -1, 0);

public:
	BeforeTheWall() { REQUIRE(mprotect(end(), page_, PROT_NONE) == 0); }
	~BeforeTheWall() { munmap(pages_, 2 * page_); }
	BeforeTheWall(const BeforeTheWall &) = delete;
	BeforeTheWall &operator=(const BeforeTheWall &) = delete;
	std::uint8_t *end() const { return static_cast<std::uint8_t *>(pages_) + page_; }
};

const std::vector<std::uint32_t> inline_caps = {0,  1,	31,  32,  33,  63,  64,	 65, 95,
						96, 97, 128, 220, 256, 480, 511, 512};

/* Values that leave the SGEs where they are and change the sums. */
std::uint64_t scribble(Random &random, std::size_t word)
{
	if (word == 0) {
		const std::uint64_t opcode = 1 + random.below(PEAL_OP_COUNT);
		const std::uint64_t flags = random.one_in(4) ? PEAL_WQE_INLINE : 0;

		return opcode | flags << 8 | random.below(10) << 16;
	}
	if (word == 2)
		return random.one_in(2) ? 0 : random.below(700) << 32;
	if (word == 3)
		return random.one_in(8);
	return random.below(3) ? random.below(1U << 29) : random.bits();
}

} // namespace

TEST_CASE("a slot is large enough for whatever parsing reads", "[wqe]")
{
	BeforeTheWall wall;
	Parsed send;

	for (std::uint32_t max_sge = 0; max_sge <= PEAL_MAX_SGE; ++max_sge) {
		for (std::uint32_t max_inline : inline_caps) {
			const SendCaps caps{max_sge, max_inline};
			const peal_wqe_limits limits = caps.limits();
			const SendView view{wall.end() - caps.stride()};

			CHECK(caps.stride() >= 32 + 16 * limits.max_sge);
			CHECK(caps.stride() >= 32 + limits.max_inline);
			CHECK(caps.stride() <= PEAL_WQE_MAX_BYTES);
			for (unsigned word = 0; word < PEAL_OP_COUNT * 256; ++word) {
				view.header() = {};
				view.header().opcode = static_cast<__u8>(word % PEAL_OP_COUNT);
				view.header().num_sge = static_cast<__u8>(word / PEAL_OP_COUNT);
				parse_send(view.slot, &limits, &send);
			}
		}
	}
}

TEST_CASE("random sends are accepted exactly if they are well-formed", "[wqe]")
{
	Random random("send WQEs");
	unsigned accepted[PEAL_OP_COUNT] = {}, refused = 0;

	for (int round = 0; round < 100'000; ++round) {
		const SendCaps caps = random_caps(random);
		const peal_wqe_limits limits = caps.limits();
		const Exactly memory(caps.stride());
		const SendView view{memory.data()};
		Parsed send;

		std::memset(&send, 0xa5, sizeof(send));
		scramble(random, view, caps);
		const bool good = is_good(view, limits);
		const bool taken = !parse_send(view.slot, &limits, &send);

		if (taken != good || (taken && !is_consistent(send, limits, view.slot)))
			FAIL("round " << round << " with seed " << random.seed);
		if (send.opcode >= PEAL_OP_COUNT || send.flags != view.header().flags)
			FAIL("no CQE could be written: round " << round << " with seed "
							       << random.seed);
		if (taken)
			++accepted[send.opcode];
		else
			++refused;
	}
	CHECK(refused > 0);
	for (unsigned opcode = 1; opcode < PEAL_OP_COUNT; ++opcode)
		CHECK(accepted[opcode] > 0);
}

TEST_CASE("bytes that are merely random read nothing outside the slot", "[wqe]")
{
	Random random("bytes");

	for (int round = 0; round < 100'000 / SLOWER; ++round) {
		const SendCaps caps = random_caps(random);
		const peal_wqe_limits limits = caps.limits();
		const Exactly memory(caps.stride());
		Parsed send;

		random.fill(memory.data(), caps.stride());
		if (!parse_send(memory.data(), &limits, &send) &&
		    !is_consistent(send, limits, memory.data()))
			FAIL("round " << round << " with seed " << random.seed);
	}
}

TEST_CASE("a slot that changes while it is parsed gives consistent values", "[wqe][threads]")
{
	const SendCaps caps{8, 128};
	const peal_wqe_limits limits = caps.limits();
	const Exactly memory(caps.stride());
	auto *words = reinterpret_cast<std::uint64_t *>(memory.data());
	constexpr unsigned enough = 200'000 / SLOWER;
	std::atomic<bool> stop = false;
	unsigned accepted = 0, refused = 0, wrong = 0;
	Random random("scribbler");

	std::thread scribbler([&] {
		while (!stop.load(std::memory_order_relaxed)) {
			const std::size_t word = random.below(caps.stride() / 8);

			std::atomic_ref(words[word])
				.store(scribble(random, word), std::memory_order_relaxed);
		}
	});
	for (unsigned round = 0; accepted < enough || refused < enough; ++round) {
		Parsed send;

		/* Both threads may share one CPU. */
		if (round % 4096 == 0)
			std::this_thread::yield();
		if (parse_send(memory.data(), &limits, &send)) {
			++refused;
			continue;
		}
		++accepted;
		wrong += !is_consistent(send, limits, memory.data());
	}
	stop = true;
	scribbler.join();
	CHECK(wrong == 0);
}
