// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include <linux/bitops.h>
#include <linux/compiler.h>
#include <linux/kernel.h>
#include <linux/log2.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/slab.h>
#ifdef CONFIG_X86
#include <asm/cpufeature.h>
#endif

#include "object/extents.h"

/* A granule of 2^62 bytes holds any region, and a 64-bit shift by 62 is defined. */
#define PEAL_EXTENTS_WHOLE	62

/**
 * peal_extents_measure() - first pass: note the length and the end of one run
 * @x: zeroed before the first call
 * @base: kernel address of the run; page aligned
 * @bytes: length of the run; a multiple of the page size
 */
void peal_extents_measure(struct peal_extents *x, void *base, u64 bytes)
{
	if (x->bytes && base != x->run_end) {
		if (!x->split)
			x->first = x->bytes;
		x->spans |= x->bytes - x->first;
		x->split = true;
	}
	x->run_end = base + bytes;
	x->bytes += bytes;
}

/**
 * peal_extents_alloc() - between the passes: choose the granule size and allocate the table
 *
 * Return: 0 or -ENOMEM.
 */
int peal_extents_alloc(struct peal_extents *x)
{
	u64 size;

	/*
	 * Two runs have one boundary, which any granule size fits. Use the smallest size that
	 * gives each run one granule.
	 */
	if (!x->split)
		x->shift = PEAL_EXTENTS_WHOLE;
	else if (x->spans)
		x->shift = __ffs64(x->spans);
	else
		x->shift = ilog2(roundup_pow_of_two(max(x->first, x->bytes - x->first)));
	size = 1ULL << x->shift;
	x->phase = x->split ? (size - (x->first & (size - 1))) & (size - 1) : 0;
	x->count = (x->phase + x->bytes + size - 1) >> x->shift;
	if (x->count == 1) {
		x->granule = &x->single;
		return 0;
	}
	x->granule = kvcalloc(x->count, sizeof(*x->granule),
			      GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	return x->granule ? 0 : -ENOMEM;
}

/* Second pass: fill in the same runs in the same order as in the first pass. */
void peal_extents_fill(struct peal_extents *x, void *base, u64 bytes)
{
	u64 begin = x->phase + x->filled;
	u32 last = (begin + bytes - 1) >> x->shift;
	u32 g;

	for (g = begin >> x->shift; g <= last; g++)
		x->granule[g] = base + (((u64)g << x->shift) - begin);
	x->filled += bytes;
}

void peal_extents_free(struct peal_extents *x)
{
	if (x->granule != &x->single)
		kvfree(x->granule);
	x->granule = NULL;
}

/* @to is free or zeroed, and not in use. @from is free afterwards. */
void peal_extents_move(struct peal_extents *to, struct peal_extents *from)
{
	*to = *from;
	if (from->granule == &from->single)
		to->granule = &to->single;
	from->granule = NULL;
}

/* @list: zeroed. Return: 0 or -ENOMEM. */
int peal_page_list_init(struct peal_page_list *list, u32 max, bool gaps)
{
	list->max = max;
	list->piece = kvcalloc(max, sizeof(*list->piece), GFP_KERNEL);
	if (gaps)
		list->end = kvcalloc(max, sizeof(*list->end), GFP_KERNEL);
	if (list->piece && (list->end || !gaps))
		return 0;
	peal_page_list_free(list);
	return -ENOMEM;
}

void peal_page_list_free(struct peal_page_list *list)
{
	kvfree(list->piece);
	kvfree(list->end);
}

void peal_page_list_clear(struct peal_page_list *list)
{
	list->count = 0;
}

/* Add one page, without gaps. Return: false when the list is full. */
bool peal_page_list_add(struct peal_page_list *list, u64 address)
{
	if (list->count == list->max)
		return false;
	list->piece[list->count++] = (void *)(uintptr_t)address;
	return true;
}

/* Add a piece of any length to a list with gaps. Return: false when the list is full. */
bool peal_page_list_add_piece(struct peal_page_list *list, u64 address, u64 bytes)
{
	u64 begin = list->count ? list->end[list->count - 1] : 0;

	if (list->count == list->max)
		return false;
	list->end[list->count] = begin + bytes;
	list->piece[list->count++] = (void *)(uintptr_t)address;
	return true;
}

/* All pages are added. @page_size: a power of two. */
void peal_page_list_finish(struct peal_page_list *list, u64 iova, u32 page_size)
{
	list->shift = ilog2(page_size);
	list->skip = iova & (page_size - 1);
}

/* Return: how long a region of these pieces can be. */
u64 peal_page_list_bytes(const struct peal_page_list *list)
{
	if (!list->count)
		return 0;
	if (list->end)
		return list->end[list->count - 1];
	return ((u64)list->count << list->shift) - list->skip;
}

/**
 * peal_page_list_at() - find the address of the byte at @offset
 * @offset: bytes from the start of the region; below peal_page_list_bytes()
 * @bytes: in: how many bytes the caller wants (> 0); out: how many of them are contiguous
 */
void *peal_page_list_at(const struct peal_page_list *list, u64 offset, u64 *bytes)
{
	u64 at = list->skip + offset, size, inside, have;
	u32 first = 0, last = list->count - 1, middle, i;
	void *begin;

	if (list->end) {
		/* Find the first piece that ends behind the offset. */
		while (first < last) {
			middle = first + (last - first) / 2;
			if (offset < list->end[middle])
				last = middle;
			else
				first = middle + 1;
		}
		*bytes = min(*bytes, list->end[first] - offset);
		return list->piece[first] + (offset - (first ? list->end[first - 1] : 0));
	}
	size = 1ULL << list->shift;
	inside = at & (size - 1);
	have = size - inside;
	i = at >> list->shift;
	begin = list->piece[i];
	while (have < *bytes && ++i < list->count && list->piece[i] == list->piece[i - 1] + size)
		have += size;
	*bytes = min(*bytes, have);
	return begin + inside;
}

/*
 * The copy. There are two ways to copy. A string instruction is the fastest plain copy on current
 * x86 CPUs. A loop of eight-byte moves replaces it in the two cases where it is slow:
 *  - the copy is too short to pay for the start of the string instruction;
 *  - the destination is less than 64 bytes above the source modulo a page. AMD CPUs then copy up
 *    to 25 times slower (glibc bug 30994).
 */

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
