/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A turn of a queue pair, which every context that runs queue pairs calls.
 *
 * Owns: how long a turn lasts, on which CPU packets may be sent, and what follows
 * when the locks are dropped.
 * Does not know: what running a queue means (the transports), when the next turn is.
 */
#ifndef PEAL_TURN_H
#define PEAL_TURN_H

#include "base/budget.h"
#include "queue/notify.h"
#include "queue/qp.h"

/* Budget of one turn (budget.h). Locks are held and softirqs are off for that long. */
#define PEAL_TURN_BUDGET	(64 << 10)

bool peal_turn(struct peal_qp *qp, struct peal_budget *whole);
bool peal_turn_once(struct peal_qp *qp);
bool peal_turn_locked(struct peal_qp *qp, struct peal_notify *notify, struct peal_budget *budget);
void peal_turn_end(struct peal_notify *notify);

#endif
