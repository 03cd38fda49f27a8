/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Packets of RoCEv2: their opcodes, headers, checksum and sequence numbers, and why one is dropped.
 *
 * Owns: the layout of every header, what an opcode means, and the checks of a packet by itself.
 * Does not know: connections, and how packets travel.
 */
#ifndef PEAL_PACKET_H
#define PEAL_PACKET_H

#include <asm/byteorder.h>
#include <linux/nospec.h>
#include <linux/string.h>
#include <linux/types.h>
#include <rdma/peal-abi.h>

/*
 * Packet and message sequence numbers, 24 bits that wrap.
 *
 * Owns: their arithmetic (IBTA 9.7.1). Number b is later than a if it is less than 2^23
 * ahead of a.
 */

#define PEAL_PSN_MASK	0xffffffU

static inline u32 peal_psn_add(u32 psn, u32 n)
{
	return (psn + n) & PEAL_PSN_MASK;
}

/* The signed distance, negative if @to is earlier: -2^23 .. 2^23 - 1. */
static inline s32 peal_psn_distance(u32 from, u32 to)
{
	return (s32)((to - from) << 8) >> 8;
}

static inline bool peal_psn_before(u32 a, u32 b)
{
	return peal_psn_distance(a, b) > 0;
}

/* The distance to @to, which the caller knows not to be before @from: 0 .. 2^24 - 1. */
static inline u32 peal_psn_ahead(u32 from, u32 to)
{
	return (to - from) & PEAL_PSN_MASK;
}

static inline void peal_psn_raise(u32 *psn, u32 to)
{
	if (peal_psn_before(*psn, to))
		*psn = to;
}

/*
 * The opcodes of the base transport header (IBTA 9.2.1, table 38, and annex A19).
 *
 * Owns: the meaning of each of the 256 values, that is transport, operation, position in the
 * message, and extended headers.
 */

/* The upper three bits of the opcode. */
enum peal_bth_transport {
	PEAL_RC = 0,
	PEAL_UC = 1,
	PEAL_UD = 3,
	PEAL_XRC = 5,		/* extended reliable connected (annex A14) */
	PEAL_NO_TRANSPORT = 8,	/* frames; no packet has it */
};

#define PEAL_TRANSPORT_SHIFT	5

