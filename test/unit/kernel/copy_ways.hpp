// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The methods by which kernel/object/cursor.c may copy most of a message.
 *
 * Owns: the methods that the CPU of the test, which is not the real one, can use. Machines other
 * than x86 have one method.
 */
#pragma once
#include <vector>

#include "kernel_parts.hpp"

namespace peal::test {

struct CopyWay {
	const char *name;
	bool erms, rep_good;

	void choose() const
	{
		shim_cpu[X86_FEATURE_ERMS] = {erms, 0};
		shim_cpu[X86_FEATURE_REP_GOOD] = {rep_good, 0};
	}
};

inline const std::vector<CopyWay> copy_ways = {
	{"words", false, false},
#ifdef CONFIG_X86
	{"rep movsq", false, true},
	{"rep movsb", true, true},
#endif
};

/* How often the code considered a string instruction. */
inline unsigned long copy_questions()
{
	return shim_cpu[X86_FEATURE_ERMS].questions + shim_cpu[X86_FEATURE_REP_GOOD].questions;
}

} // namespace peal::test
