// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * From messages to packets: opcodes, headers, lengths, PSNs.
 */
#include "requester.hpp"

using namespace peal::test;

namespace {

struct Expected {
	unsigned opcode;
	std::uint32_t bytes;
};

struct Segmented {
	unsigned operation;
	std::uint64_t length;
	std::vector<Expected> packets;
};

const Segmented SEGMENTED[] = {
	{PEAL_OP_SEND, 0, {{PEAL_WIRE_SEND_ONLY, 0}}},
	{PEAL_OP_SEND, 1, {{PEAL_WIRE_SEND_ONLY, 1}}},
	{PEAL_OP_SEND, 256, {{PEAL_WIRE_SEND_ONLY, 256}}},
	{PEAL_OP_SEND, 257, {{PEAL_WIRE_SEND_FIRST, 256}, {PEAL_WIRE_SEND_LAST, 1}}},
	{PEAL_OP_SEND,
	 700,
	 {{PEAL_WIRE_SEND_FIRST, 256}, {PEAL_WIRE_SEND_MIDDLE, 256}, {PEAL_WIRE_SEND_LAST, 188}}},
	{PEAL_OP_SEND_IMM, 5, {{PEAL_WIRE_SEND_ONLY_IMM, 5}}},
	{PEAL_OP_SEND_IMM, 259, {{PEAL_WIRE_SEND_FIRST, 256}, {PEAL_WIRE_SEND_LAST_IMM, 3}}},
	{PEAL_OP_SEND_INV, 6, {{PEAL_WIRE_SEND_ONLY_INV, 6}}},
	{PEAL_OP_SEND_INV, 258, {{PEAL_WIRE_SEND_FIRST, 256}, {PEAL_WIRE_SEND_LAST_INV, 2}}},
	{PEAL_OP_WRITE, 0, {{PEAL_WIRE_WRITE_ONLY, 0}}},
	{PEAL_OP_WRITE, 512, {{PEAL_WIRE_WRITE_FIRST, 256}, {PEAL_WIRE_WRITE_LAST, 256}}},
	{PEAL_OP_WRITE,
	 513,
	 {{PEAL_WIRE_WRITE_FIRST, 256}, {PEAL_WIRE_WRITE_MIDDLE, 256}, {PEAL_WIRE_WRITE_LAST, 1}}},
	{PEAL_OP_WRITE_IMM, 4, {{PEAL_WIRE_WRITE_ONLY_IMM, 4}}},
	{PEAL_OP_WRITE_IMM, 300, {{PEAL_WIRE_WRITE_FIRST, 256}, {PEAL_WIRE_WRITE_LAST_IMM, 44}}},
};

peal_wr full(const Requester &r, unsigned operation, std::uint64_t length)
{
	peal_wr m = r.wr(operation, length, PEAL_WQE_SIGNALED | PEAL_WQE_SOLICITED);

	m.imm_or_rkey = 0xabcd;
	return m;
}

void check_packet(const peal_outgoing &out, const Segmented &s, std::size_t i, unsigned transport)
{
	const bool last = i + 1 == s.packets.size();
	const peal_packet &h = out.header;

	CAPTURE(s.operation, s.length, i);
	CHECK(h.opcode ==
	      peal_opcode_of(static_cast<u8>(transport), static_cast<u8>(s.packets[i].opcode)));
	CHECK(h.psn == psn(static_cast<std::uint32_t>(i)));
	CHECK(h.payload_bytes == s.packets[i].bytes);
	CHECK(h.pad == (-s.packets[i].bytes & 3));
	CHECK(h.header_bytes == peal_wire_opcode(h.opcode)->header_bytes);
	CHECK(out.offset == i * MTU);
	CHECK_FALSE(out.again);
	CHECK_FALSE(out.local);
	CHECK(h.solicited == (last && s.operation != PEAL_OP_WRITE));
	CHECK(h.ack_request == (last && transport == PEAL_RC));
	if (peal_wire_opcode(h.opcode)->has & PEAL_HAS_RETH) {
		CHECK(h.remote_addr == 0x10000);
		CHECK(h.rkey == 77);
		CHECK(h.length == s.length);
	}
	if (peal_wire_opcode(h.opcode)->has & PEAL_HAS_IMM)
		CHECK(h.imm == 0xabcd);
	if (peal_wire_opcode(h.opcode)->has & PEAL_HAS_IETH)
		CHECK(h.inv_rkey == 0xabcd);
}

} // namespace

