// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * What an end tells its peer without the connection manager, as bytes. The peer may have written
 * anything, and the program may have brought something else, so all of it is checked.
 */
#pragma once
#include "link.hpp"
#include "route.hpp"

namespace peal {

/* In big-endian order. */
struct address_on_wire {
	std::uint8_t gid[16];
	std::uint8_t mtu; /* enum ibv_mtu */
};

struct blob_on_wire {
	std::uint32_t magic;
	std::uint8_t version;
	std::uint8_t kind; /* enum detail::blob_kind */
	std::uint8_t addresses;
	std::uint8_t reads_in;
	std::uint8_t reads_out;
	std::uint8_t reserved[7];
	/* A random number. It tells the blobs of two programs apart, and goes into greetings. */
	std::uint64_t nonce;
	std::uint32_t qp_number;
	std::uint32_t psn;
	/* Of the queue pair for datagrams. */
	std::uint32_t datagram_qp;
	std::uint32_t qkey;
	region_on_wire shared;
	address_on_wire address[detail::most_addresses];
	std::uint8_t padding[44];
	/* CRC-32 of the bytes before it. */
	std::uint32_t checksum;
};
static_assert(sizeof(blob_on_wire) == 256, "it has no holes");

namespace detail {

enum class blob_kind : std::uint8_t {
	reliable = 1,
	unreliable = 2,
	datagrams = 3,
	initiator = 4, /* of an XRC connection, and its peer is a target */
	target = 5,
};

/* A blob, and what its end keeps for itself. */
struct end_point {
	blob_on_wire wire;
	address_list addresses;

	/* A random number of this many bits. */
	static std::uint64_t random(unsigned bits) noexcept;

	/* Everything but the queue pairs. */
	static result<end_point> make(const context &, blob_kind, const region &mine,
				      const options &) noexcept;
	/* Call it when nothing changes any more. */
	void seal() noexcept;
	/* Why these bytes are not the blob of a peer of this end, if they are not. */
	result<end_point> read_peer(std::span<const std::byte>) const noexcept;
};

} // namespace detail
} // namespace peal
