// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See opcode.h.
 */
#include <rdma/peal-abi.h>

#include "proto/opcode.h"

/* The sizes of the headers are from IBTA 9.2 and 9.3. */
#define HEADER_BYTES(has)				\
	(12 +						\
	 ((has) & PEAL_HAS_XRCETH ? 4 : 0) +		\
	 ((has) & PEAL_HAS_DETH ? 8 : 0) +		\
	 ((has) & PEAL_HAS_FETH ? 4 : 0) +		\
	 ((has) & PEAL_HAS_RETH ? 16 : 0) +		\
	 ((has) & PEAL_HAS_ATOMIC_ETH ? 28 : 0) +	\
	 ((has) & PEAL_HAS_AETH ? 4 : 0) +		\
	 ((has) & PEAL_HAS_ATOMIC_ACK_ETH ? 8 : 0) +	\
	 ((has) & PEAL_HAS_IMM ? 4 : 0) +		\
	 ((has) & PEAL_HAS_IETH ? 4 : 0))

/* Every request of XRC names a shared receive queue. */
#define XRCETH_RC(bits)		0
#define XRCETH_UC(bits)		0
#define XRCETH_UD(bits)		0
#define XRCETH_XRC(bits)	((bits) & PEAL_HAS_REQUEST ? PEAL_HAS_XRCETH : 0)
#define ALL(transport, bits)	((bits) | XRCETH_##transport(bits))

#define WIRE(transport, wire, op, bits)						\
	[PEAL_##transport << PEAL_TRANSPORT_SHIFT | PEAL_WIRE_##wire] = {	\
		.has = ALL(transport, bits),					\
		.header_bytes = HEADER_BYTES(ALL(transport, bits)),		\
		.operation = (op),						\
	}

#define FIRST		PEAL_HAS_FIRST
#define LAST		PEAL_HAS_LAST
#define ONLY		(FIRST | LAST)
#define IMM		PEAL_HAS_IMM
#define INV		PEAL_HAS_IETH
#define RETH		PEAL_HAS_RETH
#define AETH		PEAL_HAS_AETH
#define OF_SEND		(PEAL_HAS_REQUEST | PEAL_HAS_PAYLOAD | PEAL_HAS_SEND)
#define OF_WRITE	(PEAL_HAS_REQUEST | PEAL_HAS_PAYLOAD | PEAL_HAS_WRITE)
#define OF_READ		(PEAL_HAS_REQUEST | PEAL_HAS_READ | RETH | ONLY)
#define RESPONSE	(PEAL_HAS_RESPONSE | PEAL_HAS_PAYLOAD | PEAL_HAS_READ)
#define ATOMIC		(PEAL_HAS_REQUEST | PEAL_HAS_ATOMIC | PEAL_HAS_ATOMIC_ETH | ONLY)
#define ATOMIC_WRITE	(PEAL_HAS_REQUEST | PEAL_HAS_PAYLOAD | PEAL_HAS_ATOMIC | RETH | ONLY)
#define FLUSH		(PEAL_HAS_REQUEST | PEAL_HAS_ATOMIC | PEAL_HAS_FETH | RETH | ONLY)
#define ACK		(PEAL_HAS_RESPONSE | AETH | ONLY)

/* The operations that RC, XRC and UC have. */
#define SENDS_AND_WRITES(t)						\
	WIRE(t, SEND_FIRST, PEAL_OP_SEND, OF_SEND | FIRST),		\
	WIRE(t, SEND_MIDDLE, PEAL_OP_SEND, OF_SEND),			\
	WIRE(t, SEND_LAST, PEAL_OP_SEND, OF_SEND | LAST),		\
	WIRE(t, SEND_LAST_IMM, PEAL_OP_SEND_IMM, OF_SEND | LAST | IMM),	\
	WIRE(t, SEND_ONLY, PEAL_OP_SEND, OF_SEND | ONLY),		\
	WIRE(t, SEND_ONLY_IMM, PEAL_OP_SEND_IMM, OF_SEND | ONLY | IMM),	\
	WIRE(t, WRITE_FIRST, PEAL_OP_WRITE, OF_WRITE | FIRST | RETH),	\
	WIRE(t, WRITE_MIDDLE, PEAL_OP_WRITE, OF_WRITE),			\
	WIRE(t, WRITE_LAST, PEAL_OP_WRITE, OF_WRITE | LAST),		\
	WIRE(t, WRITE_LAST_IMM, PEAL_OP_WRITE_IMM, OF_WRITE | LAST | IMM),	\
	WIRE(t, WRITE_ONLY, PEAL_OP_WRITE, OF_WRITE | ONLY | RETH),	\
	WIRE(t, WRITE_ONLY_IMM, PEAL_OP_WRITE_IMM, OF_WRITE | ONLY | RETH | IMM)

