// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See rq.h. The caller of each function but peal_rq_init() holds rq->lock.
 */
#include "queue/rq.h"

void peal_rq_init(struct peal_rq *rq, void *ctl, void *slots, u32 entries, u32 stride,
		  const struct peal_wqe_limits *limits)
{
	spin_lock_init(&rq->lock);
	rq->ring = (struct peal_ring){
		.ctl = ctl, .slots = slots, .mask = entries - 1, .stride = stride,
	};
	rq->limits = *limits;
}

void peal_rq_reset(struct peal_rq *rq)
{
	lockdep_assert_held(&rq->lock);
	peal_ring_discard(&rq->ring);
	peal_rq_want_kick(rq, false);
	rq->holding = false;
	rq->refusing = false;
	rq->established = false;
}

/*
 * On the wire a kick is useless, because an RNR NAK has told the peer when to send again. Set
 * @patient to ask for none.
 */
void peal_rq_set_patient(struct peal_rq *rq, bool patient)
{
	lockdep_assert_held(&rq->lock);
	rq->patient = patient;
}

static int peal_rq_pending(struct peal_rq *rq)
{
	int pending = peal_ring_pending(&rq->ring);

	lockdep_assert_held(&rq->lock);
	if (pending || rq->patient)
		return pending;
	peal_rq_want_kick(rq, true);
	return peal_ring_pending(&rq->ring);	/* after barrier C */
}

/**
 * peal_rq_take() - take the next receive WQE, unless one is held already
 * @reason: set to the fault of a malformed WQE, otherwise to PEAL_REASON_NONE
 *
 * If the queue is empty and not patient, the program's next post kicks. A malformed WQE is taken
 * too, because the caller completes it in error.
 */
enum peal_rq_taken peal_rq_take(struct peal_rq *rq, enum peal_reason *reason)
{
	int pending;

	lockdep_assert_held(&rq->lock);
	*reason = PEAL_REASON_NONE;
	if (rq->holding)
		return PEAL_RQ_TAKEN;
	pending = peal_rq_pending(rq);
	if (!pending)
		return PEAL_RQ_EMPTY;
	rq->wqe.index = rq->ring.next;
	if (unlikely(pending < 0))
		*reason = PEAL_REASON_RECV_RING_INDEX;
	else
		*reason = peal_wqe_parse_recv(peal_ring_slot(&rq->ring), &rq->limits, &rq->wqe);
	peal_ring_take(&rq->ring);
	rq->holding = true;
	if (rq->kicked && !rq->refusing)
		peal_rq_want_kick(rq, false);
	return *reason ? PEAL_RQ_MALFORMED : PEAL_RQ_TAKEN;
}

/* The held WQE was completed. */
void peal_rq_done(struct peal_rq *rq)
{
	lockdep_assert_held(&rq->lock);
	rq->holding = false;
	peal_ring_show(&rq->ring);
}

/* Accept nothing more. Ask for kicks, because receives posted from now on must be flushed. */
void peal_rq_refuse(struct peal_rq *rq)
{
	lockdep_assert_held(&rq->lock);
	rq->refusing = true;
	peal_rq_want_kick(rq, true);
}

/* Return: true for the first message since the queue pair went to RTR. */
bool peal_rq_establish(struct peal_rq *rq)
{
	bool first = !rq->established;

	lockdep_assert_held(&rq->lock);
	rq->established = true;
	return first;
}

void peal_rq_want_kick(struct peal_rq *rq, bool want)
{
	lockdep_assert_held(&rq->lock);
	rq->kicked = want;
	peal_ring_want_kick(&rq->ring, want);
}
