/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The kernel's names of limits. */
#ifndef PEAL_SHIM_LINUX_LIMITS_H
#define PEAL_SHIM_LINUX_LIMITS_H

#include_next <linux/limits.h>
#include <stdint.h>

#define U64_MAX		UINT64_MAX
#define U32_MAX		UINT32_MAX
#define U8_MAX		UINT8_MAX

#endif
