// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * kernel/object/wqe.c: receive WQEs.
 *
 * Holds: The invalid values of each field are refused. The room is the sum of all entries, however
 * long. Nothing outside the slot is read.
 */
#include "../catch.hpp"
#include "wqe.hpp"

using namespace peal::test;

namespace {

struct Receiver {
	RecvCaps caps;
	peal_wqe_limits limits = caps.limits();
	Exactly memory{caps.stride()};
	peal_recv recv{};

	explicit Receiver(std::uint32_t max_sge = PEAL_MAX_SGE) : caps{max_sge} {}
	peal_recv_wqe &header() { return *reinterpret_cast<peal_recv_wqe *>(memory.data()); }
	peal_sge &sge(unsigned i) { return reinterpret_cast<peal_sge *>(memory.data() + 16)[i]; }
	peal_reason parse() { return peal_wqe_parse_recv(memory.data(), &limits, &recv); }
};

} // namespace

TEST_CASE("a receive's num_sge is refused exactly if it exceeds the queue's", "[wqe]")
{
	for (std::uint32_t max_sge = 0; max_sge <= PEAL_MAX_SGE; ++max_sge) {
		Receiver receiver(max_sge);

		for (std::uint32_t num_sge = 0; num_sge < 300; ++num_sge) {
			receiver.header().num_sge = num_sge;
			CAPTURE(max_sge, num_sge);
			CHECK(receiver.parse() ==
			      (num_sge <= max_sge ? PEAL_REASON_NONE : PEAL_REASON_RECV_WQE));
		}
	}
}

TEST_CASE("a receive's num_sge is not cut to fewer bits", "[wqe]")
{
	for (std::uint32_t num_sge : {0x100U, 0x101U, 0x10001U, 0x80000001U, 0xffffffffU}) {
		Receiver receiver;

		receiver.header().num_sge = num_sge;
		CAPTURE(num_sge);
		CHECK(receiver.parse() == PEAL_REASON_RECV_WQE);
		CHECK(receiver.recv.num_sge == 0);
	}
}

TEST_CASE("every bit of a receive's reserved fields is refused", "[wqe]")
{
	for (unsigned bit = 0; bit < 96; ++bit) {
		Receiver receiver;

		receiver.header().num_sge = 1;
		receiver.header().reserved[bit / 32] = 1U << bit % 32;
		CAPTURE(bit);
		CHECK(receiver.parse() == PEAL_REASON_RECV_WQE);
		CHECK(receiver.recv.num_sge == 0);
	}
}

TEST_CASE("a receive's room is the sum of its entries", "[wqe]")
{
	Receiver receiver;

	receiver.recv.index = 77;
	receiver.header().num_sge = 32;
	for (unsigned i = 0; i < 32; ++i)
		receiver.sge(i) = {i, 0xffffffff, i};
	REQUIRE(receiver.parse() == PEAL_REASON_NONE);
	CHECK(receiver.recv.length == 32 * 0xffffffffULL);
	CHECK(receiver.recv.num_sge == 32);
	CHECK(receiver.recv.index == 77);
	CHECK(std::memcmp(receiver.recv.sge, &receiver.sge(0), 32 * 16) == 0);
}

TEST_CASE("a receive without entries has no room", "[wqe]")
{
	Receiver receiver;

	std::memset(receiver.memory.data() + 16, 0xff, receiver.caps.stride() - 16);
	REQUIRE(receiver.parse() == PEAL_REASON_NONE);
	CHECK(receiver.recv.num_sge == 0);
	CHECK(receiver.recv.length == 0);
}

TEST_CASE("random receives are accepted exactly if they are well-formed", "[wqe]")
{
	Random random("receive WQEs");
	unsigned accepted = 0;

	for (int round = 0; round < 100'000 / SLOWER; ++round) {
		Receiver receiver(static_cast<std::uint32_t>(random.below(PEAL_MAX_SGE + 1)));
		peal_recv_wqe &header = receiver.header();

		random.fill(receiver.memory.data(), receiver.caps.stride());
		if (!random.one_in(4))
			std::memset(header.reserved, 0, sizeof(header.reserved));
		if (!random.one_in(4))
			header.num_sge %= 40;
		const bool good = header.num_sge <= receiver.caps.max_sge && !header.reserved[0] &&
				  !header.reserved[1] && !header.reserved[2];
		const bool taken = receiver.parse() == PEAL_REASON_NONE;
		const bool right =
			!taken || (receiver.recv.num_sge == header.num_sge &&
				   receiver.recv.length == sum(receiver.recv.sge, header.num_sge));
		accepted += taken;
		if (taken != good || !right)
			FAIL("round " << round << " with seed " << random.seed);
	}
	CHECK(accepted > 0);
}
