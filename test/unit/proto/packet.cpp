// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Headers as bytes and as values.
 *
 * Holds: Layouts are as written here byte by byte, independently of the tested code. Parsing
 * reads nothing outside of its input (AddressSanitizer checks that).
 */
#include <array>
#include <vector>

#include "../catch.hpp"
#include "../kernel/support.hpp"
#include "proto.hpp"

namespace {

using Bytes = std::vector<std::uint8_t>;
using peal::test::Exactly;
using peal::test::Random;

Bytes build(const peal_packet &packet)
{
	std::array<std::uint8_t, PEAL_HEADERS_MAX> room{};

	return Bytes(room.begin(), room.begin() + peal_packet_build(&packet, room.data()));
}

/* The BTH of `plain()`. Extended headers follow it. */
const Bytes plain_bth = {0x00, 0xe0, 0x12, 0x34, 0x00, 0xab, 0xcd, 0xef, 0x80, 0x01, 0x02, 0x03};

peal_packet plain(std::uint8_t opcode)
{
	peal_packet packet{};

	packet.opcode = opcode;
	packet.solicited = packet.migrated = packet.ack_request = true;
	packet.pad = 2;
	packet.pkey = 0x1234;
	packet.qpn = 0xabcdef;
	packet.psn = 0x010203;
	return packet;
}

Bytes expected(std::uint8_t opcode, const Bytes &extended)
{
	Bytes bytes = plain_bth;

	bytes[0] = opcode;
	bytes.insert(bytes.end(), extended.begin(), extended.end());
	return bytes;
}

std::uint32_t network_order(std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t d)
{
	const std::array<std::uint8_t, 4> bytes{std::uint8_t(a), std::uint8_t(b), std::uint8_t(c),
						std::uint8_t(d)};
	std::uint32_t word;

	std::memcpy(&word, bytes.data(), sizeof(word));
	return word;
}

} // namespace