/* The lower five bits. RC and XRC have all of these, UC and UD only some. */
enum peal_wire_op {
	/* MIDDLE is the one behind FIRST, and LAST the one behind MIDDLE, of all three kinds. */
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
 * payload, and is no message of a queue pair. See transport/local.h.
 */
#define PEAL_OPCODE_CHALLENGE	0xc0

/*
 * A congestion notification packet (CNP, IBTA A17.9.3). It asks the sender of marked packets to
 * slow down. It has no place in the order of PSNs, and is no message of a queue pair.
 */
#define PEAL_OPCODE_CNP		0x81

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
#define PEAL_HAS_RESERVED	0x40000	/* PEAL_CNP_RESERVED bytes, which a receiver ignores */

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

/* The position of a packet in its message. */
#define PEAL_POSITION(first, last)	((first) << 1 | (last))

/*
 * What a program may ask for, and what follows from it. The checks of a WQE, the packets of a
 * message, its execution, its counters and its completion all read this one table.
 */
struct peal_op {
	u16 transports;		/* bit 1 << enum peal_bth_transport: it has the operation */
	bool sends;		/* local data go out; false for READ, CMP_SWAP and FETCH_ADD */
	bool receives;		/* consumes a receive WQE at the peer */
	bool remote;		/* uses remote_addr and rkey */
	bool atomic;		/* executed as a whole */
	bool placement;		/* an atomic one of IBTA annex A19: ATOMIC_WRITE, FLUSH */
	bool resource;		/* takes a responder resource at the peer; answered by itself */
	bool local;		/* executed without the peer */
	bool kernel;		/* only for kernel users */
	bool immediate;		/* imm_or_rkey holds immediate data */
	bool invalidates;	/* imm_or_rkey holds an rkey */
	int access;		/* right that the rkey must give: IB_ACCESS_* */
	u8 packets[4];		/* enum peal_wire_op, by PEAL_POSITION() */
};

extern const struct peal_op peal_ops[PEAL_OP_COUNT];

/* An @opcode that is not below PEAL_OP_COUNT counts as 0 (invalid), also under speculation. */
static inline const struct peal_op *peal_op(u8 opcode)
{
	return &peal_ops[array_index_nospec(opcode, PEAL_OP_COUNT)];
}

/*
 * A work request: a checked copy of a send WQE, or a request of a peer. It is the only form that a
 * request has from its check to its completion. The scatter-gather list of a WQE is kept beside it.
 */
struct peal_wqe {
	u8 opcode;			/* below PEAL_OP_COUNT; PEAL_OP_INVALID: malformed */
	u8 flags;			/* PEAL_WQE_*; of a peer's request only SOLICITED */
	u8 num_sge;
	bool more;		/* a SEND or WRITE follows; no AckReq unless signaled */
	bool end;		/* nothing is posted behind it yet */
	bool last;		/* local operation: not before all packets are acknowledged */
	u32 index;			/* free-running index of its slot */
	u32 imm_or_rkey;
	u32 rkey;
	union {
		u64 remote_addr;
		struct peal_ud_target ud;	/* for datagrams */
	};
	union {
		u32 ah_index;		/* for datagrams; else 0 */
		u32 srqn;		/* XRC: the responder's shared receive queue */
	};
	u64 length;			/* bytes of payload, up to PEAL_MAX_MSG */
	const void *inline_data;	/* in the slot; NULL without PEAL_WQE_INLINE */
	union {
		struct peal_atomic_seg atomic;
		struct peal_flush_seg flush;
		struct peal_bind_seg bind;
	};
};

/*
 * Return: bit 1 << enum peal_opcode for each operation that a queue pair of @transport refuses.
 * @kernel: the queue pair is a kernel user's.
 */
u32 peal_ops_refused(u8 transport, bool kernel);

/* The BTH opcode of a packet of this operation at this position in the message. */
static inline u8 peal_opcode_request(u8 transport, const struct peal_op *op, bool first, bool last)
{
	return peal_opcode_of(transport, op->packets[PEAL_POSITION(first, last)]);
}

u8 peal_opcode_read_response(u8 transport, bool first, bool last);

/*
 * Why a received packet was dropped. The enum, the device counters `drop_<name>`, the words of the
 * tracepoint and a table of Documentation/counters.rst all come from this list.
 */

#define PEAL_DROPS(X)										\
	/* Drops: */										\
	X(short, "shorter than its headers, or than UDP says")					\
	X(version, "the transport header version is not 0")					\
	X(opcode, "unknown opcode, not of the queue pair's transport, or unknown syndrome")	\
	X(options, "IP options, extension headers or a fragment, without a defined ICRC")	\
	X(pad, "pad count or payload length does not fit the opcode")				\
	X(icrc, "the invariant CRC is wrong")							\
	X(pkey, "the partition key is not the default one")					\
	X(qkey, "the queue key does not match (UD)")						\
	X(qpn, "no queue pair has this number, and no socket has the port")			\
	X(socket, "no queue pair has this number, and the socket at the port gets no packet")	\
	X(state, "the queue pair is not ready to receive, or has refused a request")		\
	X(source, "the sender's address is not the connected peer's")				\
	X(path, "a challenge or response by a netdev that does not lead to the peer")		\
	X(group, "no queue pair is attached to the multicast group")				\
	X(stale, "a response or a repetition that matches no known request")			\
	X(sequence, "out of order and not kept, because the device keeps enough; UC: late")	\
	X(conflict, "out of order; a packet with its PSN differs, or the port of the one before") \
	X(order, "UC: the opcode does not continue the message")				\
	X(receive, "UC, UD, raw packets: no receive is posted, or its memory is absent (ODP)")	\
	X(length, "UC, UD, raw packets: longer than the receive")				\
	X(rights, "UC: key, range or right is missing")						\
	X(resource, "no memory or queue space, or the budget of a train to a group ended")

#define PEAL_DROP_ENUM_(name, text) PEAL_DROP_##name,
enum peal_drop {
	PEAL_DROP_none,		/* not dropped */
	PEAL_DROPS(PEAL_DROP_ENUM_)
	PEAL_DROP_COUNT
};

#undef PEAL_DROP_ENUM_

/*
 * The invariant CRC of RoCEv2 (IBTA 7.8.1 and annex A17.3.3). It is the CRC-32 of 8 bytes of
 * ones, which stand for the LRH, and of the packet. The fields that routers may change are
 * masked with ones.
 *
 * Owns: which bytes are masked.
 */

/*
 * Write the bytes over which an ICRC begins, from the IP header (20 or 40 bytes), the UDP header
 * (8) and the BTH (12) as they are on the wire. These fields are masked: TOS, TTL and checksum of
 * IPv4; traffic class, flow label and hop limit of IPv6; the UDP checksum; the byte of the BTH with
 * FECN, BECN and reserved bits. The ICRC does not cover IPv4 options, so packets with options are
 * refused elsewhere.
 *
 * The CRC before these bytes is 0. A CRC of 0 stays 0 over zeros, and one that begins with ones
 * turns four bytes of ones into 0. So the first four of the ones that stand for the LRH are left
 * out, and IPv4 has four zeros in front. The length is then a multiple of 16, as fast code wants.
 *
 * @head: room for PEAL_ICRC_HEAD_MOST bytes, aligned to 4
 *
 * Return: the bytes written, 48 or 64.
 */
#define PEAL_ICRC_HEAD_MOST	64
/* The CRC of the bytes in front of the IP header, begun with 0. */
#define PEAL_ICRC_FRONT		0xdebb20e3U

u32 peal_icrc_head(__be32 *head, bool ipv6, const void *ip, const void *udp, const void *bth);
/*
 * Mask the same fields where IP header, UDP header and BTH lie one behind the other, at @ip. The
 * ICRC of such a packet begins with PEAL_ICRC_FRONT.
 */
void peal_icrc_mask(__be32 *ip, bool ipv6);

#define PEAL_BTH_MARKS		4	/* offset of the byte that the ICRC counts as ones */

/*
 * A CRC is linear: if bytes differ in some bits, their CRCs differ by the CRC of those bits alone,
 * begun with 0. When a number grows by one, the bits that change are its lowest ones. Element n is
 * the CRC of the lowest n + 1 bits of the PSN, which ends the BTH, or of the identification of
 * IPv4, with the zeros that follow: 34 bytes up to the end of the BTH, or 26 up to the end of the
 * first word of the BTH.
 */
#define PEAL_PSN_BITS	24
#define PEAL_IP_ID_BITS	16
extern const u32 peal_icrc_psn_steps[PEAL_PSN_BITS], peal_icrc_id_steps[PEAL_IP_ID_BITS];
extern const u32 peal_icrc_id_word_steps[PEAL_IP_ID_BITS];

/*
 * The CRC up to the end of the BTH of the next packet of a run: from that of the packet before it,
 * @crc. The two differ in PSN, @psn now, and identification, @id now, which are both one more than
 * before.
 */
static inline u32 peal_icrc_next(u32 crc, bool ipv6, u16 id, u32 psn)
{
	crc ^= peal_icrc_psn_steps[__builtin_ctz(psn | 1U << (PEAL_PSN_BITS - 1))];
	if (!ipv6)
		crc ^= peal_icrc_id_steps[__builtin_ctz(id | 1U << (PEAL_IP_ID_BITS - 1))];
	return crc;
}

/*
 * The CRC up to the end of the first word of the BTH, of another packet of a train: from that of
 * one with the identification @from. Only the identification differs, @to now. The bits in which
 * the two differ are a sum of elements, mostly of one.
 */
static inline u32 peal_icrc_word_of(u32 crc, bool ipv6, u16 from, u16 to)
{
	u32 bits = from ^ to;

	if (ipv6)
		return crc;
	for (bits ^= bits >> 1; bits; bits &= bits - 1)
		crc ^= peal_icrc_id_word_steps[__builtin_ctz(bits)];
	return crc;
}

/* Add what follows the BTH, with padding but without the ICRC, in pieces of any size. */
u32 peal_icrc_add(u32 crc, const void *bytes, size_t n);

/* How do two CRCs up to the end of the first word of the BTH differ because of this word? */
static inline u32 peal_icrc_word(const void *bth, const void *other)
{
	u32 a, b;

	memcpy(&a, bth, sizeof(a));
	memcpy(&b, other, sizeof(b));
	a ^= b;
	return a ? peal_icrc_add(0, &a, sizeof(a)) : 0;
}

/*
 * From the CRC up to the end of the first word of the BTH: what to begin with for the bytes behind
 * it as they are in the packet. The first of them counts as ones, and a CRC begins with adding it.
 */
static inline u32 peal_icrc_behind_word(u32 crc, const void *bth)
{
	return crc ^ (u8)~((const u8 *)bth)[PEAL_BTH_MARKS];
}

/* The ICRC, to be stored in little-endian order behind the padding. */
static inline u32 peal_icrc_end(u32 crc)
{
	return ~crc;
}

/*
 * The headers of one packet, as checked values and as bytes.
 *
 * Owns: parsing and building of BTH, XRCETH, DETH, FETH, RETH, AtomicETH, AETH,
 * AtomicAckETH, ImmDt and IETH (IBTA 9.2 to 9.4, annex A19). Parsing checks all lengths against
 * the packet, and no other code reads the bytes of these headers.
 */

#define PEAL_BTH_BYTES		12
#define PEAL_BTH_PSN		8	/* offset of the word that has AckReq and the PSN */
#define PEAL_BTH_ACK_REQUEST	0x80000000U	/* in this word; 7 reserved bits follow it */
#define PEAL_ICRC_BYTES		4
#define PEAL_CNP_RESERVED	16	/* bytes of zeros behind the BTH of a CNP */
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

/* What a fatal NAK means to the requester (IBTA 9.7.5.2.3 to 9.7.5.2.6). */
struct peal_nak_meaning {
	u8 status;		/* enum ib_wc_status */
	u32 reason;		/* enum peal_reason, where nothing more is known than the NAK */
};

/* @nak: not PEAL_NAK_SEQUENCE. */
const struct peal_nak_meaning *peal_nak_meaning(enum peal_nak nak);

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
	/*
	 * A run is several packets of a message, one behind the other, that are processed like one
	 * packet. It begins with a FIRST or MIDDLE packet, and this many MIDDLE packets follow it.
	 * If `last` is not 0, the last of these is a LAST packet instead, with this opcode and so
	 * many bytes of payload. AckReq and the solicited event are those of the last packet, and
	 * so are fields that only the last packet has. The parser sets 0.
	 */
	u32 more;
	u32 last_bytes;
	u8 last;
};

