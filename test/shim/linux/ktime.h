/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* A clock that the test sets. */
#ifndef PEAL_SHIM_LINUX_KTIME_H
#define PEAL_SHIM_LINUX_KTIME_H

#include <linux/types.h>

typedef __s64 ktime_t;

extern ktime_t shim_now;

static inline ktime_t ktime_get(void)
{
	return shim_now;
}

static inline ktime_t ktime_add_ns(ktime_t time, u64 ns)
{
	return time + (ktime_t)ns;
}

#endif
