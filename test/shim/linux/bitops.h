/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Bits. */
#ifndef PEAL_SHIM_LINUX_BITOPS_H
#define PEAL_SHIM_LINUX_BITOPS_H

#include <linux/types.h>

static inline unsigned long __ffs64(u64 word)
{
	return (unsigned long)__builtin_ctzll(word);
}

static inline unsigned long __ffs(unsigned long word)
{
	return (unsigned long)__builtin_ctzl(word);
}

#endif
