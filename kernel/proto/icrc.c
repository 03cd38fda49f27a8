// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See icrc.h.
 */
#include <linux/crc32.h>
#include <linux/string.h>

#include "proto/icrc.h"
#include "proto/packet.h"

#define IPV4_BYTES	20
#define IPV6_BYTES	40
#define UDP_BYTES	8

/* CRC-32, begun with ones, of the eight bytes of ones that stand for the LRH. */
#define AFTER_LRH	0xdebb20e3U

/* @head: room for all three headers; the IP header is there already, and masked. */
static u32 peal_icrc_headers(u8 *head, u32 ip_bytes, const void *udp, const void *bth)
{
	u8 *masked_udp = head + ip_bytes;
	u8 *masked_bth = masked_udp + UDP_BYTES;

	memcpy(masked_udp, udp, UDP_BYTES);
	memset(masked_udp + 6, 0xff, 2);	/* checksum */
	memcpy(masked_bth, bth, PEAL_BTH_BYTES);
	masked_bth[4] = 0xff;			/* FECN, BECN, reserved */
	return crc32_le(AFTER_LRH, head, ip_bytes + UDP_BYTES + PEAL_BTH_BYTES);
}

u32 peal_icrc_begin_v4(const void *ip, const void *udp, const void *bth)
{
	u8 head[IPV4_BYTES + UDP_BYTES + PEAL_BTH_BYTES];

	memcpy(head, ip, IPV4_BYTES);
	head[1] = 0xff;				/* type of service */
	head[8] = 0xff;				/* time to live */
	memset(head + 10, 0xff, 2);		/* checksum */
	return peal_icrc_headers(head, IPV4_BYTES, udp, bth);
}

u32 peal_icrc_begin_v6(const void *ip, const void *udp, const void *bth)
{
	u8 head[IPV6_BYTES + UDP_BYTES + PEAL_BTH_BYTES];

	memcpy(head, ip, IPV6_BYTES);
	head[0] |= 0x0f;			/* traffic class, high half */
	memset(head + 1, 0xff, 3);		/* traffic class, low half; flow label */
	head[7] = 0xff;				/* hop limit */
	return peal_icrc_headers(head, IPV6_BYTES, udp, bth);
}

u32 peal_icrc_add(u32 crc, const void *bytes, size_t n)
{
	return crc32_le(crc, bytes, n);
}
