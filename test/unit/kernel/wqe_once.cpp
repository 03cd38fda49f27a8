// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * kernel/object/wqe.c with the worst program, which changes each word of a slot
 * right after the kernel has read it.
 *
 * Holds: No word is read twice, so the result is that of an unchanged slot.
 */
#include <vector>

#include "../catch.hpp"
#include "wqe.hpp"

using namespace peal::test;

namespace {

/* Inverts every word that is read while this object lives, and remembers it. */
class Hostile {
	static inline std::uint8_t *slot_;
	static inline std::vector<unsigned> reads_;

	static void after_read(const volatile void *word)
	{
		auto *bytes = const_cast<std::uint8_t *>(
			static_cast<const volatile std::uint8_t *>(word));

		++reads_.at(static_cast<std::size_t>(bytes - slot_) / 8);
		for (int i = 0; i < 8; ++i)
			bytes[i] = static_cast<std::uint8_t>(~bytes[i]);
	}

public:
	Hostile(std::uint8_t *slot, std::size_t bytes)
	{
		slot_ = slot;
		reads_.assign(bytes / 8, 0);
		shim_after_read = after_read;
	}
	~Hostile() { shim_after_read = nullptr; }
	Hostile(const Hostile &) = delete;
	Hostile &operator=(const Hostile &) = delete;
	unsigned most_reads() const { return *std::max_element(reads_.begin(), reads_.end()); }
};

/* Results begin with equal bytes, so that they can be compared bytewise. */
template <class Result>
Result unset()
{
	Result result;

	std::memset(static_cast<void *>(&result), 0xa5, sizeof(result));
	return result;
}

template <class Result, class Parse>
bool reads_once(std::uint8_t *slot, std::size_t bytes, Parse parse)
{
	Result quiet = unset<Result>(), hostile = unset<Result>();
	const peal_reason expected = parse(slot, &quiet);
	Hostile program(slot, bytes);
	const peal_reason reason = parse(slot, &hostile);

	return reason == expected && program.most_reads() == 1 &&
	       std::memcmp(&quiet, &hostile, sizeof(quiet)) == 0;
}

} // namespace

TEST_CASE("no word of a send WQE is read twice", "[wqe]")
{
	Random random("send WQEs read once");

	for (int round = 0; round < 50'000 / SLOWER; ++round) {
		const SendCaps caps = random_caps(random);
		const peal_wqe_limits limits = caps.limits();
		const Exactly memory(caps.stride());

		scramble(random, {memory.data()}, caps);
		if (!reads_once<Parsed>(memory.data(), caps.stride(),
					[&](const void *slot, Parsed *send) {
						return parse_send(slot, &limits, send);
					}))
			FAIL("round " << round << " with seed " << random.seed);
	}
}

TEST_CASE("no word of a receive WQE is read twice", "[wqe]")
{
	Random random("receive WQEs read once");

	for (int round = 0; round < 50'000 / SLOWER; ++round) {
		const RecvCaps caps{static_cast<std::uint32_t>(random.below(PEAL_MAX_SGE + 1))};
		const peal_wqe_limits limits = caps.limits();
		const Exactly memory(caps.stride());
		auto *wqe = reinterpret_cast<peal_recv_wqe *>(memory.data());

		random.fill(memory.data(), caps.stride());
		*wqe = {static_cast<__u32>(random.below(caps.max_sge + 2)), {}};
		if (!reads_once<peal_recv>(memory.data(), caps.stride(),
					   [&](const void *slot, peal_recv *recv) {
						   return peal_wqe_parse_recv(slot, &limits, recv);
					   }))
			FAIL("round " << round << " with seed " << random.seed);
	}
}
