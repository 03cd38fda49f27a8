// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See request.h. Clauses are those of the IBTA specification, volume 1.
 */
#include "proto/request.h"

void peal_request_describe(struct peal_request *request, const struct peal_packet *packet,
			   const struct peal_wire_opcode *wire)
{
	request->what = PEAL_REQUEST_EXECUTE;
	request->operation = wire->operation;
	request->first = wire->has & PEAL_HAS_FIRST;
	request->last = wire->has & PEAL_HAS_LAST;
	request->solicited = packet->solicited;
	request->bytes = packet->payload_bytes;
	request->rkey = packet->rkey;
	request->remote_addr = packet->remote_addr;
	request->length = packet->length;
	if (wire->has & PEAL_HAS_IMM)
		request->imm_or_rkey = packet->imm;
	if (wire->has & PEAL_HAS_IETH)
		request->imm_or_rkey = packet->inv_rkey;
	if (wire->operation == PEAL_OP_CMP_SWAP) {
		request->atomic.compare_add = packet->compare;
		request->atomic.swap = packet->swap_add;
	}
	if (wire->operation == PEAL_OP_FETCH_ADD)
		request->atomic.compare_add = packet->swap_add;
}

/* FIRST and ONLY begin, MIDDLE and LAST continue a message of their own kind. */
bool peal_request_continues(const struct peal_wire_opcode *wire, u8 operation)
{
	if (wire->has & PEAL_HAS_FIRST)
		return !operation;
	if (operation == PEAL_OP_SEND)
		return wire->has & PEAL_HAS_SEND;
	return operation == PEAL_OP_WRITE && wire->has & PEAL_HAS_WRITE;
}

/* All but the last packet fill the path MTU, and only a message of one packet may be empty. */
static bool peal_request_packet_fits(const struct peal_packet *packet, u16 has, u32 mtu)
{
	if (!(has & PEAL_HAS_PAYLOAD))
		return true;
	if (!(has & PEAL_HAS_LAST))
		return packet->payload_bytes == mtu;
	if (!(has & PEAL_HAS_FIRST) && !packet->payload_bytes)
		return false;
	return packet->payload_bytes <= mtu;
}

/* A message has at most 2^31 bytes, and a WRITE the number that its first packet names. */
static bool peal_request_message_fits(const struct peal_request *request,
				      const struct peal_packet *packet, u16 has)
{
	u64 bytes = request->offset + packet->payload_bytes;

	if (request->length > PEAL_MAX_MSG)
		return false;
	if (!(has & PEAL_HAS_WRITE))
		return true;
	return has & PEAL_HAS_LAST ? bytes == request->length : bytes < request->length;
}

bool peal_request_fits(const struct peal_request *request, const struct peal_packet *packet,
		       u16 has, u32 mtu)
{
	return peal_request_packet_fits(packet, has, mtu) &&
	       peal_request_message_fits(request, packet, has);
}
