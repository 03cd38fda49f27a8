/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The requester: runs a send queue, WQE after WQE.
 *
 * Owns: the decision what each outcome means for the WQE (complete, retry, fail)
 * and the flushing of a queue pair in error.
 * Does not know: when it is called and by whom, how messages are carried.
 */
#ifndef PEAL_REQUESTER_H
#define PEAL_REQUESTER_H

#include "base/budget.h"
#include "queue/qp.h"
#include "transport/outcome.h"

bool peal_requester_run(struct peal_qp *qp, struct peal_burst *burst, struct peal_budget *budget);
bool peal_requester_fetch(struct peal_qp *qp, struct peal_burst *burst);
void peal_requester_fail(struct peal_qp *qp, struct peal_burst *burst, u8 status,
			 enum peal_reason reason);
struct peal_outcome peal_requester_local(struct peal_qp *qp);
bool peal_requester_wake(struct peal_qp *qp);
bool peal_requester_reached(struct peal_qp *qp);
bool peal_requester_may_begin(struct peal_qp *qp, struct peal_burst *burst);
ktime_t peal_requester_deadline(struct peal_qp *qp);

#endif
