// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See packet.h.
 */
#include <linux/bits.h>
#include <linux/crc32.h>
#include <rdma/ib_verbs.h>
#include <rdma/peal-abi.h>

#include "proto/packet.h"

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
	 ((has) & PEAL_HAS_IETH ? 4 : 0) +		\
	 ((has) & PEAL_HAS_RESERVED ? PEAL_CNP_RESERVED : 0))

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
	[PEAL_OPCODE_CNP] = {
		.has = PEAL_HAS_RESERVED | ONLY, .header_bytes = HEADER_BYTES(PEAL_HAS_RESERVED),
	},
};

#define MIDDLE_PACKET		PEAL_POSITION(0, 0)
#define LAST_PACKET		PEAL_POSITION(0, 1)
#define FIRST_PACKET		PEAL_POSITION(1, 0)
#define ONLY_PACKET		PEAL_POSITION(1, 1)

#define PACKETS(wire, last, only)						\
	.packets = {								\
		[FIRST_PACKET] = PEAL_WIRE_##wire##_FIRST,			\
		[MIDDLE_PACKET] = PEAL_WIRE_##wire##_MIDDLE,			\
		[LAST_PACKET] = PEAL_WIRE_##wire##_##last,			\
		[ONLY_PACKET] = PEAL_WIRE_##wire##_##only,			\
	}
#define ONE_PACKET(wire)	.packets = { [ONLY_PACKET] = PEAL_WIRE_##wire }

/* IBTA 9.8. UC has no READ and atomics, UD has only SEND. Neither has SEND with invalidate. */
#define IN_RELIABLE	(BIT(PEAL_RC) | BIT(PEAL_XRC))
#define IN_CONNECTED	(IN_RELIABLE | BIT(PEAL_UC))
#define IN_DATAGRAM	(IN_CONNECTED | BIT(PEAL_UD))
#define IN_FRAME	(IN_DATAGRAM | BIT(PEAL_NO_TRANSPORT))

const struct peal_op peal_ops[PEAL_OP_COUNT] = {
	[PEAL_OP_SEND] = {
		.transports = IN_FRAME, .sends = true, .receives = true,
		PACKETS(SEND, LAST, ONLY),
	},
	[PEAL_OP_SEND_IMM] = {
		.transports = IN_DATAGRAM, .sends = true, .receives = true, .immediate = true,
		PACKETS(SEND, LAST_IMM, ONLY_IMM),
	},
	[PEAL_OP_SEND_INV] = {
		.transports = IN_RELIABLE, .sends = true, .receives = true, .invalidates = true,
		PACKETS(SEND, LAST_INV, ONLY_INV),
	},
	[PEAL_OP_WRITE] = {
		.transports = IN_CONNECTED, .sends = true, .remote = true,
		.access = IB_ACCESS_REMOTE_WRITE,
		PACKETS(WRITE, LAST, ONLY),
	},
	[PEAL_OP_WRITE_IMM] = {
		.transports = IN_CONNECTED, .sends = true, .receives = true, .remote = true,
		.immediate = true, .access = IB_ACCESS_REMOTE_WRITE,
		PACKETS(WRITE, LAST_IMM, ONLY_IMM),
	},
	[PEAL_OP_READ] = {
		.transports = IN_RELIABLE, .remote = true, .resource = true,
		.access = IB_ACCESS_REMOTE_READ, ONE_PACKET(READ_REQUEST),
	},
	[PEAL_OP_CMP_SWAP] = {
		.transports = IN_RELIABLE, .remote = true, .atomic = true, .resource = true,
		.access = IB_ACCESS_REMOTE_ATOMIC, ONE_PACKET(CMP_SWAP),
	},
	[PEAL_OP_FETCH_ADD] = {
		.transports = IN_RELIABLE, .remote = true, .atomic = true, .resource = true,
		.access = IB_ACCESS_REMOTE_ATOMIC, ONE_PACKET(FETCH_ADD),
	},
	[PEAL_OP_BIND_MW] = { .transports = IN_CONNECTED, .local = true },
	[PEAL_OP_LOCAL_INV] = {
		.transports = IN_CONNECTED, .local = true, .invalidates = true,
	},
	[PEAL_OP_REG_MR] = { .transports = IN_CONNECTED, .local = true, .kernel = true },
	[PEAL_OP_ATOMIC_WRITE] = {
		.transports = IN_RELIABLE, .sends = true, .remote = true, .atomic = true,
		.placement = true, .resource = true, .access = IB_ACCESS_REMOTE_WRITE,
		ONE_PACKET(ATOMIC_WRITE),
	},
	/* The rights that it needs depend on the placement; see peal_execute_flush(). */
	[PEAL_OP_FLUSH] = {
		.transports = IN_RELIABLE, .remote = true, .atomic = true, .placement = true,
		.resource = true, ONE_PACKET(FLUSH),
	},
};

