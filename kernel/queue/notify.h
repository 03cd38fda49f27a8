/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Deferred notifications. Completions, events and queue pair errors are collected
 * under locks, and are raised after the locks are dropped.
 *
 * Owns: the lists of completion queues to notify, of events to raise, of shared receive queues
 * whose events may be due, and of queue pairs to put into error. The struct lives on the stack of
 * the function that begins it. They are raised last, with no lock held, but still inside the epoch,
 * because the epoch keeps the objects alive. The handlers of kernel users, which may call back into
 * the device, run later (cq.h, events.h).
 * Does not know: the causes of the notifications.
 */
#ifndef PEAL_NOTIFY_H
#define PEAL_NOTIFY_H

#include "base/epoch.h"
#include "queue/cq.h"
#include "queue/srq.h"

#define PEAL_NOTIFY_CQS		8
#define PEAL_NOTIFY_EVENTS	8
#define PEAL_NOTIFY_QPS		2
#define PEAL_NOTIFY_SRQS	6

struct peal_qp;

struct peal_notify {
	u32 num_cqs;
	u32 num_events;
	struct peal_cq *cq[PEAL_NOTIFY_CQS];
	struct {
		struct ib_qp *qp;
		enum ib_event_type type;
	} event[PEAL_NOTIFY_EVENTS];
	u32 num_srqs;
	struct peal_srq *srq[PEAL_NOTIFY_SRQS];
	u32 num_failed;
	struct {
		struct peal_qp *qp;
		u32 generation;
	} failed[PEAL_NOTIFY_QPS];		/* queue pairs to put into error */
};

/* Leave the arrays uncleared, because they are read only up to these counts. */
static inline void peal_notify_begin(struct peal_notify *notify)
{
	notify->num_cqs = 0;
	notify->num_srqs = 0;
	notify->num_events = 0;
	notify->num_failed = 0;
}

/*
 * Note that @cq must be notified. All arrays are long enough, because one turn concerns only
 * one queue pair and its peer, or asks peal_notify_has_room() before the next receiver or, with
 * XRC, before the next shared receive queue.
 */
static inline void peal_notify_cq(struct peal_notify *notify, struct peal_cq *cq)
{
	u32 i;

	for (i = 0; i < notify->num_cqs; i++)
		if (notify->cq[i] == cq)
			return;
	if (!WARN_ON_ONCE(i == PEAL_NOTIFY_CQS))
		notify->cq[notify->num_cqs++] = cq;
}

/* Note that @srq must be notified. */
static inline void peal_notify_srq(struct peal_notify *notify, struct peal_srq *srq)
{
	u32 i;

	for (i = 0; i < notify->num_srqs; i++)
		if (notify->srq[i] == srq)
			return;
	if (!WARN_ON_ONCE(i == PEAL_NOTIFY_SRQS))
		notify->srq[notify->num_srqs++] = srq;
}

/* Note an event to raise. It raises each event type at most once per queue pair. */
static inline void peal_notify_event(struct peal_notify *notify, struct ib_qp *qp,
				     enum ib_event_type type)
{
	u32 i;

	for (i = 0; i < notify->num_events; i++)
		if (notify->event[i].qp == qp && notify->event[i].type == type)
			return;
	if (WARN_ON_ONCE(i == PEAL_NOTIFY_EVENTS))
		return;
	notify->event[notify->num_events].qp = qp;
	notify->event[notify->num_events++].type = type;
}

/*
 * Put @qp into error when the notifications are raised, because the caller may hold a lock that the
 * change to ERR takes. @generation is the current qp->generation; see peal_qp_end().
 */
static inline void peal_notify_fail(struct peal_notify *notify, struct peal_qp *qp, u32 generation)
{
	u32 i;

	for (i = 0; i < notify->num_failed; i++)
		if (notify->failed[i].qp == qp)
			break;
	if (WARN_ON_ONCE(i == PEAL_NOTIFY_QPS))
		return;
	notify->failed[i].qp = qp;
	notify->failed[i].generation = generation;
	notify->num_failed = max(notify->num_failed, i + 1);
}

/*
 * Is there room for what one more message may cause at its sender and its receiver? That is a
 * completion at each, an error of each, and the event that the send queue is drained.
 */
static inline bool peal_notify_has_room(const struct peal_notify *notify)
{
	return notify->num_cqs + 2 <= PEAL_NOTIFY_CQS &&
	       notify->num_events + 3 <= PEAL_NOTIFY_EVENTS && !notify->num_failed &&
	       notify->num_srqs < PEAL_NOTIFY_SRQS;
}

/* qp.c */
void peal_qp_raise(struct ib_qp *ib, enum ib_event_type type);

/* Call inside the epoch with no lock held, because the core's handlers take locks. */
static inline void peal_notify_raise(struct peal_notify *notify)
{
	u32 i;

	peal_epoch_assert_held();
	for (i = 0; i < notify->num_cqs; i++)
		peal_cq_notify(notify->cq[i]);
	for (i = 0; i < notify->num_srqs; i++)
		peal_srq_notify(notify->srq[i]);
	for (i = 0; i < notify->num_events; i++)
		peal_qp_raise(notify->event[i].qp, notify->event[i].type);
}

#endif
