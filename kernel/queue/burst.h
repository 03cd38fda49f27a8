/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A burst: deferred notifications. Completions, events and queue pair errors are collected
 * under locks, and are raised after the locks are dropped.
 *
 * Owns: the lists of completion queues to notify, of events to raise, and of queue pairs to
 * put into error. A burst lives on the stack of the function that begins it. Completion and
 * event handlers may call back into the device. They therefore run last, with no lock held,
 * but still inside the guard, because the guard keeps the objects alive.
 * Does not know: the causes of the notifications.
 */
#ifndef PEAL_BURST_H
#define PEAL_BURST_H

#include "base/guard.h"
#include "queue/cq.h"

#define PEAL_BURST_CQS		4
#define PEAL_BURST_EVENTS	8
#define PEAL_BURST_QPS		2

struct peal_qp;

struct peal_burst {
	u32 num_cqs;
	u32 num_events;
	struct peal_cq *cq[PEAL_BURST_CQS];
	struct {
		struct ib_qp *qp;
		enum ib_event_type type;
	} event[PEAL_BURST_EVENTS];
	u32 num_failed;
	struct {
		struct peal_qp *qp;
		u32 life;
	} failed[PEAL_BURST_QPS];		/* queue pairs to put into error */
};

/* Leave the arrays uncleared, because they are read only up to these counts. */
static inline void peal_burst_begin(struct peal_burst *burst)
{
	burst->num_cqs = 0;
	burst->num_events = 0;
	burst->num_failed = 0;
}

/*
 * Note that @cq must be notified. All three arrays are long enough, because a burst serves only
 * one queue pair and its peer.
 */
static inline void peal_burst_cq(struct peal_burst *burst, struct peal_cq *cq)
{
	u32 i;

	for (i = 0; i < burst->num_cqs; i++)
		if (burst->cq[i] == cq)
			return;
	if (!WARN_ON_ONCE(i == PEAL_BURST_CQS))
		burst->cq[burst->num_cqs++] = cq;
}

/* Note an event to raise. A burst raises each event type at most once per queue pair. */
static inline void peal_burst_event(struct peal_burst *burst, struct ib_qp *qp,
				    enum ib_event_type type)
{
	u32 i;

	for (i = 0; i < burst->num_events; i++)
		if (burst->event[i].qp == qp && burst->event[i].type == type)
			return;
	if (WARN_ON_ONCE(i == PEAL_BURST_EVENTS))
		return;
	burst->event[burst->num_events].qp = qp;
	burst->event[burst->num_events++].type = type;
}

/*
 * Put @qp into error when the burst ends, because the caller may hold a lock that the change to
 * ERR takes. @life is the current qp->life; see peal_qp_end().
 */
static inline void peal_burst_fail(struct peal_burst *burst, struct peal_qp *qp, u32 life)
{
	u32 i;

	for (i = 0; i < burst->num_failed; i++)
		if (burst->failed[i].qp == qp)
			break;
	if (WARN_ON_ONCE(i == PEAL_BURST_QPS))
		return;
	burst->failed[i].qp = qp;
	burst->failed[i].life = life;
	burst->num_failed = max(burst->num_failed, i + 1);
}

static inline void peal_burst_raise_event(struct ib_qp *qp, enum ib_event_type type)
{
	struct ib_event event = { .device = qp->device, .element.qp = qp, .event = type };

	if (qp->event_handler)
		qp->event_handler(&event, qp->qp_context);
}

/* Call inside the guard with no lock held, because handlers may post and poll. */
static inline void peal_burst_raise(struct peal_burst *burst)
{
	u32 i;

	peal_guard_assert_held();
	for (i = 0; i < burst->num_cqs; i++)
		peal_cq_notify(burst->cq[i]);
	for (i = 0; i < burst->num_events; i++)
		peal_burst_raise_event(burst->event[i].qp, burst->event[i].type);
}

#endif
