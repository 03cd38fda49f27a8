// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The host of a responder. It executes a request that its transport passes to it:
 * it checks keys, takes receives, moves bytes and executes atomics.
 *
 * Owns: the receive that the current message holds, and the words' history.
 * Does not know: packets, transports. Peal's and the strict peer's pairs use it.
 */
#pragma once
#include "stream.hpp"

namespace peal::sim {

class Target {
	Memory &memory_;
	Receive *holding_ = nullptr;

	Verdict check_receive(Stream &stream, const Request &request);
	Verdict check(Stream &stream, const Request &request);
	void place(Stream &stream, const Request &request, const u8 *payload);
	u64 atomic(const Request &request);
	void finish(Stream &stream, const Request &request, const Message &m);

public:
	u32 max_dest_rd_atomic = 16;

	explicit Target(Memory &memory) : memory_(memory) {}
	Verdict execute(Stream &stream, const Request &request, const u8 *payload, u64 *original);
	/* In error everything posted comes back. */
	void flush(Stream &stream);
	void forget() { holding_ = nullptr; }
	bool readable(u32 rkey, u64 addr, u64 bytes) const
	{
		return !bytes || memory_.allows(rkey, addr, bytes, MAY_READ);
	}
	/* The bytes that a READ's response carries. */
	const u8 *bytes(u32 rkey, u64 addr, u64 bytes) { return memory_.at(rkey, addr, bytes); }
};

} // namespace peal::sim
