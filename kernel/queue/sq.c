// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See sq.h. The caller of each function but peal_sq_init() holds sq->lock.
 */
#include "queue/sq.h"

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
	sq->wqe.opcode = PEAL_OP_INVALID;
	sq->wqe.flags = 0;
	if (unlikely(pending < 0))
		*reason = PEAL_REASON_RING_INDEX;
	else
		*reason = peal_wqe_parse_send(peal_ring_slot(&sq->ring), &sq->limits, &sq->wqe);
	peal_ring_take(&sq->ring);
	sq->busy = true;
	return *reason ? PEAL_SQ_MALFORMED : PEAL_SQ_FETCHED;
}

/**
 * peal_sq_is_followed() - tell whether a message will leave right behind the one just fetched
 *
 * A READ, an atomic or an ATOMIC_WRITE does not count, because it may have to wait. It takes a
 * responder resource, and a READ takes one PSN for each packet of its response. A local operation
 * (bind, invalidate) does not count, because it waits for all earlier messages. The answer is a
 * hint, because the program may change the slot.
 */
bool peal_sq_is_followed(const struct peal_sq *sq)
{
	const struct peal_send_wqe *next = peal_ring_slot(&sq->ring);
	const struct peal_op *op;

	lockdep_assert_held(&sq->lock);
	if (peal_ring_pending(&sq->ring) <= 0)
		return false;
	op = peal_op(READ_ONCE(next->opcode));
	return op->sends && !op->resource;
}

/* The WQE was executed, or its message is in flight and the transport keeps its state. */
void peal_sq_finish(struct peal_sq *sq)
{
	lockdep_assert_held(&sq->lock);
	sq->busy = false;
}

void peal_sq_begin_drain(struct peal_sq *sq)
{
	lockdep_assert_held(&sq->lock);
	sq->drained = false;
}

/* In SQD. Return: true once, when no WQE is being executed any more. */
bool peal_sq_drain(struct peal_sq *sq)
{
	bool first = !sq->busy && !sq->drained;

	lockdep_assert_held(&sq->lock);
	sq->drained |= first;
	return first;
}
