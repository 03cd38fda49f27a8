/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The Toeplitz hash of receive side scaling.
 *
 * Owns: the hash. Does not know: frames, keys, tables. Compiles in userspace for the tests.
 */
#ifndef PEAL_TOEPLITZ_H
#define PEAL_TOEPLITZ_H

#include <linux/types.h>

/* The longest input: two IPv6 addresses and two ports. */
#define PEAL_TOEPLITZ_INPUT	36

/*
 * The key has four bytes more than the @bytes of the input. For each bit of the input that is set,
 * from the first byte's highest bit on, the hash is XORed with 32 bits of the key. These begin at
 * the same bit of the key.
 */
u32 peal_toeplitz(const u8 *key, const u8 *input, u32 bytes);

#endif
