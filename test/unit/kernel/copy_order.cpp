// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The copies of kernel/object/cursor.c and kernel/net/crc_x86.S with two threads: the order in
 * which the bytes appear.
 *
 * Holds: A reader that sees the last eight bytes of a message sees all of it, whichever method
 * copied it. Without string instructions, a reader that sees a byte sees all bytes before
 * it. The reader polls plain memory, as ib_write_lat does.
 */
#include <atomic>
#include <thread>

#include "../catch.hpp"
#include "support.hpp"
#include "copy_ways.hpp"

using namespace peal::test;

namespace {

constexpr std::size_t PAGE = 4096, LONGEST = 16'384;

std::uint8_t look(const std::uint8_t *byte)
{
	return __atomic_load_n(byte, __ATOMIC_ACQUIRE);
}

/* Yields now and then, because there may be fewer CPUs than threads. */
template <class Done>
void spin_until(Done done)
{
	for (unsigned turn = 1; !done(); ++turn)
		if (turn % 256 == 0)
			std::this_thread::yield();
}

/*
 * Copies messages of one byte value each. Another thread waits in `look_at(dst, tag)` for each of
 * them, and returns how many of its bytes are wrong.
 */
class Race {
	Exactly from_{LONGEST + PAGE, PAGE}, to_{LONGEST + PAGE, PAGE};
	std::atomic<unsigned> ready_ = 0, seen_ = 0;

	static std::uint8_t tag(unsigned round)
	{
		return static_cast<std::uint8_t>(round % 251 + 1);
	}

public:
	template <class LookAt>
	std::uint64_t run(const CopyWay &way, std::size_t to, std::size_t from, std::size_t bytes,
			  unsigned rounds, LookAt look_at)
	{
		std::uint8_t *dst = to_.data() + to;
		std::uint64_t wrong = 0;

		ready_ = seen_ = 0;
		std::memset(to_.data(), 0, LONGEST + PAGE);
		std::thread reader([&] {
			for (unsigned round = 1; round <= rounds; ++round) {
				ready_.store(round, std::memory_order_release);
				wrong += look_at(dst, tag(round));
				seen_.store(round, std::memory_order_release);
			}
		});
		for (unsigned round = 1; round <= rounds; ++round) {
			std::memset(from_.data() + from, tag(round), bytes);
			spin_until([&] { return ready_.load(std::memory_order_acquire) == round; });
			way.copy(dst, from_.data() + from, bytes);
			spin_until([&] { return seen_.load(std::memory_order_acquire) == round; });
		}
		reader.join();
		return wrong;
	}
};

} // namespace

TEST_CASE("a reader that sees the last byte sees all", "[copy][order]")
{
	Race race;

	for (const CopyWay &way : copy_ways) {
		way.choose();
		for (std::size_t bytes : {1, 7, 8, 9, 16, 64, 100, 520, 4096, 4099, 16'384}) {
			for (std::size_t to : {0, 8, 61, 1024, 1027}) {
				const auto wait_for_last = [&](const std::uint8_t *dst,
							       std::uint8_t tag) {
					std::uint64_t wrong = 0;

					spin_until([&] { return look(dst + bytes - 1) == tag; });
					for (std::size_t i = bytes; i--;)
						wrong += look(dst + i) != tag;
					return wrong;
				};

				CAPTURE(way.name, bytes, to);
				CHECK(race.run(way, to, 0, bytes, 1000 / SLOWER, wait_for_last) ==
				      0);
			}
		}
	}
}

TEST_CASE("the last eight bytes appear at once", "[copy][order]")
{
	Race race;

	for (const CopyWay &way : copy_ways) {
		way.choose();
		for (std::size_t bytes : {8, 16, 520, 4096}) {
			/* Waits for the first of the eight bytes instead of the last. */
			const auto wait_for_word = [&](const std::uint8_t *dst, std::uint8_t tag) {
				const std::uint8_t *word = dst + bytes - 8;
				const std::uint64_t all = 0x0101010101010101ULL * tag;
				std::uint64_t now = 0;

				spin_until([&] {
					now = *reinterpret_cast<const volatile std::uint64_t *>(
						word);
					return (now & 0xff) == tag;
				});
				return std::uint64_t{now != all};
			};

			CAPTURE(way.name, bytes);
			CHECK(race.run(way, 0, 0, bytes, 5000 / SLOWER, wait_for_word) == 0);
		}
	}
}

#ifdef CONFIG_X86
/* On other machines only the barrier before the last store orders plain stores. */
TEST_CASE("bytes appear in ascending order without string instructions", "[copy][order]")
{
	constexpr std::size_t bytes = 4096;
	Race race;

	const CopyWay &way = copy_ways.front();

	way.choose();
	for (std::size_t to : {0, 8, 3}) {
		const auto watch = [&](const std::uint8_t *dst, std::uint8_t tag) {
			std::uint64_t wrong = 0;
			bool last;

			do {
				last = look(dst + bytes - 1) == tag;
				for (std::size_t i = bytes; i >= 256; i -= 256) {
					const bool later = look(dst + i - 1) == tag;

					wrong += later && look(dst + i - 256) != tag;
				}
			} while (!last);
			return wrong;
		};

		CAPTURE(to);
		CHECK(race.run(way, to, 0, bytes, 500 / SLOWER, watch) == 0);
	}
}
#endif
