// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See copy.h.
 *
 * There are two ways to copy. A string instruction is the fastest plain copy on current x86
 * CPUs. A loop of eight-byte moves replaces it in the two cases where it is slow:
 *  - the copy is too short to pay for the start of the string instruction;
 *  - the destination is less than 64 bytes above the source modulo a page. AMD CPUs then copy up
 *    to 25 times slower (glibc bug 30994).
 */
#include <linux/compiler.h>
#ifdef CONFIG_X86
#include <asm/cpufeature.h>
#endif

#include "mem/copy.h"

#define PEAL_COPY_STRING_MIN	512

/*
 * Packed, because payload may have any alignment. READ_ONCE() and WRITE_ONCE() on it keep the
 * order of the stores and keep the compiler from calling memcpy().
 */
struct peal_word {
	u64 value;
} __packed;

static __always_inline void peal_copy_word(void *dst, const void *src)
{
	const struct peal_word *from = src;
	struct peal_word *to = dst;

	WRITE_ONCE(to->value, READ_ONCE(from->value));
}

static void peal_copy_bytes(u8 *dst, const u8 *src, size_t bytes)
{
	size_t i;

	for (i = 0; i < bytes; i++)
		WRITE_ONCE(dst[i], READ_ONCE(src[i]));
}

static void peal_copy_words(void *dst, const void *src, size_t bytes)
{
	for (; bytes >= 64; bytes -= 64, dst += 64, src += 64) {
		peal_copy_word(dst, src);
		peal_copy_word(dst + 8, src + 8);
		peal_copy_word(dst + 16, src + 16);
		peal_copy_word(dst + 24, src + 24);
		peal_copy_word(dst + 32, src + 32);
		peal_copy_word(dst + 40, src + 40);
		peal_copy_word(dst + 48, src + 48);
		peal_copy_word(dst + 56, src + 56);
	}
	for (; bytes >= 8; bytes -= 8, dst += 8, src += 8)
		peal_copy_word(dst, src);
	peal_copy_bytes(dst, src, bytes);
}

#ifdef CONFIG_X86
static bool peal_copy_string(void *dst, const void *src, size_t bytes)
{
	unsigned long apart = (unsigned long)(dst - src) & 4095;
	size_t words = bytes / 8;
	size_t rest = bytes % 8;

	if (bytes < PEAL_COPY_STRING_MIN || (apart && apart < 64))
		return false;
	if (cpu_feature_enabled(X86_FEATURE_ERMS)) {
		asm volatile("rep movsb" : "+D" (dst), "+S" (src), "+c" (bytes) : : "memory");
		return true;
	}
	if (!cpu_feature_enabled(X86_FEATURE_REP_GOOD))
		return false;
	asm volatile("rep movsq" : "+D" (dst), "+S" (src), "+c" (words) : : "memory");
	peal_copy_bytes(dst, src, rest);
	return true;
}
#else
static bool peal_copy_string(void *dst, const void *src, size_t bytes)
{
	return false;
}
#endif

/**
 * peal_copy() - copy @bytes bytes and store the last eight bytes last
 * @dst: destination, any alignment
 * @src: source, any alignment
 * @bytes: the number of bytes; 0 is allowed
 *
 * Copying eight aligned bytes is one load and one store.
 */
void peal_copy(void *dst, const void *src, size_t bytes)
{
	size_t bulk = bytes - 8;

	if (bytes < 8) {
		peal_copy_bytes(dst, src, bytes);
		return;
	}
	if (!peal_copy_string(dst, src, bulk))
		peal_copy_words(dst, src, bulk);
	/* Order the tail after the bulk, because string stores are not ordered by themselves. */
	smp_wmb();
	peal_copy_word(dst + bulk, src + bulk);
}