TEST_CASE("headers lie where the specification puts them", "[packet]")
{
	SECTION("BTH alone")
	{
		CHECK(build(plain(0x04)) == expected(0x04, {}));
	}
	SECTION("congestion bits")
	{
		peal_packet packet = plain(0x04);

		packet.fecn = true;
		CHECK(build(packet)[4] == 0x80);
		packet.becn = true;
		CHECK(build(packet)[4] == 0xc0);
	}
	SECTION("each flag alone")
	{
		peal_packet packet{};

		packet.opcode = 0x04;
		packet.solicited = true;
		CHECK(build(packet)[1] == 0x80);
		packet.solicited = false;
		packet.migrated = true;
		CHECK(build(packet)[1] == 0x40);
		packet.migrated = false;
		packet.pad = 3;
		CHECK(build(packet)[1] == 0x30);
		CHECK(build(packet)[8] == 0);
	}
	SECTION("WRITE_ONLY_IMM: RETH, ImmDt")
	{
		peal_packet packet = plain(0x0b);

		packet.remote_addr = 0x0102030405060708;
		packet.rkey = 0x11121314;
		packet.length = 0x21222324;
		packet.imm = network_order(0x31, 0x32, 0x33, 0x34);
		CHECK(build(packet) ==
		      expected(0x0b, {1,    2,	  3,	4,    5,    6,	  7,	8,    0x11, 0x12,
				      0x13, 0x14, 0x21, 0x22, 0x23, 0x24, 0x31, 0x32, 0x33, 0x34}));
	}
	SECTION("CMP_SWAP: AtomicETH has swap before compare")
	{
		peal_packet packet = plain(0x13);

		packet.remote_addr = 0x0102030405060708;
		packet.rkey = 0x11121314;
		packet.swap_add = 0x2122232425262728;
		packet.compare = 0x3132333435363738;
		CHECK(build(packet) ==
		      expected(0x13, {1,    2,	  3,	4,    5,    6,	  7,	8,    0x11, 0x12,
				      0x13, 0x14, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28,
				      0x31, 0x32, 0x33, 0x34, 0x35, 0x36, 0x37, 0x38}));
	}
	SECTION("FLUSH: FETH, RETH")
	{
		peal_packet packet = plain(0x1c);

		packet.placement = PEAL_FLUSH_GLOBAL | PEAL_FLUSH_PERSISTENT;
		packet.selectivity = PEAL_FLUSH_REGION;
		packet.remote_addr = 0x0102030405060708;
		packet.rkey = 0x11121314;
		packet.length = 0x21222324;
		CHECK(build(packet) ==
		      expected(0x1c, {0, 0, 0,	  0x13, 1,    2,    3,	  4,	5,    6,
				      7, 8, 0x11, 0x12, 0x13, 0x14, 0x21, 0x22, 0x23, 0x24}));
	}
	SECTION("ATOMIC_WRITE: RETH")
	{
		peal_packet packet = plain(0x1d);

		packet.remote_addr = 0x0102030405060708;
		packet.rkey = 0x11121314;
		packet.length = 8;
		CHECK(build(packet) ==
		      expected(0x1d, {1, 2, 3, 4, 5, 6, 7, 8, 0x11, 0x12, 0x13, 0x14, 0, 0, 0, 8}));
	}
	SECTION("ATOMIC_ACK: AETH, AtomicAckETH")
	{
		peal_packet packet = plain(0x12);

		packet.syndrome = 0x1f;
		packet.msn = 0x414243;
		packet.original = 0x0102030405060708;
		CHECK(build(packet) ==
		      expected(0x12, {0x1f, 0x41, 0x42, 0x43, 1, 2, 3, 4, 5, 6, 7, 8}));
	}
	SECTION("SEND_ONLY_INV: IETH")
	{
		peal_packet packet = plain(0x17);

		packet.inv_rkey = 0x51525354;
		CHECK(build(packet) == expected(0x17, {0x51, 0x52, 0x53, 0x54}));
	}
	SECTION("CNP: 16 zero bytes")
	{
		peal_packet packet{};

		packet.opcode = 0x81;
		packet.becn = true;
		packet.pkey = 0xffff;
		packet.qpn = 0xabcdef;
		CHECK(build(packet) == Bytes{0x81, 0, 0xff, 0xff, 0x40, 0xab, 0xcd, 0xef, 0, 0,
					     0,	   0, 0,    0,	  0,	0,    0,    0,	  0, 0,
					     0,	   0, 0,    0,	  0,	0,    0,    0});
	}
	SECTION("UD SEND_ONLY_IMM: DETH, ImmDt")
	{
		peal_packet packet = plain(0x65);

		packet.qkey = 0x61626364;
		packet.src_qpn = 0x717273;
		packet.imm = network_order(0x31, 0x32, 0x33, 0x34);
		CHECK(build(packet) == expected(0x65, {0x61, 0x62, 0x63, 0x64, 0, 0x71, 0x72, 0x73,
						       0x31, 0x32, 0x33, 0x34}));
	}
}