/* Is it a packet that may have others of its kind in front of it and behind it? */
static inline bool peal_packet_is_middle(const struct peal_packet *packet)
{
	const u32 may = PEAL_HAS_PAYLOAD | PEAL_HAS_FIRST | PEAL_HAS_LAST;

	return (peal_wire_opcode(packet->opcode)->has & may) == PEAL_HAS_PAYLOAD;
}

/* The packets of the run, 1 for a packet alone. */
static inline u32 peal_packet_count(const struct peal_packet *packet)
{
	return packet->more + 1;
}

/* Bytes of payload of all of them. */
static inline u32 peal_packet_bytes(const struct peal_packet *packet)
{
	u32 last_bytes = packet->last ? packet->last_bytes : packet->payload_bytes;

	return packet->more * packet->payload_bytes + last_bytes;
}

/* Does the packet, or the last one of the run, end its message? */
static inline bool peal_packet_ends(const struct peal_packet *packet)
{
	return packet->last || peal_wire_opcode(packet->opcode)->has & PEAL_HAS_LAST;
}

/*
 * Set @part to packet @number of @run, from 0, as the first of a run of those that follow it and
 * have the same headers.
 */
void peal_packet_part(const struct peal_packet *run, u32 number, struct peal_packet *part);

/* Take the first @n packets off a run that peal_packet_part() has set. It has more than these. */
static inline void peal_packet_skip(struct peal_packet *part, u32 n)
{
	part->psn = peal_psn_add(part->psn, n);
	part->more -= n;
}

