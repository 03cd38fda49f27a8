/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A budget: how much work may be done before another queue pair or program has its turn, and where
 * the rest is done.
 *
 * Each step has a price in bytes, which is the time that copying as many bytes would take. The
 * price stands for time, because the budget bounds how long a lock is held and how long a caller
 * stays in the kernel. The last step may overdraw the budget, because each step is bounded by
 * itself.
 */
#ifndef PEAL_BUDGET_H
#define PEAL_BUDGET_H

#include <linux/types.h>
#include <linux/workqueue.h>

/* Take a WQE from its ring, check it, and complete it. */
#define PEAL_COST_WQE		2048
/* Look up an entry of a scatter-gather list, or begin a copy at another address. */
#define PEAL_COST_PIECE		1024
/* Complete a message whose packets were acknowledged. */
#define PEAL_COST_COMPLETION	128
/*
 * A packet, in addition to its payload. The network stack takes far more time for a packet.
 * The price is low so that a window leaves in one turn, because a window that leaves in
 * parts from two CPUs arrives out of order.
 */
#define PEAL_COST_PACKET	64

struct peal_budget {
	s64 left;
};

static inline void peal_budget_spend(struct peal_budget *budget, u64 cost)
{
	budget->left -= cost;
}

static inline bool peal_budget_is_left(const struct peal_budget *budget)
{
	return budget->left > 0;
}

/*
 * What one kind of work in softirq may cost on one CPU in a jiffy. A budget for each piece of such
 * work is not enough, because many pieces may be due at once.
 */
struct peal_allowance {
	u64 jiffy;			/* in which the budget was given */
	struct peal_budget budget;
};

/*
 * On the CPU of @allowance, with softirqs off. @now: the present jiffy, from get_jiffies_64().
 * Return: the budget of this jiffy, which was @most in the beginning.
 */
static inline struct peal_budget *peal_allowance_at(struct peal_allowance *allowance, u64 now,
						    s64 most)
{
	if (allowance->jiffy != now)
		*allowance = (struct peal_allowance){ .jiffy = now, .budget.left = most };
	return &allowance->budget;
}

/*
 * The module's workqueue. It runs the work that is left when a budget ends, and work that must not
 * run in the context that found it. It is unbound, and has WQ_MEM_RECLAIM, because storage that
 * memory reclaim waits for may use a queue pair whose remaining work is done here. It is in sysfs,
 * where an administrator may choose its CPUs and its nice value. Code that queues a work item must
 * also wait for it to end.
 */
extern struct workqueue_struct *peal_workers;

/* Any context. Return: false when @work was queued already. */
static inline bool peal_workers_queue(struct work_struct *work)
{
	return queue_work(peal_workers, work);
}

/* The same, when @delay jiffies are over. */
static inline bool peal_workers_queue_later(struct delayed_work *work, unsigned long delay)
{
	return queue_delayed_work(peal_workers, work, delay);
}

#endif
