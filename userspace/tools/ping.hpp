// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * peal ping: executes each operation between two hosts, compares every byte, and measures.
 *
 * Owns: what the command is asked to do, and loading the part of the tool that uses RDMA
 * (plugin.hpp).
 * Does not know: RDMA.
 */
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ping_protocol.hpp"

namespace peal::tool {

struct PingRequest {
	std::string peer; /* a name or an address; empty for a server */
	bool listen = false;
	std::string
		device; /* empty: the one that reaches the peer, or the first whose port is up */
	std::uint16_t port = PING_PORT;
	unsigned count = 10;		     /* rounds of each operation and size */
	double interval = 0;		     /* seconds before each round */
	double timeout = 5;		     /* seconds for a step */
	std::vector<std::string> operations; /* as typed; empty: all */
	std::vector<std::string> sizes;	     /* as typed; empty: some */
	bool json = false;
};

/* The largest value of each. A server gives up a client that is silent for longer. */
inline constexpr double PING_LONGEST_INTERVAL = 30, PING_LONGEST_TIMEOUT = 30;

/* Return: bytes; "64K" is 65536, and "2M" is 2097152. Throws WrongUse. */
std::uint64_t read_size(const std::string &text);
/* Throws WrongUse. */
std::vector<Operation> read_operations(const std::vector<std::string> &words);

/* Return: the exit status. Throws WrongUse and Failure. */
int ping(const PingRequest &request);

} /* namespace peal::tool */
