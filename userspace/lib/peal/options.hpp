// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * What a connection has: how large its queues are, and with which other ones it shares receives.
 */
#pragma once
#include <cstdint>

namespace peal {

class shared_receives;

struct options {
	std::uint16_t sends = 128;	    /* requests that have no completion yet */
	std::uint16_t receives = 32;	    /* messages that wait for recv() */
	std::uint32_t receive_bytes = 4096; /* the longest message that the peer may send */
	std::uint16_t inline_bytes = 64; /* the longest data of write_inline() and send_inline() */
	/*
	 * Receives for several connections, instead of own ones. It must exist until the connection
	 * is made, and receives and receive_bytes are then its own.
	 */
	const shared_receives *shared = nullptr;
};

} // namespace peal
