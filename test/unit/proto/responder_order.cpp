// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * RC requests in their turn: what they ask of the host, which of them are
 * invalid, and how they are acknowledged.
 */
#include "responder.hpp"

using namespace peal::test;

TEST_CASE("a SEND of three packets is described to the host", "[responder]")
{
	Responder r(0xfffffe);
	peal_request request = r.run(rc(PEAL_WIRE_SEND_FIRST, 0xfffffe, MTU));

	CHECK(request.first);
	CHECK_FALSE(request.last);
	CHECK(request.operation == PEAL_OP_SEND);
	CHECK(request.offset == 0);
	CHECK(request.bytes == MTU);
	CHECK(request.length == MTU);

	request = r.run(rc(PEAL_WIRE_SEND_MIDDLE, 0xffffff, MTU));
	CHECK_FALSE(request.first);
	CHECK_FALSE(request.last);
	CHECK(request.offset == MTU);
	CHECK(request.length == 2 * MTU);
	CHECK(r->msn == 0);
	CHECK(r.replies().empty());

	Request last = rc(PEAL_WIRE_SEND_LAST_IMM, 0, 10).asks_ack();

	last.imm = 0x11223344;
	last.solicited = true;
	request = r.run(last);
	CHECK_FALSE(request.first);
	CHECK(request.last);
	CHECK(request.solicited);
	CHECK(request.operation == PEAL_OP_SEND_IMM);
	CHECK(request.offset == 2 * MTU);
	CHECK(request.length == 2 * MTU + 10);
	CHECK(request.imm_or_rkey == 0x11223344);
	CHECK(r->msn == 1);
	CHECK(r->psn == 1);

	const peal_reply ack = r.reply();

	check_answer(ack, PLAIN_ACK, 0);
	CHECK(ack.header.msn == 1);
}

TEST_CASE("all packets of a WRITE know its address, key and length", "[responder]")
{
	Responder r(5);
	peal_request request = r.run(rc(PEAL_WIRE_WRITE_FIRST, 5, MTU).at(0x1000, MTU + 3, 9));

	CHECK(request.first);
	CHECK(request.operation == PEAL_OP_WRITE);
	request = r.run(rc(PEAL_WIRE_WRITE_LAST_IMM, 6, 3));
	CHECK(request.operation == PEAL_OP_WRITE_IMM);
	CHECK(request.remote_addr == 0x1000);
	CHECK(request.rkey == 9);
	CHECK(request.length == MTU + 3);
	CHECK(request.offset == MTU);
	CHECK(request.bytes == 3);
}

TEST_CASE("atomics and invalidations carry their operands", "[responder]")
{
	Responder r(0);
	Request packet = rc(PEAL_WIRE_CMP_SWAP, 0).at(0x2000, 0);

	packet.compare = 1;
	packet.swap_add = 2;
	peal_request request = r.run(packet, PEAL_VERDICT_DONE, 1);
	CHECK(request.operation == PEAL_OP_CMP_SWAP);
	CHECK(request.atomic.compare_add == 1);
	CHECK(request.atomic.swap == 2);

	packet = rc(PEAL_WIRE_FETCH_ADD, 1).at(0x2000, 0);
	packet.compare = 1;
	packet.swap_add = 3;
	request = r.run(packet, PEAL_VERDICT_DONE, 2);
	CHECK(request.operation == PEAL_OP_FETCH_ADD);
	CHECK(request.atomic.compare_add == 3);

	packet = rc(PEAL_WIRE_SEND_ONLY_INV, 2);
	packet.inv_rkey = 0x99;
	request = r.run(packet);
	CHECK(request.operation == PEAL_OP_SEND_INV);
	CHECK(request.imm_or_rkey == 0x99);
	CHECK(r->msn == 3);
}

namespace {

/* Begins a message of this family, which is 0 for none, 's' for SEND or 'w' for WRITE. */
void open_message(Responder &r, char family)
{
	if (family == 's')
		r.run(rc(PEAL_WIRE_SEND_FIRST, r->psn, MTU));
	if (family == 'w')
		r.run(rc(PEAL_WIRE_WRITE_FIRST, r->psn, MTU).at(0, 2 * MTU));
}

bool continues(unsigned opcode, char family)
{
	const unsigned has = peal_wire_opcode(opcode)->has;

	if (!family)
		return has & PEAL_HAS_FIRST;
	return !(has & PEAL_HAS_FIRST) && has & (family == 's' ? PEAL_HAS_SEND : PEAL_HAS_WRITE);
}

/* A packet with right lengths, in a message that may have begun. */
Request fitting(unsigned opcode, std::uint32_t psn, char family)
{
	const struct peal_wire_opcode *wire = peal_wire_opcode(opcode);
	const bool payload = wire->has & PEAL_HAS_PAYLOAD;
	const bool write_goes_on = family == 'w' && !(wire->has & PEAL_HAS_LAST);
	Request packet = rc(opcode, psn, payload ? MTU : 0);

	packet.length = payload && wire->has & PEAL_HAS_LAST ? MTU : 2 * MTU;
	if (write_goes_on)
		packet.payload_bytes = MTU;
	if (opcode == PEAL_WIRE_ATOMIC_WRITE)
		packet.payload_bytes = packet.length = 8;
	return packet;
}

} // namespace

