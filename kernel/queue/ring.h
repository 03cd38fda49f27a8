/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The kernel half of the rings. The program's half is userspace/ring/.
 *
 * Owns: the kernel's private indices, and the order in which shared words are read and written.
 * Only this file and wqe.c read a program's ring.
 * Does not know: the meaning of a WQE, the senders that wait, locks (the callers hold them).
 *
 *	program				kernel
 *	fill slot			producer = load acquire A
 *	producer = store release A	copy slot, execute
 *
 *	cqe = load acquire D (phase)	fill CQE
 *	read CQE			phase = store release D
 *	consumer = store release F	consumer = load acquire F (only when full)
 *
 * Without A the kernel could copy a slot that the program has announced but not yet filled.
 * Without D the program could read the old bytes of a CQE.
 * Without F the kernel could overwrite a CQE that the program still reads.
 * C and E are store-load pairs; see peal_ring_want_kick() and peal_cq_ring_armed().
 *
 * The kernel trusts no word that it reads here, because the program can store any value at any
 * time. A wrong producer puts the queue pair into error. A wrong consumer makes the program lose
 * its own CQEs. A wrong arm word makes the kernel raise an event too many or too few.
 */
#ifndef PEAL_RING_H
#define PEAL_RING_H

#include <linux/compiler.h>
#include <linux/errno.h>
#include <linux/string.h>
#include <linux/types.h>
#include <asm/barrier.h>

#include <rdma/peal-abi.h>

/* A send or receive ring. Only `next` changes. */
struct peal_ring {
	struct peal_ring_ctl *ctl;	/* shared with the program */
	void *slots;			/* shared with the program */
	u32 mask;			/* entries - 1 */
	u32 stride;			/* bytes from slot to slot */
	u32 next;			/* index of the next WQE to take; free-running */
};

/* Return: the number of WQEs to take, or -EOVERFLOW if producer is beyond the ring. */
static inline int peal_ring_pending(const struct peal_ring *ring)
{
	u32 n = smp_load_acquire(&ring->ctl->producer) - ring->next;	/* A */

	return likely(n <= ring->mask + 1) ? (int)n : -EOVERFLOW;
}

static inline const void *peal_ring_slot(const struct peal_ring *ring)
{
	return ring->slots + (size_t)(ring->next & ring->mask) * ring->stride;
}

static inline void peal_ring_take(struct peal_ring *ring)
{
	ring->next++;
}

/* The caller stores a WQE at the index before the next one. */
static inline void peal_ring_untake(struct peal_ring *ring)
{
	ring->next--;
}

/* Show the program how many WQEs were taken. This is informative, except after RESET. */
static inline void peal_ring_show(const struct peal_ring *ring)
{
	WRITE_ONCE(ring->ctl->consumer, ring->next);
}

/*
 * Forget all posted WQEs, because the queue pair was reset. The program continues at the consumer
 * index that is stored here.
 */
static inline void peal_ring_discard(struct peal_ring *ring)
{
	ring->next = READ_ONCE(ring->ctl->producer);
	peal_ring_show(ring);
}

/*
 * Ask the program to kick on each post, or stop asking. Barrier C makes the flag visible before
 * the caller loads the producer index again. The program's half is between its store of producer
 * and its load of flags. Either the program sees the flag and kicks, or the caller sees the new
 * WQE.
 */
static inline void peal_ring_want_kick(struct peal_ring *ring, bool want)
{
	WRITE_ONCE(ring->ctl->flags, want ? PEAL_RING_WANTS_KICK : 0);
	if (want)
		smp_mb();	/* C */
}

/* A completion ring. Only the indices change. */
struct peal_cq_ring {
	struct peal_cq_ctl *ctl;	/* shared with the program */
	struct peal_cqe *cqe;		/* shared with the program */
	u32 mask;			/* entries - 1 */
	u32 next;			/* index of the next CQE to write; free-running */
	u32 consumer;			/* the program's index when last loaded */
	u32 fired;			/* arm value of the last event raised */
};

static inline bool peal_cq_ring_full(struct peal_cq_ring *ring)
{
	if (likely(ring->next - ring->consumer <= ring->mask))
		return false;
	ring->consumer = smp_load_acquire(&ring->ctl->consumer);	/* F */
	return ring->next - ring->consumer > ring->mask;
}

/* The phase bit of a CQE at @index: 1 on the first lap, then alternating. */
static inline u8 peal_cq_ring_phase(const struct peal_cq_ring *ring, u32 index)
{
	return index & (ring->mask + 1) ? 0 : PEAL_CQE_PHASE;
}

/* Return: the index of the first CQE that the program has not consumed. It may be any value. */
static inline u32 peal_cq_ring_consumed(const struct peal_cq_ring *ring)
{
	return smp_load_acquire(&ring->ctl->consumer);	/* F */
}

/* Make the CQE at @index look unwritten. */
static inline void peal_cq_ring_invalidate(const struct peal_cq_ring *ring, u32 index)
{
	ring->cqe[index & ring->mask].flags = peal_cq_ring_phase(ring, index) ^ PEAL_CQE_PHASE;
}

/*
 * Copy the CQE at @index to a ring of another size, which the program does not read yet. The
 * phase differs there. The contents are the program's, so they may be any bytes.
 */
static inline void peal_cq_ring_copy(const struct peal_cq_ring *to,
				     const struct peal_cq_ring *from, u32 index)
{
	struct peal_cqe *slot = &to->cqe[index & to->mask];

	memcpy(slot, &from->cqe[index & from->mask], sizeof(*slot));
	slot->flags = (slot->flags & ~PEAL_CQE_PHASE) | peal_cq_ring_phase(to, index);
}

/* For kernel consumers. Return: whether the CQE at @index has been written. */
static inline bool peal_cq_ring_peek(const struct peal_cq_ring *ring, u32 index)
{
	u8 flags = smp_load_acquire(&ring->cqe[index & ring->mask].flags);	/* D */

	return (flags & PEAL_CQE_PHASE) == peal_cq_ring_phase(ring, index);
}

/* The caller has checked that the ring is not full. */
static inline void peal_cq_ring_push(struct peal_cq_ring *ring, const struct peal_cqe *cqe)
{
	struct peal_cqe *slot = &ring->cqe[ring->next & ring->mask];
	u8 flags = cqe->flags | peal_cq_ring_phase(ring, ring->next);

	memcpy(slot, cqe, offsetof(struct peal_cqe, flags));
	smp_store_release(&slot->flags, flags);		/* D */
	ring->next++;
}

/*
 * Return: the arm value whose event has not been raised yet, or 0. Barrier E makes the CQEs visible
 * before the kernel loads arm. The program's half is between its store of arm and its next poll.
 * Either the program sees the CQE, or the kernel sees that the queue is armed.
 */
static inline u32 peal_cq_ring_armed(const struct peal_cq_ring *ring)
{
	u32 arm;

	smp_mb();	/* E */
	arm = READ_ONCE(ring->ctl->arm);
	return arm == ring->fired ? 0 : arm;
}

/*
 * Note that @arm gets its event, which the caller raises next. The kernel decides by its private
 * copy. The shared word only lets the program see whether its last arming is still outstanding.
 */
static inline void peal_cq_ring_fire(struct peal_cq_ring *ring, u32 arm)
{
	WRITE_ONCE(ring->fired, arm);
	WRITE_ONCE(ring->ctl->fired, arm);
}

#endif
