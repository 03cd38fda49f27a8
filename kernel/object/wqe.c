// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See wqe.h.
 */
#include <linux/build_bug.h>
#include <linux/compiler.h>
#include <linux/nospec.h>
#include <linux/string.h>
#include <rdma/ib_verbs.h>

#include "proto/packet.h"
#include "object/wqe.h"

/*
 * Copy shared memory to private memory and read each word once. READ_ONCE() keeps the compiler
 * from reading a word again and from dropping the copy. Otherwise the program could change a
 * value after its check. Each caller gives a constant size, so the loop is unrolled.
 */
static __always_inline void peal_wqe_snapshot(void *dst, const void *src, size_t bytes)
{
	u64 *to = dst;
	const u64 *from = src;
	size_t i;

#pragma GCC unroll 4
	for (i = 0; i < bytes / sizeof(*to); i++)
		to[i] = READ_ONCE(from[i]);
}

/* The 64-bit sum cannot overflow, because it is at most num_sge * (2^32 - 1). */
static u64 peal_wqe_copy_sges(struct peal_sge *sge, const void *from, u32 num_sge)
{
	u64 length = 0;
	u32 i;

	for (i = 0; i < num_sge; i++) {
		peal_wqe_snapshot(&sge[i], from + i * sizeof(*sge), sizeof(*sge));
		length += sge[i].length;
	}
	return length;
}

/* ATOMIC_WRITE: its data fit every slot, so they may be inline on every queue. */
static enum peal_reason peal_wqe_parse_atomic_write(const void *body, u32 inline_len,
						    struct peal_wqe *send, struct peal_sge *sge)
{
	if (send->flags & PEAL_WQE_INLINE) {
		send->inline_data = body;
		send->length = inline_len;
	} else {
		send->length = peal_wqe_copy_sges(sge, body, send->num_sge);
	}
	if (send->length != sizeof(u64) || send->num_sge > 1)
		return PEAL_REASON_WQE_ATOMIC_LENGTH;
	return PEAL_REASON_NONE;
}

/* A local operation or a FLUSH. The length of the message is 0, because no bytes travel. */
static enum peal_reason peal_wqe_parse_segment(const void *body, struct peal_wqe *send)
{
	send->length = 0;
	if (send->num_sge)
		return PEAL_REASON_WQE_NUM_SGE;
	switch (send->opcode) {
	case PEAL_OP_LOCAL_INV:
		return PEAL_REASON_NONE;
	case PEAL_OP_FLUSH:
		peal_wqe_snapshot(&send->flush, body, sizeof(send->flush));
		if (send->flush.reserved0 || send->flush.reserved1)
			return PEAL_REASON_WQE_RESERVED;
		if (!send->flush.placement || send->flush.placement & ~PEAL_FLUSH_PLACEMENTS ||
		    send->flush.selectivity > PEAL_FLUSH_REGION)
			return PEAL_REASON_WQE_FLAGS;
		return send->flush.length <= PEAL_MAX_MSG ? PEAL_REASON_NONE :
							    PEAL_REASON_WQE_LENGTH;
	default:
		peal_wqe_snapshot(&send->bind, body, sizeof(send->bind));
		return send->bind.reserved ? PEAL_REASON_WQE_RESERVED : PEAL_REASON_NONE;
	}
}

/**
 * peal_wqe_parse_send() - copy and check one send WQE
 * @slot: the slot in the program's ring; 64-byte aligned, large enough for @limits
 * @limits: the limits of the queue
 * @send: the result; the caller sets its index. On failure opcode and flags are valid
 *	too, because the caller writes a CQE from them
 * @sge: gets the scatter-gather list, limits->max_sge entries at most
 *
 * The transport looks the address handle of a datagram up by its index.
 *
 * Return: PEAL_REASON_NONE or the reason to refuse the WQE.
 */
enum peal_reason peal_wqe_parse_send(const void *slot, const struct peal_wqe_limits *limits,
				     struct peal_wqe *send, struct peal_sge *sge)
{
	const void *body = slot + sizeof(struct peal_send_wqe);
	struct peal_send_wqe wqe;
	const struct peal_op *op;