TEST_CASE("opcodes follow each other as they must", "[responder]")
{
	for (char family : {'\0', 's', 'w'}) {
		for (unsigned opcode = 0; opcode < 32; ++opcode) {
			if (!(peal_wire_opcode(opcode)->has & PEAL_HAS_REQUEST))
				continue;
			/* This one is in order, but the WRITE has only two packets. */
			if (family == 'w' && opcode == PEAL_WIRE_WRITE_MIDDLE)
				continue;

			Responder r(0xffffff);

			open_message(r, family);
			INFO("opcode " << opcode << " after " << family);

			const std::uint32_t psn = r->psn;
			const peal_request request = r.give(fitting(opcode, psn, family));

			if (continues(opcode, family)) {
				CHECK(request.what == PEAL_REQUEST_EXECUTE);
				continue;
			}
			check_refused(request);
			check_answer(r.reply(), INVALID_NAK, psn);
			check_dropped(r.give(rc(PEAL_WIRE_SEND_ONLY, psn)), PEAL_DROP_state);
			CHECK(r.replies().empty());
		}
	}
}

TEST_CASE("lengths of packets", "[responder]")
{
	struct Row {
		unsigned wire;
		std::uint32_t bytes;
		bool fits;
	};
	const Row rows[] = {
		{PEAL_WIRE_SEND_ONLY, 0, true},		 {PEAL_WIRE_SEND_ONLY, MTU, true},
		{PEAL_WIRE_SEND_ONLY, MTU + 1, false},	 {PEAL_WIRE_SEND_FIRST, MTU, true},
		{PEAL_WIRE_SEND_FIRST, MTU - 1, false},	 {PEAL_WIRE_SEND_FIRST, MTU + 4, false},
		{PEAL_WIRE_SEND_FIRST, 0, false},	 {PEAL_WIRE_SEND_MIDDLE, MTU, true},
		{PEAL_WIRE_SEND_MIDDLE, MTU - 4, false}, {PEAL_WIRE_SEND_MIDDLE, MTU + 4, false},
		{PEAL_WIRE_SEND_LAST, 0, false},	 {PEAL_WIRE_SEND_LAST, 1, true},
		{PEAL_WIRE_SEND_LAST, MTU, true},	 {PEAL_WIRE_SEND_LAST, MTU + 1, false},
	};

	for (const Row &row : rows) {
		Responder r(0);

		if (!(peal_wire_opcode(row.wire)->has & PEAL_HAS_FIRST))
			open_message(r, 's');
		INFO("opcode " << row.wire << ", " << row.bytes << " bytes");

		const peal_request request = r.give(rc(row.wire, r->psn, row.bytes));

		if (row.fits)
			CHECK(request.what == PEAL_REQUEST_EXECUTE);
		else
			check_refused(request);
	}
}

