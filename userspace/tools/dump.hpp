// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * peal dump: shows the packets of a device, and messages that travel without packets as the packets
 * that they would be.
 *
 * Owns: what the command is asked to do, and loading the part of the tool that uses RDMA
 * (plugin.hpp).
 * Does not know: RDMA, and packets (dump_packet.hpp).
 */
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace peal::tool {

struct DumpRequest {
	std::string device;
	std::vector<std::string> words; /* as typed: "qp", N, or none */
	std::string file;		/* a capture is written there; "-": standard output */
	std::uint64_t count = 0;	/* end after so many packets; 0: never */
	std::uint32_t snaplen = 0;	/* most bytes of a packet in the file; 0: all */
	bool json = false;
	std::vector<std::uint64_t> qpns{}; /* only packets of these queue pairs; empty: all */
};

/* Return: the exit status. Throws WrongUse and Failure. */
int dump(const DumpRequest &request);

} /* namespace peal::tool */
