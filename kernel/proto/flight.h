/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A message on its way: which PSNs it occupies, and what its packets carry.
 *
 * Owns: segmentation by path MTU, the headers of request packets.
 * Does not know: which packets left or were answered, payload.
 */
#ifndef PEAL_FLIGHT_H
#define PEAL_FLIGHT_H

#include <linux/types.h>

#include <rdma/peal-abi.h>

#include "proto/early.h"
#include "proto/packet.h"

/*
 * A longer READ is asked for in pieces of this many responses, each a request
 * of its own on the wire and each one of max_rd_atomic: the window then bounds
 * what the peer sends, as many as can be kept early are under way, and no
 * distance between PSNs comes near half their circle.
 */
#define PEAL_READ_PIECE		PEAL_EARLY_SLOTS

/* A message as the protocol sees it. */
struct peal_message {
	u8 opcode;		/* enum peal_opcode; also BIND_MW and LOCAL_INV */
	u8 flags;		/* PEAL_WQE_SIGNALED, _SOLICITED, _FENCE matter */
	u32 index;		/* of its WQE: the host's name for it */
	u32 imm_or_rkey;
	u32 rkey;
	u64 remote_addr;
	u64 length;		/* bytes, up to PEAL_MAX_MSG */
	struct peal_atomic_seg atomic;
	bool more;		/* SEND or WRITE follows: not signaled, it asks for no ACK */
};

struct peal_flight {
	struct peal_message message;
	u8 transport;		/* of its connection, */
	u8 mtu_shift;		/* when it was posted */
	u32 psn;		/* of its first packet */
	u32 packets;		/* PSNs it occupies: requests, or a READ's responses */
	bool local;		/* BIND_MW, LOCAL_INV, INVALID: no packets */
	bool done;		/* local: executed */
	u8 status;		/* enum ib_wc_status, when not 0 it ends the connection */
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

/* Its acknowledgment is data: no other packet's will do (IBTA 9.7.5.1). */
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

/* Does its transport have such an operation? */
bool peal_flight_is_carried(const struct peal_flight *f);
/* PSNs from the @at-th to the end of the piece of the READ that has it. */
u32 peal_flight_piece(const struct peal_flight *f, u32 at);
/* Bytes in @packets PSNs from the @at-th on. */
u32 peal_flight_bytes(const struct peal_flight *f, u32 at, u32 packets);

static inline u64 peal_flight_offset(const struct peal_flight *f, u32 at)
{
	return (u64)at << f->mtu_shift;
}

/* The headers of the packet that has @packets PSNs from the @at-th on. */
void peal_flight_build(const struct peal_flight *f, u32 at, u32 packets,
		       struct peal_packet *header);
/* Is the packet, whose PSN is one of its own, of the kind and length that it waits for? */
bool peal_flight_fits(const struct peal_flight *f, const struct peal_packet *packet);

#endif
