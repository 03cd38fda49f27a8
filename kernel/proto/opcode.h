/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The opcodes of the base transport header (IBTA 9.2.1, table 38, and annex A19).
 *
 * Owns: the meaning of each of the 256 values, that is transport, operation, position in the
 * message, and extended headers.
 * Does not know: the contents of packets, queue pairs.
 */
#ifndef PEAL_OPCODE_H
#define PEAL_OPCODE_H

#include <linux/types.h>

/* The upper three bits of the opcode. */
enum peal_bth_transport {
	PEAL_RC = 0,
	PEAL_UC = 1,
	PEAL_UD = 3,
	PEAL_XRC = 5,		/* extended reliable connected (annex A14) */
	PEAL_NO_TRANSPORT = 8,	/* no packet has it */
};

#define PEAL_TRANSPORT_SHIFT	5

/* The lower five bits. RC and XRC have all of these, UC and UD only some. */
enum peal_wire_op {
	PEAL_WIRE_SEND_FIRST = 0x00,
	PEAL_WIRE_SEND_MIDDLE,
	PEAL_WIRE_SEND_LAST,
	PEAL_WIRE_SEND_LAST_IMM,
	PEAL_WIRE_SEND_ONLY,
	PEAL_WIRE_SEND_ONLY_IMM,
	PEAL_WIRE_WRITE_FIRST,
	PEAL_WIRE_WRITE_MIDDLE,
	PEAL_WIRE_WRITE_LAST,
	PEAL_WIRE_WRITE_LAST_IMM,
	PEAL_WIRE_WRITE_ONLY,
	PEAL_WIRE_WRITE_ONLY_IMM,
	PEAL_WIRE_READ_REQUEST,
	PEAL_WIRE_READ_RESPONSE_FIRST,
	PEAL_WIRE_READ_RESPONSE_MIDDLE,
	PEAL_WIRE_READ_RESPONSE_LAST,
	PEAL_WIRE_READ_RESPONSE_ONLY,
	PEAL_WIRE_ACK,
	PEAL_WIRE_ATOMIC_ACK,
	PEAL_WIRE_CMP_SWAP,
	PEAL_WIRE_FETCH_ADD,
	PEAL_WIRE_SEND_LAST_INV = 0x16,
	PEAL_WIRE_SEND_ONLY_INV,
	PEAL_WIRE_FLUSH = 0x1c,
	PEAL_WIRE_ATOMIC_WRITE,
};

/*
 * A manufacturer's opcode (IBTA 9.2.1 leaves 0xc0 and up to them). This packet has a BTH and
 * payload, and is no message of a queue pair. See transport/locality.h.
 */
#define PEAL_OPCODE_CHALLENGE	0xc0

/* Properties of an opcode, and its extended headers in the order of the wire. */
#define PEAL_HAS_FIRST		0x00001	/* begins a message */
#define PEAL_HAS_LAST		0x00002	/* ends a message */
#define PEAL_HAS_REQUEST	0x00004	/* goes to the responder */
#define PEAL_HAS_RESPONSE	0x00008	/* goes to the requester */
#define PEAL_HAS_PAYLOAD	0x00010
#define PEAL_HAS_SEND		0x00020
#define PEAL_HAS_WRITE		0x00040
#define PEAL_HAS_READ		0x00080
#define PEAL_HAS_ATOMIC		0x00100	/* executed once, and answered by one packet */
#define PEAL_HAS_DETH		0x00200
#define PEAL_HAS_RETH		0x00400
#define PEAL_HAS_ATOMIC_ETH	0x00800
#define PEAL_HAS_AETH		0x01000
#define PEAL_HAS_ATOMIC_ACK_ETH	0x02000
#define PEAL_HAS_IMM		0x04000
#define PEAL_HAS_IETH		0x08000
#define PEAL_HAS_XRCETH		0x10000	/* before all other extended headers */
#define PEAL_HAS_FETH		0x20000	/* before the RETH */

struct peal_wire_opcode {
	u32 has;		/* PEAL_HAS_*; 0: unknown opcode */
	u8 header_bytes;	/* BTH and extended headers */
	u8 operation;		/* enum peal_opcode of the message; 0: ACK, ATOMIC_ACK */
};

extern const struct peal_wire_opcode peal_wire_opcodes[256];

/*
 * Return: never NULL. The table has an entry for every u8, so no opcode is out of range, not even
 * under speculation.
 */
static inline const struct peal_wire_opcode *peal_wire_opcode(u8 opcode)
{
	return &peal_wire_opcodes[opcode];
}

static inline u8 peal_opcode_transport(u8 opcode)
{
	return opcode >> PEAL_TRANSPORT_SHIFT;
}

/* Is each request acknowledged? */
static inline bool peal_transport_is_reliable(u8 transport)
{
	return transport == PEAL_RC || transport == PEAL_XRC;
}

static inline u8 peal_opcode_of(u8 transport, u8 op)
{
	return transport << PEAL_TRANSPORT_SHIFT | op;
}

/* The BTH opcode of a packet of @operation (enum peal_opcode) at this position in the message. */
u8 peal_opcode_request(u8 transport, u8 operation, bool first, bool last);
u8 peal_opcode_read_response(u8 transport, bool first, bool last);

#endif
