// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See cursor.h.
 */
#include <linux/bitops.h>
#include <linux/minmax.h>

#include "object/extents.h"
#include "object/cursor.h"

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

/*
 * Copy @bytes. The caller has compared the lengths, so both sides have at least that many left. A
 * cursor may be left at the end of an entry. All functions but peal_cursor_here() step over it.
 *
 * Return: the number of contiguous pieces that were copied.
 */
u32 peal_cursor_copy(struct peal_cursor *dst, struct peal_cursor *src, u64 bytes)
{
	u32 pieces = 0;

	while (bytes) {
		u64 piece = bytes;
		void *from, *to;

		peal_cursor_next_entry(dst);
		peal_cursor_next_entry(src);
		from = peal_cursor_here(src, &piece);
		to = peal_cursor_here(dst, &piece);
		peal_copy(to, from, piece);
		pieces++;
		/* The piece is within one entry of each side. */
		src->offset += piece;
		src->left -= piece;
		dst->offset += piece;
		dst->left -= piece;
		bytes -= piece;
	}
	return pieces;
}
