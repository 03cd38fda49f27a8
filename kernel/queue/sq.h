/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The send queue of a queue pair.
 *
 * Owns: the ring, and the private copy of the WQE being executed.
 * Does not know: how a WQE is executed (the transports), peers, completion queues.
 *
 * Lock: sq->lock, the outermost of the data path. A turn holds it, and the turn's budget bounds
 * the time.
 */
#ifndef PEAL_SQ_H
#define PEAL_SQ_H

#include <linux/spinlock.h>

#include "queue/ring.h"
#include "queue/wqe.h"

enum peal_sq_fetched {
	PEAL_SQ_EMPTY,
	PEAL_SQ_FETCHED,
	PEAL_SQ_MALFORMED,
};

struct peal_sq {
	spinlock_t lock;		/* guards the fields marked with it */
	struct peal_wqe_limits limits;

	/* Guarded by sq.lock: */
	struct peal_ring ring;
	struct peal_wqe wqe;		/* valid while `busy` */
	bool busy;
	bool drained;			/* peal_sq_drain() was true once in this SQD */
};

void peal_sq_init(struct peal_sq *sq, void *ctl, void *slots, u32 entries, u32 stride,
		  const struct peal_wqe_limits *limits);
void peal_sq_reset(struct peal_sq *sq);

enum peal_sq_fetched peal_sq_fetch(struct peal_sq *sq, enum peal_reason *reason);
bool peal_sq_is_followed(const struct peal_sq *sq);
void peal_sq_finish(struct peal_sq *sq);
void peal_sq_begin_drain(struct peal_sq *sq);
bool peal_sq_drain(struct peal_sq *sq);

#endif