TEST_CASE("RC messages are cut by the path MTU", "[segments]")
{
	for (const Segmented &s : SEGMENTED) {
		Requester r;

		r.post(full(r, s.operation, s.length));
		for (std::size_t i = 0; i < s.packets.size(); ++i)
			check_packet(r.send_one(), s, i, PEAL_RC);
		CHECK(r.next() == PEAL_BLOCKED_EMPTY);
		CHECK(r.completed() == 0);
		r.receive(ack(static_cast<std::uint32_t>(s.packets.size()) - 1));
		CHECK(r.completed() == 1);
	}
}

TEST_CASE("UC messages are cut likewise, and done when they were sent", "[segments]")
{
	for (const Segmented &s : SEGMENTED) {
		peal_requester_config config = plain_config();

		if (s.operation == PEAL_OP_SEND_INV)
			continue;
		config.transport = PEAL_UC;
		Requester r(config);

		r.post(full(r, s.operation, s.length));
		for (std::size_t i = 0; i < s.packets.size(); ++i) {
			CHECK(r.completed() == 0);
			check_packet(r.send_one(), s, i, PEAL_UC);
		}
		CHECK(r.completed() == 1);
		CHECK(r.next() == PEAL_BLOCKED_EMPTY);
		CHECK(r.deadline() == U64_MAX);
	}
}

TEST_CASE("UC: no window", "[segments]")
{
	peal_requester_config config = plain_config();

	config.transport = PEAL_UC;
	config.window = 1;
	Requester r(config);

	r.post_packets(1000);
	CHECK(r.send() == range(0, 1000));
	CHECK(r.completed() == 1);
	CHECK(r.receive(ack(0)) == PEAL_RESPONSE_DROPPED);
}

TEST_CASE("an operation that the transport lacks fails in its turn", "[segments]")
{
	const std::pair<unsigned, unsigned> WRONG[] = {
		{PEAL_UC, PEAL_OP_READ},      {PEAL_UC, PEAL_OP_FETCH_ADD},
		{PEAL_UC, PEAL_OP_SEND_INV},  {PEAL_UD, PEAL_OP_WRITE},
		{PEAL_UD, PEAL_OP_WRITE_IMM}, {PEAL_UD, PEAL_OP_READ},
		{PEAL_UD, PEAL_OP_CMP_SWAP},  {PEAL_UD, PEAL_OP_SEND_INV},
	};

	for (auto [transport, operation] : WRONG) {
		peal_requester_config config = plain_config();

		config.transport = static_cast<u8>(transport);
		Requester r(config);

		CAPTURE(transport, operation);
		r.post(PEAL_OP_SEND, 8);
		r.post(operation, 8);
		CHECK(r.send() == Psns{0});
		CHECK(r.completed() == 1);
		r.check_failed(IB_WC_LOC_QP_OP_ERR, PEAL_REASON_WQE_OPCODE);
	}
}

TEST_CASE("a READ is one packet that names it all", "[segments]")
{
	Requester r;

	r.post(PEAL_OP_READ, 3 * MTU + 1);
	CHECK(r.send_one().header.opcode == PEAL_WIRE_READ_REQUEST);
	CHECK(r.out.header.psn == psn(0));
	CHECK(r.out.header.remote_addr == 0x10000);
	CHECK(r.out.header.rkey == 77);
	CHECK(r.out.header.length == 3 * MTU + 1);
	CHECK(r.out.header.payload_bytes == 0);
	CHECK(r.out.header.pad == 0);
	CHECK(r.next() == PEAL_BLOCKED_EMPTY);
	CHECK(peal_requester_psn(r.get()) == psn(4));
}

TEST_CASE("an empty READ has one response", "[segments]")
{
	Requester r;

	r.post(PEAL_OP_READ, 0);
	CHECK(r.send_one().header.length == 0);
	CHECK(peal_requester_psn(r.get()) == psn(1));
	r.receive_and_place(read_response(0, 0));
	CHECK(r.completed() == 1);
}