	BUILD_BUG_ON(sizeof(wqe) % sizeof(u64) || sizeof(struct peal_sge) % sizeof(u64));
	peal_wqe_snapshot(&wqe, slot, sizeof(wqe));
	send->flags = wqe.flags;
	send->opcode = 0;
	if (unlikely(wqe.opcode >= PEAL_OP_COUNT || !peal_op(wqe.opcode)->transports ||
		     limits->refused & 1U << wqe.opcode))
		return PEAL_REASON_WQE_OPCODE;
	op = peal_op(wqe.opcode);
	send->opcode = wqe.opcode;
	send->num_sge = wqe.num_sge;
	send->imm_or_rkey = wqe.imm_or_rkey;
	send->rkey = wqe.rkey;
	send->remote_addr = wqe.remote_addr;
	send->ah_index = wqe.ah_index;
	send->inline_data = NULL;

	if (unlikely(wqe.flags & ~PEAL_WQE_FLAGS) &&
	    (!limits->raw || wqe.flags & ~(PEAL_WQE_FLAGS | PEAL_WQE_IP_CSUM)))
		return PEAL_REASON_WQE_FLAGS;
	if (unlikely(wqe.reserved0 || wqe.reserved1 || wqe.ah_index > limits->max_target))
		return PEAL_REASON_WQE_RESERVED;
	if (wqe.flags & PEAL_WQE_INLINE) {
		if ((wqe.inline_len > limits->max_inline || !op->sends) &&
		    !(wqe.opcode == PEAL_OP_ATOMIC_WRITE && wqe.inline_len == sizeof(u64)))
			return PEAL_REASON_WQE_INLINE;
		if (wqe.num_sge)
			return PEAL_REASON_WQE_NUM_SGE;
	} else {
		if (unlikely(wqe.inline_len))
			return PEAL_REASON_WQE_INLINE;
		if (unlikely(wqe.num_sge > limits->max_sge))
			return PEAL_REASON_WQE_NUM_SGE;
	}
	if (unlikely(limits->datagram)) {
		send->ud.qpn &= PEAL_NUMBER_MAX;	/* the other bits do not count */
		if (wqe.rkey)
			return PEAL_REASON_WQE_RESERVED;
		if (!wqe.ah_index)
			return PEAL_REASON_WQE_AH;
	}

	if (unlikely(op->local || op->placement))
		return op->sends ? peal_wqe_parse_atomic_write(body, wqe.inline_len, send, sge) :
				   peal_wqe_parse_segment(body, send);
	if (op->atomic) {
		if (send->num_sge != 1)
			return PEAL_REASON_WQE_ATOMIC_LENGTH;
		peal_wqe_snapshot(&send->atomic, body, sizeof(send->atomic));
		send->length = peal_wqe_copy_sges(sge, body + sizeof(send->atomic), 1);
		return send->length == 8 ? PEAL_REASON_NONE : PEAL_REASON_WQE_ATOMIC_LENGTH;
	}
	if (wqe.flags & PEAL_WQE_INLINE) {
		send->inline_data = body;
		send->length = wqe.inline_len;
		return PEAL_REASON_NONE;
	}
	send->length = peal_wqe_copy_sges(sge, body, wqe.num_sge);
	return likely(send->length <= PEAL_MAX_MSG) ? PEAL_REASON_NONE : PEAL_REASON_WQE_LENGTH;
}

/**
 * peal_wqe_parse_recv() - copy and check one receive WQE
 *
 * The parameters are those of peal_wqe_parse_send().
 *
 * Return: PEAL_REASON_NONE or PEAL_REASON_RECV_WQE.
 */
enum peal_reason peal_wqe_parse_recv(const void *slot, const struct peal_wqe_limits *limits,
				     struct peal_recv *recv)
{
	struct peal_recv_wqe wqe;

	peal_wqe_snapshot(&wqe, slot, sizeof(wqe));
	recv->num_sge = 0;
	recv->length = 0;
	if (unlikely(wqe.num_sge > limits->max_sge || wqe.reserved[0] || wqe.reserved[1] ||
		     wqe.reserved[2]))
		return PEAL_REASON_RECV_WQE;
	recv->num_sge = wqe.num_sge;
	recv->length = peal_wqe_copy_sges(recv->sge, slot + sizeof(wqe), wqe.num_sge);
	return PEAL_REASON_NONE;
}

