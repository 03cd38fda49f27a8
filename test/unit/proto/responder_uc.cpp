// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* UC: a message arrives completely or not at all, and the sender gets no report. */
#include "responder.hpp"

using namespace peal::test;

namespace {

Responder unreliable(std::uint32_t psn)
{
	return Responder(psn, 0, PEAL_UC);
}

} // namespace

TEST_CASE("UC: messages in order", "[responder]")
{
	Responder r = unreliable(0xffffff);

	r.run(uc(PEAL_WIRE_SEND_FIRST, 0xffffff, MTU));
	CHECK(r.run(uc(PEAL_WIRE_SEND_LAST, 0, 4)).length == MTU + 4);
	r.run(uc(PEAL_WIRE_WRITE_ONLY_IMM, 1, 4).at(0, 4).asks_ack());
	CHECK(r->psn == 2);
	CHECK(r.replies().empty());
	CHECK(r.deadline() == U64_MAX);
}

TEST_CASE("UC: a gap loses the message under way", "[responder]")
{
	Responder r = unreliable(0);

	r.run(uc(PEAL_WIRE_SEND_FIRST, 0, MTU));
	check_dropped(r.give(uc(PEAL_WIRE_SEND_MIDDLE, 2, MTU)), PEAL_DROP_order);
	check_dropped(r.give(uc(PEAL_WIRE_SEND_LAST, 3, MTU)), PEAL_DROP_order);
	CHECK(r->psn == 1);

	const peal_request request = r.run(uc(PEAL_WIRE_SEND_FIRST, 4, MTU));

	CHECK(request.first);
	CHECK(request.offset == 0);
	r.run(uc(PEAL_WIRE_SEND_LAST, 5, 1));
	CHECK(r.replies().empty());
}

TEST_CASE("UC: the packet after a gap may begin a message", "[responder]")
{
	Responder r = unreliable(0);
	int handle;

	r.run(uc(PEAL_WIRE_SEND_FIRST, 0, MTU));
	CHECK(r.give(uc(PEAL_WIRE_SEND_ONLY, 7, 1), &handle).what == PEAL_REQUEST_EXECUTE);
	r.done();
	CHECK(r->psn == 8);
	CHECK(r->msn == 1);
}

TEST_CASE("UC: late and doubled packets are not delivered", "[responder]")
{
	Responder r = unreliable(10);

	r.run(uc(PEAL_WIRE_SEND_ONLY, 10, 1));
	CHECK(r.give(uc(PEAL_WIRE_SEND_ONLY, 10, 1)).duplicate);
	r.run(uc(PEAL_WIRE_SEND_ONLY, 12, 1));
	check_dropped(r.give(uc(PEAL_WIRE_SEND_ONLY, 11, 1)), PEAL_DROP_sequence);
	r.run(uc(PEAL_WIRE_SEND_ONLY, 13, 1));
}

TEST_CASE("UC: after a long silence the circle is no obstacle", "[responder]")
{
	Responder r = unreliable(0);

	r.run(uc(PEAL_WIRE_SEND_ONLY, 0, 1));
	r.run(uc(PEAL_WIRE_SEND_ONLY, 0x900000, 1));
	CHECK(r->psn == 0x900001);
}

TEST_CASE("UC: what does not fit loses the message", "[responder]")
{
	Responder r = unreliable(0);

	SECTION("no message to continue")
	{
		check_dropped(r.give(uc(PEAL_WIRE_SEND_LAST, 0, 1)), PEAL_DROP_order);
	}
	SECTION("a WRITE goes on as a SEND")
	{
		r.run(uc(PEAL_WIRE_WRITE_FIRST, 0, MTU).at(0, 2 * MTU));
		check_dropped(r.give(uc(PEAL_WIRE_SEND_LAST, 1, MTU)), PEAL_DROP_order);
	}
	SECTION("a first packet that is not full")
	{
		check_dropped(r.give(uc(PEAL_WIRE_SEND_FIRST, 0, 4)), PEAL_DROP_order);
	}
	SECTION("a WRITE longer than it said")
	{
		check_dropped(r.give(uc(PEAL_WIRE_WRITE_ONLY, 0, 4).at(0, 3)), PEAL_DROP_order);
	}
	/* The next message arrives. */
	r.run(uc(PEAL_WIRE_SEND_ONLY, r->psn, 1));
	CHECK(r.replies().empty());
}

