// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See pair.hpp.
 */
#include "pair.hpp"

namespace peal::sim {

FramePtr Pair::frame(const peal_packet &header, u8 **payload) const
{
	peal_packet packet = header;
	u8 headers[PEAL_HEADERS_MAX];
	u32 bytes;

	packet.qpn = peer->qpn;
	packet.pkey = PEAL_DEFAULT_PKEY;
	bytes = peal_packet_build(&packet, headers);
	if (bytes > sizeof(headers))
		violation("%u bytes of headers", bytes);
	return make_frame(node.id, peer->node.id, node.v6, headers, bytes, packet.payload_bytes,
			  payload);
}

void Pair::ship(FramePtr frame, Code code)
{
	frame->seal(code);
	node.send(std::move(frame));
}

void Pair::show(const char *verb, const peal_packet &p) const
{
	if (!world_.verbose())
		return;
	world_.trace("%u %s %s psn %06x%s, %u bytes, syndrome %02x, msn %x", qpn, verb,
		     opcode_name(p.opcode), p.psn, p.ack_request ? " ackreq" : "", p.payload_bytes,
		     p.syndrome, p.msn);
}

} // namespace peal::sim
