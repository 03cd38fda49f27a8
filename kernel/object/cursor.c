// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See cursor.h.
 */
#include <linux/bitops.h>
#include <linux/compiler.h>
#include <linux/minmax.h>
#ifdef CONFIG_X86
#include <asm/cpufeature.h>
#endif

#include "object/cursor.h"

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

static __always_inline void peal_copy_four(void *dst, const void *src)
{
	peal_copy_word(dst, src);
	peal_copy_word(dst + 8, src + 8);
	peal_copy_word(dst + 16, src + 16);
	peal_copy_word(dst + 24, src + 24);
}

static void peal_copy_words(void *dst, const void *src, size_t bytes)
{
	for (; bytes >= 64; bytes -= 64, dst += 64, src += 64) {
		peal_copy_four(dst, src);
		peal_copy_four(dst + 32, src + 32);
	}
	if (bytes & 32) {
		peal_copy_four(dst, src);
		dst += 32;
		src += 32;
	}
	if (bytes & 16) {
		peal_copy_word(dst, src);
		peal_copy_word(dst + 8, src + 8);
		dst += 16;
		src += 16;
	}
	if (bytes & 8) {
		peal_copy_word(dst, src);
		dst += 8;
		src += 8;
	}
	peal_copy_bytes(dst, src, bytes & 7);
}

#ifdef CONFIG_X86
/* Does a string instruction copy a long piece from @src to @dst faster than a loop? */
static __always_inline bool peal_copy_string_pays(const void *dst, const void *src)
{
	unsigned long below = (unsigned long)(src - dst) & 4095;

	return below <= 4096 - 64 && (cpu_feature_enabled(X86_FEATURE_ERMS) ||
				      cpu_feature_enabled(X86_FEATURE_REP_GOOD));
}

static __always_inline void peal_copy_string(void *dst, const void *src, size_t bytes)
{
	size_t words = bytes / 8;

	if (cpu_feature_enabled(X86_FEATURE_ERMS)) {
		asm volatile("rep movsb" : "+D" (dst), "+S" (src), "+c" (bytes) : : "memory");
		return;
	}
	asm volatile("rep movsq" : "+D" (dst), "+S" (src), "+c" (words) : : "memory");
	if (unlikely(bytes % 8))
		peal_copy_bytes(dst, src, bytes % 8);
}
#else
static bool peal_copy_string_pays(const void *dst, const void *src)
{
	return false;
}