u32 peal_ops_refused(u8 transport, bool kernel)
{
	u32 refused = ~0U, opcode;

	for (opcode = 0; opcode < PEAL_OP_COUNT; opcode++)
		if (peal_ops[opcode].transports & 1 << transport &&
		    (kernel || !peal_ops[opcode].kernel))
			refused &= ~(1U << opcode);
	return refused;
}

u8 peal_opcode_read_response(u8 transport, bool first, bool last)
{
	static const u8 ops[] = {
		[FIRST_PACKET] = PEAL_WIRE_READ_RESPONSE_FIRST,
		[MIDDLE_PACKET] = PEAL_WIRE_READ_RESPONSE_MIDDLE,
		[LAST_PACKET] = PEAL_WIRE_READ_RESPONSE_LAST,
		[ONLY_PACKET] = PEAL_WIRE_READ_RESPONSE_ONLY,
	};

	return peal_opcode_of(transport, ops[PEAL_POSITION(first, last)]);
}

#define IPV4_WORDS	5
#define IPV6_WORDS	10
#define UDP_WORDS	2
#define BTH_WORDS	(PEAL_BTH_BYTES / 4)

void peal_icrc_mask(__be32 *ip, bool ipv6)
{
	__be32 *udp = ip + (ipv6 ? IPV6_WORDS : IPV4_WORDS);

	if (ipv6) {
		ip[0] |= __cpu_to_be32(0x0fffffff);	/* traffic class; flow label */
		ip[1] |= __cpu_to_be32(0x000000ff);	/* hop limit */
	} else {
		ip[0] |= __cpu_to_be32(0x00ff0000);	/* type of service */
		ip[2] |= __cpu_to_be32(0xff00ffff);	/* time to live; checksum */
	}
	udp[1] |= __cpu_to_be32(0x0000ffff);	/* checksum */
	udp[UDP_WORDS + 1] |= __cpu_to_be32(0xff000000);	/* FECN, BECN, reserved */
}

u32 peal_icrc_head(__be32 *head, bool ipv6, const void *ip, const void *udp, const void *bth)
{
	__be32 *to = head;

	if (!ipv6)
		*to++ = 0;
	*to++ = __cpu_to_be32(0xffffffff);
	if (ipv6)
		memcpy(to, ip, IPV6_WORDS * 4);
	else
		memcpy(to, ip, IPV4_WORDS * 4);
	memcpy(to + (ipv6 ? IPV6_WORDS : IPV4_WORDS), udp, UDP_WORDS * 4);
	memcpy(to + (ipv6 ? IPV6_WORDS : IPV4_WORDS) + UDP_WORDS, bth, PEAL_BTH_BYTES);
	peal_icrc_mask(to, ipv6);
	return (to - head + (ipv6 ? IPV6_WORDS : IPV4_WORDS) + UDP_WORDS + BTH_WORDS) * 4;
}

const u32 peal_icrc_psn_steps[PEAL_PSN_BITS] = {
	0x77073096, 0x990951ba, 0x9e6495a3, 0x90bf1d91, 0x8d080df5, 0xb6662d3d,
	0xc0ba6cad, 0x2d02ef8d, 0x3419decc, 0x062fbc4e, 0x6243794a, 0xaa9af342,
	0xe058e113, 0x75dcc5b1, 0x85a58ab4, 0xbe2612ff, 0xbfe478c8, 0xbc60aca6,
	0xbb69047a, 0xb57a55c2, 0xa95cf6b2, 0x9111b052, 0xe18b3d92, 0x00be2612,
};

