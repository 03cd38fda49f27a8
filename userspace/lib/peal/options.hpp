// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * How large the queues of a connection are.
 */
#pragma once
#include <cstdint>

namespace peal {

struct options {
	std::uint16_t sends = 128;	    /* requests that have no completion yet */
	std::uint16_t receives = 32;	    /* messages that wait for recv() */
	std::uint32_t receive_bytes = 4096; /* the longest message that the peer may send */
	std::uint16_t inline_bytes = 64; /* the longest data of write_inline() and send_inline() */
};

} // namespace peal
