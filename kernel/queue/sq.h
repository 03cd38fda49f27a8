/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The send queue of a queue pair: where the requester stands.
 *
 * Owns: the WQE being executed (the private copy), how far it has come, the
 * next packet sequence number, the retry counts and the present wait.
 * Does not know: who executes, peers, completion queues, timers (the engine
 * reads `until`).
 *
 * Lock: sq->lock, outermost of the data path. A burst holds it for one chunk.
 */
#ifndef PEAL_SQ_H
#define PEAL_SQ_H

#include <linux/ktime.h>
#include <linux/spinlock.h>

#include "queue/ring.h"
#include "queue/wqe.h"

/* What the queue waits for. While it waits, posts only queue up. */
enum peal_sq_wait {
	PEAL_SQ_RUNS = 0,
	PEAL_SQ_WAITS_RECEIVE,	/* the peer has no receive posted (RNR) */
	PEAL_SQ_WAITS_ANSWER,	/* the peer is silent */
};

enum peal_sq_fetched {
	PEAL_SQ_EMPTY,
	PEAL_SQ_FETCHED,
	PEAL_SQ_MALFORMED,
};

struct peal_sq {
	spinlock_t lock;		/* guards all below */
	struct peal_ring ring;
	struct peal_wqe_limits limits;
	struct peal_send wqe;		/* valid while busy */
	bool busy;
	bool drained;			/* SQ_DRAINED was raised in this SQD */
	u64 done;			/* bytes of wqe carried */
	u32 psn;			/* of the next message's first packet */
	u8 retry_limit, rnr_limit;	/* attributes; rnr 7: no limit */
	u8 retries_left, rnr_left;	/* for this WQE */
	u32 rnr_factor;			/* the next RNR wait without limit is so much longer */
	enum peal_sq_wait wait;
	ktime_t until;			/* end of the wait */
	enum peal_reason why;		/* of the wait */
};

void peal_sq_init(struct peal_sq *sq, void *ctl, void *slots, u32 entries, u32 stride,
		  const struct peal_wqe_limits *limits);
void peal_sq_reset(struct peal_sq *sq);
void peal_sq_set_psn(struct peal_sq *sq, u32 psn);
void peal_sq_set_limits(struct peal_sq *sq, u8 retry, u8 rnr);

enum peal_sq_fetched peal_sq_fetch(struct peal_sq *sq, enum peal_reason *reason);
bool peal_sq_is_followed(const struct peal_sq *sq);
void peal_sq_advance(struct peal_sq *sq, u64 bytes);
void peal_sq_restart(struct peal_sq *sq);
void peal_sq_finish(struct peal_sq *sq, u32 packets);
bool peal_sq_wait_receive(struct peal_sq *sq, u64 ns);
void peal_sq_wait_answer(struct peal_sq *sq, u64 ns, enum peal_reason why);
bool peal_sq_expire(struct peal_sq *sq);
void peal_sq_resume(struct peal_sq *sq);
void peal_sq_begin_drain(struct peal_sq *sq);
bool peal_sq_drain(struct peal_sq *sq);

#endif
