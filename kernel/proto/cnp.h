/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * How often a queue pair notifies its peer of congestion.
 *
 * Owns: the least time between two congestion notification packets (CNPs) of a queue pair.
 * Does not know: which packets were marked, and how a CNP leaves.
 */
#ifndef PEAL_CNP_H
#define PEAL_CNP_H

#include <linux/types.h>

/*
 * In ns. The reaction to a CNP lasts for a round trip, so more of them say nothing new. RNICs have
 * a similar limit.
 */
#define PEAL_CNP_NS	50000

struct peal_cnp {
	u64 next;		/* no CNP before, monotonic ns */
};

/* A marked packet has arrived. May a CNP leave at @now? */
static inline bool peal_cnp_is_due(const struct peal_cnp *cnp, u64 now)
{
	return now >= cnp->next;
}

/* A CNP leaves at @now. */
static inline void peal_cnp_sent(struct peal_cnp *cnp, u64 now)
{
	cnp->next = now + PEAL_CNP_NS;
}

#endif
