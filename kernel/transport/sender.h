/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The operations on a send queue that every transport needs: take WQEs off it, execute local
 * operations, complete and fail them, drain (SQD) and flush.
 *
 * Owns: nothing; acts on the queue pair.
 * Does not know: how messages travel, when it is called and by which code.
 */
#ifndef PEAL_SENDER_H
#define PEAL_SENDER_H

#include "base/budget.h"
#include "queue/qp.h"
#include "transport/outcome.h"

void peal_sender_drain(struct peal_qp *qp, struct peal_notify *notify);

/*
 * May the next WQE be taken from the ring? In SQD this also raises SQ_DRAINED
 * once the queue is drained.
 */
static inline bool peal_sender_may_begin(struct peal_qp *qp, struct peal_notify *notify)
{
	lockdep_assert_held(&qp->sq.lock);
	if (likely(qp->state == IB_QPS_RTS))
		return true;
	peal_sender_drain(qp, notify);
	return false;
}

/* May the queue pair send? In SQD it still finishes the WQE that has started. */
static inline bool peal_sender_works(const struct peal_qp *qp)
{
	lockdep_assert_held(&qp->sq.lock);
	return qp->state == IB_QPS_RTS || (qp->state == IB_QPS_SQD && qp->sq.busy);
}

/* May the next WQE be taken, or may one that has started go on? */
static inline bool peal_sender_may_run(struct peal_qp *qp, struct peal_notify *notify)
{
	return peal_sender_may_begin(qp, notify) || peal_sender_works(qp);
}

bool peal_sender_fetch(struct peal_qp *qp, struct peal_notify *notify, u32 psn);
struct peal_outcome peal_sender_local(struct peal_qp *qp);
void peal_sender_finish(struct peal_qp *qp, struct peal_notify *notify, u8 status,
			enum peal_reason reason);
void peal_sender_fail(struct peal_qp *qp, struct peal_notify *notify, u8 status,
		      enum peal_reason reason);
bool peal_sender_flush(struct peal_qp *qp, struct peal_notify *notify, struct peal_budget *budget);

#endif
