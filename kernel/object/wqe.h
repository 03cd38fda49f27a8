/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Rings of work requests, and the work requests in them.
 *
 * Owns: every access to memory that a program can write, and the checks of what is read there.
 * Does not know: queue pairs, completions (cq.h), what a request does.
 */
#ifndef PEAL_WQE_H
#define PEAL_WQE_H

#include <asm/barrier.h>
#include <linux/compiler.h>
#include <linux/errno.h>
#include <linux/list.h>
#include <linux/nospec.h>
#include <linux/spinlock.h>
#include <linux/string.h>
#include <linux/types.h>
#include <rdma/ib_verbs.h>
#include <rdma/peal-abi.h>

#include "proto/packet.h"

/*
 * The kernel half of the rings. The program's half is userspace/ring/.
 *
 * Owns: the kernel's private indices, and the order in which shared words are read and written.
 * Only wqe.[ch] read a program's ring.
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
	return (const u8 *)ring->slots + (size_t)(ring->next & ring->mask) * ring->stride;
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
 * Write the CQE of a message that its sender has completed with success. The caller has checked
 * that the ring is not full. The CQE is made in its slot, because a copy takes time.
 */
static inline void peal_cq_ring_push_sent(struct peal_cq_ring *ring, u32 qp_index, u32 qp_num,
					  const struct peal_wqe *wqe)
{
	struct peal_cqe *slot = &ring->cqe[ring->next & ring->mask];

	slot->qp_index = qp_index;
	slot->qp_num = qp_num;
	slot->wqe_index = wqe->index;
	slot->byte_len = wqe->length;
	slot->imm_or_rkey = 0;
	slot->vendor_err = 0;
	slot->src_qp = 0;
	slot->kind = PEAL_CQE_SEND;
	slot->opcode = wqe->opcode;
	slot->status = 0;
	slot->reserved0 = 0;
	slot->vlan_id = 0;
	slot->reserved1 = 0;
	slot->srq_num = 0;
	slot->clock_ns = 0;
	slot->wall_ns = 0;
	slot->reserved3 = 0;
	memset(slot->reserved4, 0, sizeof(slot->reserved4));
	smp_store_release(&slot->flags, peal_cq_ring_phase(ring, ring->next));	/* D */
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

/*
 * Work requests, from ring bytes to checked values.
 *
 * Owns: the private copy of each WQE, and every check that needs only the WQE itself. After
 * parsing the kernel does not read the slot again, because the program may change it. Inline data
 * are the exception. The transport copies them from the slot, because the kernel does not check
 * payload.
 */

/* A checked copy of a receive WQE in private memory. */
struct peal_recv {
	u8 num_sge;
	u32 index;
	u64 length;			/* size of the buffer in bytes */
	struct peal_sge sge[PEAL_MAX_SGE];
};

/* The limits of one queue, from its creation. */
struct peal_wqe_limits {
	u32 max_sge;
	u32 max_inline;
	u32 refused;		/* bit 1 << enum peal_opcode: refuse the opcode */
	bool datagram;		/* each WQE names its destination */
	u32 max_target;		/* of ah_index or srqn; 0: the WQE has neither */
	bool raw;		/* the data are an Ethernet frame */
};

/* The status of a send WQE that peal_wqe_parse_send() refuses for @reason. */
static inline enum ib_wc_status peal_wqe_status(enum peal_reason reason)
{
	return reason == PEAL_REASON_WQE_LENGTH || reason == PEAL_REASON_WQE_ATOMIC_LENGTH ?
	       IB_WC_LOC_LEN_ERR : IB_WC_LOC_QP_OP_ERR;
}

enum peal_reason peal_wqe_parse_send(const void *slot, const struct peal_wqe_limits *limits,
				     struct peal_wqe *send, struct peal_sge *sge);
enum peal_reason peal_wqe_parse_recv(const void *slot, const struct peal_wqe_limits *limits,
				     struct peal_recv *recv);
void peal_wqe_restore_recv(void *slot, const struct peal_recv *recv);

/*
 * The send queue of a queue pair.
 *
 * Owns: the ring, and the private copy of the WQE being executed.
 *
 * Lock: sq->lock, the outermost of the data path. A turn holds it, and the turn's budget bounds
 * the time.
 */

/* What is posted behind the WQE that was fetched last? */
enum peal_sq_next {
	PEAL_SQ_NOTHING,
	PEAL_SQ_MESSAGE,	/* a SEND or WRITE, which leaves right behind it */
	PEAL_SQ_OTHER,
};

enum peal_sq_fetched {
	PEAL_SQ_EMPTY,
	PEAL_SQ_FETCHED,
	PEAL_SQ_MALFORMED,
};

struct peal_sq {
	spinlock_t lock;		/* guards the fields marked with it */
	struct peal_wqe_limits limits;

	/* Guarded by sq.lock: */
	struct peal_ring ring;
	struct peal_wqe wqe;		/* valid while `busy` */
	struct peal_sge sge[PEAL_MAX_SGE];	/* of wqe */
	bool busy;
	bool drained;			/* peal_sq_drain() was true once in this SQD */
};

void peal_sq_init(struct peal_sq *sq, void *ctl, void *slots, u32 entries, u32 stride,
		  const struct peal_wqe_limits *limits);
void peal_sq_reset(struct peal_sq *sq);

enum peal_sq_fetched peal_sq_fetch(struct peal_sq *sq, enum peal_reason *reason);
enum peal_sq_next peal_sq_next(const struct peal_sq *sq);

/**
 * peal_sq_peek() - copy the next WQE into sq->wqe if it is a plain one
 * @opcodes: bit 1 << enum peal_opcode: the caller wants such a WQE. They have data, or are atomics
 *
 * A plain WQE has one scatter-gather entry or inline data. It stays on the ring, and
 * peal_ring_take() takes it when it was executed. Each word of the slot is read once. There is no
 * other difference to peal_sq_fetch(), which decides about all WQEs that are not plain.
 *
 * Return: the operation, or NULL if the ring is empty, or if the next WQE is not plain.
 */
static __always_inline const struct peal_op *peal_sq_peek(struct peal_sq *sq, u32 opcodes)
{
	/* The unit tests read this file as C++, which needs the casts. */
	const struct peal_send_wqe *slot = (const struct peal_send_wqe *)peal_ring_slot(&sq->ring);
	const struct peal_sge *entry = (const struct peal_sge *)(slot + 1);
	struct peal_wqe *wqe = &sq->wqe;
	struct peal_sge *sge = sq->sge;
	u8 opcode, flags, num_sge;
	const struct peal_op *op;
	u32 inline_len, target;

	lockdep_assert_held(&sq->lock);
	if (peal_ring_pending(&sq->ring) <= 0)
		return NULL;
	opcode = READ_ONCE(slot->opcode);
	flags = READ_ONCE(slot->flags);
	num_sge = READ_ONCE(slot->num_sge);
	inline_len = READ_ONCE(slot->inline_len);
	target = READ_ONCE(slot->srqn);
	if (unlikely(opcode >= PEAL_OP_COUNT || !(opcodes & 1U << opcode) ||
		     flags & ~PEAL_WQE_FLAGS || READ_ONCE(slot->reserved0) ||
		     READ_ONCE(slot->reserved1) || target > sq->limits.max_target))
		return NULL;
	op = peal_op(opcode);
	wqe->opcode = opcode;
	wqe->flags = flags;
	wqe->num_sge = num_sge;
	wqe->index = sq->ring.next;
	wqe->imm_or_rkey = READ_ONCE(slot->imm_or_rkey);
	wqe->rkey = READ_ONCE(slot->rkey);
	wqe->remote_addr = READ_ONCE(slot->remote_addr);
	wqe->srqn = target;
	if (flags & PEAL_WQE_INLINE) {
		wqe->inline_data = slot + 1;
		wqe->length = inline_len;
		return op->sends && !num_sge && inline_len <= sq->limits.max_inline ? op : NULL;
	}
	wqe->inline_data = NULL;
	if (unlikely(num_sge != 1 || inline_len))
		return NULL;
	if (op->atomic) {
		const struct peal_atomic_seg *atomic = (const struct peal_atomic_seg *)(slot + 1);

		wqe->atomic.compare_add = READ_ONCE(atomic->compare_add);
		wqe->atomic.swap = READ_ONCE(atomic->swap);
		entry = (const struct peal_sge *)(atomic + 1);
	}
	sge->addr = READ_ONCE(entry->addr);
	sge->length = READ_ONCE(entry->length);
	sge->lkey = READ_ONCE(entry->lkey);
	wqe->length = sge->length;
	return op;
}

bool peal_sq_drain(struct peal_sq *sq);

/* The WQE was executed, or its message is in flight and the transport keeps its state. */
static inline void peal_sq_finish(struct peal_sq *sq)
{
	lockdep_assert_held(&sq->lock);
	sq->busy = false;
}

static inline void peal_sq_begin_drain(struct peal_sq *sq)
{
	lockdep_assert_held(&sq->lock);
	sq->drained = false;
}

/*
 * The ring of a shared receive queue.
 *
 * Owns: the ring of slot numbers, the limit, the list of receive queues whose senders wait for a
 * receive, and the flag that asks the program for kicks.
 *
 * Lock: srq_ring.lock, taken inside an rq->lock. Nothing is taken inside it.
 */

/* Bits of peal_srq_ring.due: the events to raise. */
#define PEAL_SRQ_DUE_LIMIT	0x1
#define PEAL_SRQ_DUE_ERROR	0x2

struct peal_srq_ring {
	spinlock_t lock;		/* guards the fields marked with it */
	struct peal_wqe_limits limits;

	/* Guarded by srq_ring.lock: */
	u32 *numbers;			/* shared with the program: slot numbers, as posted */
	struct peal_ring ring;		/* `next` is an index of `numbers` */
	u32 limit;			/* an event is due below so many WQEs; 0: not armed */
	u32 due;			/* PEAL_SRQ_DUE_* */
	bool broken;			/* the program stored nonsense; no WQE is taken any more */
	bool reposted;			/* a WQE was, since the program began to copy the ring */
	struct list_head waiters;	/* peal_rq.waiter; the longest wait first */
};

void peal_srq_ring_init(struct peal_srq_ring *srq, void *ctl, u32 *numbers, void *slots,
			u32 entries, u32 stride, const struct peal_wqe_limits *limits);
bool peal_srq_ring_take(struct peal_srq_ring *srq, struct list_head *waiter,
			struct peal_recv *recv, enum peal_reason *reason);
bool peal_srq_ring_repost(struct peal_srq_ring *srq, const struct peal_recv *recv);
void peal_srq_ring_leave(struct peal_srq_ring *srq, struct list_head *waiter);
struct list_head *peal_srq_ring_next_waiter(struct peal_srq_ring *srq);

void peal_srq_ring_arm(struct peal_srq_ring *srq, u32 limit);
u32 peal_srq_ring_limit(struct peal_srq_ring *srq);
u32 peal_srq_ring_entries(struct peal_srq_ring *srq);
void peal_srq_ring_prepare(struct peal_srq_ring *srq);
int peal_srq_ring_replace(struct peal_srq_ring *srq, u32 *numbers, void *slots, u32 entries,
			  u32 *taken);
u32 peal_srq_ring_take_due(struct peal_srq_ring *srq);

/*
 * The receive queue of a queue pair.
 *
 * Owns: the ring, the receive WQE that the current message fills, and the flag that asks the
 * program for kicks. A queue pair with a shared receive queue takes its WQEs from there; its own
 * ring is then not used. An XRC target queue pair takes them from the one that the message names.
 *
 * Lock: rq->lock, taken inside an sq->lock (the peer's or its own queue pair's) and outside
 * cq->lock and srq_ring.lock.
 */

enum peal_rq_taken {
	PEAL_RQ_EMPTY,
	PEAL_RQ_TAKEN,
	PEAL_RQ_MALFORMED,
};

struct peal_rq {
	spinlock_t lock;		/* guards the fields marked with it */
	struct peal_wqe_limits limits;

	/* Guarded by srq_ring.lock: */
	struct list_head waiter;	/* in the list of `shared` while a sender waits */

	/* Guarded by rq.lock: */
	struct peal_srq_ring *shared;	/* where WQEs are taken from; NULL: `ring` */
	struct peal_ring ring;
	struct peal_recv wqe;		/* valid while holding */
	enum peal_reason fault;		/* of wqe, if it is malformed; valid while holding */
	bool holding;			/* a WQE was taken and is not completed */
	bool refusing;			/* accepts nothing: in error now or soon */
	bool established;		/* a message has arrived since RTR */
	bool routine;			/* established, and messages name no shared receive queue */
	bool no_kicks;			/* senders retry by their RNR timers and need no kick */
	bool kicked;			/* the program is asked to kick */
	bool last_told;			/* peal_rq_is_last() was true once since the RESET */
	bool srq_by_message;		/* XRC: only messages name where WQEs come from */
};

void peal_rq_init(struct peal_rq *rq, void *ctl, void *slots, u32 entries, u32 stride,
		  const struct peal_wqe_limits *limits);
void peal_rq_share(struct peal_rq *rq, struct peal_srq_ring *shared);
void peal_rq_set_srq_by_message(struct peal_rq *rq);
void peal_rq_change_shared(struct peal_rq *rq, struct peal_srq_ring *shared);
void peal_rq_reset(struct peal_rq *rq);
void peal_rq_set_no_kicks(struct peal_rq *rq, bool no_kicks);

enum peal_rq_taken peal_rq_take(struct peal_rq *rq, enum peal_reason *reason);
bool peal_rq_take_flushed(struct peal_rq *rq);
bool peal_rq_is_last(struct peal_rq *rq);
void peal_rq_done(struct peal_rq *rq);
bool peal_rq_repost(struct peal_rq *rq);
void peal_rq_refuse(struct peal_rq *rq);
bool peal_rq_establish(struct peal_rq *rq);
void peal_rq_want_kick(struct peal_rq *rq, bool want);

#endif
