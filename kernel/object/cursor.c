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

/* No entry is looked up yet. */
static __always_inline void peal_cursor_begin_list(struct peal_cursor *cursor,
						   const struct peal_sge *sge, u32 num_sge)
{
	cursor->sge = sge;
	cursor->num_sge = num_sge;
	cursor->at = 0;
	cursor->offset = 0;
	cursor->counted = 0;
	cursor->inline_data = NULL;
}

/* Look up the key of entry @i. On failure the uses of all entries are ended. */
static __always_inline enum peal_reason peal_cursor_look_up(struct peal_cursor *cursor,
							    struct peal_table *table,
							    const struct ib_pd *pd, u32 i,
							    bool write)
{
	enum peal_reason reason = peal_mr_local(table, pd, &cursor->sge[i], write,
						&cursor->target[i]);

	if (unlikely(reason))
		peal_cursor_end(cursor);
	else if (unlikely(peal_target_is_counted(&cursor->target[i])))
		cursor->counted |= 1U << i;
	return reason;
}

/**
 * peal_cursor_local() - begin a cursor over a scatter-gather list and check every lkey
 * @write: whether the list receives data
 *
 * An entry of length 0 is not looked up, because it names no byte.
 *
 * Return: PEAL_REASON_NONE or the LKEY reason of the first bad entry.
 */
enum peal_reason peal_cursor_local(struct peal_cursor *cursor, struct peal_table *table,
				   const struct ib_pd *pd, const struct peal_sge *sge,
				   u32 num_sge, bool write)
{
	enum peal_reason reason;
	u32 i;

	peal_cursor_begin_list(cursor, sge, num_sge);
	for (i = 0; i < num_sge; i++) {
		if (!sge[i].length)
			continue;
		reason = peal_cursor_look_up(cursor, table, pd, i, write);
		if (unlikely(reason))
			return reason;
	}
	return PEAL_REASON_NONE;
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
				  u32 num_sge, bool write, u64 offset, u64 bytes)
{
	u64 end = 0;
	enum peal_reason reason;
	u32 i;

	peal_cursor_begin_list(cursor, sge, num_sge);
	for (i = 0; i < num_sge && end < offset + bytes; i++) {
		end += sge[i].length;
		if (!sge[i].length || end <= offset)
			continue;
		reason = peal_cursor_look_up(cursor, table, pd, i, write);
		if (unlikely(reason))
			return reason;
	}
	peal_cursor_skip(cursor, offset);
	return PEAL_REASON_NONE;
}

static u64 peal_cursor_left(const struct peal_cursor *cursor)
{
	u64 length = cursor->sge ? cursor->sge[cursor->at].length : cursor->bytes;

	return length - cursor->offset;
}

/* Step over finished and empty entries to the one that holds the next byte. */
static void peal_cursor_next_entry(struct peal_cursor *cursor)
{
	while (cursor->at + 1 < cursor->num_sge && !peal_cursor_left(cursor)) {
		cursor->at++;
		cursor->offset = 0;
	}
}

/* Skip @bytes that were already copied. The cursor must have that many left. */
void peal_cursor_skip(struct peal_cursor *cursor, u64 bytes)
{
	peal_cursor_next_entry(cursor);
	while (bytes) {
		u64 step = min(bytes, peal_cursor_left(cursor));

		cursor->offset += step;
		bytes -= step;
		peal_cursor_next_entry(cursor);
	}
}

enum peal_odp_state peal_cursor_look_passing(const struct peal_cursor *cursor, u64 skip, u64 bytes,
					     bool write)
{
	u64 offset = cursor->offset + skip;
	enum peal_odp_state state;
	u32 i;

	for (i = cursor->at; i < cursor->num_sge && bytes; i++) {
		u64 length = cursor->sge ? cursor->sge[i].length : cursor->bytes;
		u64 step = offset < length ? min(bytes, length - offset) : 0;

		if (step && cursor->counted & 1U << i) {
			state = peal_target_look(&cursor->target[i], offset, step, write);
			if (state != PEAL_ODP_PRESENT)
				return state;
		}
		bytes -= step;
		offset -= min(offset, length);
	}
	return PEAL_ODP_PRESENT;
}

/* Return: the address of the next byte. Limits *bytes to the contiguous bytes from there. */
void *peal_cursor_here(const struct peal_cursor *cursor, u64 *bytes)
{
	*bytes = min(*bytes, peal_cursor_left(cursor));
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

	peal_cursor_next_entry(dst);
	peal_cursor_next_entry(src);
	while (bytes) {
		u64 piece = bytes;
		void *from = peal_cursor_here(src, &piece);
		void *to = peal_cursor_here(dst, &piece);

		peal_copy(to, from, piece);
		pieces++;
		/* The piece is within one entry of each side. */
		src->offset += piece;
		dst->offset += piece;
		bytes -= piece;
		if (likely(!bytes))
			break;
		peal_cursor_next_entry(dst);
		peal_cursor_next_entry(src);
	}
	return pieces;
}
