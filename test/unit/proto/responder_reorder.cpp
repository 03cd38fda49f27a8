// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Packets before their turn: how they are kept and taken, and when a gap counts as a loss. */
#include <map>

#include "responder.hpp"

using namespace peal::test;

namespace {

/* A responder that remembers its kept packets by their address. */
class Keeper : public Responder {
	std::map<std::uint32_t, std::unique_ptr<Request>> kept_;

public:
	using Responder::Responder;
	peal_request send(std::uint32_t psn, std::uint16_t way = 0)
	{
		auto packet = std::make_unique<Request>(rc(PEAL_WIRE_SEND_ONLY, psn).by(way));
		const peal_request request = give(*packet, packet.get());

		if (request.what == PEAL_REQUEST_EXECUTE)
			done();
		if (request.what == PEAL_REQUEST_KEPT)
			kept_[psn] = std::move(packet);
		return request;
	}
	const void *kept(std::uint32_t psn) const { return kept_.at(psn).get(); }
	void forget(std::uint32_t psn) { kept_.erase(psn); }
	/* Executes the packets that take_reordered() returns. Return: how many. */
	unsigned run_reordered(peal_verdict verdict = PEAL_VERDICT_DONE)
	{
		unsigned count = 0;

		while (const void *handle = take_reordered()) {
			const auto kept = kept_.find(static_cast<const Request *>(handle)->psn);

			REQUIRE(kept != kept_.end());
			REQUIRE(give(*kept->second, handle).what == PEAL_REQUEST_EXECUTE);
			done(verdict);
			kept_.erase(kept);
			++count;
		}
		return count;
	}
};

void check_copy(const peal_request &request, const void *kept)
{
	CHECK(request.what == PEAL_REQUEST_COPY);
	CHECK(request.drop == PEAL_DROP_sequence);
	CHECK(request.kept == kept);
}

} // namespace

TEST_CASE("one packet late: the others wait, and nothing is said", "[responder]")
{
	Keeper r(0xffffff);

	CHECK(r.send(0).what == PEAL_REQUEST_KEPT);
	CHECK(r.send(1).what == PEAL_REQUEST_KEPT);
	CHECK(r.replies().empty());
	CHECK(r.take_reordered() == nullptr);
	CHECK(r.deadline() > r.now);
	CHECK_FALSE(r.looks_at_no_gap());
	CHECK(r.send(0xffffff).what == PEAL_REQUEST_EXECUTE);
	CHECK(r.run_reordered() == 2);
	CHECK(r->psn == 2);
	CHECK(r->msn == 3);
	CHECK(r.looks_at_no_gap());
	CHECK(r.replies().empty());
}

TEST_CASE("a kept packet that was not taken yet is not missing", "[responder]")
{
	Keeper r(0);

	r.send(1);
	r.send(0);
	for (const std::uint32_t psn : {2U, 3U, 5U})
		CHECK(r.send(psn).what == PEAL_REQUEST_KEPT);
	CHECK(r.looks_at_no_gap());
	CHECK(r.run_reordered() == 3);
	/* No loss was seen, because this gap may be only a change of order. */
	CHECK(r.replies().empty());
	CHECK(r.deadline() > r.now);
}

TEST_CASE("three packets pass the missing one: NAK, once", "[responder]")
{
	Keeper r(0);

	r.send(0);
	r.send(2);
	r.send(3);
	CHECK(r.replies().empty());
	r.send(4);
	check_answer(r.reply(), SEQUENCE_NAK, 1);
	CHECK(r.looks_at_no_gap());
	for (std::uint32_t psn = 5; psn < 50; ++psn)
		r.send(psn);
	r.send(5);
	CHECK(r.replies().empty());

	SECTION("the missing one alone brings everything")
	{
		r.run(rc(PEAL_WIRE_SEND_ONLY, 1).asks_ack());
		CHECK(r.run_reordered() == 48);
		check_answer(r.reply(), PLAIN_ACK, 49);
	}
	SECTION("a requester that lost the NAK learns by repeating")
	{
		CHECK(r.send(0).duplicate);
		check_answer(r.reply(), PLAIN_ACK, 0);
	}
}

TEST_CASE("a gap that stays is a loss after a while", "[responder]")
{
	Keeper r(7);

	r.send(8);

	const std::uint64_t deadline = r.deadline();

	CHECK(deadline - r.now <= 1000000);
	peal_responder_expire(r.get(), deadline - 1);
	CHECK(r.replies().empty());
	r.now += 50;
	r.send(9);
	CHECK(r.deadline() == deadline);
	r.wait();
	check_answer(r.reply(), SEQUENCE_NAK, 7);
	CHECK(r.looks_at_no_gap());
	peal_responder_expire(r.get(), deadline + 1000000000);
	CHECK(r.replies().empty());
}

