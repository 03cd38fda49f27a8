// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Send and receive rings: layout, slots and completions, tested with kernel/object/wqe.h. */
#include <atomic>
#include <cstring>
#include <thread>

#include "catch.hpp"
#include "shared_memory.hpp"

using namespace peal;
using namespace peal::test;

namespace {

peal_send_wqe header(peal_opcode opcode)
{
	peal_send_wqe wqe{};

	wqe.opcode = opcode;
	return wqe;
}

template <class T>
T read_at(const void *base, std::size_t offset)
{
	T value;

	std::memcpy(&value, static_cast<const std::byte *>(base) + offset, sizeof(value));
	return value;
}

/* Posts one WQE. Its wr_id is its index plus 1000. */
void post(WorkRing &ring)
{
	const std::uint32_t index = ring.head();

	REQUIRE(ring.claim(index, index + 1000ULL));
	ring.publish(index + 1);
}

} // namespace

TEST_CASE("scatter-gather entries follow the header of a send")
{
	WorkPair pair(4, 128);
	SendSlot slot(pair.user.claim(0, 0), header(PEAL_OP_SEND));

	REQUIRE_FALSE(slot.has_data());
	slot.add_sge(0x1122334455667788, 7, 0xabc);
	slot.add_sge(0x99, 0, 0xdef);
	REQUIRE(slot.has_data());
	pair.user.publish(1);
	REQUIRE(kernel_ring_pending(pair.kernel.get()) == 1);
	const void *wqe = kernel_ring_slot(pair.kernel.get());
	const auto first = read_at<peal_sge>(wqe, 32);
	const auto second = read_at<peal_sge>(wqe, 48);
	CHECK(read_at<peal_send_wqe>(wqe, 0).num_sge == 2);
	CHECK(first.addr == 0x1122334455667788);
	CHECK(first.length == 7);
	CHECK(first.lkey == 0xabc);
	CHECK(second.length == 0);
}

TEST_CASE("the atomic segment comes before the scatter-gather entry")
{
	WorkPair pair(4);
	SendSlot slot(pair.user.claim(0, 0), header(PEAL_OP_CMP_SWAP));

	slot.segment(peal_atomic_seg{5, 6});
	slot.add_sge(0x1000, 8, 1);
	const void *wqe = kernel_ring_slot(pair.kernel.get());
	CHECK(read_at<peal_atomic_seg>(wqe, 32).compare_add == 5);
	CHECK(read_at<peal_atomic_seg>(wqe, 32).swap == 6);
	CHECK(read_at<peal_sge>(wqe, 48).length == 8);
}

TEST_CASE("inline data follows the header without gaps")
{
	WorkPair pair(4);
	SendSlot slot(pair.user.claim(0, 0), header(PEAL_OP_SEND));

	slot.add_inline("abc", 3);
	slot.add_inline("", 0);
	slot.add_inline("de", 2);
	slot.mark_inline();
	const void *wqe = kernel_ring_slot(pair.kernel.get());
	const auto written = read_at<peal_send_wqe>(wqe, 0);
	CHECK(written.flags == PEAL_WQE_INLINE);
	CHECK(written.inline_len == 5);
	CHECK(written.num_sge == 0);
	CHECK(std::memcmp(static_cast<const std::byte *>(wqe) + 32, "abcde", 5) == 0);
}

TEST_CASE("a new WQE shows nothing of the slot's previous one")
{
	WorkPair pair(4);

	SendSlot(pair.user.claim(0, 0), header(PEAL_OP_SEND)).add_sge(1, 2, 3);
	pair.user.complete(0);
	SendSlot reused(pair.user.claim(4, 0), header(PEAL_OP_LOCAL_INV));
	CHECK(read_at<peal_send_wqe>(kernel_ring_slot(pair.kernel.get()), 0).num_sge == 0);
}

TEST_CASE("receive entries follow the receive header")
{
	WorkPair pair(4);
	RecvSlot slot(pair.user.claim(0, 0));

	slot.add_sge(0x10, 20, 30);
	slot.add_sge(0x11, 21, 31);
	const void *wqe = kernel_ring_slot(pair.kernel.get());
	CHECK(read_at<peal_recv_wqe>(wqe, 0).num_sge == 2);
	CHECK(read_at<peal_sge>(wqe, 16).addr == 0x10);
	CHECK(read_at<peal_sge>(wqe, 32).lkey == 31);
}

TEST_CASE("a ring without entries takes and completes nothing")
{
	WorkRing ring;

	CHECK_FALSE(ring.claim(0, 0));
	CHECK_FALSE(ring.complete(0));
}

TEST_CASE("slots are free again only when their completion was polled")
{
	/* Across the wrap of the 32-bit index, too. */
	const std::uint32_t first = GENERATE(0U, 0xfffffffeU, 0x80000000U);
	WorkPair pair(4, 64, first);

	for (int i = 0; i < 4; ++i) {
		post(pair.user);
	}
	REQUIRE_FALSE(pair.user.claim(pair.user.head(), 0));
	for (int i = 0; i < 4; ++i)
		kernel_ring_take(pair.kernel.get());
	REQUIRE_FALSE(pair.user.claim(pair.user.head(), 0));
	REQUIRE(pair.user.complete(first) == first + 1000ULL);
	REQUIRE(pair.user.claim(pair.user.head(), 0));
	REQUIRE_FALSE(pair.user.claim(pair.user.head() + 1, 0));
}

TEST_CASE("a completion frees the unsignaled WQEs before it")
{
	WorkPair pair(4, 64, 0xffffffff);

	for (int i = 0; i < 4; ++i)
		post(pair.user);
	REQUIRE(pair.user.complete(2) == 1002);
	REQUIRE(pair.user.claim(pair.user.head() + 3, 0));
	REQUIRE_FALSE(pair.user.claim(pair.user.head() + 4, 0));
}

