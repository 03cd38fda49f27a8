/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* CPU features that a test switches, so that every way to copy, and to compute a CRC, runs on every x86. */
#ifndef PEAL_SHIM_ASM_CPUFEATURE_H
#define PEAL_SHIM_ASM_CPUFEATURE_H

#include <stdbool.h>

enum {
	X86_FEATURE_ERMS,
	X86_FEATURE_REP_GOOD,
	X86_FEATURE_XMM4_1,
	X86_FEATURE_PCLMULQDQ,
	X86_FEATURE_AVX,
	X86_FEATURE_AVX2,
	X86_FEATURE_VPCLMULQDQ,
	X86_FEATURE_AVX512F,
	X86_FEATURE_AVX512VL,
	X86_FEATURE_AVX512_BF16,
	SHIM_CPU_FEATURES
};

struct shim_cpu_feature {
	bool present;
	unsigned long questions;	/* how often the kernel file asked */
};

extern struct shim_cpu_feature shim_cpu[SHIM_CPU_FEATURES];

#define cpu_feature_enabled(feature) (shim_cpu[feature].questions++, shim_cpu[feature].present)
#define boot_cpu_has(feature)		cpu_feature_enabled(feature)

#endif