/* Write @recv as peal_wqe_parse_recv() has read it. A malformed WQE becomes an empty one. */
void peal_wqe_restore_recv(void *slot, const struct peal_recv *recv)
{
	const struct peal_recv_wqe wqe = { .num_sge = recv->num_sge };

	memcpy(slot, &wqe, sizeof(wqe));
	memcpy(slot + sizeof(wqe), recv->sge, recv->num_sge * sizeof(recv->sge[0]));
}

/*
 * The send queue. The caller of each function but peal_sq_init() holds sq->lock.
 */

void peal_sq_init(struct peal_sq *sq, void *ctl, void *slots, u32 entries, u32 stride,
		  const struct peal_wqe_limits *limits)
{
	spin_lock_init(&sq->lock);
	sq->ring = (struct peal_ring){
		.ctl = ctl, .slots = slots, .mask = entries - 1, .stride = stride,
	};
	sq->limits = *limits;
}

/* Forget all posted WQEs without completions, because the queue pair goes to RESET. */
void peal_sq_reset(struct peal_sq *sq)
{
	lockdep_assert_held(&sq->lock);
	peal_ring_discard(&sq->ring);
	sq->busy = false;
	sq->drained = false;
}

/**
 * peal_sq_fetch() - take the next WQE off the ring
 * @reason: set to the fault of a malformed WQE; not set when the ring is empty
 *
 * A malformed WQE is taken too, because the caller completes sq->wqe.index in error.
 */
enum peal_sq_fetched peal_sq_fetch(struct peal_sq *sq, enum peal_reason *reason)
{
	int pending = peal_ring_pending(&sq->ring);

	lockdep_assert_held(&sq->lock);
	sq->wqe.index = sq->ring.next;
	if (!pending)
		return PEAL_SQ_EMPTY;
	if (likely(pending > 0)) {
		*reason = peal_wqe_parse_send(peal_ring_slot(&sq->ring), &sq->limits, &sq->wqe,
					      sq->sge);
	} else {
		sq->wqe.opcode = PEAL_OP_INVALID;
		sq->wqe.flags = 0;
		*reason = PEAL_REASON_RING_INDEX;
	}
	peal_ring_take(&sq->ring);
	sq->busy = true;
	return unlikely(*reason) ? PEAL_SQ_MALFORMED : PEAL_SQ_FETCHED;
}

/**
 * peal_sq_next() - tell what follows the WQE that was fetched last
 *
 * A READ, an atomic or an ATOMIC_WRITE does not count as a message, because it may have to wait. It
 * takes a responder resource, and a READ takes one PSN for each packet of its response. A local
 * operation (bind, invalidate) is no message. The answer is a hint, because the program may change
 * the slot.
 */
enum peal_sq_next peal_sq_next(const struct peal_sq *sq)
{
	const struct peal_send_wqe *next = peal_ring_slot(&sq->ring);
	int pending = peal_ring_pending(&sq->ring);
	const struct peal_op *op;

	lockdep_assert_held(&sq->lock);
	if (pending <= 0)
		return pending ? PEAL_SQ_OTHER : PEAL_SQ_NOTHING;
	op = peal_op(READ_ONCE(next->opcode));
	return op->sends && !op->resource ? PEAL_SQ_MESSAGE : PEAL_SQ_OTHER;
}

/* In SQD. Return: true once, when no WQE is being executed any more. */
bool peal_sq_drain(struct peal_sq *sq)
{
	bool first = !sq->busy && !sq->drained;

	lockdep_assert_held(&sq->lock);
	sq->drained |= first;
	return first;
}

void peal_srq_ring_init(struct peal_srq_ring *srq, void *ctl, u32 *numbers, void *slots,
			u32 entries, u32 stride, const struct peal_wqe_limits *limits)
{
	spin_lock_init(&srq->lock);
	INIT_LIST_HEAD(&srq->waiters);
	srq->ring = (struct peal_ring){
		.ctl = ctl, .slots = slots, .mask = entries - 1, .stride = stride,
	};
	srq->numbers = numbers;
	srq->limits = *limits;
}

/* Ask for kicks as long as a receive queue waits. */
static void peal_srq_ring_ask(struct peal_srq_ring *srq)
{
	lockdep_assert_held(&srq->lock);
	peal_ring_want_kick(&srq->ring, !list_empty(&srq->waiters));
}

