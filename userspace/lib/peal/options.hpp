// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * What a connection has: how large its queues are, and with which other ones it shares receives.
 */
#pragma once
#include <cstdint>

namespace peal {

class shared_receives;

/* What a connection promises. */
enum class transport : std::uint8_t {
	rc, /* reliable: each request is done, in order, or fails */
	/*
	 * Unreliable: a message may be lost, and neither end is told. A request completes when it
	 * was sent. There is no READ and no atomic, and a peer without a receive loses the message.
	 */
	uc,
	/*
	 * Reliable, to the inboxes of a host (xrc.hpp). It only sends, and it connects by an offer
	 * to a target, because the connection manager does not know it.
	 */
	xrc,
};

struct options {
	std::uint16_t sends = 128;	    /* requests that have no completion yet */
	std::uint16_t receives = 32;	    /* messages that wait for recv() */
	std::uint32_t receive_bytes = 4096; /* the longest message that the peer may send */
	std::uint16_t inline_bytes = 64; /* the longest data of write_inline() and send_inline() */
	peal::transport transport = peal::transport::rc; /* the same at both ends */
	/*
	 * Receives for several connections, instead of own ones. It must exist until the connection
	 * is made, and receives and receive_bytes are then its own.
	 */
	const shared_receives *shared = nullptr;
};

} // namespace peal