TEST_CASE("a WRITE has exactly the length that it announces", "[responder]")
{
	Responder r(0);

	SECTION("one packet")
	{
		CHECK(r.run(rc(PEAL_WIRE_WRITE_ONLY, 0, 0).at(1, 0)).length == 0);
		CHECK(r.run(rc(PEAL_WIRE_WRITE_ONLY, 1, 9).at(1, 9)).length == 9);
	}
	SECTION("one packet, shorter")
	{
		check_refused(r.give(rc(PEAL_WIRE_WRITE_ONLY, 0, 8).at(1, 9)));
	}
	SECTION("one packet, longer")
	{
		check_refused(r.give(rc(PEAL_WIRE_WRITE_ONLY, 0, 9).at(1, 8)));
	}
	SECTION("the last packet, shorter")
	{
		r.run(rc(PEAL_WIRE_WRITE_FIRST, 0, MTU).at(1, MTU + 2));
		check_refused(r.give(rc(PEAL_WIRE_WRITE_LAST, 1, 1)));
	}
	SECTION("the last packet, longer")
	{
		r.run(rc(PEAL_WIRE_WRITE_FIRST, 0, MTU).at(1, MTU + 2));
		check_refused(r.give(rc(PEAL_WIRE_WRITE_LAST, 1, 3)));
	}
	SECTION("a packet in the middle reaches too far")
	{
		r.run(rc(PEAL_WIRE_WRITE_FIRST, 0, MTU).at(1, 2 * MTU));
		check_refused(r.give(rc(PEAL_WIRE_WRITE_MIDDLE, 1, MTU)));
	}
	SECTION("the first does")
	{
		check_refused(r.give(rc(PEAL_WIRE_WRITE_FIRST, 0, MTU).at(1, MTU - 1)));
	}
	SECTION("the longest begins")
	{
		CHECK(r.run(rc(PEAL_WIRE_WRITE_FIRST, 0, MTU).at(1, PEAL_MAX_MSG)).length ==
		      PEAL_MAX_MSG);
	}
	SECTION("a longer one does not")
	{
		check_refused(r.give(rc(PEAL_WIRE_WRITE_FIRST, 0, MTU).at(1, PEAL_MAX_MSG + 1)));
	}
}

TEST_CASE("a SEND of more than 2 GiB is invalid", "[responder]")
{
	Responder r(0);

	r.run(rc(PEAL_WIRE_SEND_FIRST, 0, MTU));
	r->offset = PEAL_MAX_MSG - MTU;
	r.run(rc(PEAL_WIRE_SEND_MIDDLE, 1, MTU));
	check_refused(r.give(rc(PEAL_WIRE_SEND_LAST, 2, 1)));
}

TEST_CASE("packets that are no requests of this transport are dropped", "[responder]")
{
	Responder r(0);

	for (unsigned opcode = 0; opcode < 256; ++opcode) {
		Request packet = rc(PEAL_WIRE_SEND_ONLY, 0);

		packet.opcode = opcode;
		if (opcode < 32 && peal_wire_opcode(opcode)->has & PEAL_HAS_REQUEST)
			continue;
		INFO("opcode " << opcode);
		check_dropped(r.give(packet), PEAL_DROP_opcode);
	}
	CHECK(r.replies().empty());
}

TEST_CASE("acknowledgements come when asked for, one for many", "[responder]")
{
	Responder r(0);

	for (std::uint32_t psn = 0; psn < 10; ++psn)
		r.run(rc(PEAL_WIRE_SEND_ONLY, psn));
	CHECK(r.replies().empty());
	r.run(rc(PEAL_WIRE_SEND_ONLY, 10).asks_ack());
	r.run(rc(PEAL_WIRE_SEND_ONLY, 11));

	const peal_reply ack = r.reply();

	check_answer(ack, PLAIN_ACK, 11);
	CHECK(ack.header.msn == 12);
}

TEST_CASE("the number of messages has 24 bits", "[responder]")
{
	Responder r(0);

	r->msn = 0xffffff;
	r.run(rc(PEAL_WIRE_SEND_ONLY, 0).asks_ack());
	CHECK(r.reply().header.msn == 0);
}

TEST_CASE("a requester that never sets AckReq gets an ACK every 32 packets", "[responder]")
{
	Responder r(0);
	unsigned acks = 0;

	for (std::uint32_t psn = 0; psn < 320; ++psn) {
		r.run(rc(PEAL_WIRE_SEND_ONLY, psn));
		acks += r.replies().size();
	}
	CHECK(acks == 10);
}

TEST_CASE("an executed SEND or WRITE that comes again is acknowledged again", "[responder]")
{
	Responder r(0xfffffe);

	r.run(rc(PEAL_WIRE_SEND_ONLY, 0xfffffe).asks_ack());
	r.run(rc(PEAL_WIRE_WRITE_ONLY, 0xffffff, 1).at(0, 1).asks_ack());
	r.run(rc(PEAL_WIRE_SEND_FIRST, 0, MTU).asks_ack());
	check_answer(r.reply(), PLAIN_ACK, 0);

	for (const Request &again :
	     {rc(PEAL_WIRE_SEND_ONLY, 0xfffffe), rc(PEAL_WIRE_WRITE_ONLY, 0xffffff, 1)}) {
		const peal_request request = r.give(again);

		CHECK(request.what == PEAL_REQUEST_ANSWERED);
		CHECK(request.duplicate);
		CHECK_FALSE(request.fatal);
	}
	check_answer(r.reply(), PLAIN_ACK, 0);
	CHECK(r->msn == 2);
	/* The current message is unchanged. */
	CHECK(r.run(rc(PEAL_WIRE_SEND_LAST, 1, 1)).offset == MTU);
}

