/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The headers of one packet, as checked values and as bytes.
 *
 * Owns: parsing and building of BTH, XRCETH, DETH, FETH, RETH, AtomicETH, AETH,
 * AtomicAckETH, ImmDt and IETH (IBTA 9.2 to 9.4, annex A19). Parsing checks all lengths against
 * the packet, and no other code reads the bytes of these headers.
 * Does not know: IP, UDP, the ICRC, queue pairs, payload.
 */
#ifndef PEAL_PACKET_H
#define PEAL_PACKET_H

#include <linux/types.h>

#include "proto/drop.h"
#include "proto/opcode.h"

#define PEAL_BTH_BYTES		12
#define PEAL_ICRC_BYTES		4
/*
 * BTH, XRCETH and AtomicETH is the longest. DETH and RETH never come together, because there is no
 * RD.
 */
#define PEAL_HEADERS_MAX	(PEAL_BTH_BYTES + 4 + 28)
/*
 * What a packet has besides its payload: BTH, XRCETH, RETH, ImmDt and ICRC. No packet with payload
 * has more.
 */
#define PEAL_PACKET_MOST_OVERHEAD	(PEAL_BTH_BYTES + 4 + 16 + 4 + PEAL_ICRC_BYTES)
#define PEAL_DEFAULT_PKEY	0xffff

/* Numbers of queue pairs and shared receive queues have 24 bits in the headers. */
#define PEAL_NUMBER_MAX		0xffffff

/* The destination QPN of a datagram to a multicast group (IBTA 9.2.3). */
#define PEAL_QPN_MULTICAST	0xffffff
#define PEAL_ROCE_PORT		4791

/* AETH syndrome (IBTA 9.7.5.1): bits 5 and 6 are the kind, the low five bits are the value. */
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
	u8 pad;			/* bytes of padding, 0 to 3 */
	bool solicited;
	bool migrated;
	bool ack_request;
	bool fecn, becn;
	u16 pkey;
	u16 flow;		/* the UDP source port, which is not part of the BTH */
	u32 qpn;		/* destination */
	u32 psn;
	/* Extended headers. Those that the opcode does not have are 0. */
	u32 srqn;				/* XRCETH */
	u32 qkey, src_qpn;			/* DETH */
	u8 placement, selectivity;		/* FETH, as in struct peal_flush_seg */
	u64 remote_addr;			/* RETH, AtomicETH */
	u32 rkey;				/* RETH, AtomicETH */
	u32 length;				/* RETH: bytes of the message */
	u64 swap_add, compare;			/* AtomicETH */
	u8 syndrome;				/* AETH */
	u32 msn;				/* AETH */
	u64 original;				/* AtomicAckETH */
	u32 imm;		/* ImmDt, in network order as carried */
	u32 inv_rkey;				/* IETH */
	/* Lengths, in bytes. */
	u32 header_bytes;	/* BTH and extended headers */
	u32 payload_bytes;	/* without padding and ICRC */
};

/**
 * peal_packet_parse() - parse the headers of a packet
 * @bytes: the BTH and what follows it, at least @linear bytes
 * @linear: readable bytes at @bytes, either all or at least PEAL_HEADERS_MAX
 * @total: bytes from the BTH to the end of the ICRC, from the UDP length
 *
 * The payload, its padding and the ICRC begin at offset header_bytes.
 *
 * Return: PEAL_DROP_none, or PEAL_DROP_short, PEAL_DROP_version, PEAL_DROP_opcode or
 * PEAL_DROP_pad. The caller checks PSN, length and rights.
 */
enum peal_drop peal_packet_parse(const void *bytes, u32 linear, u32 total,
				 struct peal_packet *packet);

/**
 * peal_packet_build() - write the headers of a packet
 * @packet: the BTH and the fields that the opcode has; header_bytes is not read
 * @bytes: room for PEAL_HEADERS_MAX bytes
 *
 * Return: the bytes written.
 */
u32 peal_packet_build(const struct peal_packet *packet, void *bytes);

/*
 * Do the headers of two packets with the same PSN request or carry the same? The caller compares
 * the payload. AckReq is ignored, because a retransmission may set it where the first packet did
 * not. Opcode and AETH of responses are ignored, because a response that is requested again may
 * have another position (FIRST, MIDDLE, LAST, ONLY) and newer credits.
 */
bool peal_packet_same(const struct peal_packet *a, const struct peal_packet *b);

static inline const struct peal_wire_opcode *peal_packet_opcode(const struct peal_packet *packet)
{
	return peal_wire_opcode(packet->opcode);
}

/* Our P_Key is the default one with full membership, so membership is ignored (IBTA 10.9.3). */
static inline bool peal_packet_pkey_matches(const struct peal_packet *packet)
{
	return (packet->pkey & 0x7fff) == (PEAL_DEFAULT_PKEY & 0x7fff);
}

#endif
