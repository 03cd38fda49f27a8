// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * What the fuzz targets share: choices from a fuzzer's bytes, and the end of a run that breaks a
 * rule.
 *
 * Owns: nothing. The transport core behind these declarations is compiled as C.
 * Does not know: what is fuzzed.
 */
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "proto.hpp"

namespace peal::fuzz {

[[noreturn]] inline void broken(const char *rule, const char *file, int line)
{
	std::fprintf(stderr, "%s:%d: broken: %s\n", file, line, rule);
	std::abort();
}

#define MUST(rule) ((rule) ? void() : ::peal::fuzz::broken(#rule, __FILE__, __LINE__))

/* Turns the fuzzer's bytes into choices. After their end everything is 0. */
class Input {
	const std::uint8_t *at_;
	std::size_t left_;

public:
	Input(const std::uint8_t *data, std::size_t size) : at_(data), left_(size) {}
	bool empty() const { return !left_; }
	std::uint8_t byte()
	{
		if (!left_)
			return 0;
		--left_;
		return *at_++;
	}
	std::uint32_t number(unsigned bytes)
	{
		std::uint32_t value = 0;

		while (bytes--)
			value = value << 8 | byte();
		return value;
	}
	/* One of 0 .. n - 1, n <= 256. */
	std::uint32_t below(std::uint32_t n) { return byte() % n; }
	bool one_in(std::uint32_t n) { return below(n) == n - 1; }
	/* A signed byte, used as a distance from a boundary. */
	std::int32_t near() { return static_cast<std::int8_t>(byte()); }
};

/* Sizes at, just below and just above a boundary. */
inline std::uint32_t payload_size(Input &in, std::uint32_t mtu)
{
	switch (in.below(8)) {
	case 0:
		return 0;
	case 1:
		return 1;
	case 2:
		return mtu - 1;
	case 3:
		return mtu + 1;
	case 4:
		return in.number(2) % 8192;
	default:
		return mtu;
	}
}

/* A message or READ of some packets, rarely of very many. */
inline std::uint32_t message_size(Input &in, std::uint32_t mtu)
{
	switch (in.below(8)) {
	case 0:
		return 0;
	case 1:
		return in.byte();
	case 2:
		return in.number(4);
	case 3:
		return in.byte() * mtu;
	default:
		return in.below(8) * mtu + in.near();
	}
}

/*
 * Passes the packet through its wire format, because only parsed packets reach the protocol.
 * Return: false when it cannot be parsed.
 */
inline bool through_wire(peal_packet &packet)
{
	std::uint8_t bytes[PEAL_HEADERS_MAX];
	const bool known = peal_packet_opcode(&packet)->has;
	std::uint32_t length;

	packet.pad = -packet.payload_bytes & 3;
	if (!known)
		return false;
	length = peal_packet_build(&packet, bytes);
	return peal_packet_parse(bytes, length,
				 length + packet.payload_bytes + packet.pad + PEAL_ICRC_BYTES,
				 &packet) == PEAL_DROP_none;
}

/* A peer must be able to parse each packet that is sent. */
inline void check_header(const peal_packet &packet)
{
	peal_packet copy = packet;

	MUST(packet.header_bytes == peal_packet_opcode(&packet)->header_bytes);
	MUST(packet.pad == (-packet.payload_bytes & 3));
	MUST(through_wire(copy));
	MUST(copy.opcode == packet.opcode && copy.psn == packet.psn);
	MUST(copy.payload_bytes == packet.payload_bytes);
}

/* A kept packet on the heap, so that the address sanitizer finds leaks and double frees. */
struct Kept {
	peal_packet packet;
	std::uint64_t since = 0;
};

} // namespace peal::fuzz