/* Set @packet to packet @number of @run, from 0. */
static inline void peal_packet_of_run(const struct peal_packet *run, u32 number,
				      struct peal_packet *packet)
{
	peal_packet_part(run, number, packet);
	packet->ack_request &= !packet->more;
	packet->more = 0;
}

/* Is @last the LAST packet of the message, right behind @run, with no header that @run lacks? */
bool peal_packet_may_join(const struct peal_packet *run, const struct peal_packet *last);
/* Let @last be the last packet of @run. */
void peal_packet_join(struct peal_packet *run, const struct peal_packet *last);

/**
 * peal_packet_parse() - parse the headers of a packet
 * @bytes: the BTH and what follows it, at least @linear bytes
 * @linear: readable bytes at @bytes, either all or at least PEAL_HEADERS_MAX
 * @total: bytes from the BTH to the end of the ICRC, from the UDP length
 *
 * The payload, its padding and the ICRC begin at offset header_bytes. Fields that were not read
 * are 0, also on an error.
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
 * The MIDDLE packets of a run have equal headers, except for the PSN, which counts up, and AckReq.
 * The code for each of them is here, because a compiler does not see behind the file. @bth: where a
 * BTH is.
 */
static inline u32 peal_bth_psn_word(const void *bth)
{
	__be32 word;

	memcpy(&word, (const u8 *)bth + PEAL_BTH_PSN, sizeof(word));
	return __be32_to_cpu(word);
}

