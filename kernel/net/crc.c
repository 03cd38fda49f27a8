// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See crc.h. The code for vector registers is in crc_x86.S.
 */
#include <linux/cache.h>
#include <linux/init.h>
#include <linux/sched.h>
#include <linux/static_call.h>
#ifdef CONFIG_X86_64
#include <asm/cpufeature.h>
#include <asm/fpu/api.h>
#endif

#include "net/crc.h"
#include "net/crc_x86.h"

/* In bytes. The vector code needs as many. */
#define PEAL_CRC_VECTOR_LEAST	16

#ifdef CONFIG_X86_64

/*
 * In bytes. Below this, saving and restoring the registers of a program may cost more than the
 * vector code gains (crc_bench.cpp measures both). Since Linux 6.14 the library begins a section of
 * its own in each call, and goes byte by byte without one. So one section for all is better there.
 */
#ifdef PEAL_HAS_FAST_CRC32
#define PEAL_FPU_WORTH		PEAL_CRC_VECTOR_LEAST
#else
#define PEAL_FPU_WORTH		256
#endif

/*
 * In bytes: the shortest section for a copy, so that its begin and end cost little beside it. And
 * the longest piece, because a string instruction copies 4 KiB faster (crc_bench.cpp measures
 * pieces).
 */
#define PEAL_FPU_COPY_LEAST	(8 << 10)
#define PEAL_FPU_COPY_MOST	(2 << 10)
/* In bytes. The vector code needs as many. */
#define PEAL_COPY_VECTOR_LEAST	40

static bool peal_crc_has_vectors __ro_after_init;
static bool peal_copy_has_vectors __ro_after_init;
DEFINE_STATIC_CALL(peal_crc_add_vectors, peal_crc_add_pclmul);
DEFINE_STATIC_CALL(peal_crc_copy_vectors, peal_crc_copy_pclmul);

void __init peal_crc_init(void)
{
	u64 ymm = XFEATURE_MASK_SSE | XFEATURE_MASK_YMM;

	if (!boot_cpu_has(X86_FEATURE_PCLMULQDQ) || !boot_cpu_has(X86_FEATURE_XMM4_1))
		return;
	peal_crc_has_vectors = true;
	/* AVX instructions may be used only if the kernel also saves the whole registers. */
	if (!boot_cpu_has(X86_FEATURE_AVX) || !cpu_has_xfeatures(ymm, NULL))
		return;
	peal_copy_has_vectors = true;
	static_call_update(peal_crc_add_vectors, peal_crc_add_avx);
	static_call_update(peal_crc_copy_vectors, peal_crc_copy_avx);
	if (!boot_cpu_has(X86_FEATURE_VPCLMULQDQ) || !boot_cpu_has(X86_FEATURE_AVX2))
		return;
	static_call_update(peal_crc_add_vectors, peal_crc_add_avx2);
	static_call_update(peal_crc_copy_vectors, peal_crc_copy_avx2);
	/*
	 * The first CPUs with this instruction (Ice Lake, Tiger Lake) lower their clock for
	 * registers of 64 bytes. They do not have AVX512_BF16, and later ones do.
	 */
	if (!boot_cpu_has(X86_FEATURE_AVX512F) || !boot_cpu_has(X86_FEATURE_AVX512VL) ||
	    !boot_cpu_has(X86_FEATURE_AVX512_BF16) ||
	    !cpu_has_xfeatures(ymm | XFEATURE_MASK_AVX512, NULL))
		return;
	static_call_update(peal_crc_add_vectors, peal_crc_add_avx512);
	static_call_update(peal_crc_copy_vectors, peal_crc_copy_avx512);
}

/* A section saves the registers of a program only once until it goes on. */
static bool peal_fpu_is_saved(void)
{
	return current->flags & PF_KTHREAD || test_thread_flag(TIF_NEED_FPU_LOAD);
}

bool peal_fpu_begin(size_t bytes)
{
	if (!peal_crc_has_vectors || (bytes < PEAL_FPU_WORTH && !peal_fpu_is_saved()) ||
	    !irq_fpu_usable())
		return false;
	kernel_fpu_begin();
	return true;
}

bool peal_fpu_begin_copy(size_t bytes, size_t piece)
{
	return peal_copy_has_vectors && bytes >= PEAL_FPU_COPY_LEAST &&
	       piece <= PEAL_FPU_COPY_MOST && peal_fpu_is_saved() && peal_fpu_begin(bytes);
}

void peal_fpu_leave(void)
{
	kernel_fpu_end();
}

void peal_fpu_copy_inside(void *to, const void *from, size_t n)
{
	if (n >= PEAL_COPY_VECTOR_LEAST)
		peal_copy_avx(to, from, n);
	else
		peal_copy(to, from, n);
}

#define peal_crc_add_fast(crc, bytes, n)	static_call(peal_crc_add_vectors)(crc, bytes, n)
#define peal_crc_copy_fast(crc, to, from, n)	\
	static_call(peal_crc_copy_vectors)(crc, to, from, n)

#else

void peal_crc_init(void)
{
}

bool peal_fpu_begin(size_t bytes)
{
	return false;
}

bool peal_fpu_begin_copy(size_t bytes, size_t piece)
{
	return false;
}

void peal_fpu_leave(void)
{
}

void peal_fpu_copy_inside(void *to, const void *from, size_t n)
{
	peal_copy(to, from, n);
}

/* Not reached, because there is never a section. */
#define peal_crc_add_fast(crc, bytes, n)	(crc)
#define peal_crc_copy_fast(crc, to, from, n)	(crc)

#endif

u32 peal_crc_begin(const __be32 *head, u32 bytes, bool ipv6, bool fpu)
{
	u32 front = ipv6 ? 4 : 8;

	if (fpu)
		return peal_crc_add_fast(0, head, bytes);
	return peal_icrc_add(PEAL_ICRC_FRONT, (const u8 *)head + front, bytes - front);
}

u32 peal_crc_add(u32 crc, const void *bytes, size_t n, bool fpu)
{
	if (fpu && n >= PEAL_CRC_VECTOR_LEAST)
		return peal_crc_add_fast(crc, bytes, n);
	return peal_icrc_add(crc, bytes, n);
}

u32 peal_crc_copy(u32 crc, void *to, const void *from, size_t n, bool fpu)
{
	if (fpu && n >= PEAL_CRC_VECTOR_LEAST)
		return peal_crc_copy_fast(crc, to, from, n);
	peal_copy(to, from, n);
	return peal_icrc_add(crc, to, n);
}

/* Code without vector registers has no loop that copies, so there one pass over all is cheaper. */
u32 peal_crc_gather_pieces(u32 crc, void *to, u32 front, struct peal_crc_source *from, u64 bytes,
			   bool fpu)
{
	const void *begin = to - front;
	u64 all = front + bytes, n;

	if (fpu && front)
		crc = peal_crc_add(crc, begin, front, fpu);
	for (; bytes; bytes -= n, to += n) {
		if (!from->left)
			peal_crc_next_piece(from);
		n = min(bytes, from->left);
		if (fpu)
			crc = peal_crc_copy(crc, to, from->piece, n, fpu);
		else
			peal_copy(to, from->piece, n);
		from->piece += n;
		from->left -= n;
	}
	return fpu ? crc : peal_icrc_add(crc, begin, all);
}
