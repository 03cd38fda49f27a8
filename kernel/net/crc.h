/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * CRC-32 of packets, alone and while copying, and copies alone, by the fastest code that this
 * machine has.
 *
 * Owns: the choice of that code, and the sections in which it may use the vector registers.
 * Does not know: which bytes of a packet the ICRC covers (proto/packet.h).
 *
 * The CRC so far, @crc, is that of peal_icrc_add(). Any context except hard interrupts. Every
 * function has the argument @fpu, which is what peal_fpu_begin() has returned, or false outside of
 * such a section. The result does not depend on it.
 */
#ifndef PEAL_CRC_H
#define PEAL_CRC_H

#include "object/cursor.h"
#include "proto/packet.h"

void peal_crc_init(void);

/**
 * peal_fpu_begin() - begin a section that may use the vector registers
 * @bytes: how many bytes, of one packet or of a train so far, the section will process
 *
 * Preemption is off inside it, and since Linux 6.14 also softirqs. So it is for one packet or one
 * train, which has at most 64 KiB. The slowest vector code takes less than 10 us for these.
 * Inside it do not sleep, touch memory that may be absent, call the network stack, or begin
 * another section. Its end is peal_fpu_end(), with the value that is returned here.
 *
 * Return: false if the section would cost more than it gains, or if these registers are in use. The
 * functions below then do without them.
 */
bool peal_fpu_begin(size_t bytes);
void peal_fpu_leave(void);

static inline void peal_fpu_end(bool fpu)
{
	if (fpu)
		peal_fpu_leave();
}

/* Begin an ICRC over the bytes of peal_icrc_head(). */
u32 peal_crc_begin(const __be32 *head, u32 bytes, bool ipv6, bool fpu);
/* As peal_icrc_add(). */
u32 peal_crc_add(u32 crc, const void *bytes, size_t n, bool fpu);

/*
 * Copy, and return the CRC of the bytes that have arrived at @to. The source may change meanwhile.
 * The two must not overlap. The stores are in no order, so @to is not memory that a program polls.
 */
u32 peal_crc_copy(u32 crc, void *to, const void *from, size_t n, bool fpu);

/**
 * peal_fpu_begin_copy() - begin such a section for bytes that are only copied
 * @bytes: how many bytes the section will copy
 * @piece: how many of them are contiguous
 *
 * Return: false if peal_copy() takes less time. peal_fpu_end() ends the section.
 */
bool peal_fpu_begin_copy(size_t bytes, size_t piece);
void peal_fpu_copy_inside(void *to, const void *from, size_t n);

/* As peal_copy(). Inside a section of peal_fpu_begin_copy(), @fpu is true. */
static inline void peal_fpu_copy(void *to, const void *from, size_t n, bool fpu)
{
	if (fpu)
		peal_fpu_copy_inside(to, from, n);
	else
		peal_copy(to, from, n);
}

/* Bytes of a cursor that are copied in parts. */
struct peal_crc_source {
	struct peal_cursor *cursor;
	u64 bytes;		/* behind the piece below */
	const u8 *piece;	/* the rest of a contiguous piece */
	u64 left;		/* bytes of it */
};

static inline struct peal_crc_source peal_crc_from(struct peal_cursor *cursor, u64 bytes)
{
	return (struct peal_crc_source){
		.cursor = cursor, .bytes = bytes, .piece = NULL, .left = 0,
	};
}

/* Begin the next contiguous piece. */
static inline void peal_crc_next_piece(struct peal_crc_source *from)
{
	from->left = from->bytes;
	from->piece = (const u8 *)peal_cursor_take(from->cursor, &from->left);
	from->bytes -= from->left;
}

/* peal_crc_gather() for bytes that lie in several pieces, or without a section. */
u32 peal_crc_gather_pieces(u32 crc, void *to, u32 front, struct peal_crc_source *from, u64 bytes,
			   bool fpu);

/* The same with the next @bytes of a source, after the @front bytes that lie in front of @to. */
static inline u32 peal_crc_gather(u32 crc, void *to, u32 front, struct peal_crc_source *from,
				  u64 bytes, bool fpu)
{
	if (!from->left && bytes)
		peal_crc_next_piece(from);
	if (!fpu || bytes > from->left)
		return peal_crc_gather_pieces(crc, to, front, from, bytes, fpu);
	if (front)
		crc = peal_crc_add(crc, (u8 *)to - front, front, fpu);
	if (!bytes)
		return crc;
	crc = peal_crc_copy(crc, to, from->piece, bytes, fpu);
	from->piece += bytes;
	from->left -= bytes;
	return crc;
}

#endif