/* The operations of reliable transports. ATOMIC_ACK has none (0), as it answers both atomics. */
#define RELIABLE(t)								\
	SENDS_AND_WRITES(t),							\
	WIRE(t, READ_REQUEST, PEAL_OP_READ, OF_READ),				\
	WIRE(t, READ_RESPONSE_FIRST, PEAL_OP_READ, RESPONSE | FIRST | AETH),	\
	WIRE(t, READ_RESPONSE_MIDDLE, PEAL_OP_READ, RESPONSE),			\
	WIRE(t, READ_RESPONSE_LAST, PEAL_OP_READ, RESPONSE | LAST | AETH),	\
	WIRE(t, READ_RESPONSE_ONLY, PEAL_OP_READ, RESPONSE | ONLY | AETH),	\
	WIRE(t, ACK, 0, ACK),							\
	WIRE(t, ATOMIC_ACK, 0, ACK | PEAL_HAS_ATOMIC | PEAL_HAS_ATOMIC_ACK_ETH),	\
	WIRE(t, CMP_SWAP, PEAL_OP_CMP_SWAP, ATOMIC),				\
	WIRE(t, FETCH_ADD, PEAL_OP_FETCH_ADD, ATOMIC),				\
	WIRE(t, FLUSH, PEAL_OP_FLUSH, FLUSH),					\
	WIRE(t, ATOMIC_WRITE, PEAL_OP_ATOMIC_WRITE, ATOMIC_WRITE),		\
	WIRE(t, SEND_LAST_INV, PEAL_OP_SEND_INV, OF_SEND | LAST | INV),		\
	WIRE(t, SEND_ONLY_INV, PEAL_OP_SEND_INV, OF_SEND | ONLY | INV)

/* IBTA 9.2.1, table 38, and annexes A14 and A19. */
const struct peal_wire_opcode peal_wire_opcodes[256] = {
	RELIABLE(RC),
	RELIABLE(XRC),
	SENDS_AND_WRITES(UC),

	WIRE(UD, SEND_ONLY, PEAL_OP_SEND, OF_SEND | ONLY | PEAL_HAS_DETH),
	WIRE(UD, SEND_ONLY_IMM, PEAL_OP_SEND_IMM, OF_SEND | ONLY | PEAL_HAS_DETH | IMM),

	[PEAL_OPCODE_CHALLENGE] = {
		.has = PEAL_HAS_PAYLOAD | ONLY, .header_bytes = HEADER_BYTES(0),
	},
};

#define POSITION(first, last)	((first) << 1 | (last))
#define MIDDLE_PACKET		POSITION(0, 0)
#define LAST_PACKET		POSITION(0, 1)
#define FIRST_PACKET		POSITION(1, 0)
#define ONLY_PACKET		POSITION(1, 1)

static const u8 peal_wire_ops[PEAL_OP_COUNT][4] = {
#define PACKETS(op, wire, last, only)						\
	[PEAL_OP_##op] = {							\
		[FIRST_PACKET] = PEAL_WIRE_##wire##_FIRST,			\
		[MIDDLE_PACKET] = PEAL_WIRE_##wire##_MIDDLE,			\
		[LAST_PACKET] = PEAL_WIRE_##wire##_##last,			\
		[ONLY_PACKET] = PEAL_WIRE_##wire##_##only,			\
	}
	PACKETS(SEND, SEND, LAST, ONLY),
	PACKETS(SEND_IMM, SEND, LAST_IMM, ONLY_IMM),
	PACKETS(SEND_INV, SEND, LAST_INV, ONLY_INV),
	PACKETS(WRITE, WRITE, LAST, ONLY),
	PACKETS(WRITE_IMM, WRITE, LAST_IMM, ONLY_IMM),
	[PEAL_OP_READ] = { [ONLY_PACKET] = PEAL_WIRE_READ_REQUEST },
	[PEAL_OP_CMP_SWAP] = { [ONLY_PACKET] = PEAL_WIRE_CMP_SWAP },
	[PEAL_OP_FETCH_ADD] = { [ONLY_PACKET] = PEAL_WIRE_FETCH_ADD },
	[PEAL_OP_ATOMIC_WRITE] = { [ONLY_PACKET] = PEAL_WIRE_ATOMIC_WRITE },
	[PEAL_OP_FLUSH] = { [ONLY_PACKET] = PEAL_WIRE_FLUSH },
};

u8 peal_opcode_request(u8 transport, u8 operation, bool first, bool last)
{
	return peal_opcode_of(transport, peal_wire_ops[operation][POSITION(first, last)]);
}

u8 peal_opcode_read_response(u8 transport, bool first, bool last)
{
	static const u8 ops[] = {
		[FIRST_PACKET] = PEAL_WIRE_READ_RESPONSE_FIRST,
		[MIDDLE_PACKET] = PEAL_WIRE_READ_RESPONSE_MIDDLE,
		[LAST_PACKET] = PEAL_WIRE_READ_RESPONSE_LAST,
		[ONLY_PACKET] = PEAL_WIRE_READ_RESPONSE_ONLY,
	};

	return peal_opcode_of(transport, ops[POSITION(first, last)]);
}