const u32 peal_icrc_id_steps[PEAL_IP_ID_BITS] = {
	0xcf9e17c8, 0x8bd33e19, 0x03496dbb, 0xc90cccbe, 0x86f688f5, 0x19020063,
	0xfd9a170e, 0xefdb3f95, 0x7aabeb00, 0x8b3b446b, 0xb36b1cfc, 0xc3cbadd2,
	0x228acf8e, 0x3b790d77, 0x089e8885, 0x6f518361,
};

const u32 peal_icrc_id_word_steps[PEAL_IP_ID_BITS] = {
	0x6e8c1b41, 0xb3942dc3, 0xd2d54686, 0x1057900c, 0x4e233b59, 0xf2ca6df3,
	0x5069c6e6, 0xce5f968d, 0xcfea6b90, 0xcc8191aa, 0xca5665de, 0xc7f98d36,
	0xdca65ce6, 0xea19ff46, 0x8766b806, 0x5d983686,
};

u32 peal_icrc_add(u32 crc, const void *bytes, size_t n)
{
	return crc32_le(crc, bytes, n);
}

/* Fields in the three words of the BTH (IBTA 9.2). */
#define OPCODE_SHIFT	24
#define SOLICITED	0x00800000U
#define MIGRATED	0x00400000U
#define PAD_SHIFT	20
#define PAD_MASK	3
#define VERSION		0x000f0000U

#define FECN		0x80000000U
#define BECN		0x40000000U

/* Fields of the FETH (A19.4.2). The other bits are reserved, and ignored on receipt. */
#define PLACEMENT	0x0000000fU
#define SELECTIVITY_SHIFT 4
#define SELECTIVITY	0x3U

/* PSN, MSN and the numbers of queues are the low 24 bits of a word. */
#define LOW_24		0x00ffffffU

/* Headers are big-endian and may be unaligned. */
static u32 peal_get32(const u8 *from)
{
	__be32 word;

	memcpy(&word, from, sizeof(word));
	return __be32_to_cpu(word);
}

static u64 peal_get64(const u8 *from)
{
	__be64 word;

	memcpy(&word, from, sizeof(word));
	return __be64_to_cpu(word);
}

static __always_inline void peal_put32(u8 *to, u32 value)
{
	__be32 word = __cpu_to_be32(value);

	memcpy(to, &word, sizeof(word));
}

static __always_inline void peal_put64(u8 *to, u64 value)
{
	__be64 word = __cpu_to_be64(value);

	memcpy(to, &word, sizeof(word));
}

static void peal_get_bth(const u8 *bth, struct peal_packet *packet)
{
	u32 what = peal_get32(bth), where = peal_get32(bth + 4), which = peal_get32(bth + 8);

	packet->opcode = what >> OPCODE_SHIFT;
	packet->solicited = what & SOLICITED;
	packet->migrated = what & MIGRATED;
	packet->pad = what >> PAD_SHIFT & PAD_MASK;
	packet->pkey = what;
	packet->fecn = where & FECN;
	packet->becn = where & BECN;
	packet->qpn = where & LOW_24;
	packet->ack_request = which & PEAL_BTH_ACK_REQUEST;
	packet->psn = which & LOW_24;
}

static void peal_put_bth(u8 *bth, const struct peal_packet *packet)
{
	peal_put32(bth, (u32)packet->opcode << OPCODE_SHIFT | (packet->solicited ? SOLICITED : 0) |
		   (packet->migrated ? MIGRATED : 0) | (packet->pad & PAD_MASK) << PAD_SHIFT |
		   packet->pkey);
	peal_put32(bth + 4, (packet->fecn ? FECN : 0) | (packet->becn ? BECN : 0) |
		   (packet->qpn & LOW_24));
	peal_packet_build_next(bth, packet->psn & LOW_24, packet->ack_request);
}

/*
 * The checks are in the order in which the extended headers follow each other on the wire. Most
 * packets have no header of the first group.
 */
#define FRONT_HEADERS	(PEAL_HAS_XRCETH | PEAL_HAS_DETH | PEAL_HAS_FETH)

static const u8 *peal_get_front(const u8 *p, u32 has, struct peal_packet *packet)
{
	if (has & PEAL_HAS_XRCETH) {
		packet->srqn = peal_get32(p) & LOW_24;
		p += 4;
	}
	if (has & PEAL_HAS_DETH) {
		packet->qkey = peal_get32(p);
		packet->src_qpn = peal_get32(p + 4) & LOW_24;
		p += 8;
	}
	if (has & PEAL_HAS_FETH) {
		packet->placement = peal_get32(p) & PLACEMENT;
		packet->selectivity = peal_get32(p) >> SELECTIVITY_SHIFT & SELECTIVITY;
		p += 4;
	}
	return p;
}