TEST_CASE("a long READ is requested in pieces, each one of max_rd_atomic", "[segments]")
{
	peal_requester_config config = plain_config();
	const std::uint32_t piece = PEAL_READ_PIECE;

	config.window = 10 * piece;
	config.max_rd_atomic = 2;
	Requester r(config);

	/* Let the window grow. */
	r.post_packets(10 * piece);
	while (r.completed() == 0) {
		const Psns sent = r.send();

		REQUIRE_FALSE(sent.empty());
		r.receive(ack(sent.back()));
	}

	const std::uint32_t base = 10 * piece;

	r.post(PEAL_OP_READ, (2 * piece + 5) * MTU - 7);
	CHECK(r.send_one().header.psn == psn(base));
	CHECK(r.out.header.length == piece * MTU);
	CHECK(r.send_one().header.psn == psn(base + piece));
	CHECK(r.out.header.remote_addr == 0x10000 + piece * MTU);
	CHECK(r.out.header.length == piece * MTU);
	CHECK(r.next() == PEAL_BLOCKED_RD_ATOMIC);
	CHECK(peal_requester_unsent(r.get()) == 1);
	for (std::uint32_t i = 0; i < piece; ++i) {
		CHECK(r.next() == PEAL_BLOCKED_RD_ATOMIC);
		r.receive_and_place(read_response(base + i));
		CHECK(r.response.offset == i * MTU);
	}
	CHECK(r.send_one().header.psn == psn(base + 2 * piece));
	CHECK(r.out.header.length == 5 * MTU - 7);
	CHECK(r.next() == PEAL_BLOCKED_EMPTY);
	for (std::uint32_t i = piece; i < 2 * piece + 4; ++i)
		r.receive_and_place(read_response(base + i));
	CHECK(r.completed() == 0);
	r.receive_and_place(read_response(base + 2 * piece + 4, MTU - 7));
	CHECK(r.completed() == 1);
	CHECK(r->rd_atomic == 0);
	/* The peer counts each segment as a message. */
	CHECK(r->credit.ssn == 1 + 3);
}

TEST_CASE("atomics carry their operands", "[segments]")
{
	Requester r;
	peal_wr m = r.wr(PEAL_OP_CMP_SWAP, 8);

	m.atomic = {.compare_add = 11, .swap = 22};
	r.post(m);
	CHECK(r.send_one().header.opcode == PEAL_WIRE_CMP_SWAP);
	CHECK(r.out.header.compare == 11);
	CHECK(r.out.header.swap_add == 22);
	CHECK(r.out.header.remote_addr == 0x10000);
	CHECK(r.out.header.rkey == 77);
	CHECK(r.out.header.payload_bytes == 0);
	m.opcode = PEAL_OP_FETCH_ADD;
	m.index++;
	r.post(m);
	CHECK(r.send_one().header.opcode == PEAL_WIRE_FETCH_ADD);
	CHECK(r.out.header.swap_add == 11);
	CHECK(r.out.header.psn == psn(1));
	CHECK(r.receive(atomic_ack(0, 0xdead)) == PEAL_RESPONSE_ATOMIC);
	CHECK(r.response.original == 0xdead);
	CHECK(r.response.bytes == 8);
	r.place();
	r.receive_and_place(atomic_ack(1, 1));
	CHECK(r.completed() == 2);
}

TEST_CASE("the longest message at the smallest MTU", "[segments]")
{
	peal_requester_config config = plain_config();
	const std::uint32_t packets = PEAL_MAX_MSG / MTU;
	std::uint32_t sent = 0;

	for (unsigned operation : {PEAL_OP_WRITE, PEAL_OP_READ}) {
		Requester r(config);

		r.post(operation, PEAL_MAX_MSG);
		for (sent = 0; sent < packets;) {
			const Psns psns = r.send();

			REQUIRE_FALSE(psns.empty());
			if (operation == PEAL_OP_WRITE) {
				sent = psns.back() + 1;
				r.receive(ack(psns.back()));
				continue;
			}
			for (std::uint32_t end = sent + PEAL_READ_PIECE; sent < end; ++sent) {
				r.receive_and_place(read_response(sent));
				REQUIRE(r.response.offset == std::uint64_t{sent} * MTU);
			}
		}
		CHECK(r.completed() == 1);
		CHECK(peal_requester_psn(r.get()) == psn(packets));
	}
}

TEST_CASE("unsignaled messages carry AckReq when nothing follows", "[segments]")
{
	Requester r;
	peal_wr m = r.wr(PEAL_OP_WRITE, 8, 0);

	r.post(m);
	CHECK(r.send_one().header.ack_request);
	m.more = true;
	r.post(m);
	CHECK_FALSE(r.send_one().header.ack_request);
	m.flags = PEAL_WQE_SIGNALED;
	r.post(m);
	CHECK(r.send_one().header.ack_request);
	m.flags = 0;
	r.post(m);
	m.more = false;
	r.post(m);
	CHECK_FALSE(r.send_one().header.ack_request);
	CHECK(r.send_one().header.ack_request);
}

TEST_CASE("a long message carries AckReq every quarter of the window", "[segments]")
{
	Requester r;
	Psns asked;

	r.post_packets(100);
	while (r.next() == PEAL_BLOCKED_NONE) {
		if (r.out.header.ack_request)
			asked.push_back((r.out.header.psn - FIRST_PSN) & PEAL_PSN_MASK);
	}
	CHECK(asked == Psns{7, 15, 23, 31});
}