/* The requester sends no more of a message that failed, as a bad key in its middle makes it. */
TEST_CASE("UC: a message begins although the one before it has not ended", "[responder]")
{
	Responder r = unreliable(0);

	r.run(uc(PEAL_WIRE_SEND_FIRST, 0, MTU));
	SECTION("one packet")
	{
		CHECK(r.run(uc(PEAL_WIRE_SEND_ONLY, 1, 3)).length == 3);
		check_dropped(r.give(uc(PEAL_WIRE_SEND_LAST, 2, 1)), PEAL_DROP_order);
	}
	SECTION("several packets")
	{
		const peal_request request =
			r.run(uc(PEAL_WIRE_WRITE_FIRST, 1, MTU).at(0, MTU + 1));

		CHECK(request.first);
		CHECK(request.offset == 0);
		CHECK(r.run(uc(PEAL_WIRE_WRITE_LAST, 2, 1)).offset == MTU);
		CHECK(r->psn == 3);
	}
	SECTION("but not one that does not fit")
	{
		check_dropped(r.give(uc(PEAL_WIRE_SEND_FIRST, 1, 4)), PEAL_DROP_order);
		check_dropped(r.give(uc(PEAL_WIRE_SEND_LAST, 1, 1)), PEAL_DROP_order);
	}
	CHECK(r.replies().empty());
}

TEST_CASE("UC: a verdict against it loses the message, and that is all", "[responder]")
{
	for (peal_verdict verdict : {PEAL_VERDICT_NOT_READY, PEAL_VERDICT_INVALID_REQUEST,
				     PEAL_VERDICT_ACCESS, PEAL_VERDICT_OPERATION}) {
		Responder r = unreliable(0);

		r.run(uc(PEAL_WIRE_SEND_FIRST, 0, MTU), verdict);
		check_dropped(r.give(uc(PEAL_WIRE_SEND_LAST, 1, 1)), PEAL_DROP_order);
		r.run(uc(PEAL_WIRE_SEND_ONLY, 2, 1));
		CHECK(r.replies().empty());
	}
}

TEST_CASE("UC: one packet far ahead that begins nothing makes nothing late", "[responder]")
{
	for (unsigned wire : {PEAL_WIRE_SEND_MIDDLE, PEAL_WIRE_SEND_LAST, PEAL_WIRE_WRITE_MIDDLE,
			      PEAL_WIRE_WRITE_LAST})
		for (std::uint32_t psn : {2U, 200U, 0x9000U, 0x7fffffU, 0x800000U, 0xfff000U}) {
			Responder r = unreliable(0);

			CAPTURE(wire, psn);
			r.run(uc(PEAL_WIRE_SEND_FIRST, 0, MTU));
			check_dropped(r.give(uc(wire, psn, MTU)), PEAL_DROP_order);
			/* The current message is not harmed either. */
			CHECK(r.run(uc(PEAL_WIRE_SEND_MIDDLE, 1, MTU)).offset == MTU);
			CHECK(r.run(uc(PEAL_WIRE_SEND_LAST, 2, 1)).last);
			CHECK(r->psn == 3);
		}
}

TEST_CASE("UC: what is refused moves nothing either", "[responder]")
{
	Responder r = unreliable(0);

	r.run(uc(PEAL_WIRE_WRITE_FIRST, 0, MTU).at(0, 2 * MTU));
	r.run(uc(PEAL_WIRE_WRITE_ONLY, 500, 4).at(0, 4, 99), PEAL_VERDICT_ACCESS);
	r.run(uc(PEAL_WIRE_SEND_ONLY, 600, 4), PEAL_VERDICT_NOT_READY);
	check_dropped(r.give(uc(PEAL_WIRE_SEND_FIRST, 700, 4)), PEAL_DROP_order);
	CHECK(r->psn == 1);

	const peal_request rest = r.run(uc(PEAL_WIRE_WRITE_LAST, 1, MTU));

	CHECK(rest.offset == MTU);
	CHECK(rest.rkey == 7);
	CHECK(r->psn == 2);
}

TEST_CASE("UC: what was accepted far ahead makes few late", "[responder]")
{
	Responder r = unreliable(0);

	r.run(uc(PEAL_WIRE_SEND_ONLY, 0, 1));
	/* It is forged, because the peer is at 1. */
	r.run(uc(PEAL_WIRE_SEND_ONLY, 30000, 1));
	r.run(uc(PEAL_WIRE_SEND_ONLY, 1, 1));
	r.run(uc(PEAL_WIRE_SEND_ONLY, 2, 1));
	CHECK(r->psn == 3);
	/* A nearer one is taken for the peer's, and packets behind it for late ones. */
	r.run(uc(PEAL_WIRE_SEND_ONLY, 1002, 1));
	CHECK(r.give(uc(PEAL_WIRE_SEND_ONLY, 3, 1)).duplicate);
	CHECK(r.give(uc(PEAL_WIRE_SEND_ONLY, 1002, 1)).duplicate);
	r.run(uc(PEAL_WIRE_SEND_ONLY, 1003, 1));
}

TEST_CASE("UC: what was refused and comes once more is new", "[responder]")
{
	Responder r = unreliable(0);

	r.run(uc(PEAL_WIRE_SEND_ONLY, 0, 1), PEAL_VERDICT_NOT_READY);
	r.run(uc(PEAL_WIRE_SEND_ONLY, 0, 1));
	CHECK(r.give(uc(PEAL_WIRE_SEND_ONLY, 0, 1)).duplicate);
}
