/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Powers of two. */
#ifndef PEAL_SHIM_LINUX_LOG2_H
#define PEAL_SHIM_LINUX_LOG2_H

#include <linux/types.h>

static inline int ilog2(u64 n)
{
	return 63 - __builtin_clzll(n);
}

static inline u64 roundup_pow_of_two(u64 n)
{
	return n < 2 ? 1 : 1ULL << (ilog2(n - 1) + 1);
}

#endif
