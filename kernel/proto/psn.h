/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Packet and message sequence numbers, 24 bits that wrap.
 *
 * Owns: their arithmetic (IBTA 9.7.1). Number b is later than a if it is less than 2^23
 * ahead of a.
 * Does not know: what is numbered.
 */
#ifndef PEAL_PSN_H
#define PEAL_PSN_H

#include <linux/types.h>

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

#endif