/* A receive queue that waits already keeps its place. */
static void peal_srq_ring_enter(struct peal_srq_ring *srq, struct list_head *waiter)
{
	lockdep_assert_held(&srq->lock);
	if (!list_empty(waiter))
		return;
	list_add_tail(waiter, &srq->waiters);
	peal_srq_ring_ask(srq);
}

static void peal_srq_ring_remove(struct peal_srq_ring *srq, struct list_head *waiter)
{
	lockdep_assert_held(&srq->lock);
	if (list_empty(waiter))
		return;
	list_del_init(waiter);
	peal_srq_ring_ask(srq);
}

/* The program stored an invalid value, so its later words cannot be trusted either. */
static void peal_srq_ring_break(struct peal_srq_ring *srq)
{
	lockdep_assert_held(&srq->lock);
	if (!srq->broken)
		srq->due |= PEAL_SRQ_DUE_ERROR;
	srq->broken = true;
}

/* Is the limit reached with @left WQEs? It is armed for one event. */
static void peal_srq_ring_check_limit(struct peal_srq_ring *srq, u32 left)
{
	lockdep_assert_held(&srq->lock);
	if (likely(left >= srq->limit))
		return;
	srq->limit = 0;
	srq->due |= PEAL_SRQ_DUE_LIMIT;
}

/*
 * Take the WQE at the head of the ring. The number of the slot is read once and then checked.
 * Return: the reason to refuse the WQE. After SRQ_RING no WQE was taken.
 */
static enum peal_reason peal_srq_ring_pop(struct peal_srq_ring *srq, struct peal_recv *recv)
{
	u32 entries = srq->ring.mask + 1;
	u32 number = READ_ONCE(srq->numbers[srq->ring.next & srq->ring.mask]);

	lockdep_assert_held(&srq->lock);
	if (unlikely(number >= entries)) {
		peal_srq_ring_break(srq);
		return PEAL_REASON_SRQ_RING;
	}
	number = array_index_nospec(number, entries);
	peal_ring_take(&srq->ring);
	peal_ring_show(&srq->ring);
	recv->index = number;
	return peal_wqe_parse_recv(srq->ring.slots + (size_t)number * srq->ring.stride,
				   &srq->limits, recv);
}

/* Return: the number of WQEs, or a negative number if the queue is in error. */
static int peal_srq_ring_pending(struct peal_srq_ring *srq)
{
	int pending = srq->broken ? -EOVERFLOW : peal_ring_pending(&srq->ring);

	lockdep_assert_held(&srq->lock);
	if (unlikely(pending < 0))
		peal_srq_ring_break(srq);
	return pending;
}

/* The same, but if there is none, @waiter is on the list when the program's next post looks. */
static int peal_srq_ring_pending_or_wait(struct peal_srq_ring *srq, struct list_head *waiter)
{
	int pending = peal_srq_ring_pending(srq);

	lockdep_assert_held(&srq->lock);
	if (pending || !waiter)
		return pending;
	peal_srq_ring_enter(srq, waiter);
	return peal_srq_ring_pending(srq);	/* after barrier C */
}

/**
 * peal_srq_ring_take() - take the next receive WQE
 * @waiter: list head of the receive queue. It is put on the list of those that wait if there is
 *	no WQE. NULL: its senders retry by their RNR timers and need no kick
 * @recv: set to the WQE; its index is the number of the slot
 * @reason: set to the fault of a malformed WQE, to PEAL_REASON_SRQ_RING if the queue is in error
 *	and no WQE was taken, otherwise to PEAL_REASON_NONE
 *
 * The caller has softirqs off. Return: false if there is no WQE.
 */
bool peal_srq_ring_take(struct peal_srq_ring *srq, struct list_head *waiter,
			struct peal_recv *recv, enum peal_reason *reason)
{
	int pending;

	lockdep_assert(softirq_count());
	*reason = PEAL_REASON_NONE;
	spin_lock(&srq->lock);
	pending = peal_srq_ring_pending_or_wait(srq, waiter);
	if (unlikely(pending < 0))
		*reason = PEAL_REASON_SRQ_RING;
	else if (likely(pending))
		*reason = peal_srq_ring_pop(srq, recv);
	if (pending && waiter)
		peal_srq_ring_remove(srq, waiter);
	if (pending > 0)
		peal_srq_ring_check_limit(srq, pending - 1);
	spin_unlock(&srq->lock);
	return pending;
}

