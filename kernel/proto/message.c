// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See message.h. Clauses are those of the IBTA specification, volume 1.
 */
#include <linux/minmax.h>
#include <linux/string.h>

#include "proto/message.h"
#include "proto/psn.h"

static bool peal_message_opcode_is_local(u8 opcode)
{
	switch (opcode) {
	case PEAL_OP_INVALID:
	case PEAL_OP_BIND_MW:
	case PEAL_OP_LOCAL_INV:
	case PEAL_OP_REG_MR:
		return true;
	default:
		return opcode >= PEAL_OP_COUNT;
	}
}

/* A READ takes one PSN for each response, other messages one for each request packet (9.7.2). */
static u32 peal_message_packets(const struct peal_message *message)
{
	u64 last = message->wr.length ? message->wr.length - 1 : 0;

	if (message->local)
		return 0;
	if (peal_message_is_atomic(message) || message->transport == PEAL_UD)
		return 1;
	return (last >> message->mtu_shift) + 1;
}

void peal_message_init(struct peal_message *message, const struct peal_wr *wr, u8 transport,
		       u8 mtu_shift, u32 psn)
{
	*message = (struct peal_message) {
		.wr = *wr,
		.transport = transport,
		.mtu_shift = mtu_shift,
		.psn = psn,
		.local = peal_message_opcode_is_local(wr->opcode),
	};
	message->packets = peal_message_packets(message);
}

void peal_message_executed(struct peal_message *message)
{
	message->done = true;
}

void peal_message_fail(struct peal_message *message, u8 status, u32 reason)
{
	message->status = status;
	message->reason = reason;
}

void peal_message_describe(const struct peal_message *message, struct peal_completion *completion)
{
	*completion = (struct peal_completion) {
		.index = message->wr.index,
		.opcode = message->wr.opcode,
		.flags = message->wr.flags,
		.status = message->status,
		.reason = message->reason,
		.length = message->wr.length,
	};
}

/* 9.8. UC has no READ and atomics, UD has only SEND. Neither has SEND with invalidate. */
bool peal_message_is_carried(const struct peal_message *message)
{
	switch (message->wr.opcode) {
	case PEAL_OP_SEND:
	case PEAL_OP_SEND_IMM:
		return true;
	case PEAL_OP_WRITE:
	case PEAL_OP_WRITE_IMM:
		return message->transport != PEAL_UD;
	default:
		return peal_transport_is_reliable(message->transport);
	}
}

u32 peal_message_piece(const struct peal_message *message, u32 at)
{
	return min_t(u32, PEAL_READ_PIECE - at % PEAL_READ_PIECE, message->packets - at);
}

u32 peal_message_bytes(const struct peal_message *message, u32 at, u32 packets)
{
	return min_t(u64, (u64)packets << message->mtu_shift,
		     message->wr.length - peal_message_offset(message, at));
}

static void peal_message_build_operands(const struct peal_wr *wr, struct peal_packet *header)
{
	switch (wr->opcode) {
	case PEAL_OP_CMP_SWAP:
		header->compare = wr->atomic.compare_add;
		header->swap_add = wr->atomic.swap;
		break;
	case PEAL_OP_FETCH_ADD:
		header->swap_add = wr->atomic.compare_add;
		break;
	case PEAL_OP_SEND_IMM:
	case PEAL_OP_WRITE_IMM:
		header->imm = wr->imm_or_rkey;
		break;
	case PEAL_OP_SEND_INV:
		header->inv_rkey = wr->imm_or_rkey;
		break;
	case PEAL_OP_FLUSH:
		header->length = wr->flush.length;
		header->placement = wr->flush.placement;
		header->selectivity = wr->flush.selectivity;
		break;
	}
}

/* The RETH of a READ request names only the part that is requested (9.7.5.1.1). */
static void peal_message_build_read(const struct peal_message *message, u32 at, u32 packets,
				    struct peal_packet *header)
{
	header->opcode = peal_opcode_of(message->transport, PEAL_WIRE_READ_REQUEST);
	header->remote_addr = message->wr.remote_addr + peal_message_offset(message, at);
	header->length = peal_message_bytes(message, at, packets);
}

static void peal_message_build_request(const struct peal_message *message, u32 at,
				       struct peal_packet *header)
{
	const struct peal_wr *wr = &message->wr;
	bool last = at + 1 == message->packets;

	header->opcode = peal_opcode_request(message->transport, wr->opcode, at == 0, last);
	header->remote_addr = wr->remote_addr;
	header->length = wr->length;
	peal_message_build_operands(wr, header);
	if (peal_message_is_atomic(message))
		return;
	header->payload_bytes =
		message->transport == PEAL_UD ? wr->length : peal_message_bytes(message, at, 1);
	header->pad = -header->payload_bytes & 3;
	header->solicited =
		last && wr->flags & PEAL_WQE_SOLICITED && peal_message_takes_receive(message);
}

void peal_message_build(const struct peal_message *message, u32 at, u32 packets,
			struct peal_packet *header)
{
	memset(header, 0, sizeof(*header));
	header->psn = peal_psn_add(message->psn, at);
	header->rkey = message->wr.rkey;
	header->srqn = message->wr.srqn;
	header->migrated = true;	/* always set without path migration (9.2, 17.2.8) */
	if (peal_message_is_read(message))
		peal_message_build_read(message, at, packets, header);
	else
		peal_message_build_request(message, at, header);
	header->header_bytes = peal_packet_opcode(header)->header_bytes;
}

/*
 * A READ response must carry exactly the bytes that its PSN stands for (9.7.5.1.1). The response to
 * ATOMIC_WRITE and FLUSH is that of a READ of no bytes (A19).
 */
bool peal_message_fits(const struct peal_message *message, const struct peal_packet *packet)
{
	bool read = peal_packet_opcode(packet)->has & PEAL_HAS_READ;

	if (peal_message_is_atomic(message))
		return !read;
	if (peal_message_is_placement(message))
		return packet->opcode ==
			       peal_opcode_read_response(message->transport, true, true) &&
		       !packet->payload_bytes;
	if (!peal_message_is_read(message))
		return false;
	return read && packet->payload_bytes ==
		       peal_message_bytes(message, peal_psn_ahead(message->psn, packet->psn), 1);
}
