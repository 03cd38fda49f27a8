/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A posted message: the PSNs that it takes, and what its packets carry.
 *
 * Owns: segmentation by path MTU, the headers of request packets.
 * Does not know: which packets were sent or answered, payload.
 */
#ifndef PEAL_MESSAGE_H
#define PEAL_MESSAGE_H

#include <linux/types.h>

#include <rdma/peal-abi.h>

#include "proto/packet.h"
#include "proto/reorder.h"

/*
 * A longer READ is requested in pieces of this many responses. Each piece is a request packet of
 * its own and counts against max_rd_atomic. So the window bounds what the peer sends, no more
 * responses of a piece are in flight than can be kept out of order, and no two PSNs in use come
 * near half the PSN space apart.
 */
#define PEAL_READ_PIECE		PEAL_REORDER_SLOTS

/* A message as the caller posts it to the requester. */
struct peal_wr {
	u8 opcode;		/* enum peal_opcode; also local operations */
	u8 flags;		/* PEAL_WQE_*; only SIGNALED, SOLICITED and FENCE have an effect */
	u32 index;		/* of the WQE; only the caller uses it */
	u32 imm_or_rkey;
	u32 rkey;
	u32 srqn;		/* XRC: the peer's shared receive queue */
	u64 remote_addr;
	u64 length;		/* bytes of payload, up to PEAL_MAX_MSG */
	union {
		struct peal_atomic_seg atomic;
		struct peal_flush_seg flush;
	};
	bool more;		/* a SEND or WRITE follows; no AckReq unless signaled */
	bool last;		/* local operation: not before all packets are acknowledged */
};

struct peal_message {
	struct peal_wr wr;
	u8 transport;		/* enum peal_bth_transport, when it was posted */
	u8 mtu_shift;		/* of the path MTU when it was posted */
	u32 psn;		/* of the first packet */
	u32 packets;		/* PSNs: one for each request packet, or each READ response */
	bool local;		/* BIND_MW, LOCAL_INV, REG_MR, INVALID; has no packets */
	bool done;		/* local operation: executed */
	u8 status;		/* enum ib_wc_status; if not 0, the message has failed */
	u32 reason;		/* enum peal_reason */
};

/* How a message ended. */
struct peal_completion {
	u32 index;		/* of the WQE */
	u8 opcode;
	u8 flags;		/* of the message */
	u8 status;		/* enum ib_wc_status */
	u32 reason;		/* enum peal_reason */
	u64 length;
};

static inline bool peal_message_is_read(const struct peal_message *message)
{
	return message->wr.opcode == PEAL_OP_READ;
}

static inline bool peal_message_is_atomic(const struct peal_message *message)
{
	return message->wr.opcode == PEAL_OP_CMP_SWAP || message->wr.opcode == PEAL_OP_FETCH_ADD;
}

/* One of the memory placement extensions of annex A19. */
static inline bool peal_message_is_placement(const struct peal_message *message)
{
	return message->wr.opcode == PEAL_OP_ATOMIC_WRITE || message->wr.opcode == PEAL_OP_FLUSH;
}

/*
 * Only the message's own response acknowledges it, because it carries data, or tells that the
 * peer has executed it (IBTA 9.7.5.1, A19).
 */
static inline bool peal_message_wants_data(const struct peal_message *message)
{
	return peal_message_is_read(message) || peal_message_is_atomic(message) ||
	       peal_message_is_placement(message);
}

static inline bool peal_message_takes_receive(const struct peal_message *message)
{
	return message->wr.opcode == PEAL_OP_SEND || message->wr.opcode == PEAL_OP_SEND_IMM ||
	       message->wr.opcode == PEAL_OP_SEND_INV || message->wr.opcode == PEAL_OP_WRITE_IMM;
}

void peal_message_init(struct peal_message *message, const struct peal_wr *wr, u8 transport,
		       u8 mtu_shift, u32 psn);
void peal_message_executed(struct peal_message *message);
void peal_message_fail(struct peal_message *message, u8 status, u32 reason);
void peal_message_describe(const struct peal_message *message, struct peal_completion *completion);

/* Does the transport of the message have its operation? */
bool peal_message_is_carried(const struct peal_message *message);
/* PSNs of a READ from number @at (0 is the first) to the end of the piece that has it. */
u32 peal_message_piece(const struct peal_message *message, u32 at);
/* Payload bytes of @packets PSNs from number @at on. */
u32 peal_message_bytes(const struct peal_message *message, u32 at, u32 packets);

static inline u64 peal_message_offset(const struct peal_message *message, u32 at)
{
	return (u64)at << message->mtu_shift;
}

/* Build the headers of the packet that takes @packets PSNs from number @at on. */
void peal_message_build(const struct peal_message *message, u32 at, u32 packets,
			struct peal_packet *header);
/*
 * Has @packet, a response with a PSN of this message, the kind and the length that the message
 * waits for?
 */
bool peal_message_fits(const struct peal_message *message, const struct peal_packet *packet);

#endif
