/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Kernel type names, and parts of linux/types.h itself. */
#ifndef PEAL_SHIM_LINUX_TYPES_H
#define PEAL_SHIM_LINUX_TYPES_H

#include_next <linux/types.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s32 s32;
typedef __s64 s64;
typedef unsigned int gfp_t;
typedef struct {
	int counter;
} atomic_t;

#endif