/**
 * peal_srq_ring_repost() - let a WQE be the next one again
 * @recv: as it was taken
 *
 * For a WQE that ends without a CQE. The program learns only from a CQE that a slot is free, so it
 * would never use this one again.
 *
 * The entry before the next one is free, because this slot is not posted; see peal-abi.h. If the
 * ring was replaced since the WQE was taken, the program has not copied the WQE to the new slot, so
 * it is written again. A smaller ring may not have the slot, which the program then does not use
 * again either. Such a WQE is forgotten. A program that has posted the slot twice may find more
 * WQEs than entries in its ring, which the next look reports as its error.
 *
 * The caller has softirqs off. Return: whether receive queues wait.
 */
bool peal_srq_ring_repost(struct peal_srq_ring *srq, const struct peal_recv *recv)
{
	bool waited = false;
	u32 number;

	lockdep_assert(softirq_count());
	spin_lock(&srq->lock);
	if (!srq->broken && recv->index <= srq->ring.mask) {
		number = array_index_nospec(recv->index, srq->ring.mask + 1);
		peal_wqe_restore_recv(srq->ring.slots + (size_t)number * srq->ring.stride, recv);
		peal_ring_untake(&srq->ring);
		WRITE_ONCE(srq->numbers[srq->ring.next & srq->ring.mask], number);
		peal_ring_show(&srq->ring);
		srq->reposted = true;
		waited = !list_empty(&srq->waiters);
	}
	spin_unlock(&srq->lock);
	return waited;
}

/* @waiter waits no more. The caller has softirqs off. */
void peal_srq_ring_leave(struct peal_srq_ring *srq, struct list_head *waiter)
{
	lockdep_assert(softirq_count());
	spin_lock(&srq->lock);
	peal_srq_ring_remove(srq, waiter);
	spin_unlock(&srq->lock);
}

/*
 * Take the receive queue that has waited longest off the list, if there is a WQE for it, or an
 * error to learn of. The caller has softirqs off.
 *
 * Return: its list head, or NULL.
 */
struct list_head *peal_srq_ring_next_waiter(struct peal_srq_ring *srq)
{
	struct list_head *waiter = NULL;

	lockdep_assert(softirq_count());
	spin_lock(&srq->lock);
	if (!list_empty(&srq->waiters) && peal_srq_ring_pending(srq)) {
		waiter = srq->waiters.next;
		peal_srq_ring_remove(srq, waiter);
	}
	spin_unlock(&srq->lock);
	return waiter;
}

/*
 * Arm the limit, or disarm it with 0. If there are fewer WQEs already, the event is due at once,
 * because no later take might notice.
 */
void peal_srq_ring_arm(struct peal_srq_ring *srq, u32 limit)
{
	int pending;

	spin_lock_bh(&srq->lock);
	srq->limit = limit;
	pending = peal_srq_ring_pending(srq);
	if (pending >= 0)
		peal_srq_ring_check_limit(srq, pending);
	spin_unlock_bh(&srq->lock);
}

/* Return: the armed limit, or 0. */
u32 peal_srq_ring_limit(struct peal_srq_ring *srq)
{
	u32 limit;

	spin_lock_bh(&srq->lock);
	limit = srq->limit;
	spin_unlock_bh(&srq->lock);
	return limit;
}

u32 peal_srq_ring_entries(struct peal_srq_ring *srq)
{
	u32 entries;

	spin_lock_bh(&srq->lock);
	entries = srq->ring.mask + 1;
	spin_unlock_bh(&srq->lock);
	return entries;
}

/* The program copies the WQEs to another ring from now on. */
void peal_srq_ring_prepare(struct peal_srq_ring *srq)
{
	spin_lock_bh(&srq->lock);
	srq->reposted = false;
	spin_unlock_bh(&srq->lock);
}

/**
 * peal_srq_ring_replace() - take the next WQEs from another ring
 * @entries: the size of the new ring; a power of two. Its slots have the same stride
 * @taken: set to the index of the first WQE that is taken from the new ring
 *
 * The program has copied the WQEs. Each is checked when it is taken. No CPU reads the old ring
 * afterwards.
 *
 * Return: 0, -EINVAL (too small for the WQEs that were not taken, or for the limit that is armed;
 * or the queue is in error), or -EAGAIN (a WQE was reposted, so the program's copy may be wrong).
 */
