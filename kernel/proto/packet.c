// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See packet.h.
 */
#include <asm/byteorder.h>
#include <linux/string.h>

#include "proto/packet.h"

/* Fields in the three words of the BTH (IBTA 9.2). */
#define OPCODE_SHIFT	24
#define SOLICITED	0x00800000U
#define MIGRATED	0x00400000U
#define PAD_SHIFT	20
#define PAD_MASK	3
#define VERSION		0x000f0000U

#define FECN		0x80000000U
#define BECN		0x40000000U

#define ACK_REQUEST	0x80000000U

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

static void peal_put32(u8 *to, u32 value)
{
	__be32 word = __cpu_to_be32(value);

	memcpy(to, &word, sizeof(word));
}

static void peal_put64(u8 *to, u64 value)
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
	packet->ack_request = which & ACK_REQUEST;
	packet->psn = which & LOW_24;
}

static void peal_put_bth(u8 *bth, const struct peal_packet *packet)
{
	peal_put32(bth, (u32)packet->opcode << OPCODE_SHIFT | (packet->solicited ? SOLICITED : 0) |
		   (packet->migrated ? MIGRATED : 0) | (packet->pad & PAD_MASK) << PAD_SHIFT |
		   packet->pkey);
	peal_put32(bth + 4, (packet->fecn ? FECN : 0) | (packet->becn ? BECN : 0) |
		   (packet->qpn & LOW_24));
	peal_put32(bth + 8, (packet->ack_request ? ACK_REQUEST : 0) | (packet->psn & LOW_24));
}

/* The checks are in the order in which the extended headers follow each other on the wire. */
static void peal_get_extended(const u8 *p, u32 has, struct peal_packet *packet)
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
	if (has & (PEAL_HAS_RETH | PEAL_HAS_ATOMIC_ETH)) {
		packet->remote_addr = peal_get64(p);
		packet->rkey = peal_get32(p + 8);
		p += 12;
	}
	if (has & PEAL_HAS_RETH) {
		packet->length = peal_get32(p);
		p += 4;
	}
	if (has & PEAL_HAS_ATOMIC_ETH) {
		packet->swap_add = peal_get64(p);
		packet->compare = peal_get64(p + 8);
		p += 16;
	}
	if (has & PEAL_HAS_AETH) {
		packet->syndrome = *p;
		packet->msn = peal_get32(p) & LOW_24;
		p += 4;
	}
	if (has & PEAL_HAS_ATOMIC_ACK_ETH) {
		packet->original = peal_get64(p);
		p += 8;
	}
	if (has & PEAL_HAS_IMM) {
		memcpy(&packet->imm, p, 4);
		p += 4;
	}
	if (has & PEAL_HAS_IETH)
		packet->inv_rkey = peal_get32(p);
}

static void peal_put_extended(u8 *p, u32 has, const struct peal_packet *packet)
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
	if (has & (PEAL_HAS_RETH | PEAL_HAS_ATOMIC_ETH)) {
		peal_put64(p, packet->remote_addr);
		peal_put32(p + 8, packet->rkey);
		p += 12;
	}
	if (has & PEAL_HAS_RETH) {
		peal_put32(p, packet->length);
		p += 4;
	}
	if (has & PEAL_HAS_ATOMIC_ETH) {
		peal_put64(p, packet->swap_add);
		peal_put64(p + 8, packet->compare);
		p += 16;
	}
	if (has & PEAL_HAS_AETH) {
		peal_put32(p, (u32)packet->syndrome << 24 | (packet->msn & LOW_24));
		p += 4;
	}
	if (has & PEAL_HAS_ATOMIC_ACK_ETH) {
		peal_put64(p, packet->original);
		p += 8;
	}
	if (has & PEAL_HAS_IMM) {
		memcpy(p, &packet->imm, 4);
		p += 4;
	}
	if (has & PEAL_HAS_IETH)
		peal_put32(p, packet->inv_rkey);
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

enum peal_drop peal_packet_parse(const void *bytes, u32 linear, u32 total,
				 struct peal_packet *packet)
{
	const u8 *bth = bytes;
	const struct peal_wire_opcode *wire;

	if (linear < PEAL_BTH_BYTES || total < PEAL_BTH_BYTES + PEAL_ICRC_BYTES)
		return PEAL_DROP_short;
	if (peal_get32(bth) & VERSION)
		return PEAL_DROP_version;
	wire = peal_wire_opcode(peal_get32(bth) >> OPCODE_SHIFT);
	if (!wire->has)
		return PEAL_DROP_opcode;
	if (linear < wire->header_bytes || total < wire->header_bytes + PEAL_ICRC_BYTES)
		return PEAL_DROP_short;

	memset(packet, 0, sizeof(*packet));
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
