/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * CRC-32 of a packet's payload, by the fastest code that this machine has.
 *
 * Owns: the handle of the kernel's hash algorithm, on kernels where the library is not the
 * fastest.
 * Does not know: which bytes an ICRC covers (proto/packet.h).
 */
#ifndef PEAL_CRC_H
#define PEAL_CRC_H

#include <linux/types.h>

void peal_crc_init(void);
void peal_crc_exit(void);

/* As peal_icrc_add(). Any context except hard interrupts. */
u32 peal_crc_add(u32 crc, const void *bytes, size_t n);

#endif
