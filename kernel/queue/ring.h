/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The kernel half of the rings. Its twin is userspace/ring/.
 *
 * Owns: the kernel's private indices, and the order in which shared words are
 * read and written. Together with wqe.c this is the only place that reads a
 * program's ring.
 * Does not know: what a WQE means, who waits, locks (the callers hold them).
 *
 *	program				kernel
 *	fill slot			producer = load acquire A
 *	producer = store release A	copy slot, execute
 *
 *	cqe = load acquire D (phase)	fill CQE
 *	read CQE			phase = store release D
 *	consumer = store release F	consumer = load acquire F (only when full)
 *
 * A: without it the kernel could copy a slot that the program has announced but
 *    not yet filled. D: without it the program could read a CQE's old bytes.
 * F: without it the kernel could overwrite a CQE that is still being read.
 * C and E, the two store-load pairs, are at peal_ring_want_kick() and
 * peal_cq_ring_armed().
 *
 * Nothing read here is trusted: the program can store any value at any time. A
 * wrong producer puts the queue pair into error, a wrong consumer loses the
 * program its own CQEs, a wrong arm word wakes it for nothing.
 */
#ifndef PEAL_RING_H
#define PEAL_RING_H

#include <linux/compiler.h>
#include <linux/errno.h>
#include <linux/string.h>
#include <linux/types.h>
#include <asm/barrier.h>

#include <rdma/peal-abi.h>

/* A send or receive ring. Guarded by the lock of the queue it belongs to. */
struct peal_ring {
	struct peal_ring_ctl *ctl;	/* shared */
	void *slots;			/* shared */
	u32 mask;			/* entries - 1 */
	u32 stride;			/* bytes */
	u32 next;			/* free-running; the next WQE to take */
};

/* How many WQEs wait. -EOVERFLOW when the program's index makes no sense. */
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

/* For whoever inspects the ring; nothing depends on it. */
static inline void peal_ring_show(const struct peal_ring *ring)
{
	WRITE_ONCE(ring->ctl->consumer, ring->next);
}

/* Forget what was posted: the queue pair was reset. */
static inline void peal_ring_discard(struct peal_ring *ring)
{
	ring->next = READ_ONCE(ring->ctl->producer);
	peal_ring_show(ring);
}

/*
 * Ask the program to kick on each post (or no longer). Barrier C: the flag is
 * visible before the caller looks at the producer index again; the program's
 * half sits between its producer store and its load of the flag. So either it
 * sees the flag and kicks, or the caller sees the new WQE.
 */
static inline void peal_ring_want_kick(struct peal_ring *ring, bool want)
{
	WRITE_ONCE(ring->ctl->flags, want ? PEAL_RING_WANTS_KICK : 0);
	if (want)
		smp_mb();	/* C */
}

/* A completion ring. Guarded by the completion queue's lock. */
struct peal_cq_ring {
	struct peal_cq_ctl *ctl;	/* shared */
	struct peal_cqe *cqe;		/* shared */
	u32 mask;			/* entries - 1 */
	u32 next;			/* free-running; the next CQE to write */
	u32 consumer;			/* the program's index when last looked at */
	u32 fired;			/* arm value that has had its event */
};

static inline bool peal_cq_ring_full(struct peal_cq_ring *ring)
{
	if (likely(ring->next - ring->consumer <= ring->mask))
		return false;
	ring->consumer = smp_load_acquire(&ring->ctl->consumer);	/* F */
	return ring->next - ring->consumer > ring->mask;
}

/* Phase of index i: 1 on the first lap, then alternating. */
static inline u8 peal_cq_ring_phase(const struct peal_cq_ring *ring, u32 index)
{
	return index & (ring->mask + 1) ? 0 : PEAL_CQE_PHASE;
}

/* Is CQE @index written? For the kernel as the consumer. */
static inline bool peal_cq_ring_peek(const struct peal_cq_ring *ring, u32 index)
{
	u8 flags = smp_load_acquire(&ring->cqe[index & ring->mask].flags);	/* D */

	return (flags & PEAL_CQE_PHASE) == peal_cq_ring_phase(ring, index);
}

/* The caller has made sure that the ring is not full. */
static inline void peal_cq_ring_push(struct peal_cq_ring *ring, const struct peal_cqe *cqe)
{
	struct peal_cqe *slot = &ring->cqe[ring->next & ring->mask];
	u8 flags = cqe->flags | peal_cq_ring_phase(ring, ring->next);

	memcpy(slot, cqe, offsetof(struct peal_cqe, flags));
	smp_store_release(&slot->flags, flags);		/* D */
	ring->next++;
}

/*
 * The arm value that is due for an event, or 0. Barrier E: our CQEs are visible
 * before we look at the arm word; the program's half sits between its arm store
 * and its next poll. So either it sees the CQE, or we see that it is armed.
 */
static inline u32 peal_cq_ring_armed(const struct peal_cq_ring *ring)
{
	u32 arm;

	smp_mb();	/* E */
	arm = READ_ONCE(ring->ctl->arm);
	return arm == ring->fired ? 0 : arm;
}

/*
 * @arm has its event, which the caller raises next. Ours is what counts; the
 * shared word lets the program see which of its armings are still outstanding.
 */
static inline void peal_cq_ring_fire(struct peal_cq_ring *ring, u32 arm)
{
	WRITE_ONCE(ring->fired, arm);
	WRITE_ONCE(ring->ctl->fired, arm);
}

#endif
