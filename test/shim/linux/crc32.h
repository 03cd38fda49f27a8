/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The kernel's CRC-32, computed with zlib's, which inverts before and after. */
#ifndef PEAL_SHIM_LINUX_CRC32_H
#define PEAL_SHIM_LINUX_CRC32_H

#include <linux/types.h>
#include <zlib.h>

static inline u32 crc32_le(u32 crc, const void *bytes, size_t n)
{
	return ~(u32)crc32(~crc, (const Bytef *)bytes, (uInt)n);
}

#endif
