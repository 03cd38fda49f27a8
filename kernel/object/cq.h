/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Completion queues: the CQEs, the decision when an event is due, its moderation, and the handling
 * of a full ring. A kernel user's completion queue has the same ring; the kernel is then its
 * consumer too.
 *
 * Lock: cq->lock. Only faults.lock is taken inside it. Completion handlers are called with no lock
 * held, because a handler may post again.
 *
 * The kernel's contract (core_locking.rst) forbids to call a handler in the call chain of a verb,
 * and two handlers of one queue at a time. So a tasklet calls the handlers of kernel users. For a
 * queue that the RDMA core polls it runs on the CPU of the completion vector
 * (peal_cq_set_vector()). A program's handler is the core's. It only wakes up the program, and is
 * called at once.
 */
#ifndef PEAL_CQ_H
#define PEAL_CQ_H

#include <linux/bitops.h>
#include <linux/hrtimer.h>
#include <linux/interrupt.h>
#include <linux/mutex.h>
#include <linux/smp.h>
#include <linux/workqueue.h>
#include <rdma/ib_verbs.h>

#include "base/budget.h"
#include "base/quota.h"
#include "base/table.h"
#include "object/wqe.h"

/*
 * Asynchronous events of an object. The data path also runs in post_send and modify_qp, so a work
 * calls the handlers of kernel users, for the same reason as above. A program's handler is the
 * core's, which only queues the event, so it is called at once.
 */
struct peal_events {
	unsigned long due;		/* bits by enum ib_event_type; atomic */
	struct work_struct work;
	void (*call)(struct peal_events *events, enum ib_event_type type);
};

void peal_events_init(struct peal_events *events,
		      void (*call)(struct peal_events *events, enum ib_event_type type));
void peal_events_raise(struct peal_events *events, bool program, enum ib_event_type type);

/* Nothing raises events any more. Wait for the handler. Sleeps. */
static inline void peal_events_end(struct peal_events *events)
{
	flush_work(&events->work);
}

struct peal_map;

struct peal_cq {
	struct ib_cq ib;
	spinlock_t lock;		/* guards the fields marked with it */

	/* Guarded by cq.lock: */
	struct peal_cq_ring ring;
	bool solicited;			/* a solicited or failed CQE came since the last check */
	bool overflowed;		/* a CQE was lost; no further CQE is accepted */
	bool overflow_reported;
	u16 most_held;			/* moderation: an event for so many CQEs; 0: at once */
	u16 held_us;			/* moderation: or this long after the first CQE */
	bool held;			/* the next event is due, and waits for the timer */
	u32 held_from;			/* index of the first CQE that the next event is for */

	/* Guarded by cq.lock: */
	struct list_head late;		/* CQEs that become visible later */
	u32 num_late;

	struct hrtimer late_timer;	/* the first late CQE becomes visible; softirq */
	struct peal_faults *faults;	/* NULL: the device was made without */
	struct hrtimer moderation;	/* raises the held event; softirq */
	u32 clocks;			/* PEAL_CQ_*: the times that a CQE gets */
	bool plain;			/* no times, no faults */
	struct peal_map *map;		/* control words, and the CQEs until the first resize */
	struct mutex resizing;		/* serialises resizes */

	/* Guarded by cq.resizing: */
	struct peal_map *resized;	/* the CQEs since the last resize, or NULL */
	struct peal_map *prepared;	/* the next ring, or NULL */
	u32 prepared_entries;

	/* Only queues of kernel users need these: */
	struct tasklet_struct tasklet;	/* calls the handler */
	atomic_t raised;		/* number of events that were raised for it */
	atomic_t handled;		/* of these, those whose handler has returned */
	int cpu;			/* where the tasklet is scheduled, or -1: anywhere */
	call_single_data_t call;	/* schedules it there; in use while call_queued is set */
	atomic_t call_queued;		/* a call is queued and has not begun */
	atomic_t calls;			/* calls that have not ended */
	struct peal_events events;

	struct peal_account *account;	/* the context's, or the kernel's */
	spinlock_t poll_lock;		/* for kernel consumers */

	/* Guarded by cq.poll_lock: */
	u32 taken;			/* CQEs read; free-running */
	u32 armings;
	struct peal_lookup completed;	/* remembers the last CQE's queue pair; see table.h */
};

static inline struct peal_cq *peal_cq(struct ib_cq *ib)
{
	return container_of(ib, struct peal_cq, ib);
}

int peal_cq_init(struct peal_cq *cq, struct peal_account *account, struct ib_ucontext *uctx,
		 u32 entries, u32 clocks);
void peal_cq_set_vector(struct peal_cq *cq, u32 vector);
void peal_cq_destroy(struct peal_cq *cq);
void peal_cq_describe(const struct peal_cq *cq, struct peal_create_cq_resp *resp);
int peal_cq_prepare_resize(struct peal_cq *cq, struct ib_ucontext *uctx, u32 entries,
			   struct peal_resize_cq_resp *resp);
int peal_cq_resize(struct peal_cq *cq);
void peal_cq_moderate(struct peal_cq *cq, u16 count, u16 us);

bool peal_cq_push(struct peal_cq *cq, const struct peal_cqe *cqe);

/*
 * The common case of peal_cq_push(), for a message that its sender has completed with success.
 * Return: false if nothing was done, because the ring is full, or its CQEs get times or may be
 * late.
 */
static inline bool peal_cq_push_sent(struct peal_cq *cq, u32 qp_index, u32 qp_num,
				     const struct peal_wqe *wqe)
{
	bool plain;

	lockdep_assert(softirq_count());
	spin_lock(&cq->lock);
	plain = !cq->overflowed && cq->plain && !peal_cq_ring_full(&cq->ring);
	if (likely(plain))
		peal_cq_ring_push_sent(&cq->ring, qp_index, qp_num, wqe);
	spin_unlock(&cq->lock);
	return plain;
}

void peal_cq_show_late(struct peal_cq *cq);
void peal_cq_overflow(struct peal_cq *cq);
void peal_cq_notify(struct peal_cq *cq);
void peal_cq_wait_handler(struct peal_cq *cq);

bool peal_cq_take(struct peal_cq *cq, struct peal_cqe *cqe);
struct peal_cqe *peal_cq_untaken(struct peal_cq *cq, u32 i);
void peal_cq_show_taken(struct peal_cq *cq);
int peal_cq_arm(struct peal_cq *cq, enum ib_cq_notify_flags flags);
void peal_cq_wait_pollers(struct peal_cq *cq);

#endif
