// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * kernel/net/crc.c: which code it chooses at load, and its sections.
 *
 * Holds: A CPU gets the widest code that it has and whose registers the kernel saves. A section is
 * not begun where it is not worth it or not allowed. The CRC is the same with and without one.
 */
#include <algorithm>

#include "../catch.hpp"
#include "support.hpp"
#include "crc_ways.hpp"

using namespace peal::test;

#ifdef __x86_64__
extern "C" {
extern u32 (*shim_call_peal_crc_add_vectors)(u32, const void *, size_t);
extern u32 (*shim_call_peal_crc_copy_vectors)(u32, void *, const void *, size_t);
}

namespace {

constexpr u64 YMM = XFEATURE_MASK_SSE | XFEATURE_MASK_YMM, ZMM = YMM | XFEATURE_MASK_AVX512;

void set(std::initializer_list<int> features, u64 xfeatures)
{
	for (auto &feature : shim_cpu)
		feature.present = false;
	for (int feature : features)
		shim_cpu[feature].present = true;
	shim_xfeatures = xfeatures;
	shim_call_peal_crc_add_vectors = peal_crc_add_pclmul;
	shim_call_peal_crc_copy_vectors = peal_crc_copy_pclmul;
	peal_crc_init();
}

bool chose(const char *name)
{
	for (const CrcWay &way : crc_ways())
		if (way.add == shim_call_peal_crc_add_vectors &&
		    way.copy == shim_call_peal_crc_copy_vectors)
			return !std::strcmp(way.name, name);
	return false;
}

} // namespace

/* The first case, because a module is loaded once, and does not forget that it has vector code. */
TEST_CASE("the widest code that may run is chosen", "[crc]")
{
	set({X86_FEATURE_AVX2, X86_FEATURE_VPCLMULQDQ, X86_FEATURE_XMM4_1}, ZMM);
	CHECK_FALSE(peal_fpu_begin(1 << 12));
	set({X86_FEATURE_XMM4_1, X86_FEATURE_PCLMULQDQ}, ZMM);
	CHECK(chose("PCLMUL"));
	constexpr int AVX = X86_FEATURE_AVX, AVX2 = X86_FEATURE_AVX2, WIDE = X86_FEATURE_VPCLMULQDQ,
		      F = X86_FEATURE_AVX512F, VL = X86_FEATURE_AVX512VL,
		      BF16 = X86_FEATURE_AVX512_BF16;
	constexpr int SSE = X86_FEATURE_XMM4_1, MUL = X86_FEATURE_PCLMULQDQ;

	set({SSE, MUL, AVX, AVX2, WIDE}, XFEATURE_MASK_SSE);
	CHECK(chose("PCLMUL"));
	set({SSE, MUL, AVX}, YMM);
	CHECK(chose("PCLMUL, AVX"));
	set({SSE, MUL, AVX, AVX2}, ZMM);
	CHECK(chose("PCLMUL, AVX"));
	set({SSE, MUL, AVX, WIDE}, ZMM);
	CHECK(chose("PCLMUL, AVX"));
	set({SSE, MUL, AVX, AVX2, WIDE}, ZMM);
	CHECK(chose("VPCLMUL, AVX2"));
	set({SSE, MUL, AVX, AVX2, WIDE, F, VL}, ZMM);
	CHECK(chose("VPCLMUL, AVX2"));
	set({SSE, MUL, AVX, AVX2, WIDE, F, VL, BF16}, YMM);
	CHECK(chose("VPCLMUL, AVX2"));
	set({SSE, MUL, AVX, AVX2, WIDE, F, VL, BF16}, ZMM);
	CHECK(chose("VPCLMUL, AVX-512"));
}