namespace {

/* Random values in all fields. Fields that the opcode lacks must not matter. */
peal_packet random_packet(Random &random, std::uint8_t opcode)
{
	peal_packet packet{};

	packet.opcode = opcode;
	packet.pad = random.below(4);
	packet.solicited = random.one_in(2);
	packet.migrated = random.one_in(2);
	packet.ack_request = random.one_in(2);
	packet.fecn = random.one_in(2);
	packet.becn = random.one_in(2);
	packet.pkey = random.bits();
	packet.qpn = random.bits() & 0xffffff;
	packet.psn = random.bits() & PEAL_PSN_MASK;
	packet.qkey = random.bits();
	packet.src_qpn = random.bits() & 0xffffff;
	packet.remote_addr = random.bits();
	packet.rkey = random.bits();
	packet.length = random.bits();
	packet.swap_add = random.bits();
	packet.compare = random.bits();
	packet.syndrome = random.bits();
	packet.msn = random.bits() & 0xffffff;
	packet.original = random.bits();
	packet.imm = random.bits();
	packet.inv_rkey = random.bits();
	return packet;
}

void check_same_bth(const peal_packet &a, const peal_packet &b)
{
	CHECK(a.opcode == b.opcode);
	CHECK(a.pad == b.pad);
	CHECK(a.solicited == b.solicited);
	CHECK(a.migrated == b.migrated);
	CHECK(a.ack_request == b.ack_request);
	CHECK(a.fecn == b.fecn);
	CHECK(a.becn == b.becn);
	CHECK(a.pkey == b.pkey);
	CHECK(a.qpn == b.qpn);
	CHECK(a.psn == b.psn);
}

/* A field is on the wire when the opcode has its header. Otherwise it is 0. */
template <typename T>
void check_field(bool has, T sent, T parsed)
{
	CHECK(parsed == (has ? sent : T{}));
}

void check_same_extended(const peal_packet &sent, const peal_packet &parsed)
{
	const unsigned has = peal_packet_opcode(&sent)->has;
	const bool address = has & (PEAL_HAS_RETH | PEAL_HAS_ATOMIC_ETH);

	check_field(has & PEAL_HAS_DETH, sent.qkey, parsed.qkey);
	check_field(has & PEAL_HAS_DETH, sent.src_qpn, parsed.src_qpn);
	check_field(address, sent.remote_addr, parsed.remote_addr);
	check_field(address, sent.rkey, parsed.rkey);
	check_field(has & PEAL_HAS_RETH, sent.length, parsed.length);
	check_field(has & PEAL_HAS_ATOMIC_ETH, sent.swap_add, parsed.swap_add);
	check_field(has & PEAL_HAS_ATOMIC_ETH, sent.compare, parsed.compare);
	check_field(has & PEAL_HAS_AETH, sent.syndrome, parsed.syndrome);
	check_field(has & PEAL_HAS_AETH, sent.msn, parsed.msn);
	check_field(has & PEAL_HAS_ATOMIC_ACK_ETH, sent.original, parsed.original);
	check_field(has & PEAL_HAS_IMM, sent.imm, parsed.imm);
	check_field(has & PEAL_HAS_IETH, sent.inv_rkey, parsed.inv_rkey);
}

} // namespace

TEST_CASE("a built packet is parsed, for every opcode", "[packet]")
{
	Random random("packet round trip");

	for (unsigned opcode = 0; opcode < 256; ++opcode) {
		const unsigned has = peal_wire_opcode(opcode)->has;

		for (int round = 0; has && round < 50; ++round) {
			peal_packet sent = random_packet(random, opcode);
			peal_packet parsed;

			if (!(has & PEAL_HAS_PAYLOAD))
				sent.pad = 0;
			const Bytes headers = build(sent);
			const unsigned words = has & PEAL_HAS_PAYLOAD ? 1 + random.below(100) : 0;
			const unsigned total = headers.size() + 4 * words + PEAL_ICRC_BYTES;

			INFO("opcode " << opcode << ", " << total << " bytes");
			REQUIRE(peal_packet_parse(headers.data(), headers.size(), total, &parsed) ==
				PEAL_DROP_none);
			CHECK(parsed.header_bytes == headers.size());
			CHECK(parsed.payload_bytes == 4 * words - sent.pad);
			check_same_bth(sent, parsed);
			check_same_extended(sent, parsed);
		}
	}
}

namespace {

/* The rules of lengths, implemented again from the table of opcodes alone. */
peal_drop judge(unsigned opcode, unsigned pad, unsigned version, unsigned linear, unsigned total)
{
	const struct peal_wire_opcode *wire = peal_wire_opcode(opcode);

	if (total < 16 || linear < 12)
		return PEAL_DROP_short;
	if (version)
		return PEAL_DROP_version;
	if (!wire->has)
		return PEAL_DROP_opcode;
	if (total < wire->header_bytes + 4u || linear < wire->header_bytes)
		return PEAL_DROP_short;

	const unsigned body = total - wire->header_bytes - 4;

	if (!(wire->has & PEAL_HAS_PAYLOAD))
		return body == 0 && pad == 0 ? PEAL_DROP_none : PEAL_DROP_pad;
	return body % 4 == 0 && body >= pad ? PEAL_DROP_none : PEAL_DROP_pad;
}

} // namespace

