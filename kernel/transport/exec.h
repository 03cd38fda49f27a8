/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The execution of messages, for all responders.
 *
 * Owns: the checks of a request (IBTA 9.7.4) and of the receive that it takes, and the outcome of
 * an attempt.
 * Does not know: how the message arrives.
 */
#ifndef PEAL_EXEC_H
#define PEAL_EXEC_H

#include <linux/types.h>
#include <rdma/ib_verbs.h>
#include <rdma/peal-abi.h>

#include "object/cursor.h"
#include "proto/packet.h"
#include "object/qp.h"

/*
 * The result of one attempt to transfer a message. It says as a value why a queue does not
 * go on, so that the reader does not have to work it out from flags. It has 16 bytes, so
 * that it is passed in registers.
 */

enum peal_outcome_kind {
	PEAL_DONE,		/* the whole message; complete the WQE */
	PEAL_PROGRESS,		/* a chunk; call again for the next one */
	PEAL_NOT_READY,		/* RNR NAK; try again after `timer` */
	PEAL_SILENT,		/* no answer; try again after the timeout */
	PEAL_ABSENT,		/* a page is not in memory; try again soon */
	PEAL_UNPROVEN,		/* the peer is not known to be in this kernel any more */
	PEAL_FAILED,		/* complete with status and reason */
};

struct peal_outcome {
	u8 what;			/* enum peal_outcome_kind */
	u8 status;			/* FAILED: enum ib_wc_status */
	u16 pieces;			/* PROGRESS, DONE: pieces looked up and copied */
	u32 reason;			/* enum peal_reason, unless DONE or PROGRESS */
	union {
		u8 syndrome;		/* NOT_READY, FAILED: of the responder's answer, if any */
		u64 bytes;		/* PROGRESS, DONE: bytes moved by this attempt */
	};
};

static inline struct peal_outcome peal_failed(u8 status, enum peal_reason reason)
{
	return (struct peal_outcome){ .what = PEAL_FAILED, .status = status, .reason = reason };
}

/* The responder @qp asks the requester to wait (IBTA 9.7.5.2.8). */
static inline struct peal_outcome peal_not_ready(const struct peal_qp *qp, enum peal_reason reason)
{
	return (struct peal_outcome){
		.what = PEAL_NOT_READY, .reason = reason,
		.syndrome = PEAL_SYNDROME_RNR | qp->attr.min_rnr_timer,
	};
}

static inline struct peal_outcome peal_silent(enum peal_reason reason)
{
	return (struct peal_outcome){ .what = PEAL_SILENT, .reason = reason };
}

static inline struct peal_outcome peal_absent(void)
{
	return (struct peal_outcome){ .what = PEAL_ABSENT, .reason = PEAL_REASON_LKEY_PAGE };
}

static inline struct peal_outcome peal_unproven(void)
{
	return (struct peal_outcome){
		.what = PEAL_UNPROVEN, .reason = PEAL_REASON_PEER_UNREACHABLE,
	};
}

/*
 * The responder's execution of a message that arrives at a queue pair.
 *
 * Owns: the checks of IBTA 9.7.4 (rights of the queue pair, rkey, range, room in the receive),
 * the receive completion, and the answer when a check fails.
 *
 * Lock: every function is called with rq.lock of @qp held, inside the epoch.
 */

bool peal_execute_find_fault(struct peal_qp *qp, const struct peal_wqe *wqe, u32 src_qpn,
			     struct peal_notify *notify, struct peal_outcome *outcome);
struct peal_outcome peal_execute_accept(struct peal_qp *qp, const struct peal_wqe *wqe,
					u32 src_qpn, struct peal_notify *notify,
					struct peal_cursor *cursor);
struct peal_outcome peal_execute_no_page(struct peal_qp *qp, const struct peal_wqe *wqe,
					 u32 src_qpn, struct peal_notify *notify,
					 enum peal_odp_state state);
struct peal_outcome peal_execute_atomic(struct peal_qp *qp, const struct peal_wqe *wqe,
					u32 src_qpn, struct peal_notify *notify,
					const struct peal_cursor *cursor, u64 *value);
struct peal_outcome peal_execute_finish_receive(struct peal_qp *qp, const struct peal_wqe *wqe,
						u32 src_qpn, struct peal_notify *notify);
struct peal_outcome peal_execute_read(struct peal_qp *qp, const struct peal_wqe *wqe,
				      u32 src_qpn, struct peal_notify *notify,
				      struct peal_cursor *cursor);
bool peal_execute_read_again(struct peal_qp *qp, const struct peal_wqe *wqe,
			     struct peal_cursor *cursor);
void peal_execute_invalid(struct peal_qp *qp, const struct peal_wqe *wqe, u32 src_qpn,
			  struct peal_notify *notify);

/**
 * peal_execute_finish() - finish a message after its last byte is placed
 *
 * Invalidates the key that the message names, and completes the receive. The data are visible
 * before the CQE (release D). The caller has ended the use of all cursors.
 *
 * Return: PEAL_DONE, or PEAL_FAILED when the key cannot be invalidated.
 */
static inline struct peal_outcome peal_execute_finish(struct peal_qp *qp,
						      const struct peal_wqe *wqe, u32 src_qpn,
						      struct peal_notify *notify)
{
	const struct peal_op *op = peal_op(wqe->opcode);

	lockdep_assert_held(&qp->rq.lock);
	/* A READ, a WRITE and an atomic leave nothing to do. */
	if (likely(!op->invalidates && !op->receives))
		return (struct peal_outcome){ .what = PEAL_DONE };
	return peal_execute_finish_receive(qp, wqe, src_qpn, notify);
}

/*
 * The receive that a datagram or a frame fills. Neither waits for a receive, and neither is
 * answered.
 *
 * Owns: the checks of the receive (room for the bytes, keys, pages in memory), and the error of a
 * queue pair whose receive cannot be used.
 *
 * Lock: every function is called with qp->rq.lock held, inside the epoch.
 */

enum peal_drop peal_receive_begin(struct peal_qp *qp, struct peal_notify *notify, u32 bytes,
				  struct peal_cursor *to, enum peal_reason *reason);
void peal_receive_refuse(struct peal_qp *qp, struct peal_notify *notify, u32 src_qpn, u32 bytes,
			 enum peal_reason reason);
bool peal_receive_find_fault(struct peal_qp *qp, struct peal_notify *notify,
			     const struct peal_packet *packet, const u8 *peer);

#endif