TEST_CASE("a section is begun only where it is allowed and worth it", "[crc]")
{
	set({X86_FEATURE_XMM4_1, X86_FEATURE_PCLMULQDQ}, XFEATURE_MASK_SSE);
	constexpr std::size_t longest = 64 << 10;
	const int before = shim_fpu_sections;

	CHECK_FALSE(peal_fpu_begin(64));
	shim_fpu_busy = true;
	CHECK_FALSE(peal_fpu_begin(longest));
	shim_fpu_busy = false;
	peal_fpu_end(false);
	CHECK(shim_fpu_sections == before);
	CHECK(peal_fpu_begin(longest));
	CHECK(shim_fpu_depth == 1);
	CHECK_FALSE(peal_fpu_begin(longest));
	peal_fpu_end(true);
	CHECK(shim_fpu_depth == 0);
	CHECK(shim_fpu_sections == before + 1);

	/* With no registers to save, any packet is worth it. */
	shim_fpu_saved = true;
	CHECK(peal_fpu_begin(64));
	peal_fpu_end(true);
	shim_fpu_saved = false;
	shim_task.flags = PF_KTHREAD;
	CHECK(peal_fpu_begin(64));
	peal_fpu_end(true);
	shim_task.flags = 0;
	CHECK_FALSE(peal_fpu_begin(64));
	CHECK(shim_fpu_sections == before + 3);
}

TEST_CASE("a section for a copy is begun only for many short pieces", "[crc]")
{
	/* Runs behind the first case, so a CPU with AVX was seen. */
	constexpr std::size_t many = 16 << 10;

	shim_fpu_saved = true;
	CHECK_FALSE(peal_fpu_begin_copy(4096, 1024));
	CHECK_FALSE(peal_fpu_begin_copy(many, 4096));
	shim_fpu_busy = true;
	CHECK_FALSE(peal_fpu_begin_copy(many, 1024));
	shim_fpu_busy = false;
	CHECK(peal_fpu_begin_copy(many, 1024));
	peal_fpu_end(true);
	shim_fpu_saved = false;
	CHECK_FALSE(peal_fpu_begin_copy(many, 1024));
}

TEST_CASE("a copy is the same with and without a section", "[crc]")
{
	Random random("copies");
	std::uint8_t from[300], to[300];

	for (std::size_t n = 0; n <= sizeof(from); ++n) {
		for (bool fpu : {false, static_cast<bool>(__builtin_cpu_supports("avx"))}) {
			random.fill(from, sizeof(from));
			std::memset(to, 0, sizeof(to));
			peal_fpu_copy(to, from, n, fpu);
			CAPTURE(n, fpu, random.seed);
			REQUIRE(std::memcmp(to, from, n) == 0);
			REQUIRE(std::all_of(to + n, to + sizeof(to),
					    [](std::uint8_t byte) { return byte == 0; }));
		}
	}
}

TEST_CASE("with and without a section a packet has the same ICRC", "[crc]")
{
	Random random("packets");
	std::uint8_t ip[40], udp[8], bth[12], payload[2000], copied[2000];

	if (!crc_ways()[1].present)
		return;
	set({X86_FEATURE_XMM4_1, X86_FEATURE_PCLMULQDQ}, XFEATURE_MASK_SSE);
	random.fill(payload, sizeof(payload));
	for (int round = 0; round < 2000; ++round) {
		const bool ipv6 = random.one_in(2);
		const std::size_t n = random.below(sizeof(payload));

		random.fill(ip, sizeof(ip));
		random.fill(udp, sizeof(udp));
		random.fill(bth, sizeof(bth));
		__be32 head[PEAL_ICRC_HEAD_MOST / 4];
		const u32 bytes = peal_icrc_head(head, ipv6, ip, udp, bth);
		const u32 begin = peal_icrc_add(0, head, bytes);
		const u32 expected = crc_bitwise(begin, payload, n);
		for (bool fpu : {false, true}) {
			CAPTURE(ipv6, n, fpu, random.seed);
			REQUIRE(peal_crc_begin(head, bytes, ipv6, fpu) == begin);
			REQUIRE(peal_crc_add(begin, payload, n, fpu) == expected);
			std::memset(copied, 0, sizeof(copied));
			REQUIRE(peal_crc_copy(begin, copied, payload, n, fpu) == expected);
			REQUIRE(std::memcmp(copied, payload, n) == 0);
		}
	}
}
#endif
