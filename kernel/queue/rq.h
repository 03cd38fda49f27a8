/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The receive queue of a queue pair.
 *
 * Owns: the ring, the receive WQE that the current message fills, and the flag that asks the
 * program for kicks. A queue pair with a shared receive queue takes its WQEs from there; its own
 * ring is then not used. An XRC target queue pair takes them from the one that the message names.
 * Does not know: senders, PSNs, memory keys, completion queues.
 *
 * Lock: rq->lock, taken inside an sq->lock (the peer's or its own queue pair's) and outside
 * cq->lock and srq_ring.lock.
 */
#ifndef PEAL_RQ_H
#define PEAL_RQ_H

#include <linux/spinlock.h>

#include "queue/ring.h"
#include "queue/srq_ring.h"
#include "queue/wqe.h"

enum peal_rq_taken {
	PEAL_RQ_EMPTY,
	PEAL_RQ_TAKEN,
	PEAL_RQ_MALFORMED,
};

struct peal_rq {
	spinlock_t lock;		/* guards the fields marked with it */
	struct peal_wqe_limits limits;

	/* Guarded by srq_ring.lock: */
	struct list_head starving;	/* in the list of `shared` while a sender waits */

	/* Guarded by rq.lock: */
	struct peal_srq_ring *shared;	/* where WQEs are taken from; NULL: `ring` */
	struct peal_ring ring;
	struct peal_recv wqe;		/* valid while holding */
	bool holding;			/* a WQE was taken and is not completed */
	bool refusing;			/* accepts nothing: in error now or soon */
	bool established;		/* a message has arrived since RTR */
	bool routine;			/* established, and messages name no shared receive queue */
	bool no_kicks;			/* senders retry by their RNR timers and need no kick */
	bool kicked;			/* the program is asked to kick */
	bool last_told;			/* peal_rq_is_last() was true once since the RESET */
	bool srq_by_message;		/* XRC: only messages name where WQEs come from */
};

void peal_rq_init(struct peal_rq *rq, void *ctl, void *slots, u32 entries, u32 stride,
		  const struct peal_wqe_limits *limits);
void peal_rq_share(struct peal_rq *rq, struct peal_srq_ring *shared);
void peal_rq_set_srq_by_message(struct peal_rq *rq);
void peal_rq_change_shared(struct peal_rq *rq, struct peal_srq_ring *shared);
void peal_rq_reset(struct peal_rq *rq);
void peal_rq_set_no_kicks(struct peal_rq *rq, bool no_kicks);

enum peal_rq_taken peal_rq_take(struct peal_rq *rq, enum peal_reason *reason);
bool peal_rq_take_flushed(struct peal_rq *rq);
bool peal_rq_is_last(struct peal_rq *rq);
void peal_rq_done(struct peal_rq *rq);
bool peal_rq_repost(struct peal_rq *rq);
void peal_rq_refuse(struct peal_rq *rq);
bool peal_rq_establish(struct peal_rq *rq);
void peal_rq_want_kick(struct peal_rq *rq, bool want);

#endif
