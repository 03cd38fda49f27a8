// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The invariant CRC, compared with packets of other implementations and with a second
 * implementation that goes bit by bit through a packet masked by the rule.
 */
#include <array>
#include <string>
#include <vector>

#include "../catch.hpp"
#include "../kernel/support.hpp"
#include "proto.hpp"

namespace {

using Bytes = std::vector<std::uint8_t>;
using peal::test::Random;

/* IEEE 802.3, reflected, without a table. */
std::uint32_t crc_bitwise(const Bytes &bytes)
{
	std::uint32_t crc = 0xffffffff;

	for (std::uint8_t byte : bytes) {
		for (int bit = 0; bit < 8; ++bit) {
			const bool one = (crc ^ (byte >> bit)) & 1;

			crc = crc >> 1 ^ (one ? 0xedb88320 : 0);
		}
	}
	return ~crc;
}

/* Offsets, from the IP header on, of bytes that count as ones. For IPv6 half of byte 0 does. */
const std::vector<unsigned> masked_v4 = {1, 8, 10, 11, 20 + 6, 20 + 7, 28 + 4};
const std::vector<unsigned> masked_v6 = {1, 2, 3, 7, 40 + 6, 40 + 7, 48 + 4};

/* @packet has the IP header and everything up to the padding. */
std::uint32_t by_rule(Bytes packet, bool v6)
{
	Bytes all(8, 0xff);

	if (v6)
		packet[0] |= 0x0f;
	for (unsigned offset : v6 ? masked_v6 : masked_v4)
		packet[offset] = 0xff;
	all.insert(all.end(), packet.begin(), packet.end());
	return crc_bitwise(all);
}

std::uint32_t by_peal(const Bytes &packet, bool v6, std::size_t piece = 1 << 20)
{
	const std::size_t ip = v6 ? 40 : 20;
	const std::uint8_t *bytes = packet.data();
	__be32 head[PEAL_ICRC_HEAD_MOST / 4];
	const u32 n = peal_icrc_head(head, v6, bytes, bytes + ip, bytes + ip + 8);
	std::uint32_t crc = peal_icrc_add(0, head, n);

	for (std::size_t at = ip + 20; at < packet.size(); at += piece)
		crc = peal_icrc_add(crc, bytes + at, std::min(piece, packet.size() - at));
	return peal_icrc_end(crc);
}

/* With the headers masked where they lie, as the sender of a single packet does it. */
std::uint32_t by_mask(const Bytes &packet, bool v6)
{
	std::vector<__be32> words((packet.size() + 3) / 4);

	std::copy(packet.begin(), packet.end(), reinterpret_cast<std::uint8_t *>(words.data()));
	peal_icrc_mask(words.data(), v6);
	return peal_icrc_end(peal_icrc_add(
		PEAL_ICRC_FRONT, reinterpret_cast<std::uint8_t *>(words.data()), packet.size()));
}

Bytes from_hex(const std::string &hex)
{
	Bytes bytes;

	for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
		bytes.push_back(std::stoul(hex.substr(i, 2), nullptr, 16));
	return bytes;
}

/* As on the wire: the last four bytes, little-endian. */
std::uint32_t stored(const Bytes &packet)
{
	const std::uint8_t *end = packet.data() + packet.size() - 4;

	return end[0] | end[1] << 8 | end[2] << 16 | std::uint32_t(end[3]) << 24;
}

Bytes without_icrc(const Bytes &packet)
{
	return Bytes(packet.begin(), packet.end() - 4);
}

} // namespace

TEST_CASE("packets of others carry the ICRC that is computed here", "[icrc]")
{
	/* A CNP of a ConnectX-4 Lx. The capture is published among scapy's tests. */
	const Bytes cnp = from_hex("45c2003c718c4000401191610a0011010a001201"
				   "000012b700280000"
				   "8100ffff40000118000000000000000000000000000000000000"
				   "0000"
				   "82fd002a");
	/* A UC SEND of 18 bytes and 2 of padding, from the same capture. */
	const Bytes send = from_hex("450100400478400040110000c0a80007c0a80007"
				    "c00012b7002c0000"
				    "2460ffff000000d300cf1710"
				    "4630818be28935d90e9a95505401be885e500000"
				    "78f353f3");

	REQUIRE(cnp.size() == 60);
	CHECK(by_peal(without_icrc(cnp), false) == stored(cnp));
	CHECK(by_rule(without_icrc(cnp), false) == stored(cnp));
	REQUIRE(send.size() == 64);
	CHECK(by_peal(without_icrc(send), false) == stored(send));
	CHECK(by_rule(without_icrc(send), false) == stored(send));
}