static void peal_get_extended(const u8 *p, u32 has, struct peal_packet *packet)
{
	if (unlikely(has & FRONT_HEADERS))
		p = peal_get_front(p, has, packet);
	if (has & (PEAL_HAS_RETH | PEAL_HAS_ATOMIC_ETH)) {
		packet->remote_addr = peal_get64(p);
		packet->rkey = peal_get32(p + 8);
		p += 12;
		if (has & PEAL_HAS_RETH) {
			packet->length = peal_get32(p);
			p += 4;
		} else {
			packet->swap_add = peal_get64(p);
			packet->compare = peal_get64(p + 8);
			p += 16;
		}
	}
	if (has & PEAL_HAS_AETH) {
		packet->syndrome = *p;
		packet->msn = peal_get32(p) & LOW_24;
		if (has & PEAL_HAS_ATOMIC_ACK_ETH)
			packet->original = peal_get64(p + 4);
		return;
	}
	if (has & PEAL_HAS_IMM) {
		memcpy(&packet->imm, p, 4);
		p += 4;
	}
	if (has & PEAL_HAS_IETH)
		packet->inv_rkey = peal_get32(p);
}

static u8 *peal_put_front(u8 *p, u32 has, const struct peal_packet *packet)
{
	if (has & PEAL_HAS_XRCETH) {
		peal_put32(p, packet->srqn & LOW_24);
		p += 4;
	}
	if (has & PEAL_HAS_DETH) {
		peal_put32(p, packet->qkey);
		peal_put32(p + 4, packet->src_qpn & LOW_24);
		p += 8;
	}
	if (has & PEAL_HAS_FETH) {
		peal_put32(p, (packet->placement & PLACEMENT) |
			   (packet->selectivity & SELECTIVITY) << SELECTIVITY_SHIFT);
		p += 4;
	}
	return p;
}

static void peal_put_extended(u8 *p, u32 has, const struct peal_packet *packet)
{
	if (unlikely(has & FRONT_HEADERS))
		p = peal_put_front(p, has, packet);
	if (has & (PEAL_HAS_RETH | PEAL_HAS_ATOMIC_ETH)) {
		peal_put64(p, packet->remote_addr);
		peal_put32(p + 8, packet->rkey);
		p += 12;
		if (has & PEAL_HAS_RETH) {
			peal_put32(p, packet->length);
			p += 4;
		} else {
			peal_put64(p, packet->swap_add);
			peal_put64(p + 8, packet->compare);
			p += 16;
		}
	}
	if (has & PEAL_HAS_AETH) {
		peal_put32(p, (u32)packet->syndrome << 24 | (packet->msn & LOW_24));
		if (has & PEAL_HAS_ATOMIC_ACK_ETH)
			peal_put64(p + 4, packet->original);
		return;
	}
	if (has & PEAL_HAS_IMM) {
		memcpy(p, &packet->imm, 4);
		p += 4;
	}
	if (has & PEAL_HAS_IETH)
		peal_put32(p, packet->inv_rkey);
	if (has & PEAL_HAS_RESERVED)
		memset(p, 0, PEAL_CNP_RESERVED);
}

/*
 * Padding brings the payload to a multiple of four bytes (IBTA 9.2.4). A packet without payload
 * has no padding. The caller checks that FIRST and MIDDLE packets fill the path MTU, because the
 * MTU is not known here.
 */
static enum peal_drop peal_packet_measure(u32 total, u32 has, struct peal_packet *packet)
{
	u32 rest = total - packet->header_bytes - PEAL_ICRC_BYTES;

	if (rest < packet->pad || rest % 4)
		return PEAL_DROP_pad;
	if (!(has & PEAL_HAS_PAYLOAD) && rest)
		return PEAL_DROP_pad;
	packet->payload_bytes = rest - packet->pad;
	return PEAL_DROP_none;
}

