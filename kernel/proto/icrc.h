/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The invariant CRC of RoCEv2 (IBTA 7.8.1 and annex A17.3.3). It is the CRC-32 of 8 bytes of
 * ones, which stand for the LRH, and of the packet. The fields that routers may change are
 * masked with ones.
 *
 * Owns: which bytes are masked.
 * Does not know: skbs, when a CRC is computed.
 */
#ifndef PEAL_ICRC_H
#define PEAL_ICRC_H

#include <linux/types.h>

/*
 * Begin with the IP header (20 or 40 bytes), the UDP header (8) and the BTH (12) as they are on
 * the wire. These fields are masked: TOS, TTL and checksum of IPv4; traffic class, flow label and
 * hop limit of IPv6; the UDP checksum; the byte of the BTH with FECN, BECN and reserved bits. The
 * ICRC does not cover IPv4 options, so packets with options are refused elsewhere.
 */
u32 peal_icrc_begin_v4(const void *ip, const void *udp, const void *bth);
u32 peal_icrc_begin_v6(const void *ip, const void *udp, const void *bth);

/* Add what follows the BTH, with padding but without the ICRC, in pieces of any size. */
u32 peal_icrc_add(u32 crc, const void *bytes, size_t n);

/* The ICRC, to be stored in little-endian order behind the padding. */
static inline u32 peal_icrc_end(u32 crc)
{
	return ~crc;
}

#endif
