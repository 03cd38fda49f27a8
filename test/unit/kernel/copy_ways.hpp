// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The methods by which kernel/object/cursor.c and kernel/net/crc_x86.S may copy most of a message.
 *
 * Owns: the methods that the CPU of the test, which is not the real one, can use. Machines other
 * than x86 have one method. Where the real CPU has no AVX, words take its place.
 */
#pragma once
#include <vector>

#include "kernel_parts.hpp"

extern "C" {
#include "net/crc_x86.h"
}

namespace peal::test {

struct CopyWay {
	const char *name;
	bool erms, rep_good, avx;

	void choose() const
	{
		shim_cpu[X86_FEATURE_ERMS] = {erms, 0};
		shim_cpu[X86_FEATURE_REP_GOOD] = {rep_good, 0};
	}
	/* After choose(). */
	void copy(void *dst, const void *src, std::size_t bytes) const
	{
#ifdef CONFIG_X86
		if (avx && bytes >= 40 && __builtin_cpu_supports("avx")) {
			peal_copy_avx(dst, src, bytes);
			return;
		}
#endif
		peal_copy(dst, src, bytes);
	}
};

inline const std::vector<CopyWay> copy_ways = {
	{"words", false, false, false},
#ifdef CONFIG_X86
	{"AVX", false, false, true},
	{"rep movsq", false, true, false},
	{"rep movsb", true, true, false},
#endif
};

/* How often the code considered a string instruction. */
inline unsigned long copy_questions()
{
	return shim_cpu[X86_FEATURE_ERMS].questions + shim_cpu[X86_FEATURE_REP_GOOD].questions;
}

} // namespace peal::test
