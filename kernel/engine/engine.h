/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The engine of one device. It decides when each queue pair runs, in which
 * place in the kernel, and for how long.
 *
 * Each of these places gives a queue pair a turn:
 *  - the caller of a kick, within a budget (kick.c). This is the normal case, because it needs
 *    no wake-up;
 *  - the poller (poller.c), a thread that spins on the doorbells. It spins only while it is
 *    the only runnable task of its CPU. While it spins, posting is a store;
 *  - a worker, for the work that a budget or a timer left over. For a queue pair
 *    that sends packets it runs on the CPU of the last turn. A link queues packets by CPU, so
 *    packets of one queue pair that leave from two CPUs overtake each other. A device has one
 *    worker for each CPU, and one that runs anywhere. Each serves a run list. If
 *    that of a CPU does not run, because a real-time thread has the CPU, the other one helps;
 *  - the queue pair's timer;
 *  - a packet that arrives (../transport/demux.c).
 *
 * A queue pair that a program's call handed to the worker is also on a list of its context. The
 * context's next kick goes on with it unless the worker has started. So the work is done in the
 * program's own time as long as the program goes on kicking.
 *
 * Owns: the run lists, the turn, its request now or later, the timers and the workers.
 * Does not know: what running a queue pair means (the transports), how a kick or the poller finds
 * work.
 */
#ifndef PEAL_ENGINE_H
#define PEAL_ENGINE_H

#include <linux/hrtimer.h>
#include <linux/ktime.h>
#include <linux/list.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>

#include "base/budget.h"
#include "base/table.h"
#include "object/context.h"
#include "object/qp.h"

/*
 * The queue pairs of one device that have work to do.
 *
 * Owns: the run lists, one for each CPU and one for work that any CPU may do. A queue pair is on at
 * most one of them. Also for each context the list of its overdue queue pairs, whose last turn
 * ended before their work. A queue pair that is taken from its run list is taken from that list,
 * too.
 *
 * Lock: runlists->lock guards all lists of a device. Nothing else is taken inside it. It is taken
 * with interrupts off, because kernel users post in any context. A caller that takes a
 * queue pair is inside the epoch. The destroyer of a queue pair removes it from the lists
 * and then waits for the epoch.
 */

/* How many looks have found queue pairs on a run list since one was taken from it. */
enum peal_runlist_looks {
	PEAL_RUNLIST_SERVED,
	PEAL_RUNLIST_WAITS,
	PEAL_RUNLIST_STARVES,
};

struct peal_runlist {
	/* Guarded by runlists.lock: */
	struct list_head qps;		/* by peal_run.node */
	enum peal_runlist_looks looks;

	struct work_struct work;	/* serves this list */
	struct peal_engine *engine;
};

struct peal_runlists {
	spinlock_t lock;		/* guards the fields marked with it */
	struct peal_runlist any;	/* of queue pairs that run on any CPU */
	struct peal_runlist __percpu *cpu;	/* of queue pairs that send packets */
};

int peal_runlists_init(struct peal_runlists *lists, struct peal_engine *engine, work_func_t work);
void peal_runlists_free(struct peal_runlists *lists);
void peal_runlist_init_qp(struct peal_qp *qp);

void peal_runlist_add(struct peal_runlists *lists, struct peal_runlist *list, struct peal_qp *qp);
void peal_runlist_return(struct peal_runlists *lists, struct peal_runlist *list,
			 struct peal_qp *qp);
void peal_runlist_mark_overdue(struct peal_runlists *lists, struct peal_qp *qp);
void peal_runlist_remove(struct peal_runlists *lists, struct peal_qp *qp);
struct peal_qp *peal_runlist_pop(struct peal_runlists *lists, struct peal_runlist *list);
struct peal_qp *peal_runlist_pop_overdue(struct peal_runlists *lists, struct peal_context *ctx);
enum peal_runlist_looks peal_runlist_look(struct peal_runlists *lists, struct peal_runlist *list);