TEST_CASE("an out-of-order packet that cannot be kept: NAK at once", "[responder]")
{
	SECTION("no handle")
	{
		Responder r(0);

		check_dropped(r.give(rc(PEAL_WIRE_SEND_ONLY, 1)), PEAL_DROP_sequence);
		check_answer(r.reply(), SEQUENCE_NAK, 0);
		check_dropped(r.give(rc(PEAL_WIRE_SEND_ONLY, 2)), PEAL_DROP_sequence);
		CHECK(r.replies().empty());
	}
	SECTION("too far ahead")
	{
		Keeper r(0);

		check_dropped(r.send(PEAL_REORDER_SLOTS), PEAL_DROP_sequence);
		check_answer(r.reply(), SEQUENCE_NAK, 0);
	}
}

TEST_CASE("a NAK that was not sent yet is void when the packet comes", "[responder]")
{
	Keeper r(0);

	r.send(1);
	r.send(2);
	r.send(3);
	r.send(0);
	r.run_reordered();
	CHECK(r.replies().empty());
	CHECK(r->psn == 4);
}

TEST_CASE("a second gap behind a lost packet is told at once", "[responder]")
{
	Keeper r(0);

	for (std::uint32_t psn : {1, 2, 3, 5})
		r.send(psn);
	check_answer(r.reply(), SEQUENCE_NAK, 0);
	r.run(rc(PEAL_WIRE_SEND_ONLY, 0).asks_ack());
	CHECK(r.run_reordered() == 3);
	/* The reply is no acknowledgement, because the NAK says as much, and more. */
	check_answer(r.reply(), SEQUENCE_NAK, 4);
	r.send(4);
	CHECK(r.run_reordered() == 1);
	CHECK(r->psn == 6);
}

TEST_CASE("a second gap behind a packet that was merely late is looked at first", "[responder]")
{
	Keeper r(0);

	r.send(1);
	r.send(3);
	r.send(0);
	CHECK(r.run_reordered() == 1);
	CHECK(r.replies().empty());
	CHECK_FALSE(r.looks_at_no_gap());

	SECTION("it comes")
	{
		r.send(2);
		CHECK(r.run_reordered() == 1);
		CHECK(r.replies().empty());
	}
	SECTION("it does not")
	{
		r.wait();
		check_answer(r.reply(), SEQUENCE_NAK, 2);
	}
	SECTION("three are already past it")
	{
		r.send(4);
		r.send(5);
		check_answer(r.reply(), SEQUENCE_NAK, 2);
	}
}

TEST_CASE("a loss that was mended makes later gaps no worse", "[responder]")
{
	Keeper r(0);

	for (std::uint32_t psn : {1, 2, 3})
		r.send(psn);
	check_answer(r.reply(), SEQUENCE_NAK, 0);
	r.send(0);
	CHECK(r.run_reordered() == 3);
	r.send(5);
	r.send(7);
	r.send(4);
	CHECK(r.run_reordered() == 1);
	CHECK(r.replies().empty());
}

TEST_CASE("copies of a kept packet change nothing", "[responder]")
{
	Keeper r(0);

	r.send(1);
	for (int i = 0; i < 5; ++i)
		check_copy(r.send(1), r.kept(1));
	CHECK(r.replies().empty());
	r.send(0);

	/* A copy arrives before the host has taken the kept one. */
	check_copy(r.send(1), r.kept(1));
	CHECK(r.run_reordered() == 1);
	CHECK(r->psn == 2);
	CHECK(r->reorder.count == 0);
}

TEST_CASE("no receive for a kept packet: it is awaited, those behind stay", "[responder]")
{
	Keeper r(0);

	r.send(1);
	r.send(2);
	r.send(0);
	CHECK(r.run_reordered(PEAL_VERDICT_NOT_READY) == 1);
	check_answer(r.reply(), PEAL_SYNDROME_RNR | RNR_TIMER, 1);
	CHECK(r.take_reordered() == nullptr);
	r.send(1);
	CHECK(r.run_reordered() == 1);
	CHECK(r->psn == 3);
}

TEST_CASE("a packet that came and was not taken is not missed", "[responder]")
{
	for (peal_verdict verdict : {PEAL_VERDICT_NOT_READY, PEAL_VERDICT_ACCESS}) {
		Keeper r(0);

		r.send(1);
		r.run(rc(PEAL_WIRE_SEND_ONLY, 0), verdict);
		CHECK(r.looks_at_no_gap());
		CHECK(r.replies().size() == 1);
	}
}

TEST_CASE("after a refusal nothing kept is executed, and all can be released", "[responder]")
{
	Keeper r(0);

	r.send(1);
	r.send(2);
	r.run(rc(PEAL_WIRE_SEND_ONLY, 0), PEAL_VERDICT_ACCESS);
	CHECK(r.take_reordered() == nullptr);
	CHECK(peal_reorder_drop(&r.get()->reorder));
	CHECK(peal_reorder_drop(&r.get()->reorder));
	CHECK_FALSE(peal_reorder_drop(&r.get()->reorder));
}

