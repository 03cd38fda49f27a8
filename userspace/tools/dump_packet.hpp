// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * A RoCEv2 packet in words, and in a capture file.
 *
 * Owns: reading the headers of a frame, the line and the JSON of a packet, and the layout of the
 * file.
 * Does not know: where frames come from.
 */
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace peal::tool {

using Frame = std::span<const std::uint8_t>;
using Nanoseconds = std::chrono::nanoseconds;

/* What a packet does not have is missing. */
struct DumpPacket {
	using Number = std::optional<std::uint64_t>;

	std::string from, to;  /* addresses */
	std::string opcode;    /* "RC SEND_ONLY" and so on, or the number */
	std::uint32_t qpn = 0; /* destination */
	std::uint32_t psn = 0;
	std::uint64_t bytes = 0; /* payload */
	bool asks_ack = false, solicited = false;
	bool whole = true; /* the headers are whole, and the ICRC is right */
	Number source_qpn, address, key, length, immediate, invalidates;
	std::optional<std::string> response; /* "ack", "rnr", "nak remote access" and so on */
};

/* Return: nothing if the frame is no RoCEv2 packet. */
std::optional<DumpPacket> read_packet(Frame frame);

/* `time` is since 1970. Each line ends in a newline. */
std::string packet_line(Nanoseconds time, const DumpPacket &packet);
std::string packet_json(Nanoseconds time, const DumpPacket &packet);

/* A file as tcpdump writes it, with times in nanoseconds, of Ethernet frames. */
std::string capture_head(std::uint32_t snaplen);
std::string capture_record(Nanoseconds time, Frame frame, std::uint32_t snaplen);

} /* namespace peal::tool */
