/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The invariant CRC of RoCEv2 (IBTA 7.8.1 and annex A17.3.3): CRC-32 over the
 * packet from 8 bytes of ones in place of the LRH, the fields that routers may
 * change masked with ones.
 *
 * Owns: which bytes are masked. Does not know: skbs, who computes when.
 */
#ifndef PEAL_ICRC_H
#define PEAL_ICRC_H

#include <linux/types.h>

/*
 * Begin with the IP, UDP and base transport headers (20 or 40, 8 and 12 bytes,
 * as they are on the wire). Masked: TOS, TTL and checksum of IPv4; traffic
 * class, flow label and hop limit of IPv6; UDP's checksum; the BTH's FECN, BECN
 * and reserved byte. IPv4 options are not covered: such packets are refused.
 */
u32 peal_icrc_begin_v4(const void *ip, const void *udp, const void *bth);
u32 peal_icrc_begin_v6(const void *ip, const void *udp, const void *bth);

/* All that follows the BTH, padding included, in pieces of any size. */
u32 peal_icrc_add(u32 crc, const void *bytes, size_t n);

/* The value to store in little-endian order behind the padding. */
static inline u32 peal_icrc_end(u32 crc)
{
	return ~crc;
}

#endif
