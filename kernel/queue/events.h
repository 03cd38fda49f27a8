/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Asynchronous events of an object that belongs to a kernel user.
 *
 * Owns: which events are due, and the work that calls the user's handler. The kernel's contract
 * (core_locking.rst) forbids to call a handler in the call chain of a verb, and the data path runs
 * in post_send and modify_qp, too. A program's handler is the RDMA core's, which only queues the
 * event, so it is called at once.
 * Does not know: the object. Its own work function takes the events and calls the handler.
 */
#ifndef PEAL_EVENTS_H
#define PEAL_EVENTS_H

#include <linux/bitops.h>
#include <linux/workqueue.h>
#include <rdma/ib_verbs.h>

#include "base/workers.h"

struct peal_events {
	unsigned long due;		/* bits by enum ib_event_type; atomic */
	struct work_struct work;
};

static inline void peal_events_init(struct peal_events *events, work_func_t work)
{
	events->due = 0;
	INIT_WORK(&events->work, work);
}

/* Any context. The caller keeps the object alive until peal_events_end(). */
static inline void peal_events_note(struct peal_events *events, enum ib_event_type type)
{
	set_bit(type, &events->due);
	peal_workers_queue(&events->work);
}

/* The work function calls this until it returns false. */
static inline bool peal_events_take(struct peal_events *events, enum ib_event_type *type)
{
	unsigned long due = READ_ONCE(events->due);

	if (!due)
		return false;
	*type = __ffs(due);
	clear_bit(*type, &events->due);
	smp_mb__after_atomic();	/* an event that is noted from here on is another one */
	return true;
}

/* Nothing notes events any more. Wait for the handler. Sleeps. */
static inline void peal_events_end(struct peal_events *events)
{
	flush_work(&events->work);
}

#endif
