// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* The program's ring of a shared receive queue: free slots, order, wr_ids, several pollers. */
#include <atomic>
#include <thread>
#include <vector>

#include "catch.hpp"
#include "shared_memory.hpp"

using namespace peal;
using namespace peal::test;

namespace {

/* Posts one WQE. Return: the number of its slot, or nothing if none is free. */
std::optional<std::uint32_t> post(SharedPair &pair, std::uint64_t wr_id)
{
	std::byte *const slot = pair.user.claim(pair.user.head(), wr_id);

	if (!slot)
		return std::nullopt;
	RecvSlot(slot).add_sge(wr_id, 1, 2);
	pair.user.publish(pair.user.head() + 1);
	return static_cast<std::uint32_t>((slot - pair.slots) / 64);
}

} // namespace

TEST_CASE("a shared ring has as many slots as entries, each once")
{
	SharedPair pair(8);
	std::vector<bool> seen(8);

	for (std::uint64_t i = 0; i < 8; ++i) {
		const auto number = post(pair, i);

		REQUIRE(number);
		REQUIRE(*number < 8);
		CHECK_FALSE(seen[*number]);
		seen[*number] = true;
	}
	CHECK_FALSE(post(pair, 8));
	CHECK(kernel_ring_pending(pair.kernel.get()) == 8);
}

TEST_CASE("the kernel finds the numbers in the order of the posts")
{
	SharedPair pair(4);

	for (std::uint64_t i = 0; i < 40; ++i) {
		const auto number = post(pair, 1000 + i);

		REQUIRE(number);
		CHECK(pair.take() == *number);
		CHECK(pair.user.complete(*number) == 1000 + i);
	}
}

TEST_CASE("slots of a shared ring complete in any order")
{
	SharedPair pair(4);
	std::uint32_t number[4];

	for (std::uint64_t i = 0; i < 4; ++i)
		number[i] = *post(pair, i);
	for (int i = 0; i < 4; ++i)
		pair.take();
	for (unsigned i : {2U, 0U, 3U, 1U}) {
		CHECK(pair.user.complete(number[i]) == i);
		CHECK(post(pair, 10 + i) == number[i]); /* the only one that is free */
		CHECK_FALSE(post(pair, 99));
	}
}

TEST_CASE("a CQE of a slot that is not posted completes nothing")
{
	SharedPair pair(4);
	const auto number = *post(pair, 7);

	for (std::uint32_t other : {number ^ 1, 4U, 0xffffffffU}) {
		CAPTURE(other);
		CHECK_FALSE(pair.user.is_posted(other));
		CHECK_FALSE(pair.user.complete(other));
	}
	CHECK(pair.user.is_posted(number));
	CHECK(pair.user.complete(number) == 7);
	CHECK_FALSE(pair.user.complete(number)); /* a CQE that came twice */
}

TEST_CASE("a shared ring without entries takes and completes nothing")
{
	SharedRecvRing ring;

	CHECK_FALSE(ring.claim(0, 0));
	CHECK_FALSE(ring.complete(0));
}

TEST_CASE("a flag in the control words asks for a kick of a shared ring")
{
	SharedPair pair(2);

	CHECK_FALSE(pair.user.wants_kick());
	kernel_ring_want_kick(pair.kernel.get(), true);
	CHECK(pair.user.wants_kick());
}

