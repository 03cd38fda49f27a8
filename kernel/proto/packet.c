// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See packet.h.
 */
#include <linux/string.h>

#include "packet.h"
#include "psn.h"

/* Places in the BTH (IBTA 9.2). */
#define BTH_OPCODE	0
#define BTH_FLAGS	1	/* solicited, migrated, pad count, version */
#define BTH_PKEY	2
#define BTH_CONGESTION	4	/* FECN, BECN */
#define BTH_QPN		5
#define BTH_ACK_REQUEST	8
#define BTH_PSN		9

#define SOLICITED	0x80
#define MIGRATED	0x40
#define PAD_SHIFT	4
#define PAD_MASK	3
#define VERSION_MASK	0x0f
#define FECN		0x80
#define BECN		0x40
#define ACK_REQUEST	0x80

/* Headers are big-endian and may lie at any address. */
static u64 peal_get(const u8 *from, u32 bytes)
{
	u64 value = 0;

	while (bytes--)
		value = value << 8 | *from++;
	return value;
}

static void peal_put(u8 *to, u64 value, u32 bytes)
{
	while (bytes--) {
		to[bytes] = value;
		value >>= 8;
	}
}

static void peal_get_bth(const u8 *bth, struct peal_packet *packet)
{
	packet->opcode = bth[BTH_OPCODE];
	packet->solicited = bth[BTH_FLAGS] & SOLICITED;
	packet->migrated = bth[BTH_FLAGS] & MIGRATED;
	packet->pad = bth[BTH_FLAGS] >> PAD_SHIFT & PAD_MASK;
	packet->pkey = peal_get(bth + BTH_PKEY, 2);
	packet->fecn = bth[BTH_CONGESTION] & FECN;
	packet->becn = bth[BTH_CONGESTION] & BECN;
	packet->qpn = peal_get(bth + BTH_QPN, 3);
	packet->ack_request = bth[BTH_ACK_REQUEST] & ACK_REQUEST;
	packet->psn = peal_get(bth + BTH_PSN, 3);
}

static void peal_put_bth(u8 *bth, const struct peal_packet *packet)
{
	bth[BTH_OPCODE] = packet->opcode;
	bth[BTH_FLAGS] = (packet->solicited ? SOLICITED : 0) | (packet->migrated ? MIGRATED : 0) |
			 (packet->pad & PAD_MASK) << PAD_SHIFT;
	peal_put(bth + BTH_PKEY, packet->pkey, 2);
	bth[BTH_CONGESTION] = (packet->fecn ? FECN : 0) | (packet->becn ? BECN : 0);
	peal_put(bth + BTH_QPN, packet->qpn, 3);
	bth[BTH_ACK_REQUEST] = packet->ack_request ? ACK_REQUEST : 0;
	peal_put(bth + BTH_PSN, packet->psn, 3);
}

/* Extended headers in the order of the wire, which is that of these lines. */
static void peal_get_extended(const u8 *p, u16 has, struct peal_packet *packet)
{
	if (has & PEAL_HAS_DETH) {
		packet->qkey = peal_get(p, 4);
		packet->src_qpn = peal_get(p + 5, 3);
		p += 8;
	}
	if (has & (PEAL_HAS_RETH | PEAL_HAS_ATOMIC_ETH)) {
		packet->remote_addr = peal_get(p, 8);
		packet->rkey = peal_get(p + 8, 4);
		p += 12;
	}
	if (has & PEAL_HAS_RETH) {
		packet->length = peal_get(p, 4);
		p += 4;
	}
	if (has & PEAL_HAS_ATOMIC_ETH) {
		packet->swap_add = peal_get(p, 8);
		packet->compare = peal_get(p + 8, 8);
		p += 16;
	}
	if (has & PEAL_HAS_AETH) {
		packet->syndrome = *p;
		packet->msn = peal_get(p + 1, 3);
		p += 4;
	}
	if (has & PEAL_HAS_ATOMIC_ACK_ETH) {
		packet->original = peal_get(p, 8);
		p += 8;
	}
	if (has & PEAL_HAS_IMM) {
		memcpy(&packet->imm, p, 4);
		p += 4;
	}
	if (has & PEAL_HAS_IETH)
		packet->inv_rkey = peal_get(p, 4);
}

static void peal_put_extended(u8 *p, u16 has, const struct peal_packet *packet)
{
	if (has & PEAL_HAS_DETH) {
		peal_put(p, packet->qkey, 4);
		peal_put(p + 4, packet->src_qpn & PEAL_PSN_MASK, 4);
		p += 8;
	}
	if (has & (PEAL_HAS_RETH | PEAL_HAS_ATOMIC_ETH)) {
		peal_put(p, packet->remote_addr, 8);
		peal_put(p + 8, packet->rkey, 4);
		p += 12;
	}
	if (has & PEAL_HAS_RETH) {
		peal_put(p, packet->length, 4);
		p += 4;
	}
	if (has & PEAL_HAS_ATOMIC_ETH) {
		peal_put(p, packet->swap_add, 8);
		peal_put(p + 8, packet->compare, 8);
		p += 16;
	}
	if (has & PEAL_HAS_AETH) {
		*p = packet->syndrome;
		peal_put(p + 1, packet->msn, 3);
		p += 4;
	}
	if (has & PEAL_HAS_ATOMIC_ACK_ETH) {
		peal_put(p, packet->original, 8);
		p += 8;
	}
	if (has & PEAL_HAS_IMM) {
		memcpy(p, &packet->imm, 4);
		p += 4;
	}
	if (has & PEAL_HAS_IETH)
		peal_put(p, packet->inv_rkey, 4);
}

/*
 * The padding brings the payload to a multiple of four bytes (IBTA 9.2.4), and
 * what has no payload has no padding. That FIRST and MIDDLE fill the path MTU
 * is for who knows it.
 */
static enum peal_drop peal_packet_measure(u32 total, u16 has, struct peal_packet *packet)
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
	if (bth[BTH_FLAGS] & VERSION_MASK)
		return PEAL_DROP_version;
	wire = peal_wire_opcode(bth[BTH_OPCODE]);
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