int peal_srq_ring_replace(struct peal_srq_ring *srq, u32 *numbers, void *slots, u32 entries,
			  u32 *taken)
{
	int pending, ret = -EINVAL;

	spin_lock_bh(&srq->lock);
	pending = peal_srq_ring_pending(srq);
	*taken = srq->ring.next;
	if (pending >= 0 && srq->reposted) {
		ret = -EAGAIN;
	} else if (pending >= 0 && pending <= entries && srq->limit <= entries) {
		srq->numbers = numbers;
		srq->ring.slots = slots;
		srq->ring.mask = entries - 1;
		ret = 0;
	}
	spin_unlock_bh(&srq->lock);
	return ret;
}

/* The caller has softirqs off. Return: the events to raise, each once. */
u32 peal_srq_ring_take_due(struct peal_srq_ring *srq)
{
	u32 due;

	lockdep_assert(softirq_count());
	spin_lock(&srq->lock);
	due = srq->due;
	srq->due = 0;
	spin_unlock(&srq->lock);
	return due;
}

/*
 * The receive queue. The caller of each function but peal_rq_init() and peal_rq_share() holds
 * rq->lock.
 */

void peal_rq_init(struct peal_rq *rq, void *ctl, void *slots, u32 entries, u32 stride,
		  const struct peal_wqe_limits *limits)
{
	spin_lock_init(&rq->lock);
	rq->ring = (struct peal_ring){
		.ctl = ctl, .slots = slots, .mask = entries - 1, .stride = stride,
	};
	rq->limits = *limits;
	INIT_LIST_HEAD(&rq->waiter);
}

/*
 * Take the WQEs from @shared. Call before others can find the queue, so nothing asserts the lock.
 */
void peal_rq_share(struct peal_rq *rq, struct peal_srq_ring *shared)
{
	rq->shared = shared;
}

/*
 * XRC: the own ring is never used, because each message names one, or because there are no
 * messages. Nothing in the own ring may be completed, whatever the program writes there. Call
 * before others can find the queue, so nothing asserts the lock.
 */
void peal_rq_set_srq_by_message(struct peal_rq *rq)
{
	rq->srq_by_message = true;
}

/* No sender waits for a receive of this queue any more. */
static void peal_rq_end_wait(struct peal_rq *rq)
{
	lockdep_assert_held(&rq->lock);
	if (rq->shared)
		peal_srq_ring_leave(rq->shared, &rq->waiter);
}

/*
 * XRC. The next WQEs come from @shared, or from nowhere if it is NULL. A WQE that is held is
 * forgotten, so the caller completes it first if its queue still exists.
 */
void peal_rq_change_shared(struct peal_rq *rq, struct peal_srq_ring *shared)
{
	lockdep_assert_held(&rq->lock);
	peal_rq_end_wait(rq);
	rq->holding = false;
	rq->shared = shared;
}

void peal_rq_reset(struct peal_rq *rq)
{
	lockdep_assert_held(&rq->lock);
	peal_rq_end_wait(rq);
	peal_ring_discard(&rq->ring);
	peal_rq_want_kick(rq, false);
	rq->last_told = false;
	rq->holding = false;
	rq->refusing = false;
	rq->established = false;
	rq->routine = false;
}

/*
 * On the wire a kick is useless, because an RNR NAK has told the peer when to send again. Set
 * @no_kicks to ask for none.
 */
void peal_rq_set_no_kicks(struct peal_rq *rq, bool no_kicks)
{
	lockdep_assert_held(&rq->lock);
	rq->no_kicks = no_kicks;
	if (no_kicks)
		peal_rq_end_wait(rq);
}

static int peal_rq_pending(struct peal_rq *rq)
{
	int pending = peal_ring_pending(&rq->ring);

	lockdep_assert_held(&rq->lock);
	if (pending || rq->no_kicks)
		return pending;
	peal_rq_want_kick(rq, true);
	return peal_ring_pending(&rq->ring);	/* after barrier C */
}

/* Without a WQE that could be named, nothing is held. */
static enum peal_rq_taken peal_rq_take_shared(struct peal_rq *rq, enum peal_reason *reason)
{
	struct list_head *waiter = rq->no_kicks ? NULL : &rq->waiter;