static void peal_copy_string(void *dst, const void *src, size_t bytes)
{
	peal_copy_words(dst, src, bytes);
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
inline void peal_copy(void *dst, const void *src, size_t bytes)
{
	size_t bulk = bytes - 8;

	if (bytes < 8) {
		peal_copy_bytes(dst, src, bytes);
		return;
	}
	if (bulk >= PEAL_COPY_STRING_MIN && peal_copy_string_pays(dst, src))
		peal_copy_string(dst, src, bulk);
	else
		peal_copy_words(dst, src, bulk);
	/* Order the tail after the bulk, because string stores are not ordered by themselves. */
	smp_wmb();
	peal_copy_word(dst + bulk, src + bulk);
}

void peal_cursor_end_counted(struct peal_cursor *cursor)
{
	for (; cursor->counted; cursor->counted &= cursor->counted - 1)
		peal_target_end(&cursor->target[__ffs(cursor->counted)]);
}

/* Step over finished and empty entries to the one that holds the next byte. */
static inline void peal_cursor_next_entry(struct peal_cursor *cursor)
{
	while (unlikely(!cursor->left) && cursor->at + 1 < cursor->num_sge) {
		cursor->at++;
		cursor->offset = 0;
		cursor->left = cursor->sge[cursor->at].length;
	}
}

/**
 * peal_cursor_part() - begin a cursor over a part of a scatter-gather list
 * @offset: where the part begins in the list, in bytes; the list is long enough
 * @bytes: the length of the part
 *
 * This is peal_cursor_local(), but only entries with bytes of the part are looked up, and the
 * cursor begins at @offset.
 */
enum peal_reason peal_cursor_part(struct peal_cursor *cursor, struct peal_table *table,
				  const struct ib_pd *pd, const struct peal_sge *sge,
				  u32 num_sge, enum peal_key_use use, u64 offset, u64 bytes)
{
	u64 end = 0;
	enum peal_reason reason;
	u32 i;

	peal_cursor_local(cursor, table, pd, sge, 0, use);
	cursor->num_sge = num_sge;
	cursor->left = num_sge ? sge[0].length : 0;
	for (i = 0; i < num_sge && end < offset + bytes; i++) {
		end += sge[i].length;
		if (!sge[i].length || end <= offset)
			continue;
		reason = peal_mr_local(table, pd, &sge[i], use, &cursor->target[i]);
		if (unlikely(reason)) {
			peal_cursor_end(cursor);
			return reason;
		}
		if (unlikely(peal_target_is_counted(&cursor->target[i])))
			cursor->counted |= 1U << i;
	}
	if (offset)
		peal_cursor_skip(cursor, offset);
	return PEAL_REASON_NONE;
}

/* Skip @bytes that were already copied. The cursor must have that many left. */
void peal_cursor_skip(struct peal_cursor *cursor, u64 bytes)
{
	peal_cursor_next_entry(cursor);
	while (bytes) {
		u64 step = min(bytes, cursor->left);

		cursor->offset += step;
		cursor->left -= step;
		bytes -= step;
		peal_cursor_next_entry(cursor);
	}
}

enum peal_odp_state peal_cursor_look_passing(const struct peal_cursor *cursor, u64 skip, u64 bytes,
					     bool write)
{
	u64 offset = cursor->offset, left = cursor->left;
	enum peal_odp_state state;
	u32 i = cursor->at;

	while (bytes) {
		u64 past = min(skip, left);
		u64 step = min(bytes, left - past);

		if (step && cursor->counted & 1U << i) {
			state = peal_target_look(&cursor->target[i], offset + past, step, write);
			if (state != PEAL_ODP_PRESENT)
				return state;
		}
		skip -= past;
		bytes -= step;
		if (++i >= cursor->num_sge)
			break;
		offset = 0;
		left = cursor->sge[i].length;
	}
	return PEAL_ODP_PRESENT;
}

/* Return: the address of the next byte. Limits *bytes to the contiguous bytes from there. */
inline void *peal_cursor_here(const struct peal_cursor *cursor, u64 *bytes)
{
	*bytes = min(*bytes, cursor->left);
	if (cursor->inline_data)
		return (void *)cursor->inline_data + cursor->offset;
	return peal_target_at(&cursor->target[cursor->at], cursor->offset, bytes);
}

static __always_inline void peal_cursor_step(struct peal_cursor *cursor, u64 bytes)
{
	cursor->offset += bytes;
	cursor->left -= bytes;
}

/*
 * Take the next contiguous bytes, at most *bytes of them, and set *bytes to their number. The
 * cursor must have *bytes left. Return: their address.
 */
void *peal_cursor_take(struct peal_cursor *cursor, u64 *bytes)
{
	void *here;

	peal_cursor_next_entry(cursor);
	here = peal_cursor_here(cursor, bytes);
	peal_cursor_step(cursor, *bytes);
	return here;
}

/* Set @extent to the next @bytes, which are in one entry. Return: as peal_target_begin(). */
static __always_inline bool peal_cursor_begin(const struct peal_cursor *cursor, u64 bytes,
					      struct peal_extent *extent)
{
	if (!cursor->inline_data)
		return peal_target_begin(&cursor->target[cursor->at], cursor->offset, extent);
	*extent = (struct peal_extent){
		.at = (void *)cursor->inline_data + cursor->offset, .left = bytes,
	};
	return true;
}

static __always_inline void peal_extent_advance(struct peal_extent *extent, u64 done)
{
	extent->at += done;
	extent->left -= done;
	if (!extent->left) {
		extent->at = *extent->next++;
		extent->left = extent->size;
	}
}

/*
 * Copy @bytes (> 0) from one table of extents to another. Both have that many. Granules that happen
 * to be contiguous are copied one by one, because joining them was not faster (64 KiB in pieces of
 * 4 KiB and in one, with rep movsb on a Xeon: 1.73 and 1.71 us).
 *
 * Return: the number of pieces that were copied.
 */
u32 peal_extents_copy(struct peal_extent to, struct peal_extent from, u64 bytes)
{
	/* Granules begin at pages, so the answer is the same for all pieces. */
	bool string = peal_copy_string_pays(to.at, from.at);
	u64 piece = min(from.left, to.left);
	u32 pieces = 1;

	for (; piece < bytes; bytes -= piece, pieces++, piece = min(from.left, to.left)) {
		if (likely(string))
			peal_copy_string(to.at, from.at, piece);
		else
			peal_copy(to.at, from.at, piece);
		peal_extent_advance(&from, piece);
		peal_extent_advance(&to, piece);
	}
	peal_copy(to.at, from.at, bytes);
	return pieces;
}

/*
 * At least one side has no table of extents. Copy at most @bytes, up to the first end of contiguous
 * memory. Return: how many bytes were copied.
 */
static noinline u64 peal_cursor_copy_piece(struct peal_cursor *dst, struct peal_cursor *src,
					   u64 bytes)
{
	void *from = peal_cursor_here(src, &bytes);
	void *to = peal_cursor_here(dst, &bytes);

	peal_copy(to, from, bytes);
	peal_cursor_step(src, bytes);
	peal_cursor_step(dst, bytes);
	return bytes;
}

/*
 * Copy @bytes. The caller has compared the lengths, so both sides have at least that many left. A
 * cursor may be left at the end of an entry. All functions but peal_cursor_here() step over it.
 *
 * Return: the number of contiguous pieces that were copied.
 */
u32 peal_cursor_copy(struct peal_cursor *dst, struct peal_cursor *src, u64 bytes)
{
	struct peal_extent from, to;
	u32 pieces = 0;
	u64 span;

	while (bytes) {
		peal_cursor_next_entry(dst);
		peal_cursor_next_entry(src);
		/* The span is within one entry of each side. */
		span = min(bytes, min(src->left, dst->left));
		if (unlikely(!peal_cursor_begin(src, span, &from) ||
			     !peal_cursor_begin(dst, span, &to))) {
			bytes -= peal_cursor_copy_piece(dst, src, span);
			pieces++;
			continue;
		}
		peal_cursor_step(src, span);
		peal_cursor_step(dst, span);
		bytes -= span;
		pieces += peal_extents_copy(to, from, span);
	}
	return pieces;
}
