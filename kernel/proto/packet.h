/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * One packet's headers as checked values, and as bytes.
 *
 * Owns: parsing and building of BTH, DETH, RETH, AtomicETH, AETH, AtomicAckETH,
 * ImmDt and IETH (IBTA 9.2 to 9.4). After parsing nobody looks at the bytes of
 * the headers again, and all lengths are proven.
 * Does not know: IP, UDP, the ICRC, queue pairs, payload.
 */
#ifndef PEAL_PACKET_H
#define PEAL_PACKET_H

#include <linux/types.h>

#include "proto/drop.h"
#include "proto/opcode.h"

#define PEAL_BTH_BYTES		12
#define PEAL_ICRC_BYTES		4
/* BTH, AtomicETH; or BTH, RETH, ImmDt. DETH and RETH never meet (no RD). */
#define PEAL_HEADERS_MAX	(PEAL_BTH_BYTES + 28)
#define PEAL_DEFAULT_PKEY	0xffff

/* The destination of a datagram to a group (IBTA 9.2.3). */
#define PEAL_QPN_MULTICAST	0xffffff
#define PEAL_ROCE_PORT		4791

/* AETH syndrome (IBTA 9.7.5.1): two bits of kind, five of value. */
enum peal_syndrome {
	PEAL_SYNDROME_ACK = 0x00,	/* low five bits: credits */
	PEAL_SYNDROME_RNR = 0x20,	/* low five bits: RNR timer */
	PEAL_SYNDROME_NAK = 0x60,	/* low five bits: enum peal_nak */
	PEAL_SYNDROME_KIND = 0x60,
	PEAL_SYNDROME_VALUE = 0x1f,
};

#define PEAL_CREDITS_UNLIMITED	31	/* no end-to-end flow control */

enum peal_nak {
	PEAL_NAK_SEQUENCE = 0,
	PEAL_NAK_INVALID_REQUEST = 1,
	PEAL_NAK_REMOTE_ACCESS = 2,
	PEAL_NAK_REMOTE_OPERATION = 3,
};

struct peal_packet {
	/* BTH */
	u8 opcode;
	u8 pad;			/* bytes, 0 to 3 */
	bool solicited;
	bool migrated;
	bool ack_request;
	bool fecn, becn;
	u16 pkey;
	u16 flow;		/* the UDP source port, which the BTH does not have */
	u32 qpn;		/* destination */
	u32 psn;
	/* extended headers; those that the opcode has */
	u32 qkey, src_qpn;			/* DETH */
	u64 remote_addr;			/* RETH, AtomicETH */
	u32 rkey;				/* RETH, AtomicETH */
	u32 length;				/* RETH: of the message, bytes */
	u64 swap_add, compare;			/* AtomicETH */
	u8 syndrome;				/* AETH */
	u32 msn;				/* AETH */
	u64 original;				/* AtomicAckETH */
	u32 imm;		/* ImmDt, as carried: network order */
	u32 inv_rkey;				/* IETH */
	/* of what follows */
	u32 header_bytes;	/* BTH and extended headers */
	u32 payload_bytes;	/* without padding */
};

/**
 * peal_packet_parse() - from bytes to checked values
 * @bytes: the BTH and what follows it, at least @linear bytes
 * @linear: readable bytes at @bytes: all, or PEAL_HEADERS_MAX of them
 * @total: bytes from the BTH to the end of the ICRC, as UDP tells
 *
 * The payload, its padding and the ICRC lie behind header_bytes.
 *
 * Return: PEAL_DROP_none, or why nothing can be done with the packet: short,
 * version, opcode, pad. PSN, length and rights are others' business.
 */
enum peal_drop peal_packet_parse(const void *bytes, u32 linear, u32 total,
				 struct peal_packet *packet);

/**
 * peal_packet_build() - from values to bytes
 * @packet: opcode, pad and the fields the opcode has; header_bytes is not read
 * @bytes: PEAL_HEADERS_MAX of room
 *
 * Return: the bytes written.
 */
u32 peal_packet_build(const struct peal_packet *packet, void *bytes);

/*
 * Do two packets with one PSN ask for the same, or bring the same? Payload is the caller's.
 * A repetition may ask for an acknowledgment where the first packet did not. A response
 * that is asked for again may have another place among those that are, and newer credits.
 */
bool peal_packet_same(const struct peal_packet *a, const struct peal_packet *b);

static inline const struct peal_wire_opcode *peal_packet_opcode(const struct peal_packet *packet)
{
	return peal_wire_opcode(packet->opcode);
}

/* Our key is the default one, with full membership, so membership is not compared (IBTA 10.9.3). */
static inline bool peal_packet_pkey_matches(const struct peal_packet *packet)
{
	return (packet->pkey & 0x7fff) == (PEAL_DEFAULT_PKEY & 0x7fff);
}

#endif