/* These two are only hints, because no lock is held. */
static inline bool peal_runlist_is_empty(const struct peal_runlist *list)
{
	return list_empty_careful(&list->qps);
}

static inline bool peal_runlist_starves(const struct peal_runlist *list)
{
	return READ_ONCE(list->looks) == PEAL_RUNLIST_STARVES;
}

/* How often `watch` looks. It helps a CPU whose list two looks in a row find not served. */
#define PEAL_WATCH_JIFFIES	(HZ / 20)

/* The thread that scans doorbells. Only poller.c writes it. */
struct peal_poller {
	spinlock_t lock;		/* also guards the pages' words */

	/* Guarded by poller.lock: */
	struct list_head contexts;	/* all contexts; scanned inside the epoch */
	struct list_head told;		/* contexts whose pages say AWAKE, by peal_context.awake */
	bool gone;			/* the device is being removed; no page says AWAKE */

	u64 pass;			/* number of the present pass; the scanner's */
	bool awake;			/* the thread scans doorbells and run list */
	bool wanted;			/* the thread is asked to try to spin */
	u64 not_before;			/* earliest next try to spin, local_clock() ns */
	struct task_struct *thread;
	struct work_struct last_pass;	/* finishes the last pass; the thread waits for it */
};

struct peal_engine {
	struct peal_table *table;	/* set by lifecycle.c */
	struct peal_runlists run;	/* filled here and by poller.c */
	/* Written here: */
	struct workqueue_struct *cpu_wq;	/* for the works of the CPUs' run lists */
	struct delayed_work watch;	/* looks whether each CPU serves its run list */
	struct peal_poller poller;
};

/*
 * A turn of a queue pair, which every context that runs queue pairs calls.
 *
 * Owns: how long a turn lasts, on which CPU packets may be sent, and what follows
 * when the locks are dropped.
 */

/* Budget of one turn (budget.h). Locks are held and softirqs are off for that long. */
#define PEAL_TURN_BUDGET	(128 << 10)

bool peal_turn(struct peal_qp *qp, struct peal_budget *whole);
bool peal_turn_once(struct peal_qp *qp);
void peal_turn_end(struct peal_notify *notify);
bool peal_turn_leave_to(struct peal_qp *qp, int cpu);

/* Under sq.lock. Run the queue. Return: true when @budget ended before the work. */
static inline bool peal_turn_locked(struct peal_qp *qp, struct peal_notify *notify,
				    struct peal_budget *budget)
{
	struct peal_transport *transport = qp->transport;
	bool more;

	peal_epoch_assert_held();
	lockdep_assert_held(&qp->sq.lock);
	if (unlikely(!transport))
		return false;	/* the queue pair is being destroyed */
	more = transport->ops->run(transport, notify, budget);
	peal_ring_show(&qp->sq.ring);
	return more;
}

/*
 * Requests for a turn of a queue pair, at once or at a given time.
 *
 * Owns: the choice of the context that gives the turn, the queue pair's timer, and the rule
 * that a later time never replaces an earlier one.
 */

void peal_schedule_init(struct peal_qp *qp, struct peal_engine *e,
			enum hrtimer_restart (*expired)(struct hrtimer *timer));
void peal_schedule_cancel(struct peal_qp *qp);

void peal_defer(struct peal_qp *qp);
void peal_defer_here(struct peal_qp *qp);
void peal_defer_overdue(struct peal_qp *qp);
void peal_defer_on_cpu(struct peal_qp *qp);

void peal_schedule_timer(struct peal_qp *qp, ktime_t when);

/*
 * The handler of the queue pairs' timers.
 *
 * Owns: how much timers may do in softirq.
 */

enum hrtimer_restart peal_timer_expired(struct hrtimer *timer);

/*
 * The worker does in process context what a budget or a timer left over.
 *
 * Owns: the works that serve the run lists, and the look whether each CPU serves its list.
 */

int peal_worker_start(struct peal_engine *e, const char *name);
void peal_worker_stop(struct peal_engine *e);
bool peal_worker_serve_next(struct peal_runlist *list);

#endif