/* Between prepare() and finish() the kernel takes `between` WQEs from the old ring. */
TEST_CASE("a shared ring keeps its WQEs, their order and wr_ids when it is resized")
{
	const auto posted = GENERATE(0U, 1U, 3U, 8U);
	const auto in_use = GENERATE(0U, 2U, 5U); /* taken and not completed */
	const auto entries = GENERATE(1U, 2U, 4U, 8U, 32U);
	const auto between = GENERATE(0U, 1U, 3U);
	const auto spin = GENERATE(0U, 5U); /* so that indices and numbers differ */
	SharedPair pair(8);
	std::uint64_t next = 0, taken = 0;
	std::vector<std::pair<std::uint32_t, std::uint64_t>> open;

	if (posted + in_use > 8 || between > posted)
		return;
	CAPTURE(posted, in_use, entries, between, spin);
	for (; next < spin; ++next, ++taken) {
		post(pair, next);
		CHECK(pair.user.complete(pair.take()) == next);
	}
	for (; next < spin + in_use + posted; ++next)
		REQUIRE(post(pair, next));
	for (; taken < spin + in_use; ++taken)
		open.emplace_back(pair.take(), taken);
	OtherRing other(pair, entries);
	auto resize = pair.user.prepare(other.shape);

	/* What is in use without a place fails, and changes nothing. */
	if (posted > entries || (posted + in_use > entries && !resize)) {
		CHECK_FALSE(resize);
	} else {
		REQUIRE(resize);
		for (std::uint32_t i = 0; i < between; ++i, ++taken)
			open.emplace_back(pair.take(), taken);
		pair.user.finish(*resize, static_cast<std::uint32_t>(taken));
		other.use(pair);
		std::uint32_t more = 0;
		for (; post(pair, next); ++next)
			++more;
		CHECK(more + posted - between <= entries);
	}
	for (; taken < next; ++taken) {
		const auto number = pair.take();

		CHECK(number <= pair.mask);
		CHECK(reinterpret_cast<const peal_sge *>(pair.slots + std::size_t{number} * 64 + 16)
			      ->addr == taken);
		open.emplace_back(number, taken);
	}
	for (const auto &[number, wr_id] : open)
		CHECK(pair.user.complete(number) == wr_id);
	/* Every slot is free again, and no other. */
	for (std::uint32_t i = 0; i <= pair.mask; ++i)
		CHECK(post(pair, next++));
	CHECK_FALSE(post(pair, next));
}

TEST_CASE("a resize of a shared ring that is abandoned leaves the old ring")
{
	SharedPair pair(8);

	for (std::uint64_t i = 0; i < 6; ++i)
		post(pair, i);
	for (std::uint64_t i = 0; i < 4; ++i)
		CHECK(pair.user.complete(pair.take()) == i);
	OtherRing other(pair, 4);
	const auto resize = pair.user.prepare(other.shape);
	REQUIRE(resize);
	CHECK(resize->moved.size() == 2);
	pair.user.abandon(*resize);
	for (std::uint64_t i = 6; i < 12; ++i)
		REQUIRE(post(pair, i));
	CHECK_FALSE(post(pair, 12));
	for (std::uint64_t i = 4; i < 12; ++i)
		CHECK(pair.user.complete(pair.take()) == i);
}

/* One poster, one kernel, and two pollers to which the kernel hands WQEs in turn. */
TEST_CASE("two pollers give slots back while the poster posts", "[threads]")
{
	constexpr std::uint64_t rounds = 200000 / SLOWDOWN;
	constexpr std::uint32_t depth = 16;
	SharedPair pair(depth);
	CqPair cq[2] = {CqPair(depth), CqPair(depth)};
	std::atomic<std::uint64_t> sum = 0, completed = 0;
	std::atomic<bool> wrong = false;

	std::thread kernel([&] {
		for (std::uint64_t i = 0; i < rounds; ++i) {
			if (!eventually([&] { return kernel_ring_pending(pair.kernel.get()) > 0; }))
				break;
			peal_cqe cqe{};

			cqe.wqe_index = pair.take();
			/* The address in the slot is the wr_id. */
			__u64 address = reinterpret_cast<const peal_sge *>(
						pair.slots + std::size_t{cqe.wqe_index} * 64 + 16)
						->addr;
			cqe.imm_or_rkey = static_cast<__u32>(address);
			kernel_cq *const to = cq[i & 1].kernel.get();

			if (!eventually([&] { return !kernel_cq_full(to); }))
				break;
			kernel_cq_push(to, &cqe);
		}
	});
	const auto poll = [&](CqPair &from) {
		while (completed.load() < rounds && !wrong) {
			const peal_cqe *cqe = from.user.peek();

			if (!cqe) {
				cpu_relax();
				std::this_thread::yield();
				continue;
			}
			const auto wr_id = pair.user.complete(cqe->wqe_index);

			if (!wr_id || static_cast<__u32>(*wr_id) != cqe->imm_or_rkey)
				wrong = true;
			else
				sum += *wr_id;
			from.user.advance();
			from.user.publish();
			++completed;
		}
	};
	std::thread first([&] { poll(cq[0]); }), second([&] { poll(cq[1]); });
	bool stuck = false;

	for (std::uint64_t i = 0; i < rounds && !stuck && !wrong; ++i)
		stuck = !eventually([&] { return wrong || post(pair, i); });
	if (stuck)
		wrong = true;
	kernel.join();
	first.join();
	second.join();
	CHECK_FALSE(wrong);
	CHECK(completed == rounds);
	CHECK(sum == rounds * (rounds - 1) / 2);
}
