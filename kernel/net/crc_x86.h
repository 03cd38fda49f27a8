/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The functions of crc_x86.S, by the instructions that they need. For crc.c and its tests.
 *
 * Those of a CRC are peal_crc_add() and peal_crc_copy(), for 16 bytes or more. All are called
 * inside of a section for vector registers.
 */
#ifndef PEAL_CRC_X86_H
#define PEAL_CRC_X86_H

#include <linux/types.h>

/* PCLMULQDQ and SSE4.1 */
u32 peal_crc_add_pclmul(u32 crc, const void *bytes, size_t n);
u32 peal_crc_copy_pclmul(u32 crc, void *to, const void *from, size_t n);
/* PCLMULQDQ and AVX */
u32 peal_crc_add_avx(u32 crc, const void *bytes, size_t n);
u32 peal_crc_copy_avx(u32 crc, void *to, const void *from, size_t n);
/* VPCLMULQDQ and AVX2 */
u32 peal_crc_add_avx2(u32 crc, const void *bytes, size_t n);
u32 peal_crc_copy_avx2(u32 crc, void *to, const void *from, size_t n);
/* VPCLMULQDQ, AVX512F and AVX512VL */
u32 peal_crc_add_avx512(u32 crc, const void *bytes, size_t n);
u32 peal_crc_copy_avx512(u32 crc, void *to, const void *from, size_t n);

/* AVX. As peal_copy(), for 40 bytes or more. */
void peal_copy_avx(void *to, const void *from, size_t n);

#endif