TEST_CASE("a READ moves the expected number over what is kept", "[responder]")
{
	Keeper r(0);

	r.send(4);
	r.run(read_request(0, 0, 4 * MTU));
	CHECK(r.run_reordered() == 1);
	CHECK(r->psn == 5);
	CHECK(r.replies().size() == 4);
}

TEST_CASE("of two different packets with one PSN neither is executed", "[responder]")
{
	Keeper r(0);

	SECTION("before its turn, and nothing behind it")
	{
		r.send(1);
		check_copy(r.send(1), r.kept(1));
		CHECK(r.conflict(1) == r.kept(1));
		r.forget(1);
		CHECK(r->reorder.count == 0);
		r.send(0);
		CHECK(r.run_reordered() == 0);
		CHECK_FALSE(r.looks_at_no_gap());
		r.wait();
		check_answer(r.reply(), SEQUENCE_NAK, 1);
		CHECK(r.send(1).what == PEAL_REQUEST_EXECUTE);
		CHECK(r.looks_at_no_gap());
	}
	SECTION("before its turn, in the middle of others")
	{
		for (std::uint32_t psn = 1; psn < 5; ++psn)
			r.send(psn);
		check_answer(r.reply(), SEQUENCE_NAK, 0);
		CHECK(r.conflict(2) == r.kept(2));
		r.forget(2);
		r.send(0);
		CHECK(r.run_reordered() == 1);
		check_answer(r.reply(), SEQUENCE_NAK, 2);
		/* The third packet with that number is believed again. */
		CHECK(r.send(2).what == PEAL_REQUEST_EXECUTE);
		CHECK(r.run_reordered() == 2);
		CHECK(r->psn == 5);
	}
	SECTION("when its turn has come, and the host has not")
	{
		r.send(1);
		r.send(2);
		r.send(0);
		check_copy(r.send(1), r.kept(1));
		CHECK(r.conflict(1) == r.kept(1));
		r.forget(1);
		CHECK(r.take_reordered() == nullptr);
		check_answer(r.reply(), SEQUENCE_NAK, 1);
		CHECK(r.send(1).what == PEAL_REQUEST_EXECUTE);
		CHECK(r.run_reordered() == 1);
	}
	SECTION("while the peer waits for a receive")
	{
		r.send(1);
		r.send(2);
		r.send(0);
		CHECK(r.run_reordered(PEAL_VERDICT_NOT_READY) == 1);
		check_copy(r.send(2), r.kept(2));
		CHECK(r.conflict(2) == r.kept(2));
	}
	while (peal_reorder_drop(&r.get()->reorder))
		;
}

TEST_CASE("a packet of another flow than the one in front of it is not executed", "[responder]")
{
	Keeper r(0);

	r.send(0, 7);
	/* It is forged, because the peer has sent nothing behind 1. */
	CHECK(r.send(2, 8).what == PEAL_REQUEST_KEPT);
	CHECK(r.send(3, 8).what == PEAL_REQUEST_KEPT);
	r.send(1, 7);
	check_dropped(r.give(*static_cast<const Request *>(r.take_reordered())),
		      PEAL_DROP_conflict);
	r.forget(2);
	CHECK(r->psn == 2);
	CHECK_FALSE(r.looks_at_no_gap());

	SECTION("the peer's comes")
	{
		CHECK(r.send(2, 7).what == PEAL_REQUEST_EXECUTE);
		check_dropped(r.give(*static_cast<const Request *>(r.take_reordered())),
			      PEAL_DROP_conflict);
		CHECK(r->psn == 3);
		CHECK(r.replies().empty());
	}
	SECTION("the peer sends by another way from now on, and is asked again")
	{
		r.wait();
		check_answer(r.reply(), SEQUENCE_NAK, 2);
		CHECK(r.send(2, 8).what == PEAL_REQUEST_EXECUTE);
		CHECK(r.run_reordered() == 1);
		CHECK(r->psn == 4);
	}
}

TEST_CASE("in its turn a packet may come by any way", "[responder]")
{
	Keeper r(0);

	for (std::uint16_t n = 0; n < 10; ++n)
		CHECK(r.send(n, n).what == PEAL_REQUEST_EXECUTE);
	/* All packets have one flow, and so has the one in front of them. */
	r.send(11, 3);
	r.send(12, 3);
	r.send(10, 3);
	CHECK(r.run_reordered() == 2);
}

TEST_CASE("a packet whose turn does not come is given up", "[responder]")
{
	Keeper r(0);

	r.send(5);
	const std::uint64_t since = r.now;

	while (!r.looks_at_no_gap())
		r.wait();
	r.replies();
	r.wait();
	CHECK(r.take_expired() == nullptr);
	CHECK(r.now >= since + KEEP);
	r.wait();
	CHECK(r.take_expired() == r.kept(5));
	CHECK(r.take_expired() == nullptr);
	CHECK(r.now <= since + 2 * KEEP);
	CHECK(r.deadline() == U64_MAX);
	for (std::uint32_t psn = 0; psn < 6; ++psn)
		CHECK(r.send(psn).what == PEAL_REQUEST_EXECUTE);
}