/* Turn the BTH that was built for a MIDDLE packet of a run into that of another. */
static inline void peal_packet_build_next(void *bth, u32 psn, bool ack_request)
{
	__be32 word = __cpu_to_be32((ack_request ? PEAL_BTH_ACK_REQUEST : 0) | psn);

	memcpy((u8 *)bth + PEAL_BTH_PSN, &word, sizeof(word));
}

/*
 * Do the headers at @next differ from those at @first, of @header_bytes bytes, only by their PSN,
 * which is @psn, and by AckReq?
 */
static inline bool peal_packet_follows(const void *first, const void *next, u32 header_bytes,
				       u32 psn)
{
	u32 mask = (1U << PEAL_PSN_BITS) - 1;

	return (peal_bth_psn_word(next) & mask) == psn && !memcmp(first, next, PEAL_BTH_PSN) &&
	       (header_bytes == PEAL_BTH_BYTES ||
		!memcmp((const u8 *)first + PEAL_BTH_BYTES, (const u8 *)next + PEAL_BTH_BYTES,
			header_bytes - PEAL_BTH_BYTES));
}

/* Does the BTH ask for an acknowledgment? */
static inline bool peal_packet_asks_ack(const void *bth)
{
	return peal_bth_psn_word(bth) & PEAL_BTH_ACK_REQUEST;
}

/*
 * How do the CRCs of two heads differ because of the byte in front of the PSN? It has AckReq, which
 * is not the same in all packets of a run, and reserved bits. @bth and @other: the two BTHs.
 */
static inline u32 peal_icrc_flags(const void *bth, const void *other)
{
	__be32 changed = __cpu_to_be32((peal_bth_psn_word(bth) ^ peal_bth_psn_word(other)) &
				       ~0U << PEAL_PSN_BITS);

	return changed ? peal_icrc_add(0, &changed, sizeof(changed)) : 0;
}

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
