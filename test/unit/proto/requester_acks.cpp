// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Which packets an acknowledgment covers, and which responses are no acknowledgment. */
#include "requester.hpp"

using namespace peal::test;

TEST_CASE("one ACK covers all before it", "[acks]")
{
	Requester r;

	for (int i = 0; i < 5; ++i)
		r.post_packets(2);
	r.send();
	CHECK(r.receive(ack(0)) == PEAL_RESPONSE_TAKEN);
	CHECK(r.completed() == 0);
	r.receive(ack(4));
	CHECK(r.completed() == 2);
	r.receive(ack(9));
	CHECK(r.completed() == 3);
	CHECK(peal_requester_idle(r.get()));
	CHECK(r.deadline() == U64_MAX);
}

TEST_CASE("a response to an answered packet is a duplicate", "[acks]")
{
	Requester r;

	r.post_packets(2);
	r.send();
	r.receive(ack(1));
	for (std::uint32_t n : {1U, 0U, 0x1000000U - 1, 0x1000000U - 1000}) {
		CAPTURE(n);
		CHECK(r.receive(ack(n)) == PEAL_RESPONSE_DROPPED);
		CHECK(r.response.drop == PEAL_DROP_stale);
		CHECK(r.response.duplicate);
	}
	CHECK(r.completed() == 1);
}

TEST_CASE("a response to an unsent packet is dropped", "[acks]")
{
	Requester r;

	r.post_packets(100);
	r.send();
	for (auto make :
	     {+[](std::uint32_t n) { return ack(n); }, +[](std::uint32_t n) { return nak(n); },
	      +[](std::uint32_t n) { return nak(n, PEAL_NAK_REMOTE_ACCESS); },
	      +[](std::uint32_t n) { return rnr(n); },
	      +[](std::uint32_t n) { return read_response(n); },
	      +[](std::uint32_t n) { return atomic_ack(n, 0); }}) {
		for (std::uint32_t n : {32U, 33U, 0x400000U, 0x7fffffU}) {
			CAPTURE(n);
			CHECK(r.receive(make(n)) == PEAL_RESPONSE_DROPPED);
			CHECK(r.response.drop == PEAL_DROP_stale);
			CHECK_FALSE(r.response.duplicate);
		}
	}
	CHECK(r->inflight.una == psn(0));
	CHECK(r.next() == PEAL_BLOCKED_WINDOW);
}

TEST_CASE("only responses are taken", "[acks]")
{
	Requester r;

	r.post_packets(1);
	r.send();
	for (unsigned opcode = 0; opcode < 256; ++opcode) {
		peal_packet packet = ack(0);

		packet.opcode = static_cast<u8>(opcode);
		if (peal_wire_opcode(packet.opcode)->has & PEAL_HAS_RESPONSE)
			continue;
		CAPTURE(opcode);
		CHECK(r.receive(packet) == PEAL_RESPONSE_DROPPED);
		CHECK(r.response.drop == PEAL_DROP_opcode);
	}
	/* The reserved kind of syndrome, and NAK codes that do not exist for RC. */
	for (unsigned syndrome : {0x40U, 0x5fU, 0x64U, 0x7fU}) {
		CHECK(r.receive(ack(0, syndrome)) == PEAL_RESPONSE_DROPPED);
		CHECK(r.response.drop == PEAL_DROP_opcode);
	}
	CHECK(r.completed() == 0);
}

TEST_CASE("an ACK behind a READ does not complete it, and its loss is noticed", "[acks]")
{
	Requester r;

	r.post_packets(1);
	r.post_read(4);
	r.post_packets(1);
	r.post_packets(1);
	CHECK(r.send() == Psns{0, 1, 5, 6});
	r.receive(ack(5));
	CHECK(r.completed() == 1);
	CHECK(r->inflight.una == psn(1));
	/* It may be late, so only after a while it is requested again, and nothing else is. */
	CHECK(r.send().empty());
	CHECK(r.wait() == Psns{1});
	CHECK(r.out.again);
	CHECK(r.out.header.length == 4 * MTU);
	for (std::uint32_t i = 1; i < 5; ++i)
		r.receive_and_place(read_response(i));
	CHECK(r.completed() == 2);
	CHECK(r->inflight.una == psn(6));
	r.receive(ack(6));
	CHECK(r.completed() == 1);
}

TEST_CASE("an ACK behind an atomic does not complete it", "[acks]")
{
	Requester r;

	r.post(PEAL_OP_FETCH_ADD, 8);
	r.post_packets(1);
	r.send();
	r.receive(ack(0));
	r.receive(ack(1));
	CHECK(r.completed() == 0);
	CHECK(r.wait() == Psns{0});
	CHECK(r.out.header.opcode == PEAL_WIRE_FETCH_ADD);
	r.receive_and_place(atomic_ack(0, 9));
	CHECK(r.completed() == 2);
}

TEST_CASE("a READ response covers all before it", "[acks]")
{
	Requester r;

	r.post_packets(3);
	r.post_read(2);
	r.send();
	r.receive_and_place(read_response(3));
	CHECK(r.completed() == 1);
	r.receive_and_place(read_response(4));
	CHECK(r.completed() == 1);
}

TEST_CASE("NAKs cover what is before them", "[acks]")
{
	for (auto make :
	     {+[](std::uint32_t n) { return nak(n); }, +[](std::uint32_t n) { return rnr(n); },
	      +[](std::uint32_t n) { return nak(n, PEAL_NAK_REMOTE_ACCESS); }}) {
		Requester r;

		r.post_packets(2);
		r.post_packets(1);
		r.send();
		r.receive(make(2));
		CHECK(r.completed() == 1);
		CHECK(r->inflight.una == psn(2));
	}
}

TEST_CASE("many laps around 24 bits", "[acks]")
{
	Requester r;
	const std::uint32_t laps = 40 * 128 * 1024;
	std::uint32_t sent = 0, done = 0;

	while (sent < laps) {
		while (!peal_requester_unsent(r.get()) && peal_requester_has_room(r.get())) {
			r.post(PEAL_OP_WRITE, 100 * MTU);
			r.blocked();
		}
		const u32 top = peal_requester_psn(r.get());

		sent = sent + ((top - FIRST_PSN - sent) & PEAL_PSN_MASK);
		r.receive(ack(sent - 1));
		done += r.completed();
		r.blocked();
	}
	CHECK(done == sent / 100);
	CHECK(r.completions == done);
}
