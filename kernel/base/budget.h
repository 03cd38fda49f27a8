/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * How much may be done before somebody else has a turn.
 *
 * Everything has a price in bytes, that is in the time it takes to copy as many:
 * a lock is held, and a caller kept in the kernel, for a time and not for a number
 * of WQEs. The last step may overdraw the budget; a step is bounded by itself.
 * Does not know: what is bought, and who has the next turn.
 */
#ifndef PEAL_BUDGET_H
#define PEAL_BUDGET_H

#include <linux/types.h>

/* To take a WQE from its ring, check it, and complete it. */
#define PEAL_COST_WQE		2048
/* To look an entry of a list up, or to begin a copy at another place. */
#define PEAL_COST_PIECE		1024
/* To complete a message whose packets were answered. */
#define PEAL_COST_COMPLETION	128
/*
 * A packet, beside its payload. What the network stack takes for it is far more,
 * but a window that leaves in parts, from two CPUs, arrives out of order.
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

#endif