	lockdep_assert_held(&rq->lock);
	if (!peal_srq_ring_take(rq->shared, waiter, &rq->wqe, reason))
		return PEAL_RQ_EMPTY;
	rq->fault = *reason;
	rq->holding = *reason != PEAL_REASON_SRQ_RING;
	return *reason ? PEAL_RQ_MALFORMED : PEAL_RQ_TAKEN;
}

/**
 * peal_rq_take() - take the next receive WQE, unless one is held already
 * @reason: set to the fault of a malformed WQE, otherwise to PEAL_REASON_NONE
 *
 * If the queue is empty, the program's next post kicks, unless no_kicks is set. A malformed WQE is
 * taken too, because the caller completes it in error. If a shared receive queue is in error, there
 * is none to complete, and rq->holding is false.
 */
enum peal_rq_taken peal_rq_take(struct peal_rq *rq, enum peal_reason *reason)
{
	int pending;

	lockdep_assert_held(&rq->lock);
	*reason = PEAL_REASON_NONE;
	if (rq->holding) {
		*reason = rq->fault;
		return *reason ? PEAL_RQ_MALFORMED : PEAL_RQ_TAKEN;
	}
	if (rq->shared)
		return peal_rq_take_shared(rq, reason);
	pending = peal_rq_pending(rq);
	if (!pending)
		return PEAL_RQ_EMPTY;
	rq->wqe.index = rq->ring.next;
	if (unlikely(pending < 0))
		*reason = PEAL_REASON_RECV_RING_INDEX;
	else
		*reason = peal_wqe_parse_recv(peal_ring_slot(&rq->ring), &rq->limits, &rq->wqe);
	peal_ring_take(&rq->ring);
	rq->fault = *reason;
	rq->holding = true;
	if (rq->kicked && !rq->refusing)
		peal_rq_want_kick(rq, false);
	return *reason ? PEAL_RQ_MALFORMED : PEAL_RQ_TAKEN;
}

/*
 * In error. Take the next WQE that must be flushed. Those of a shared receive queue are left to
 * other queue pairs, and so are those of a ring whose producer index is invalid, because they
 * cannot be named. Return: false if none is left.
 */
bool peal_rq_take_flushed(struct peal_rq *rq)
{
	enum peal_reason reason;

	lockdep_assert_held(&rq->lock);
	return rq->holding || (!rq->shared && !rq->srq_by_message &&
			       peal_ring_pending(&rq->ring) > 0 &&
			       peal_rq_take(rq, &reason) != PEAL_RQ_EMPTY);
}

/*
 * In error, when nothing is left to flush. Return: true once, if the WQEs were taken from a shared
 * receive queue, because the event "last WQE reached" is due then. An XRC queue pair belongs to no
 * shared receive queue.
 */
bool peal_rq_is_last(struct peal_rq *rq)
{
	bool first = rq->shared && !rq->srq_by_message && !rq->last_told;

	lockdep_assert_held(&rq->lock);
	rq->last_told |= first;
	return first;
}

/* The held WQE was completed. */
void peal_rq_done(struct peal_rq *rq)
{
	lockdep_assert_held(&rq->lock);
	rq->holding = false;
	if (!rq->shared)
		peal_ring_show(&rq->ring);
}

/*
 * The held WQE ends without a CQE. It goes back to the shared receive queue that it was taken from.
 * Return: whether receive queues wait there.
 */
bool peal_rq_repost(struct peal_rq *rq)
{
	lockdep_assert_held(&rq->lock);
	rq->holding = false;
	return peal_srq_ring_repost(rq->shared, &rq->wqe);
}

/* Accept nothing more. Ask for kicks, because receives posted from now on must be flushed. */
void peal_rq_refuse(struct peal_rq *rq)
{
	lockdep_assert_held(&rq->lock);
	rq->refusing = true;
	peal_rq_end_wait(rq);
	peal_rq_want_kick(rq, true);
}

/* Return: true for the first message since the queue pair went to RTR. */
bool peal_rq_establish(struct peal_rq *rq)
{
	bool first = !rq->established;

	lockdep_assert_held(&rq->lock);
	rq->established = true;
	rq->routine = !rq->srq_by_message;
	return first;
}

void peal_rq_want_kick(struct peal_rq *rq, bool want)
{
	lockdep_assert_held(&rq->lock);
	rq->kicked = want;
	peal_ring_want_kick(&rq->ring, want);
}
