/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A burst: what a stretch of work owes the outside once its locks are dropped.
 *
 * Owns: the list of completion queues to notify and of events to raise, on the
 * stack of whoever works. Handlers may call back into the device, so they run
 * last, with no lock held but still inside the guard, which keeps the objects.
 * Does not know: why.
 */
#ifndef PEAL_BURST_H
#define PEAL_BURST_H

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
	} failed[PEAL_BURST_QPS];		/* to be put into error */
};

/* The arrays are read as far as these say: no need to clear them. */
static inline void peal_burst_begin(struct peal_burst *burst)
{
	burst->num_cqs = 0;
	burst->num_events = 0;
	burst->num_failed = 0;
}

/* A burst serves one queue pair and its peer, so all three arrays are long enough. */
static inline void peal_burst_cq(struct peal_burst *burst, struct peal_cq *cq)
{
	u32 i;

	for (i = 0; i < burst->num_cqs; i++)
		if (burst->cq[i] == cq)
			return;
	if (!WARN_ON_ONCE(i == PEAL_BURST_CQS))
		burst->cq[burst->num_cqs++] = cq;
}

/* Each event of a queue pair once. */
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

/* A lock that going into error needs may be held now: later. @life: the queue pair's. */
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

/* Inside the guard, no lock held. */
static inline void peal_burst_raise(struct peal_burst *burst)
{
	u32 i;

	for (i = 0; i < burst->num_cqs; i++)
		peal_cq_notify(burst->cq[i]);
	for (i = 0; i < burst->num_events; i++)
		peal_burst_raise_event(burst->event[i].qp, burst->event[i].type);
}

#endif
