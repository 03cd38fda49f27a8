/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * CRC-32 of a packet's payload, by the fastest code that this machine has: peal_crc_add() is as
 * peal_icrc_add(). Any context except hard interrupts.
 */
#ifndef PEAL_CRC_H
#define PEAL_CRC_H

#include "proto/packet.h"

#ifdef PEAL_HAS_FAST_CRC32

/* Since Linux 6.14 the library uses vector instructions where the CPU has them. */
static inline void peal_crc_init(void)
{
}

static inline void peal_crc_exit(void)
{
}

static inline u32 peal_crc_add(u32 crc, const void *bytes, size_t n)
{
	return peal_icrc_add(crc, bytes, n);
}

#else

void peal_crc_init(void);
void peal_crc_exit(void);

u32 peal_crc_add(u32 crc, const void *bytes, size_t n);

#endif

#endif