TEST_CASE("any opcode at any length with any pad is judged by the rules", "[packet]")
{
	Random random("packet lengths");

	for (unsigned opcode = 0; opcode < 256; ++opcode) {
		for (unsigned total = 0; total < 64; ++total) {
			for (unsigned pad = 0; pad < 4; ++pad) {
				const unsigned version =
					random.one_in(16) ? 1 + random.below(15) : 0;
				const Exactly memory(total, 1);
				std::uint8_t *bytes = memory.data();
				peal_packet packet;

				random.fill(bytes, total);
				if (total > 1) {
					bytes[0] = opcode;
					bytes[1] = (bytes[1] & 0xc0) | pad << 4 | version;
				}
				const peal_drop drop =
					peal_packet_parse(bytes, total, total, &packet);

				if (drop == judge(opcode, pad, version, total, total))
					continue;
				INFO("opcode " << opcode << ", " << total << " bytes, pad " << pad);
				CHECK(drop == judge(opcode, pad, version, total, total));
			}
		}
	}
}

TEST_CASE("a packet's beginning is enough", "[packet]")
{
	for (unsigned opcode = 0; opcode < 256; ++opcode) {
		for (unsigned linear = 0; linear <= PEAL_HEADERS_MAX; ++linear) {
			const Exactly memory(linear, 1);
			peal_packet packet{};

			if (linear)
				memory.data()[0] = opcode;
			INFO("opcode " << opcode << ", " << linear << " readable");
			REQUIRE(peal_packet_parse(memory.data(), linear, 4096, &packet) ==
				judge(opcode, 0, 0, linear, 4096));
		}
	}
}

TEST_CASE("a payload's length is what is left of the packet", "[packet]")
{
	const Bytes headers = expected(0x04, {});
	peal_packet packet;

	CHECK(peal_packet_parse(headers.data(), 12, 12 + 4 + 4, &packet) == PEAL_DROP_none);
	CHECK(packet.payload_bytes == 2);
	/* Two bytes of padding in a packet without room for them. */
	CHECK(peal_packet_parse(headers.data(), 12, 12 + 4, &packet) == PEAL_DROP_pad);
	CHECK(peal_packet_parse(headers.data(), 12, 0xffffffff, &packet) == PEAL_DROP_pad);
	CHECK(peal_packet_parse(headers.data(), 12, 0xfffffffc, &packet) == PEAL_DROP_none);
	CHECK(packet.payload_bytes == 0xfffffffc - 16 - 2);
}

TEST_CASE("a congestion notification has one length, whatever its reserved bytes say", "[packet]")
{
	std::array<std::uint8_t, 40> bytes{0x81, 0x40, 0xff, 0xff, 0x40, 0xab, 0xcd, 0xef};
	peal_packet packet;

	std::fill(bytes.begin() + 12, bytes.end(), std::uint8_t{0xa5});
	CHECK(peal_packet_parse(bytes.data(), 32, 32, &packet) == PEAL_DROP_none);
	CHECK(packet.becn);
	CHECK(packet.qpn == 0xabcdef);
	CHECK(packet.payload_bytes == 0);
	CHECK(peal_packet_parse(bytes.data(), 28, 28, &packet) == PEAL_DROP_short);
	CHECK(peal_packet_parse(bytes.data(), 36, 36, &packet) == PEAL_DROP_pad);
	bytes[1] |= 0x10;
	CHECK(peal_packet_parse(bytes.data(), 32, 32, &packet) == PEAL_DROP_pad);
}