TEST_CASE("a completion of an index that is not in the ring is refused")
{
	WorkPair pair(8, 64, 100);

	post(pair.user);
	post(pair.user);
	CHECK_FALSE(pair.user.complete(99));
	CHECK_FALSE(pair.user.complete(108));
	CHECK_FALSE(pair.user.complete(0x80000000));
	REQUIRE(pair.user.complete(100) == 1100);
	CHECK_FALSE(pair.user.complete(100)); /* twice */
	CHECK(pair.user.complete(101) == 1101);
}

TEST_CASE("a reset forgets what was posted and refuses its completions")
{
	WorkPair pair(4);

	for (int i = 0; i < 3; ++i)
		post(pair.user);
	kernel_ring_take(pair.kernel.get());
	kernel_ring_discard(pair.kernel.get());
	pair.user.reset();
	CHECK(kernel_ring_pending(pair.kernel.get()) == 0);
	CHECK_FALSE(pair.user.complete(0));
	CHECK_FALSE(pair.user.complete(2));
	for (int i = 0; i < 4; ++i) {
		post(pair.user);
	}
	CHECK(kernel_ring_pending(pair.kernel.get()) == 4);
	CHECK(pair.user.complete(3) == 1003);
}

TEST_CASE("a producer index that ran ahead is noticed by the kernel")
{
	WorkPair pair(4);

	pair.user.publish(5);
	CHECK(kernel_ring_pending(pair.kernel.get()) == -EOVERFLOW);
}

TEST_CASE("poster, kernel and poller in three threads keep WQEs and wr_ids together", "[threads]")
{
	constexpr std::uint32_t count = 400'000 / SLOWDOWN;
	WorkPair pair(8, 64, 0xffffff00);
	CqPair cq(16);
	const std::uint32_t first = pair.user.head();
	std::atomic<std::uint32_t> bad = 0, polled = 0;

	std::thread kernel([&] {
		for (std::uint32_t i = 0; i < count; ++i) {
			while (kernel_ring_pending(pair.kernel.get()) <= 0)
				std::this_thread::yield();
			const auto wqe =
				read_at<peal_send_wqe>(kernel_ring_slot(pair.kernel.get()), 0);
			peal_cqe cqe{};

			bad += wqe.remote_addr != i;
			cqe.wqe_index = kernel_ring_next(pair.kernel.get());
			cqe.kind = PEAL_CQE_SEND;
			kernel_ring_take(pair.kernel.get());
			if (i % 3 == 0 && i + 1 != count)
				continue; /* unsignaled */
			while (kernel_cq_full(cq.kernel.get()))
				std::this_thread::yield();
			kernel_cq_push(cq.kernel.get(), &cqe);
		}
	});
	std::thread poller([&] {
		while (polled < count) {
			const peal_cqe *cqe = cq.user.peek();
			if (!cqe) {
				std::this_thread::yield();
				continue;
			}
			const auto wr_id = pair.user.complete(cqe->wqe_index);
			bad += wr_id != std::uint64_t{cqe->wqe_index} * 3;
			polled = cqe->wqe_index - first + 1;
			cq.user.advance();
			cq.user.publish();
		}
	});
	for (std::uint32_t i = 0; i < count; ++i) {
		const std::uint32_t index = pair.user.head();

		std::byte *memory;

		while (!(memory = pair.user.claim(index, std::uint64_t{index} * 3)))
			std::this_thread::yield();
		peal_send_wqe wqe = header(PEAL_OP_WRITE);
		wqe.remote_addr = i;
		SendSlot slot(memory, wqe);
		pair.user.publish(index + 1);
	}
	kernel.join();
	poller.join();
	CHECK(bad == 0);
	CHECK(polled == count);
}

TEST_CASE("a sender that begins to wait is either kicked or sees the receive", "[threads]")
{
	constexpr std::uint32_t rounds = 100'000 / SLOWDOWN;
	WorkPair pair(4);
	std::atomic<std::uint32_t> kicked = 0, lost = 0;

	/*
	 * In round n the kernel wants receive n. It asks for a kick by flag
	 * C, and waits for nothing else.
	 */
	std::thread kernel([&] {
		for (std::uint32_t n = 1; n <= rounds && !lost; ++n) {
			while (kernel_ring_pending(pair.kernel.get()) == 0) {
				kernel_ring_want_kick(pair.kernel.get(), true);
				if (kernel_ring_pending(pair.kernel.get()))
					break;
				if (!eventually([&] { return kicked >= n; }))
					++lost;
				break;
			}
			kernel_ring_want_kick(pair.kernel.get(), false);
			kernel_ring_take(pair.kernel.get());
		}
	});
	for (std::uint32_t n = 1; n <= rounds && !lost; ++n) {
		const std::uint32_t index = pair.user.head();

		pair.user.publish(index + 1);
		if (pair.user.wants_kick())
			kicked = n;
		if (!eventually([&] { return load_acquire(pair.ctl->consumer) == n || lost; }))
			++lost;
		pair.user.complete(index);
	}
	kernel.join();
	CHECK(lost == 0);
}

TEST_CASE("a ring that was given away has no room and completes nothing")
{
	WorkPair pair(4, 128);
	const RingShape given = pair.user.give_away();

	CHECK(given.entries == 4);
	CHECK(given.stride == 128);
	CHECK(given.slots);
	CHECK_FALSE(pair.user.claim(0, 0));
	CHECK_FALSE(pair.user.is_posted(0));
	CHECK_FALSE(pair.user.complete(0));
	CHECK(pair.user.give_away().entries == 0);
}
