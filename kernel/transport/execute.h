/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The responder's execution of a message that arrives at a queue pair.
 *
 * Owns: the checks of IBTA 9.7.4 (rights of the queue pair, rkey, range, room in the receive),
 * the receive completion, and the answer when a check fails.
 * Does not know: how the message arrives, nor the requester's state.
 *
 * Lock: every function is called with rq.lock of @qp held, inside the epoch.
 */
#ifndef PEAL_EXECUTE_H
#define PEAL_EXECUTE_H

#include "mem/cursor.h"
#include "queue/qp.h"
#include "transport/outcome.h"

struct peal_outcome peal_execute_accept(struct peal_qp *qp, const struct peal_wqe *wqe,
					u32 src_qpn, struct peal_notify *notify,
					struct peal_cursor *cursor);
struct peal_outcome peal_execute_no_page(struct peal_qp *qp, const struct peal_wqe *wqe,
					 u32 src_qpn, struct peal_notify *notify,
					 enum peal_odp_state state);
struct peal_outcome peal_execute_atomic(struct peal_qp *qp, const struct peal_wqe *wqe,
					u32 src_qpn, struct peal_notify *notify,
					const struct peal_cursor *cursor, u64 *old);
struct peal_outcome peal_execute_placement(struct peal_qp *qp, const struct peal_wqe *wqe,
					   u32 src_qpn, struct peal_notify *notify,
					   const struct peal_cursor *cursor, u64 value);
struct peal_outcome peal_execute_finish(struct peal_qp *qp, const struct peal_wqe *wqe,
					u32 src_qpn, struct peal_notify *notify);
struct peal_outcome peal_execute_read(struct peal_qp *qp, const struct peal_wqe *wqe,
				      u32 src_qpn, struct peal_notify *notify,
				      struct peal_cursor *cursor);
bool peal_execute_read_again(struct peal_qp *qp, const struct peal_wqe *wqe,
			     struct peal_cursor *cursor);
void peal_execute_invalid(struct peal_qp *qp, const struct peal_wqe *wqe, u32 src_qpn,
			  struct peal_notify *notify);

#endif
