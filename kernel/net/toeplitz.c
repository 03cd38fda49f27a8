// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See toeplitz.h.
 */
#include "net/toeplitz.h"

u32 peal_toeplitz(const u8 *key, const u8 *input, u32 bytes)
{
	u64 window = 0;		/* the key from the current byte on, in the low 40 bits */
	u32 hash = 0, i, bit;

	for (i = 0; i < 4; i++)
		window = window << 8 | key[i];
	for (i = 0; i < bytes; i++) {
		window = window << 8 | key[i + 4];
		for (bit = 0; bit < 8; bit++)
			if (input[i] & 0x80 >> bit)
				hash ^= (u32)(window >> (8 - bit));
	}
	return hash;
}
