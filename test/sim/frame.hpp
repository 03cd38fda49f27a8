// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * A packet as it is on the wire, with IP, UDP and transport headers, payload, padding
 * and ICRC, as bytes; and a node's reading of it.
 *
 * Owns: the bytes, IP and UDP. The transport headers are the core's, or the
 * strict peer's own. Does not know: queue pairs, senders and times.
 */
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "core.hpp"

namespace peal::sim {

/* The code that computes a checksum and reads headers: the core's, or strict.cpp's own. */
enum class Code { CORE, OWN };

/* The flow of every packet that a queue pair sends. */
constexpr u16 FLOW = 0xc000;

struct Frame {
	u32 from = 0, to = 0; /* nodes */
	bool v6 = false;
	bool forged = false;   /* by the forger */
	std::vector<u8> bytes; /* from the IP header on */
	/* Valid after opening. */
	peal_packet packet{};
	const u8 *payload = nullptr;

	u32 ip_bytes() const { return v6 ? 40 : 20; }
	u32 bth() const { return ip_bytes() + 8; }
	u32 icrc(Code code) const;
	/* Write the ICRC behind the bytes so far. */
	void seal(Code code);
	bool intact(Code code) const;
	/* The UDP source port, by which the network tells flows apart. */
	void set_flow(u16 flow);
	/* Whether it is equal to @other, as the kernel's host compares them. */
	bool same(const Frame &other) const;
	/* Change the fields that routers may change. */
	void route(u64 bits);
	/* Run the core's parser, on the headers only or on everything. */
	enum peal_drop parse(bool headers_only);
};

using FramePtr = std::unique_ptr<Frame>;

/* A frame with transport headers @headers, room for @payload bytes, and padding. */
FramePtr make_frame(u32 from, u32 to, bool v6, const u8 *headers, u32 header_bytes,
		    u32 payload_bytes, u8 **payload);

const char *opcode_name(u8 opcode);

} // namespace peal::sim
