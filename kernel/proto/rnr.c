// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See rnr.h.
 */
#include "proto/rnr.h"

#define STEPS	32

/* As credits these are receives. As RNR timers they are units of 10 us, except the first. */
static const u32 peal_rnr_steps[STEPS] = {
	0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768,
	1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
};

u64 peal_rnr_timer_ns(u8 code)
{
	u32 units = peal_rnr_steps[code & (STEPS - 1)];

	return (units ? units : 65536) * 10000ULL;
}

u32 peal_rnr_credits(u8 code)
{
	return peal_rnr_steps[code & (STEPS - 1)];
}
