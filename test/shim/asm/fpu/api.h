/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Sections for vector registers, counted, and the registers that a test's kernel saves. */
#ifndef PEAL_SHIM_ASM_FPU_API_H
#define PEAL_SHIM_ASM_FPU_API_H

#include <linux/types.h>

#define XFEATURE_MASK_SSE	0x2ULL
#define XFEATURE_MASK_YMM	0x4ULL
#define XFEATURE_MASK_AVX512	0xe0ULL

extern bool shim_fpu_busy;
extern u64 shim_xfeatures;
extern int shim_fpu_depth;	/* sections that are open */
extern int shim_fpu_sections;	/* sections so far */

static inline bool irq_fpu_usable(void)
{
	return !shim_fpu_busy && !shim_fpu_depth;
}

static inline void kernel_fpu_begin(void)
{
	shim_fpu_depth++;
	shim_fpu_sections++;
}

static inline void kernel_fpu_end(void)
{
	shim_fpu_depth--;
}

#define cpu_has_xfeatures(features, name)	(((features) & ~shim_xfeatures) == 0)

#endif
