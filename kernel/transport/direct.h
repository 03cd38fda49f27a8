/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The direct transport. Both queue pairs live in this kernel, so the sender copies a message
 * once, from one registered region into the other.
 *
 * Owns: the progress of the message in sq.wqe, its retries and waits; the search for the
 * peer; the check whether the wire would have delivered the message there (connection,
 * state, packet sequence number).
 * Does not know: packets, how it was proven that the peer is here (locality.h).
 */
#ifndef PEAL_DIRECT_H
#define PEAL_DIRECT_H

#include <linux/ktime.h>

#include "proto/retry.h"
#include "queue/qp.h"
#include "transport/locality.h"

/* What the send queue waits for. Posts during a wait only queue up. */
enum peal_direct_wait {
	PEAL_DIRECT_RUNS = 0,
	PEAL_DIRECT_WAITS_RECEIVE,	/* the peer has no receive posted (RNR) */
	PEAL_DIRECT_WAITS_ANSWER,	/* the peer does not answer */
	PEAL_DIRECT_WAITS_PAGE,		/* memory of either side is brought in */
	PEAL_DIRECT_WAITS_WIRE,		/* the next turn gives the message to the wire */
};

struct peal_direct {
	struct peal_transport base;
	struct peal_locality locality;
	/* The send side. */
	/* Guarded by sq.lock: */
	u32 psn;			/* PSN of the next message's first packet */
	u64 done;			/* bytes of sq.wqe that were copied */
	struct peal_retry retry;	/* for sq.wqe */
	enum peal_direct_wait wait;
	u32 page_waits;			/* in a row */
	ktime_t until;			/* end of the wait */
	bool woken;			/* a kick ended the wait for a receive before `until` */
	enum peal_reason why;		/* reason of the wait */
	struct peal_lookup peer;	/* look-up of dest_qp_num on this device */
	/* The receive side. */
	/* Guarded by rq.lock: */
	struct peal_recv_psn at;
	bool message;			/* the peer's message is placed in part */
	u32 waiter;			/* device of the sender to wake on a kick; 0: ours */
};

/* Called before @qp, of type RC, UC or XRC, is published. Sleeps. Return: 0 or -ENOMEM. */
int peal_direct_attach(struct peal_qp *qp, const struct peal_locality_device *device);

/*
 * Under sq.lock. The wire carries the message in sq.wqe, if there is one, from its beginning. The
 * peer has not executed it, because the direct path tells the sender at the same moment.
 */
void peal_direct_give_up(struct peal_qp *qp);

#endif