TEST_CASE("two implementations agree, in pieces of any size", "[icrc]")
{
	Random random("icrc");

	for (int round = 0; round < 2000 / peal::test::SLOWER; ++round) {
		const bool v6 = random.one_in(2);
		Bytes packet((v6 ? 60 : 40) + random.below(300));

		random.fill(packet.data(), packet.size());
		REQUIRE(by_peal(packet, v6) == by_rule(packet, v6));
		REQUIRE(by_peal(packet, v6, 1 + random.below(40)) == by_rule(packet, v6));
		REQUIRE(by_mask(packet, v6) == by_rule(packet, v6));
	}
}

TEST_CASE("the CRC of a head follows from that of the packet before it", "[icrc]")
{
	Random random("runs");
	const auto head_of = [](const Bytes &packet, bool v6) {
		const std::size_t ip = v6 ? 40 : 20;
		__be32 head[PEAL_ICRC_HEAD_MOST / 4];
		const u32 n = peal_icrc_head(head, v6, packet.data(), packet.data() + ip,
					     packet.data() + ip + 8);

		return peal_icrc_add(0, head, n);
	};

	for (int round = 0; round < 2000; ++round) {
		const bool v6 = random.one_in(2);
		const std::size_t bth = v6 ? 48 : 28;
		const unsigned back = random.below(100);
		/* Each number of trailing ones comes up, and so does the step to 0. */
		u32 psn = ((1u << random.below(25)) - 1 - back) & 0xffffff;
		std::uint16_t id = (1u << random.below(17)) - 1 - back;
		Bytes packet(bth + 12);

		random.fill(packet.data(), packet.size());
		const Bytes first = packet;
		const auto number = [&] {
			if (!v6) {
				packet[4] = id >> 8;
				packet[5] = id;
			}
			for (int byte = 0; byte < 3; ++byte)
				packet[bth + 9 + byte] = psn >> (16 - 8 * byte);
		};
		number();
		u32 crc = head_of(packet, v6);
		for (unsigned n = 0; n < 120; ++n) {
			psn = (psn + 1) & 0xffffff;
			++id;
			number();
			packet[bth + 8] = random.one_in(2) ? first[bth + 8] : random.below(256);
			crc = peal_icrc_next(crc, v6, id, psn);
			CAPTURE(v6, id, psn, random.seed);
			REQUIRE((crc ^ peal_icrc_flags(&first[bth], &packet[bth])) ==
				head_of(packet, v6));
		}
	}
}

TEST_CASE("the CRC up to a word of the BTH follows from that of another packet", "[icrc]")
{
	Random random("trains");

	for (int round = 0; round < 2000; ++round) {
		const bool v6 = random.one_in(2);
		const std::size_t ip = v6 ? 40 : 20, bth = ip + 8;
		std::uint16_t id = random.below(1 << 16), last;
		Bytes packet(bth + 12);
		const auto begin = [&] {
			__be32 head[PEAL_ICRC_HEAD_MOST / 4];
			const u32 n = peal_icrc_head(head, v6, packet.data(), packet.data() + ip,
						     packet.data() + bth);

			return std::pair(peal_icrc_add(0, head, n - 8), peal_icrc_add(0, head, n));
		};

		random.fill(packet.data(), packet.size());
		Bytes other = packet;
		if (!v6) {
			packet[4] = id >> 8;
			packet[5] = id;
		}
		u32 crc = begin().first;
		for (unsigned n = 0; n < 20; ++n) {
			last = id;
			id = random.one_in(2) ? random.below(1 << 16) : id + 1;
			if (!v6) {
				packet[4] = id >> 8;
				packet[5] = id;
			}
			random.fill(&packet[bth], 12);
			crc = peal_icrc_word_of(crc, v6, last, id);
			const u32 word = crc ^ peal_icrc_word(&other[bth], &packet[bth]);
			const auto [by_word, by_head] = begin();
			CAPTURE(v6, last, id, random.seed);
			REQUIRE(word == by_word);
			REQUIRE(peal_icrc_add(peal_icrc_behind_word(word, &packet[bth]),
					      &packet[bth + 4], 8) == by_head);
		}
	}
}

TEST_CASE("exactly what routers may change does not count", "[icrc]")
{
	for (bool v6 : {false, true}) {
		const Bytes packet((v6 ? 60 : 40) + 4, 0x5a);
		const std::uint32_t whole = by_peal(packet, v6);
		const auto &masked = v6 ? masked_v6 : masked_v4;

		for (unsigned bit = 0; bit < packet.size() * 8; ++bit) {
			const bool covered =
				std::find(masked.begin(), masked.end(), bit / 8) == masked.end() &&
				!(v6 && bit < 4);
			Bytes changed = packet;

			changed[bit / 8] ^= 1 << bit % 8;
			INFO((v6 ? "IPv6" : "IPv4") << ", byte " << bit / 8 << ", bit " << bit % 8);
			CHECK((by_peal(changed, v6) != whole) == covered);
		}
	}
}
