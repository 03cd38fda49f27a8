/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What a request packet asks of the responder's host, and whether it fits the message that
 * it is a part of.
 *
 * Owns: the order of opcodes in a message and the lengths of its packets (IBTA 9.7.4.1).
 * Does not know: packet numbers, what was executed before, replies.
 */
#ifndef PEAL_REQUEST_H
#define PEAL_REQUEST_H

#include <linux/types.h>

#include <rdma/peal-abi.h>

#include "proto/packet.h"

enum peal_request_what {
	PEAL_REQUEST_DROPPED,	/* counted by `drop` */
	PEAL_REQUEST_ANSWERED,	/* nothing to do; replies may be due: next() */
	PEAL_REQUEST_KEPT,	/* early: now the responder's; comes back by take_early() */
	PEAL_REQUEST_COPY,	/* `kept` has its PSN: when they differ, contradict() */
	PEAL_REQUEST_EXECUTE,	/* do it, then done() */
};

/* What a packet asks of the host. */
struct peal_request {
	enum peal_request_what what;
	enum peal_drop drop;	/* DROPPED, COPY */
	void *kept;		/* COPY: a handle, still the responder's */
	bool duplicate;		/* ANSWERED, DROPPED: was executed before */
	bool fatal;		/* ANSWERED: by a NAK, invalid request: then the host's error */
	u8 operation;		/* enum peal_opcode of its message */
	bool first, last;	/* place in the message; UC: first may come before last did */
	bool solicited;
	u64 offset;		/* of the payload in the message */
	u32 bytes;		/* payload of this packet */
	u64 length;		/* WRITE, READ: of the message; SEND: so far, with this packet */
	u32 rkey;		/* WRITE, READ, atomic: of the message */
	u64 remote_addr;	/* likewise: of its first byte */
	struct peal_atomic_seg atomic;
	u32 imm_or_rkey;	/* in the last packet */
};

/* All that the packet itself says; of a first one that is all. */
void peal_request_describe(struct peal_request *request, const struct peal_packet *packet,
			   const struct peal_wire_opcode *wire);
/* Is it the next packet when a message of @operation is under way, or none (0)? */
bool peal_request_continues(const struct peal_wire_opcode *wire, u8 operation);
/* Are packet and message as long as they may be, and as they say? */
bool peal_request_fits(const struct peal_request *request, const struct peal_packet *packet,
		       u16 has, u32 mtu);

#endif
