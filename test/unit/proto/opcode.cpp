// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The opcode table, compared with a second one that was written from IBTA table 38 and annex A19.
 *
 * Holds: all 256 values. Opcodes that are not listed here are unknown.
 */
#include <map>

#include "../catch.hpp"
#include "proto.hpp"

namespace {

struct Known {
	unsigned header_bytes;
	unsigned operation;
	char place; /* 'f'irst, 'm'iddle, 'l'ast, 'o'nly */
	char to;    /* the 'r'esponder, or 'b'ack to the requester */
	bool payload;
};

const std::map<unsigned, Known> known = {
	{0x00, {12, PEAL_OP_SEND, 'f', 'r', true}},
	{0x01, {12, PEAL_OP_SEND, 'm', 'r', true}},
	{0x02, {12, PEAL_OP_SEND, 'l', 'r', true}},
	{0x03, {16, PEAL_OP_SEND_IMM, 'l', 'r', true}},
	{0x04, {12, PEAL_OP_SEND, 'o', 'r', true}},
	{0x05, {16, PEAL_OP_SEND_IMM, 'o', 'r', true}},
	{0x06, {28, PEAL_OP_WRITE, 'f', 'r', true}},
	{0x07, {12, PEAL_OP_WRITE, 'm', 'r', true}},
	{0x08, {12, PEAL_OP_WRITE, 'l', 'r', true}},
	{0x09, {16, PEAL_OP_WRITE_IMM, 'l', 'r', true}},
	{0x0a, {28, PEAL_OP_WRITE, 'o', 'r', true}},
	{0x0b, {32, PEAL_OP_WRITE_IMM, 'o', 'r', true}},
	{0x0c, {28, PEAL_OP_READ, 'o', 'r', false}},
	{0x0d, {16, PEAL_OP_READ, 'f', 'b', true}},
	{0x0e, {12, PEAL_OP_READ, 'm', 'b', true}},
	{0x0f, {16, PEAL_OP_READ, 'l', 'b', true}},
	{0x10, {16, PEAL_OP_READ, 'o', 'b', true}},
	{0x11, {16, 0, 'o', 'b', false}},
	{0x12, {24, 0, 'o', 'b', false}},
	{0x13, {40, PEAL_OP_CMP_SWAP, 'o', 'r', false}},
	{0x14, {40, PEAL_OP_FETCH_ADD, 'o', 'r', false}},
	{0x16, {16, PEAL_OP_SEND_INV, 'l', 'r', true}},
	{0x17, {16, PEAL_OP_SEND_INV, 'o', 'r', true}},
	{0x1c, {32, PEAL_OP_FLUSH, 'o', 'r', false}},
	{0x1d, {28, PEAL_OP_ATOMIC_WRITE, 'o', 'r', true}},
	{0x20, {12, PEAL_OP_SEND, 'f', 'r', true}},
	{0x21, {12, PEAL_OP_SEND, 'm', 'r', true}},
	{0x22, {12, PEAL_OP_SEND, 'l', 'r', true}},
	{0x23, {16, PEAL_OP_SEND_IMM, 'l', 'r', true}},
	{0x24, {12, PEAL_OP_SEND, 'o', 'r', true}},
	{0x25, {16, PEAL_OP_SEND_IMM, 'o', 'r', true}},
	{0x26, {28, PEAL_OP_WRITE, 'f', 'r', true}},
	{0x27, {12, PEAL_OP_WRITE, 'm', 'r', true}},
	{0x28, {12, PEAL_OP_WRITE, 'l', 'r', true}},
	{0x29, {16, PEAL_OP_WRITE_IMM, 'l', 'r', true}},
	{0x2a, {28, PEAL_OP_WRITE, 'o', 'r', true}},
	{0x2b, {32, PEAL_OP_WRITE_IMM, 'o', 'r', true}},
	{0x64, {20, PEAL_OP_SEND, 'o', 'r', true}},
	{0x65, {24, PEAL_OP_SEND_IMM, 'o', 'r', true}},
	/* XRC (annex A14). Each request has an XRCETH. */
	{0xa0, {16, PEAL_OP_SEND, 'f', 'r', true}},
	{0xa1, {16, PEAL_OP_SEND, 'm', 'r', true}},
	{0xa2, {16, PEAL_OP_SEND, 'l', 'r', true}},
	{0xa3, {20, PEAL_OP_SEND_IMM, 'l', 'r', true}},
	{0xa4, {16, PEAL_OP_SEND, 'o', 'r', true}},
	{0xa5, {20, PEAL_OP_SEND_IMM, 'o', 'r', true}},
	{0xa6, {32, PEAL_OP_WRITE, 'f', 'r', true}},
	{0xa7, {16, PEAL_OP_WRITE, 'm', 'r', true}},
	{0xa8, {16, PEAL_OP_WRITE, 'l', 'r', true}},
	{0xa9, {20, PEAL_OP_WRITE_IMM, 'l', 'r', true}},
	{0xaa, {32, PEAL_OP_WRITE, 'o', 'r', true}},
	{0xab, {36, PEAL_OP_WRITE_IMM, 'o', 'r', true}},
	{0xac, {32, PEAL_OP_READ, 'o', 'r', false}},
	{0xad, {16, PEAL_OP_READ, 'f', 'b', true}},
	{0xae, {12, PEAL_OP_READ, 'm', 'b', true}},
	{0xaf, {16, PEAL_OP_READ, 'l', 'b', true}},
	{0xb0, {16, PEAL_OP_READ, 'o', 'b', true}},
	{0xb1, {16, 0, 'o', 'b', false}},
	{0xb2, {24, 0, 'o', 'b', false}},
	{0xb3, {44, PEAL_OP_CMP_SWAP, 'o', 'r', false}},
	{0xb4, {44, PEAL_OP_FETCH_ADD, 'o', 'r', false}},
	{0xb6, {20, PEAL_OP_SEND_INV, 'l', 'r', true}},
	{0xb7, {20, PEAL_OP_SEND_INV, 'o', 'r', true}},
	{0xbc, {36, PEAL_OP_FLUSH, 'o', 'r', false}},
	{0xbd, {32, PEAL_OP_ATOMIC_WRITE, 'o', 'r', true}},
	/* Our opcode, from the manufacturers' range. It goes to neither half of a connection. */
	{PEAL_OPCODE_CHALLENGE, {12, 0, 'o', '-', true}},
	/* A congestion notification (A17.9.3) goes to neither half, too. */
	{0x81, {28, 0, 'o', '-', false}},
};

bool begins(const Known &row)
{
	return row.place == 'f' || row.place == 'o';
}

bool ends(const Known &row)
{
	return row.place == 'l' || row.place == 'o';
}

bool has(const struct peal_wire_opcode *wire, unsigned bits)
{
	return (wire->has & bits) == bits;
}

} // namespace

