// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * kernel/net/toeplitz.c is the hash of receive side scaling.
 *
 * Holds: The values that Microsoft publishes for the verification of RSS, with and without ports,
 * for IPv4 and IPv6. Each bit of the longest input changes the hash by the bits of the key that
 * belong to it. No bytes have the hash 0.
 */
#include <arpa/inet.h>

#include <array>
#include <vector>

#include "../catch.hpp"
#include "kernel_parts.hpp"

namespace {

constexpr std::array<std::uint8_t, 40> key{
	0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3,
	0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3,
	0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa};

struct Vector {
	const char *to;
	std::uint16_t to_port;
	const char *from;
	std::uint16_t from_port;
	std::uint32_t addresses, all; /* the hashes without and with ports */
};

constexpr Vector vectors[] = {
	{"161.142.100.80", 1766, "66.9.149.187", 2794, 0x323e8fc2, 0x51ccc178},
	{"65.69.140.83", 4739, "199.92.111.2", 14230, 0xd718262a, 0xc626b0ea},
	{"12.22.207.184", 38024, "24.19.198.95", 12898, 0xd2d0a5de, 0x5c2b394a},
	{"209.142.163.6", 2217, "38.27.205.30", 48228, 0x82989176, 0xafc7327f},
	{"202.188.127.2", 1303, "153.39.163.191", 44251, 0x5d1809c5, 0x10e828a2},
	{"3ffe:2501:200:3::1", 1766, "3ffe:2501:200:1fff::7", 2794, 0x2cc18cd5, 0x40207d3d},
	{"ff02::1", 4739, "3ffe:501:8::260:97ff:fe40:efab", 14230, 0x0f0c461c, 0xdde51bbf},
	{"fe80::200:f8ff:fe21:67cf", 38024, "3ffe:1900:4545:3:200:f8ff:fe21:67cf", 44251,
	 0x4b61e985, 0x02d1feef},
};

void add_address(std::vector<std::uint8_t> &to, const char *text)
{
	std::array<std::uint8_t, 16> bytes{};
	const bool ipv6 = inet_pton(AF_INET6, text, bytes.data()) == 1;

	if (!ipv6)
		REQUIRE(inet_pton(AF_INET, text, bytes.data()) == 1);
	to.insert(to.end(), bytes.begin(), bytes.begin() + (ipv6 ? 16 : 4));
}

void add_port(std::vector<std::uint8_t> &to, std::uint16_t port)
{
	to.push_back(static_cast<std::uint8_t>(port >> 8));
	to.push_back(static_cast<std::uint8_t>(port));
}

std::uint32_t hash(const std::vector<std::uint8_t> &input)
{
	return peal_toeplitz(key.data(), input.data(), static_cast<std::uint32_t>(input.size()));
}

std::uint32_t key_bits(std::size_t from)
{
	std::uint32_t bits = 0;

	for (std::size_t i = from; i < from + 32; ++i)
		bits = bits << 1 | (key[i / 8] >> (7 - i % 8) & 1);
	return bits;
}

} // namespace

TEST_CASE("the published values of the Toeplitz hash", "[toeplitz]")
{
	for (const Vector &vector : vectors) {
		std::vector<std::uint8_t> input;

		INFO(vector.from << " to " << vector.to);
		add_address(input, vector.from);
		add_address(input, vector.to);
		CHECK(hash(input) == vector.addresses);
		add_port(input, vector.from_port);
		add_port(input, vector.to_port);
		CHECK(hash(input) == vector.all);
	}
}

TEST_CASE("each bit of the input stands for 32 bits of the key", "[toeplitz]")
{
	CHECK(hash({}) == 0);
	for (std::size_t bit = 0; bit < 8 * PEAL_TOEPLITZ_INPUT; ++bit) {
		std::vector<std::uint8_t> input(PEAL_TOEPLITZ_INPUT);

		INFO("bit " << bit);
		CHECK(hash(input) == 0);
		input[bit / 8] = static_cast<std::uint8_t>(0x80 >> bit % 8);
		CHECK(hash(input) == key_bits(bit));
	}
}
