/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * DMA buffers whose exporter moves them when a program asks for it: the commands of
 * /dev/peal_kbuffer.
 *
 * Does not know: what a move does (peal_kbuffer.c).
 */
#ifndef PEAL_KBUFFER_H
#define PEAL_KBUFFER_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define PEAL_KBUFFER_BYTES	(16 * 4096)

/* Flags of a new buffer. */
#define PEAL_KBUFFER_DYNAMIC	0x01	/* only a pin keeps it in its place; otherwise an attachment does */
#define PEAL_KBUFFER_STUBBORN	0x02	/* it cannot be kept in its place: EBUSY */
#define PEAL_KBUFFER_IO		0x04	/* it claims to be I/O memory */
#define PEAL_KBUFFER_NO_VMAP	0x08	/* the kernel cannot map it: EINVAL */
#define PEAL_KBUFFER_NO_ACCESS	0x10	/* the CPU may not access it: EIO */

/* What importers have of a buffer now. */
struct peal_kbuffer_state {
	__s32 fd;		/* of the buffer; the caller sets it */
	__u32 attached;
	__u32 pinned;
	__u32 mapped;		/* by the kernel */
	__u32 accessed;		/* by the CPU */
};

#define PEAL_KBUFFER_MAKE	_IO('B', 1)	/* flags; returns a descriptor */
#define PEAL_KBUFFER_MOVE	_IO('B', 2)	/* the descriptor; EBUSY if the buffer must stay */
#define PEAL_KBUFFER_STATE	_IOWR('B', 3, struct peal_kbuffer_state)

#endif