TEST_CASE("half the circle behind is a repetition, the other half is out of order", "[responder]")
{
	Responder r(0x800000);

	CHECK(r.give(rc(PEAL_WIRE_SEND_ONLY, 0)).duplicate);
	CHECK(r.give(rc(PEAL_WIRE_SEND_ONLY, 0x7fffff)).duplicate);
	CHECK(r->nak == 0);
	check_dropped(r.give(rc(PEAL_WIRE_SEND_ONLY, 0xffffff)), PEAL_DROP_sequence);
	CHECK(r->nak == SEQUENCE_NAK);
}

TEST_CASE("a refusal of the host ends the connection", "[responder]")
{
	struct Row {
		peal_verdict verdict;
		std::uint8_t syndrome;
	};

	for (const Row &row :
	     {Row{PEAL_VERDICT_INVALID_REQUEST, INVALID_NAK}, Row{PEAL_VERDICT_ACCESS, ACCESS_NAK},
	      Row{PEAL_VERDICT_OPERATION, OPERATION_NAK}}) {
		Responder r(9);

		r.run(rc(PEAL_WIRE_SEND_ONLY, 9).asks_ack());
		r.run(rc(PEAL_WIRE_WRITE_ONLY, 10, 4).at(0, 4), row.verdict);

		const peal_reply nak = r.reply();

		check_answer(nak, row.syndrome, 10);
		CHECK(nak.header.msn == 1);
		check_dropped(r.give(rc(PEAL_WIRE_SEND_ONLY, 10)), PEAL_DROP_state);
		check_dropped(r.give(rc(PEAL_WIRE_SEND_ONLY, 9)), PEAL_DROP_state);
		CHECK(r.replies().empty());
	}
}

TEST_CASE("RNR NAK: once, and the packet is awaited", "[responder]")
{
	Responder r(0);

	r.run(rc(PEAL_WIRE_SEND_ONLY, 0).asks_ack());
	r.run(rc(PEAL_WIRE_SEND_ONLY, 1), PEAL_VERDICT_NOT_READY);
	check_answer(r.reply(), PEAL_SYNDROME_RNR | RNR_TIMER, 1);
	CHECK(r->msn == 1);

	int handle;

	for (std::uint32_t psn = 2; psn < 8; ++psn)
		check_dropped(r.give(rc(PEAL_WIRE_SEND_ONLY, psn), &handle), PEAL_DROP_sequence);
	CHECK(r.replies().empty());
	CHECK(r.deadline() == U64_MAX);

	SECTION("it is executed when it comes again")
	{
		r.run(rc(PEAL_WIRE_SEND_ONLY, 1).asks_ack());
		check_answer(r.reply(), PLAIN_ACK, 1);
		CHECK(r.give(rc(PEAL_WIRE_SEND_ONLY, 3), &handle).what == PEAL_REQUEST_KEPT);
	}
	SECTION("or refused once more")
	{
		r.run(rc(PEAL_WIRE_SEND_ONLY, 1), PEAL_VERDICT_NOT_READY);
		check_answer(r.reply(), PEAL_SYNDROME_RNR | RNR_TIMER, 1);
	}
}

TEST_CASE("RNR NAK for the last packet of a WRITE", "[responder]")
{
	Responder r(0);

	r.run(rc(PEAL_WIRE_WRITE_FIRST, 0, MTU).at(0x1000, MTU + 8));
	r.run(rc(PEAL_WIRE_WRITE_LAST_IMM, 1, 8), PEAL_VERDICT_NOT_READY);
	check_answer(r.reply(), PEAL_SYNDROME_RNR | RNR_TIMER, 1);

	const peal_request again = r.run(rc(PEAL_WIRE_WRITE_LAST_IMM, 1, 8));

	CHECK(again.offset == MTU);
	CHECK(again.remote_addr == 0x1000);
	CHECK(r->msn == 1);
}

TEST_CASE("reset forgets, but not how it is configured", "[responder]")
{
	Responder r(7);

	r.run(rc(PEAL_WIRE_SEND_FIRST, 7, MTU).asks_ack());
	check_refused(r.give(rc(PEAL_WIRE_SEND_FIRST, 8, MTU)));
	peal_responder_reset(r.get());
	CHECK(r.replies().empty());
	CHECK(r->msn == 0);
	peal_responder_set_psn(r.get(), 0xff000003);
	r.run(rc(PEAL_WIRE_SEND_FIRST, 3, MTU));
	CHECK(r.give(read_request(4, 0, 1)).fatal);
}
