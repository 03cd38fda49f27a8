// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The ways in which kernel/net/crc.c may compute a CRC-32, and a reference that goes bit by bit.
 *
 * Owns: which of them the CPU of the test has. Tests name those that it lacks.
 */
#pragma once
#include <cstdlib>
#include <vector>

#include "kernel_parts.hpp"

extern "C" {
#include "net/crc_x86.h"
}

namespace peal::test {

struct CrcWay {
	const char *name;
	u32 (*add)(u32 crc, const void *bytes, size_t n);
	u32 (*copy)(u32 crc, void *to, const void *from, size_t n);
	size_t least; /* bytes */
	bool present;
};

inline const std::vector<CrcWay> &crc_ways()
{
	static const std::vector<CrcWay> ways = {
		{"library",
		 [](u32 crc, const void *bytes, size_t n) {
			 return peal_crc_add(crc, bytes, n, false);
		 },
		 [](u32 crc, void *to, const void *from, size_t n) {
			 return peal_crc_copy(crc, to, from, n, false);
		 },
		 0, true},
#ifdef __x86_64__
		{"PCLMUL", peal_crc_add_pclmul, peal_crc_copy_pclmul, 16,
		 __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1")},
		{"PCLMUL, AVX", peal_crc_add_avx, peal_crc_copy_avx, 16,
		 __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("avx")},
		{"VPCLMUL, AVX2", peal_crc_add_avx2, peal_crc_copy_avx2, 16,
		 __builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("avx2")},
		{"VPCLMUL, AVX-512", peal_crc_add_avx512, peal_crc_copy_avx512, 16,
		 __builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("avx512f") &&
			 __builtin_cpu_supports("avx512vl")},
#endif
	};

	return ways;
}

/* One byte more, by the polynomial of IEEE 802.3, reflected. */
inline u32 crc_bitwise(u32 crc, std::uint8_t byte)
{
	crc ^= byte;
	for (int bit = 0; bit < 8; ++bit)
		crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
	return crc;
}

inline u32 crc_bitwise(u32 crc, const std::uint8_t *bytes, size_t n)
{
	for (size_t i = 0; i < n; ++i)
		crc = crc_bitwise(crc, bytes[i]);
	return crc;
}

} // namespace peal::test
