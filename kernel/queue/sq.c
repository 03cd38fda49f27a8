// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See sq.h. Every function wants sq->lock, but for init.
 */
#include <rdma/ib_verbs.h>

#include "queue/sq.h"

#define PEAL_PSN_MASK	0xffffff

/* IBTA 9.7.5.2.8: this RNR retry count means "for ever". */
#define PEAL_RNR_FOREVER	7

/*
 * Who waits for ever waits longer each time, up to this: the receiver's kick ends
 * the wait, and a queue pair that looks every 10 us costs as much as one that works.
 */
#define PEAL_RNR_LONGEST_NS	8000000ULL

void peal_sq_init(struct peal_sq *sq, void *ctl, void *slots, u32 entries, u32 stride,
		  const struct peal_wqe_limits *limits)
{
	spin_lock_init(&sq->lock);
	sq->ring = (struct peal_ring){
		.ctl = ctl, .slots = slots, .mask = entries - 1, .stride = stride,
	};
	sq->limits = *limits;
}

/* The peer lives, or the limits are new: all tries are left. */
static void peal_sq_renew_retries(struct peal_sq *sq)
{
	sq->retries_left = sq->retry_limit;
	sq->rnr_left = sq->rnr_limit;
	sq->rnr_factor = 1;
}

/* To RESET: what was posted is forgotten, without completions. */
void peal_sq_reset(struct peal_sq *sq)
{
	peal_ring_discard(&sq->ring);
	sq->busy = false;
	sq->drained = false;
	sq->wait = PEAL_SQ_RUNS;
}

void peal_sq_set_psn(struct peal_sq *sq, u32 psn)
{
	sq->psn = psn & PEAL_PSN_MASK;
}

void peal_sq_set_limits(struct peal_sq *sq, u8 retry, u8 rnr)
{
	sq->retry_limit = retry;
	sq->rnr_limit = rnr;
	peal_sq_renew_retries(sq);
}

/**
 * peal_sq_fetch() - take the next WQE off the ring
 * @reason: set when it is malformed
 *
 * Also a malformed WQE is taken: sq->wqe.index is what to complete.
 */
enum peal_sq_fetched peal_sq_fetch(struct peal_sq *sq, enum peal_reason *reason)
{
	int pending = peal_ring_pending(&sq->ring);

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
	sq->done = 0;
	peal_sq_renew_retries(sq);
	return *reason ? PEAL_SQ_MALFORMED : PEAL_SQ_FETCHED;
}

/**
 * peal_sq_is_followed() - will a message leave right behind the one just fetched?
 *
 * No READ: it may be too long for what is under way, and wait. Nothing that is done
 * here: it waits for all before it. A hint, as the program may change the slot.
 */
bool peal_sq_is_followed(const struct peal_sq *sq)
{
	const struct peal_send_wqe *next = peal_ring_slot(&sq->ring);

	return peal_ring_pending(&sq->ring) > 0 && peal_op(READ_ONCE(next->opcode))->sends;
}

/* A chunk was carried: the peer lives, so the retries start anew. */
void peal_sq_advance(struct peal_sq *sq, u64 bytes)
{
	sq->done += bytes;
	peal_sq_renew_retries(sq);
}

/* The peer does not remember the message: once more from its first byte. */
void peal_sq_restart(struct peal_sq *sq)
{
	sq->done = 0;
}

void peal_sq_finish(struct peal_sq *sq, u32 packets)
{
	sq->psn = (sq->psn + packets) & PEAL_PSN_MASK;
	sq->busy = false;
}

static bool peal_sq_use_retry(u8 *left)
{
	if (!*left)
		return false;
	(*left)--;
	return true;
}

static void peal_sq_wait(struct peal_sq *sq, enum peal_sq_wait wait, u64 ns)
{
	sq->wait = wait;
	sq->until = ktime_add_ns(ktime_get(), ns);
}

static u64 peal_sq_rnr_time(struct peal_sq *sq, u64 ns)
{
	u64 longer = min_t(u64, ns * sq->rnr_factor, PEAL_RNR_LONGEST_NS);

	if (longer < PEAL_RNR_LONGEST_NS)
		sq->rnr_factor *= 2;
	return max(ns, longer);
}

/**
 * peal_sq_wait_receive() - the peer has answered RNR: try again @ns from now
 *
 * Return: false when that answer was one too many (IBTA 9.7.5.2.8).
 */
bool peal_sq_wait_receive(struct peal_sq *sq, u64 ns)
{
	if (sq->rnr_limit == PEAL_RNR_FOREVER)
		ns = peal_sq_rnr_time(sq, ns);
	else if (!peal_sq_use_retry(&sq->rnr_left))
		return false;
	peal_sq_wait(sq, PEAL_SQ_WAITS_RECEIVE, ns);
	return true;
}

/* The peer does not answer. Also the last try is waited for. */
void peal_sq_wait_answer(struct peal_sq *sq, u64 ns, enum peal_reason why)
{
	peal_sq_wait(sq, PEAL_SQ_WAITS_ANSWER, ns);
	sq->why = why;
}

/**
 * peal_sq_expire() - the time of a wait is over
 *
 * Return: false when the peer was silent and no retry is left (IBTA 9.7.6.1.3).
 */
bool peal_sq_expire(struct peal_sq *sq)
{
	bool silent = sq->wait == PEAL_SQ_WAITS_ANSWER;

	sq->wait = PEAL_SQ_RUNS;
	return !silent || peal_sq_use_retry(&sq->retries_left);
}

/* The cause of the wait is gone. */
void peal_sq_resume(struct peal_sq *sq)
{
	sq->wait = PEAL_SQ_RUNS;
}

void peal_sq_begin_drain(struct peal_sq *sq)
{
	sq->drained = false;
}

/* In SQD: true once, when nothing is under way any more. */
bool peal_sq_drain(struct peal_sq *sq)
{
	bool first = !sq->busy && !sq->drained;

	sq->drained |= first;
	return first;
}
