// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * A packet in words: each header is read, and a frame that is short, damaged or no RoCEv2 packet is
 * told from the others.
 */
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <initializer_list>
#include <string>
#include <vector>

#include "../../../userspace/tools/dump_packet.hpp"
#include "../catch.hpp"

using namespace peal::tool;
using namespace std::chrono_literals;

namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr auto time_of_packet = 3661s + 1234us;

void append(Bytes &bytes, const Bytes &more)
{
	bytes.insert(bytes.end(), more.begin(), more.end());
}

Bytes word(std::uint32_t value)
{
	return {static_cast<std::uint8_t>(value >> 24), static_cast<std::uint8_t>(value >> 16),
		static_cast<std::uint8_t>(value >> 8), static_cast<std::uint8_t>(value)};
}

std::uint32_t crc_of(const Bytes &bytes)
{
	std::uint32_t crc = 0xffffffff;

	for (const auto byte : bytes) {
		crc ^= byte;
		for (int bit = 0; bit < 8; bit++)
			crc = crc & 1 ? crc >> 1 ^ 0xedb88320U : crc >> 1;
	}
	return ~crc;
}

/* A frame from 10.0.0.1 to 10.0.0.2, to queue pair 0x12, with PSN 0x34 and a right ICRC. */
Bytes frame_of(std::uint8_t opcode, const Bytes &behind_bth, std::uint8_t pad = 0,
	       bool vlan = false)
{
	Bytes bth{opcode, static_cast<std::uint8_t>(0x40 | pad << 4),
		  0xff,	  0xff,
		  0,	  0,
		  0,	  0x12,
		  0x80,	  0,
		  0,	  0x34};

	append(bth, behind_bth);
	const auto udp_bytes = static_cast<std::uint16_t>(8 + bth.size() + 4);
	const auto ip_bytes = static_cast<std::uint16_t>(20 + udp_bytes);
	const auto high = [](std::uint16_t value) { return static_cast<std::uint8_t>(value >> 8); };
	const auto low = [](std::uint16_t value) { return static_cast<std::uint8_t>(value); };
	const Bytes ip{0x45,
		       0,
		       high(ip_bytes),
		       low(ip_bytes),
		       0,
		       0,
		       0x40,
		       0,
		       64,
		       17,
		       0,
		       0,
		       10,
		       0,
		       0,
		       1,
		       10,
		       0,
		       0,
		       2};
	const Bytes udp{0xc0, 0, 0x12, 0xb7, high(udp_bytes), low(udp_bytes), 0, 0};
	Bytes masked(8, 0xff), frame(12, 0);

	append(masked, ip);
	append(masked, udp);
	append(masked, bth);
	for (const std::size_t at : {9, 16, 18, 19, 34, 35, 40})
		masked[at] = 0xff;
	const auto icrc = crc_of(masked);

	if (vlan)
		append(frame, {0x81, 0, 0, 5});
	append(frame, {8, 0});
	append(frame, ip);
	append(frame, udp);
	append(frame, bth);
	for (int i = 0; i < 4; i++)
		frame.push_back(static_cast<std::uint8_t>(icrc >> 8 * i));
	return frame;
}

/* What is behind the time and the addresses. */
std::string line_of(const Bytes &frame)
{
	const auto packet = read_packet(frame);

	if (!packet)
		return "no packet";
	const auto line = packet_line(time_of_packet, *packet);
	const std::string front = "01:01:01.001234 10.0.0.1 > 10.0.0.2 qp 18 ";

	CHECK(line.starts_with(front));
	CHECK(line.ends_with("\n"));
	return line.substr(front.size(), line.size() - front.size() - 1);
}

Bytes joined(std::initializer_list<Bytes> parts)
{
	Bytes all;

	for (const auto &part : parts)
		append(all, part);
	return all;
}

/* The time of the line is that of UTC. */
struct Utc {
	Utc()
	{
		setenv("TZ", "UTC", 1);
		tzset();
	}
};

} // namespace

