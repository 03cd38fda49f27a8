/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A posted message: the PSNs that it takes, and what its packets carry.
 *
 * Owns: segmentation by path MTU, the headers of request packets.
 * Does not know: which packets were sent or answered, payload.
 */
#ifndef PEAL_FLIGHT_H
#define PEAL_FLIGHT_H

#include <linux/types.h>

#include <rdma/peal-abi.h>

#include "proto/early.h"
#include "proto/packet.h"

/*
 * A longer READ is requested in pieces of this many responses. Each piece is a request packet of
 * its own and counts against max_rd_atomic. So the window bounds what the peer sends, no more
 * responses of a piece are in flight than can be kept early, and no two PSNs in use come near half
 * the PSN space apart.
 */
#define PEAL_READ_PIECE		PEAL_EARLY_SLOTS

/* A message as the caller posts it to the requester. */
struct peal_message {
	u8 opcode;		/* enum peal_opcode; also BIND_MW and LOCAL_INV */
	u8 flags;		/* PEAL_WQE_*; only SIGNALED, SOLICITED and FENCE have an effect */
	u32 index;		/* of the WQE; only the caller uses it */
	u32 imm_or_rkey;
	u32 rkey;
	u64 remote_addr;
	u64 length;		/* bytes, up to PEAL_MAX_MSG */
	struct peal_atomic_seg atomic;
	bool more;		/* a SEND or WRITE follows; no AckReq unless signaled */
};

struct peal_flight {
	struct peal_message message;
	u8 transport;		/* enum peal_bth_transport, when it was posted */
	u8 mtu_shift;		/* of the path MTU when it was posted */
	u32 psn;		/* of the first packet */
	u32 packets;		/* PSNs: one for each request packet, or each READ response */
	bool local;		/* BIND_MW, LOCAL_INV, INVALID; has no packets */
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

static inline bool peal_flight_is_read(const struct peal_flight *f)
{
	return f->message.opcode == PEAL_OP_READ;
}

static inline bool peal_flight_is_atomic(const struct peal_flight *f)
{
	return f->message.opcode == PEAL_OP_CMP_SWAP || f->message.opcode == PEAL_OP_FETCH_ADD;
}

/* Only the message's own response acknowledges it, because it carries data (IBTA 9.7.5.1). */
static inline bool peal_flight_wants_data(const struct peal_flight *f)
{
	return peal_flight_is_read(f) || peal_flight_is_atomic(f);
}

static inline bool peal_flight_takes_receive(const struct peal_flight *f)
{
	return f->message.opcode == PEAL_OP_SEND || f->message.opcode == PEAL_OP_SEND_IMM ||
	       f->message.opcode == PEAL_OP_SEND_INV || f->message.opcode == PEAL_OP_WRITE_IMM;
}

void peal_flight_init(struct peal_flight *f, const struct peal_message *message, u8 transport,
		      u8 mtu_shift, u32 psn);
void peal_flight_executed(struct peal_flight *f);
void peal_flight_fail(struct peal_flight *f, u8 status, u32 reason);
void peal_flight_describe(const struct peal_flight *f, struct peal_completion *completion);

/* Does the transport of the message have its operation? */
bool peal_flight_is_carried(const struct peal_flight *f);
/* PSNs of a READ from number @at (0 is the first) to the end of the piece that has it. */
u32 peal_flight_piece(const struct peal_flight *f, u32 at);
/* Payload bytes of @packets PSNs from number @at on. */
u32 peal_flight_bytes(const struct peal_flight *f, u32 at, u32 packets);

static inline u64 peal_flight_offset(const struct peal_flight *f, u32 at)
{
	return (u64)at << f->mtu_shift;
}

/* Build the headers of the packet that takes @packets PSNs from number @at on. */
void peal_flight_build(const struct peal_flight *f, u32 at, u32 packets,
		       struct peal_packet *header);
/*
 * Has @packet, a response with a PSN of this message, the kind and the length that the message
 * waits for?
 */
bool peal_flight_fits(const struct peal_flight *f, const struct peal_packet *packet);

#endif
