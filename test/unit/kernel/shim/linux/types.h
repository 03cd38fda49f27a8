/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* More type names, and pieces of linux/types.h itself. */
#ifndef PEAL_KSHIM_LINUX_TYPES_H
#define PEAL_KSHIM_LINUX_TYPES_H

#include_next <linux/types.h>
#include <stdint.h>

typedef __s32 s32;
typedef __s64 s64;
typedef unsigned int gfp_t;
typedef struct {
	int counter;
} atomic_t;

#endif