TEST_CASE_METHOD(Utc, "a packet of each kind is a line")
{
	const Bytes reth = joined({word(1), word(0x10), word(0x77), word(3000)});
	const Bytes atomic =
		joined({word(1), word(0x10), word(0x77), word(0), word(5), word(0), word(6)});
	const Bytes ack = word(0x1f000007), nak = word(0x62000007), rnr = word(0x2c000007);
	const struct {
		std::uint8_t opcode;
		Bytes behind_bth;
		std::uint8_t pad;
		std::string line;
	} packets[] = {
		{0x04, Bytes(8), 3, "RC SEND_ONLY psn 52 bytes 5"},
		{0x05, joined({{1, 2, 3, 4}, Bytes(8)}), 0,
		 "RC SEND_ONLY_IMM psn 52 bytes 8 imm 0x1020304"},
		{0x06, joined({reth, Bytes(1024)}), 0,
		 "RC WRITE_FIRST psn 52 bytes 1024 address 0x100000010 key 0x77 length 3000"},
		{0x0b, joined({reth, {0, 0, 0, 9}, Bytes(4)}), 0,
		 "RC WRITE_ONLY_IMM psn 52 bytes 4 address 0x100000010 key 0x77 length 3000 imm "
		 "0x9"},
		{0x0c, reth, 0, "RC READ_REQUEST psn 52 address 0x100000010 key 0x77 length 3000"},
		{0x0d, joined({ack, Bytes(256)}), 0, "RC READ_RESPONSE_FIRST psn 52 ack bytes 256"},
		{0x0e, Bytes(256), 0, "RC READ_RESPONSE_MIDDLE psn 52 bytes 256"},
		{0x11, ack, 0, "RC ACKNOWLEDGE psn 52 ack"},
		{0x11, nak, 0, "RC ACKNOWLEDGE psn 52 nak, remote access"},
		{0x11, rnr, 0, "RC ACKNOWLEDGE psn 52 rnr, timer 12"},
		{0x12, joined({ack, Bytes(8)}), 0, "RC ATOMIC_ACKNOWLEDGE psn 52 ack"},
		{0x13, atomic, 0, "RC COMPARE_SWAP psn 52 address 0x100000010 key 0x77"},
		{0x17, joined({word(0x99), Bytes(4)}), 0,
		 "RC SEND_ONLY_INV psn 52 bytes 4 invalidates 0x99"},
		{0x1c, joined({word(1), reth}), 0,
		 "RC FLUSH psn 52 address 0x100000010 key 0x77 length 3000"},
		{0x1d, joined({reth, Bytes(8)}), 0,
		 "RC ATOMIC_WRITE psn 52 bytes 8 address 0x100000010 key 0x77 length 3000"},
		{0x24, Bytes(4), 0, "UC SEND_ONLY psn 52 bytes 4"},
		{0x64, joined({word(0x11), word(0x21), Bytes(4)}), 0,
		 "UD SEND_ONLY psn 52 bytes 4 from qp 33"},
		{0xa4, joined({word(5), Bytes(4)}), 0, "XRC SEND_ONLY psn 52 bytes 4"},
		{0xb1, ack, 0, "XRC ACKNOWLEDGE psn 52 ack"},
		{0x81, Bytes(16), 0, "CNP psn 52"},
		{0xc0, Bytes(32), 0, "CHALLENGE psn 52 bytes 32"},
		{0x15, Bytes(4), 0, "opcode 0x15 psn 52 bytes 4"},
	};

	for (const auto &[opcode, behind_bth, pad, line] : packets) {
		INFO(line);
		CHECK(line_of(frame_of(opcode, behind_bth, pad)) == line);
		CHECK(line_of(frame_of(opcode, behind_bth, pad, true)) == line);
	}
}

TEST_CASE_METHOD(Utc, "a damaged packet is told from others")
{
	auto frame = frame_of(0x04, Bytes(8));

	frame.back() ^= 1;
	CHECK(line_of(frame) == "RC SEND_ONLY psn 52 bytes 8 damaged");
	/* Too short for its headers, with a right ICRC. */
	CHECK(line_of(frame_of(0x06, Bytes(8))).ends_with(" damaged"));
}

TEST_CASE("other frames are no packets, and no length reads beyond a frame")
{
	const auto frame = frame_of(0x04, Bytes(8));
	auto other = frame;

	other[14 + 20 + 3] = 0; /* the UDP port */
	CHECK(!read_packet(other));
	other = frame;
	other[14 + 9] = 6; /* TCP */
	CHECK(!read_packet(other));
	for (std::size_t bytes = 0; bytes < frame.size(); bytes++) {
		const Bytes cut(frame.begin(), frame.begin() + static_cast<std::ptrdiff_t>(bytes));
		const auto packet = read_packet(cut);

		CHECK((!packet || !packet->whole));
	}
}

TEST_CASE("JSON has the same, and null for what a packet lacks")
{
	const auto json = packet_json(1s, *read_packet(frame_of(0x11, word(0x62000007))));

	for (const auto *words :
	     {"\"time\":1000000000", "\"from\":\"10.0.0.1\"", "\"qp\":18", "\"psn\":52",
	      "\"opcode\":\"RC ACKNOWLEDGE\"", "\"response\":\"nak, remote access\"",
	      "\"imm\":null", "\"ack_request\":true", "\"damaged\":false"})
		CHECK(json.find(words) != std::string::npos);
	CHECK(json.find('\n') == json.size() - 1);
}

TEST_CASE("a capture has a head of 24 bytes, and a record keeps at most the snap length")
{
	const Bytes frame(100, 7);
	const auto head = capture_head(64), record = capture_record(2s + 3ns, frame, 64);
	const auto number = [&](const std::string &bytes, std::size_t at) {
		std::uint32_t value;

		std::copy_n(bytes.data() + at, sizeof(value), reinterpret_cast<char *>(&value));
		return value;
	};

	CHECK(head.size() == 24);
	CHECK(number(head, 0) == 0xa1b23c4d);
	CHECK(number(head, 16) == 64);
	CHECK(number(head, 20) == 1);
	CHECK(record.size() == 16 + 64);
	CHECK(number(record, 0) == 2);
	CHECK(number(record, 4) == 3);
	CHECK(number(record, 8) == 64);
	CHECK(number(record, 12) == 100);
}
