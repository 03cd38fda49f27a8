// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * End-to-end credits: only messages that take a receive wait for one, and a lost
 * update never stops the connection (IBTA 9.7.7.2).
 */
#include "requester.hpp"

using namespace peal::test;

namespace {

/* One SEND is done, and the peer has told how many receives it has left. */
Requester limited(unsigned credits)
{
	Requester r;

	r.post(PEAL_OP_SEND);
	CHECK(r.send() == Psns{0});
	r.receive(ack(0, credits, 1));
	CHECK(r.completed() == 1);
	return r;
}

} // namespace

TEST_CASE("without limit at first, and with code 31", "[credits]")
{
	Requester r = limited(UNLIMITED);

	for (int i = 0; i < 10; ++i)
		r.post(PEAL_OP_SEND);
	CHECK(r.send() == range(1, 11));
}

TEST_CASE("as many as the peer says, of what takes a receive", "[credits]")
{
	for (unsigned operation :
	     {PEAL_OP_SEND, PEAL_OP_SEND_IMM, PEAL_OP_SEND_INV, PEAL_OP_WRITE_IMM}) {
		Requester r = limited(4); /* decodes to 4 */

		CAPTURE(operation);
		for (int i = 0; i < 10; ++i)
			r.post(operation);
		CHECK(r.send() == range(1, 5));
		CHECK(r.next() == PEAL_BLOCKED_CREDIT);
		r.receive(ack(1, 5, 2)); /* decodes to 6: up to message 8 */
		CHECK(r.send() == range(5, 8));
		CHECK(r.next() == PEAL_BLOCKED_CREDIT);
	}
}

TEST_CASE("messages that take no receive need no credit", "[credits]")
{
	Requester r = limited(0);

	r.post(PEAL_OP_WRITE);
	r.post(PEAL_OP_READ);
	r.post(PEAL_OP_FETCH_ADD, 8);
	CHECK(r.send() == range(1, 4));
}

TEST_CASE("without credit, one packet when nothing else is out", "[credits]")
{
	Requester r = limited(0);

	r.post(PEAL_OP_WRITE);
	r.post(PEAL_OP_SEND, 3 * MTU);
	CHECK(r.send() == Psns{1});
	CHECK(r.next() == PEAL_BLOCKED_CREDIT);
	r.receive(ack(1, 0, 2));
	CHECK(r.send_one().header.ack_request);
	CHECK(r.next() == PEAL_BLOCKED_CREDIT);
	/* The message was accepted, so there was a receive, and the rest of the message is sent. */
	r.receive(ack(2, 0, 2));
	CHECK(r.send() == Psns{3, 4});
	r.post(PEAL_OP_SEND);
	CHECK(r.next() == PEAL_BLOCKED_CREDIT);
	r.receive(ack(4, 0, 3));
	CHECK(r.send() == Psns{5});
}

TEST_CASE("the last message before one without credit carries AckReq", "[credits]")
{
	Requester r = limited(2);
	peal_wr m = r.wr(PEAL_OP_SEND, 8, 0);

	m.more = true;
	r.post(m);
	r.post(m);
	r.post(m);
	CHECK_FALSE(r.send_one().header.ack_request);
	CHECK(r.send_one().header.ack_request);
	CHECK(r.next() == PEAL_BLOCKED_CREDIT);
}

TEST_CASE("and then it may meet RNR, as often as it has to", "[credits]")
{
	Requester r = limited(0);

	r.post(PEAL_OP_SEND);
	CHECK(r.send() == Psns{1});
	for (int i = 0; i < 10; ++i) {
		r.receive(rnr(1));
		CHECK(r.wait() == Psns{1});
		r.now += 10 * MS;
	}
	r.receive(ack(1, 1, 2));
	CHECK(r.completed() == 1);
}

TEST_CASE("the newest acknowledgment may come again with more", "[credits]")
{
	Requester r = limited(0);

	r.post(PEAL_OP_WRITE);
	r.send();
	r.post(PEAL_OP_SEND);
	CHECK(r.next() == PEAL_BLOCKED_CREDIT);
	CHECK(r.receive(ack(0, 0, 1)) == PEAL_RESPONSE_DROPPED);
	CHECK(r.receive(ack(0, 2, 1)) == PEAL_RESPONSE_TAKEN);
	CHECK(r.send() == Psns{2});
	/* An older one has no effect. */
	CHECK(r.receive(ack(0xfffff0, 20, 1)) == PEAL_RESPONSE_DROPPED);
}

TEST_CASE("the limit never falls, and may be lifted", "[credits]")
{
	Requester r = limited(3);

	for (int i = 0; i < 6; ++i)
		r.post(PEAL_OP_SEND);
	CHECK(r.send() == range(1, 4));
	r.receive(ack(1, 0, 2));
	CHECK(r->credit.limit == 4);
	CHECK(r.next() == PEAL_BLOCKED_CREDIT);
	r.receive(ack(2, UNLIMITED, 3));
	CHECK(r.send() == range(4, 7));
}

TEST_CASE("READ and atomic responses bring credits too", "[credits]")
{
	Requester r = limited(0);
	peal_packet packet = response(PEAL_WIRE_READ_RESPONSE_ONLY, 1);

	r.post(PEAL_OP_READ, 4);
	r.post(PEAL_OP_SEND);
	CHECK(r.send() == Psns{1});
	CHECK(r.next() == PEAL_BLOCKED_CREDIT);
	packet.payload_bytes = 4;
	packet.syndrome = 1;
	packet.msn = 2;
	r.receive(packet);
	CHECK(r.send() == Psns{2});
}

TEST_CASE("message numbers wrap", "[credits]")
{
	Requester r;

	r->credit.ssn = 0xfffffe;
	r.post(PEAL_OP_SEND);
	r.send();
	r.receive(ack(0, 3, 0xffffff)); /* up to message 2 */
	for (int i = 0; i < 10; ++i)
		r.post(PEAL_OP_SEND);
	CHECK(r.send() == range(1, 4));
}
