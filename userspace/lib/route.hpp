// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Chooses the addresses of two ends that connect without the connection manager. Each end has the
 * lists of both, and both must choose the same pair, because neither tells the other its choice.
 */
#pragma once
#include <infiniband/verbs.h>

#include <span>

#include "context.hpp"

namespace peal::detail {

/* How many of its addresses an end tells. */
constexpr std::size_t most_addresses = 8;

struct address {
	ibv_gid gid;
	ibv_mtu mtu;
	/* Of an own address only. */
	std::uint8_t port;
	std::uint8_t index;
	std::uint32_t netdev;
};

/* The addresses for RoCEv2 of the ports that are up. Those of one link only come last. */
struct address_list {
	address all[most_addresses];
	std::size_t count = 0;

	std::span<const address> span() const noexcept { return {all, count}; }
};

result<address_list> addresses_of(const context &) noexcept;

struct route {
	address mine;
	address theirs;

	ibv_mtu mtu() const noexcept;
	ibv_ah_attr attr() const noexcept;
};

/*
 * The pair of one family that has a route and is closest: it has the longest common prefix. Of
 * pairs that are equally close, both ends take the one with the smallest address.
 */
result<route> choose_route(const context &, std::span<const address> mine,
			   std::span<const address> theirs) noexcept;

} // namespace peal::detail
