// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Peers that do not exist.
 *
 * Holds: addresses of the device's network that resolve although no host has them.
 * Does not hold: the fate of packets to them.
 */
#pragma once

#include "commands.hpp"
#include "verbs.hpp"

namespace peal_test {

/* Modify must resolve the address. Only later does it show that no host has it. */
inline void pretend_neighbour(const ibv_gid &gid)
{
	std::string address;
	for (int i = 12; i < 16; i++)
		address += (i > 12 ? "." : "") + std::to_string(gid.raw[i]);
	const auto netdev =
		"$(cat /sys/class/infiniband/" + device_name() + "/ports/1/gid_attrs/ndevs/0)";

	REQUIRE(run("ip neigh replace " + address + " lladdr 02:00:00:00:00:55 dev " + netdev) ==
		0);
}

/* The stack asks for pretended neighbours again, and gets no answer. */
inline void forget_neighbours()
{
	REQUIRE(run("ip neigh flush all nud permanent") == 0);
}

/* An address that no host has. */
inline ibv_gid nobody(const Device &device)
{
	ibv_gid gid = device.gid();

	gid.raw[15] ^= 0x55;
	return gid;
}

/* The same, but it resolves. */
inline ibv_gid gid_of_nobody(const Device &device)
{
	pretend_neighbour(nobody(device));
	return nobody(device);
}

} // namespace peal_test