const struct peal_nak_meaning *peal_nak_meaning(enum peal_nak nak)
{
	static const struct peal_nak_meaning meanings[] = {
		[PEAL_NAK_INVALID_REQUEST] = {
			IB_WC_REM_INV_REQ_ERR, PEAL_REASON_NAK_INVALID_REQUEST },
		[PEAL_NAK_REMOTE_ACCESS] = { IB_WC_REM_ACCESS_ERR, PEAL_REASON_NAK_ACCESS },
		[PEAL_NAK_REMOTE_OPERATION] = { IB_WC_REM_OP_ERR, PEAL_REASON_NAK_OPERATION },
	};

	return &meanings[nak];
}

enum peal_drop peal_packet_parse(const void *bytes, u32 linear, u32 total,
				 struct peal_packet *packet)
{
	const u8 *bth = bytes;
	const struct peal_wire_opcode *wire;

	memset(packet, 0, sizeof(*packet));
	if (linear < PEAL_BTH_BYTES || total < PEAL_BTH_BYTES + PEAL_ICRC_BYTES)
		return PEAL_DROP_short;
	if (peal_get32(bth) & VERSION)
		return PEAL_DROP_version;
	wire = peal_wire_opcode(peal_get32(bth) >> OPCODE_SHIFT);
	if (!wire->has)
		return PEAL_DROP_opcode;
	if (linear < wire->header_bytes || total < wire->header_bytes + PEAL_ICRC_BYTES)
		return PEAL_DROP_short;

	peal_get_bth(bth, packet);
	peal_get_extended(bth + PEAL_BTH_BYTES, wire->has, packet);
	packet->header_bytes = wire->header_bytes;
	return peal_packet_measure(total, wire->has, packet);
}

u32 peal_packet_build(const struct peal_packet *packet, void *bytes)
{
	const struct peal_wire_opcode *wire = peal_packet_opcode(packet);

	peal_put_bth(bytes, packet);
	peal_put_extended((u8 *)bytes + PEAL_BTH_BYTES, wire->has, packet);
	return wire->header_bytes;
}

void peal_packet_part(const struct peal_packet *run, u32 number, struct peal_packet *part)
{
	u32 behind = run->more - number;

	*part = *run;
	part->psn = peal_psn_add(run->psn, number);
	part->last = 0;
	if (!run->more)
		return;
	if (!behind && run->last) {
		part->opcode = run->last;
		part->payload_bytes = run->last_bytes;
		part->pad = -run->last_bytes & 3;
		part->more = 0;
	} else {
		part->more = behind - !!run->last;
		if (peal_packet_opcode(run)->has & PEAL_HAS_FIRST) {
			part->opcode += number > 0;	/* the MIDDLE */
			part->more = number ? part->more : 0;
		}
	}
	if (part->more != behind) {
		part->ack_request = false;
		part->solicited = false;
	}
	part->header_bytes = peal_packet_opcode(part)->header_bytes;
}

bool peal_packet_may_join(const struct peal_packet *run, const struct peal_packet *last)
{
	return !run->last && peal_packet_is_middle(run) && last->opcode == run->opcode + 1 &&
	       last->header_bytes == run->header_bytes &&
	       last->psn == peal_psn_add(run->psn, peal_packet_count(run)) &&
	       last->qpn == run->qpn && last->pkey == run->pkey && last->srqn == run->srqn;
}

void peal_packet_join(struct peal_packet *run, const struct peal_packet *last)
{
	run->more++;
	run->last = last->opcode;
	run->last_bytes = last->payload_bytes;
	run->solicited = last->solicited;
	run->ack_request |= last->ack_request;
}

bool peal_packet_same(const struct peal_packet *a, const struct peal_packet *b)
{
	bool response = peal_packet_opcode(a)->has & peal_packet_opcode(b)->has & PEAL_HAS_RESPONSE;

	if (!response && (a->opcode != b->opcode || a->solicited != b->solicited))
		return false;
	if (a->placement != b->placement || a->selectivity != b->selectivity)
		return false;
	return a->payload_bytes == b->payload_bytes && a->remote_addr == b->remote_addr &&
	       a->rkey == b->rkey && a->length == b->length && a->swap_add == b->swap_add &&
	       a->compare == b->compare && a->original == b->original && a->imm == b->imm &&
	       a->inv_rkey == b->inv_rkey && a->srqn == b->srqn;
}
