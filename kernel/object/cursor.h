/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A cursor walks the bytes of one side of a copy: a scatter-gather list, a remote range, or inline
 * data.
 *
 * Owns: the check of every local key before the first byte is copied, and the steps from entry to
 * entry and from extent to extent.
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
	u64 left;			/* bytes of the current entry from there */
	u32 counted;			/* bit i: the use of target[i] must be ended */
	const void *inline_data;	/* they are contiguous, here; NULL: they are in target[] */
	struct peal_target target[PEAL_MAX_SGE];	/* by entry */
};

/*
 * Every copy of payload ends with peal_copy(), because some programs poll the last byte of a
 * message (ib_write_lat does). So the last eight bytes are stored by one plain store after all
 * others. The others are stored in ascending order, except within one string instruction.
 */
void peal_copy(void *dst, const void *src, size_t bytes);
u32 peal_extents_copy(struct peal_extent to, struct peal_extent from, u64 bytes);

void peal_cursor_end_counted(struct peal_cursor *cursor);
enum peal_reason peal_cursor_part(struct peal_cursor *cursor, struct peal_table *table,
				  const struct ib_pd *pd, const struct peal_sge *sge,
				  u32 num_sge, enum peal_key_use use, u64 offset, u64 bytes);
void peal_cursor_skip(struct peal_cursor *cursor, u64 bytes);
u32 peal_cursor_copy(struct peal_cursor *dst, struct peal_cursor *src, u64 bytes);
void *peal_cursor_here(const struct peal_cursor *cursor, u64 *bytes);
void *peal_cursor_take(struct peal_cursor *cursor, u64 *bytes);
enum peal_odp_state peal_cursor_look_passing(const struct peal_cursor *cursor, u64 skip, u64 bytes,
					     bool write);

/* The bytes are not used any more. May be called twice. */
static inline void peal_cursor_end(struct peal_cursor *cursor)
{
	if (unlikely(cursor->counted))
		peal_cursor_end_counted(cursor);
}

/* Begin a cursor over contiguous bytes: inline data, or memory whose address is known. */
static inline void peal_cursor_inline(struct peal_cursor *cursor, const void *data, u64 bytes)
{
	cursor->sge = NULL;
	cursor->num_sge = 1;
	cursor->at = 0;
	cursor->offset = 0;
	cursor->left = bytes;
	cursor->counted = 0;
	cursor->inline_data = data;
}

/**
 * peal_cursor_local() - begin a cursor over a scatter-gather list and check every lkey
 *
 * An entry of length 0 is not looked up, because it names no byte.
 *
 * Return: PEAL_REASON_NONE or the LKEY reason of the first bad entry.
 */
static __always_inline enum peal_reason
peal_cursor_local(struct peal_cursor *cursor, struct peal_table *table, const struct ib_pd *pd,
		  const struct peal_sge *sge, u32 num_sge, enum peal_key_use use)
{
	enum peal_reason reason;
	u32 i;

	cursor->sge = sge;
	cursor->num_sge = num_sge;
	cursor->at = 0;
	cursor->offset = 0;
	cursor->left = num_sge ? sge[0].length : 0;
	cursor->counted = 0;
	cursor->inline_data = NULL;
	for (i = 0; i < num_sge; i++) {
		if (!sge[i].length)
			continue;
		reason = peal_mr_local(table, pd, &sge[i], use, &cursor->target[i]);
		if (unlikely(reason)) {
			peal_cursor_end(cursor);
			return reason;
		}
		if (unlikely(peal_target_is_counted(&cursor->target[i])))
			cursor->counted |= 1U << i;
	}
	return PEAL_REASON_NONE;
}

/* So few bytes are mostly contiguous, because no page is smaller. */
#define PEAL_CURSOR_FEW		4096

/**
 * peal_cursor_find() - peal_cursor_part(), faster for a few contiguous bytes of one entry
 * @last: remembers the region. Only the caller uses it, under a lock
 */
static __always_inline enum peal_reason
peal_cursor_find(struct peal_cursor *cursor, struct peal_table *table, struct peal_mr_lookup *last,
		 const struct ib_pd *pd, const struct peal_sge *sge, u32 num_sge,
		 enum peal_key_use use, u64 offset, u64 bytes)
{
	u64 contiguous = bytes;
	const void *here;

	if (num_sge == 1 && bytes && bytes <= PEAL_CURSOR_FEW) {
		here = peal_mr_present(table, last, pd, sge->lkey, sge->addr + offset,
				       sge->length - offset,
				       use == PEAL_GATHER ? 0 : IB_ACCESS_LOCAL_WRITE, &contiguous);
		if (likely(here && contiguous == bytes)) {
			peal_cursor_inline(cursor, here, bytes);
			return PEAL_REASON_NONE;
		}
	}
	return peal_cursor_part(cursor, table, pd, sge, num_sge, use, offset, bytes);
}

/**
 * peal_cursor_remote() - check whether a request may use its remote range, and begin a cursor there
 *
 * The parameters are those of peal_rkey_check(). A request for no bytes has no key to check.
 *
 * Return: PEAL_REASON_NONE or an RKEY reason.
 */
static __always_inline enum peal_reason
peal_cursor_remote(struct peal_cursor *cursor, struct peal_table *table, const struct ib_pd *pd,
		   u32 qpn, const struct peal_wqe *wqe, int access)
{
	struct peal_target *target = &cursor->target[0];
	enum peal_reason reason;

	peal_cursor_inline(cursor, NULL, wqe->length);
	if (!wqe->length)
		return PEAL_REASON_NONE;
	reason = peal_rkey_check(table, pd, qpn, wqe, access, target);
	if (likely(!reason) && unlikely(peal_target_is_counted(target)))
		cursor->counted = 1;
	return reason;
}

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

#endif