TEST_CASE("every opcode is what table 38 says", "[opcode]")
{
	for (unsigned opcode = 0; opcode < 256; ++opcode) {
		const struct peal_wire_opcode *wire = peal_wire_opcode(opcode);
		const auto row = known.find(opcode);

		INFO("opcode " << opcode);
		if (row == known.end()) {
			CHECK(wire->has == 0);
			CHECK(wire->header_bytes == 0);
			continue;
		}
		CHECK(wire->header_bytes == row->second.header_bytes);
		CHECK(wire->operation == row->second.operation);
		CHECK(has(wire, PEAL_HAS_FIRST) == begins(row->second));
		CHECK(has(wire, PEAL_HAS_LAST) == ends(row->second));
		CHECK(has(wire, PEAL_HAS_REQUEST) == (row->second.to == 'r'));
		CHECK(has(wire, PEAL_HAS_RESPONSE) == (row->second.to == 'b'));
		CHECK(has(wire, PEAL_HAS_PAYLOAD) == row->second.payload);
	}
}

TEST_CASE("an operation and a place name the opcode, and the other way round", "[opcode]")
{
	for (const auto &[opcode, row] : known) {
		INFO("opcode " << opcode);
		if (row.to == 'r')
			CHECK(peal_opcode_request(peal_opcode_transport(opcode),
						  peal_op(row.operation), begins(row),
						  ends(row)) == opcode);
		else if (row.operation == PEAL_OP_READ)
			CHECK(peal_opcode_read_response(peal_opcode_transport(opcode), begins(row),
							ends(row)) == opcode);
	}
}

TEST_CASE("a message begins the same way whatever it ends with", "[opcode]")
{
	for (unsigned transport : {PEAL_RC, PEAL_UC, PEAL_XRC}) {
		for (bool first : {true, false}) {
			CHECK(peal_opcode_request(transport, peal_op(PEAL_OP_SEND_IMM), first,
						  false) ==
			      peal_opcode_request(transport, peal_op(PEAL_OP_SEND), first, false));
			CHECK(peal_opcode_request(transport, peal_op(PEAL_OP_WRITE_IMM), first,
						  false) ==
			      peal_opcode_request(transport, peal_op(PEAL_OP_WRITE), first, false));
		}
	}
	CHECK(peal_opcode_request(PEAL_RC, peal_op(PEAL_OP_SEND_INV), true, false) ==
	      peal_opcode_request(PEAL_RC, peal_op(PEAL_OP_SEND), true, false));
}

TEST_CASE("no header is longer than the room for it", "[opcode]")
{
	for (unsigned opcode = 0; opcode < 256; ++opcode)
		CHECK(peal_wire_opcode(opcode)->header_bytes <= PEAL_HEADERS_MAX);
}

TEST_CASE("no packet with payload has more besides than a path makes room for", "[opcode]")
{
	std::uint32_t most = 0;

	for (unsigned opcode = 0; opcode < 256; ++opcode) {
		const auto *wire = peal_wire_opcode(opcode);

		if (wire->has & PEAL_HAS_PAYLOAD)
			most = std::max<std::uint32_t>(most, wire->header_bytes + PEAL_ICRC_BYTES);
	}
	CHECK(most == PEAL_PACKET_MOST_OVERHEAD);
}
