/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A cursor walks the bytes of one side of a copy: a scatter-gather list, a remote range, or inline
 * data.
 *
 * Owns: the check of every local key before the first byte is copied, and the steps from entry to
 * entry and from extent to extent.
 * Does not know: directions, messages, queue pairs.
 *
 * A cursor lives on the stack and only inside the epoch, because its targets are valid only there.
 * peal_cursor_end() ends the use of them. Between, the user waits
 * for no queue pair's lock (see mr.h).
 */
#ifndef PEAL_CURSOR_H
#define PEAL_CURSOR_H

#include "object/mr.h"

struct peal_cursor {
	const struct peal_sge *sge;	/* the entries; NULL for a single piece */
	u32 num_sge;
	u32 at;				/* index of the current entry */
	u64 offset;			/* bytes into the current entry */
	u64 bytes;			/* length of the single piece */
	u32 counted;			/* bit i: the use of target[i] must be ended */
	const void *inline_data;	/* NULL: the bytes are in target[] */
	struct peal_target target[PEAL_MAX_SGE];	/* by entry */
};

enum peal_reason peal_cursor_local(struct peal_cursor *cursor, struct peal_table *table,
				   const struct ib_pd *pd, const struct peal_sge *sge,
				   u32 num_sge, bool write);
enum peal_reason peal_cursor_part(struct peal_cursor *cursor, struct peal_table *table,
				  const struct ib_pd *pd, const struct peal_sge *sge,
				  u32 num_sge, bool write, u64 offset, u64 bytes);
/* Return: the reason for a receive WQE, for a @reason that peal_cursor_local() has returned. */
static inline enum peal_reason peal_recv_reason(enum peal_reason reason)
{
	return (enum peal_reason)(reason - PEAL_REASON_LKEY_UNKNOWN +
				  PEAL_REASON_RECV_LKEY_UNKNOWN);
}

void peal_cursor_skip(struct peal_cursor *cursor, u64 bytes);
u32 peal_cursor_copy(struct peal_cursor *dst, struct peal_cursor *src, u64 bytes);
void *peal_cursor_here(const struct peal_cursor *cursor, u64 *bytes);
void peal_cursor_end_counted(struct peal_cursor *cursor);

static inline void peal_cursor_piece(struct peal_cursor *cursor, const void *data, u64 bytes)
{
	cursor->sge = NULL;
	cursor->num_sge = 1;
	cursor->at = 0;
	cursor->offset = 0;
	cursor->bytes = bytes;
	cursor->counted = 0;
	cursor->inline_data = data;
}

/* Begin a cursor over a range that the caller has already checked. */
static inline void peal_cursor_target(struct peal_cursor *cursor,
				      const struct peal_target *target, u64 bytes)
{
	peal_cursor_piece(cursor, NULL, bytes);
	cursor->target[0] = *target;
	cursor->counted = peal_target_is_counted(target);
}

static inline void peal_cursor_inline(struct peal_cursor *cursor, const void *data, u64 bytes)
{
	peal_cursor_piece(cursor, data, bytes);
}

enum peal_odp_state peal_cursor_look_passing(const struct peal_cursor *cursor, u64 skip, u64 bytes,
					     bool write);

/*
 * Are the bytes from @skip bytes after the cursor's present place in memory? Ask before copying
 * them, with the locks held until they are copied.
 */
static inline enum peal_odp_state peal_cursor_look(const struct peal_cursor *cursor, u64 skip,
						   u64 bytes, bool write)
{
	if (likely(!cursor->counted))
		return PEAL_ODP_PRESENT;
	return peal_cursor_look_passing(cursor, skip, bytes, write);
}

/* The bytes are not used any more. May be called twice. */
static inline void peal_cursor_end(struct peal_cursor *cursor)
{
	if (unlikely(cursor->counted))
		peal_cursor_end_counted(cursor);
}

#endif
