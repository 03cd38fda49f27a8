// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See exec.h.
 */
#include <linux/atomic.h>

#include "base/budget.h"
#include "base/compat.h"
#include "base/epoch.h"
#include "base/trace.h"
#include "engine/engine.h"
#include "object/errors.h"
#include "object/mr.h"
#include "transport/exec.h"

/* What a failed check means to both sides (IBTA 9.9.3, tables 57 and 58). */
struct peal_refusal {
	enum peal_nak nak;		/* says the status of the sender's completion */
	u8 receiver;			/* status of the held receive WQE, if any */
	enum ib_event_type event;	/* at the responder */
	bool passes;			/* on UC only the message is lost */
};

static const struct peal_refusal peal_refusal_request = {
	PEAL_NAK_INVALID_REQUEST, IB_WC_LOC_LEN_ERR, IB_EVENT_QP_REQ_ERR, true,
}, peal_refusal_access = {
	PEAL_NAK_REMOTE_ACCESS, IB_WC_LOC_ACCESS_ERR, IB_EVENT_QP_ACCESS_ERR, true,
}, peal_refusal_buffer = {
	PEAL_NAK_REMOTE_OPERATION, IB_WC_LOC_PROT_ERR, IB_EVENT_QP_FATAL, false,
}, peal_refusal_receive = {
	PEAL_NAK_REMOTE_OPERATION, IB_WC_LOC_QP_OP_ERR, IB_EVENT_QP_FATAL, false,
};

/*
 * Return: the consequences of @reason. PAGE_LATE is a reason for both sides, so the range that the
 * message uses decides.
 */
static const struct peal_refusal *peal_refusal(enum peal_reason reason, const struct peal_op *op)
{
	switch (reason) {
	case PEAL_REASON_RKEY_UNKNOWN:
	case PEAL_REASON_RKEY_PD:
	case PEAL_REASON_RKEY_RANGE:
	case PEAL_REASON_RKEY_ACCESS:
	case PEAL_REASON_RKEY_QP:
	case PEAL_REASON_RKEY_PAGE:
	case PEAL_REASON_INV_RKEY:
		return &peal_refusal_access;
	case PEAL_REASON_RECV_LKEY_UNKNOWN:
	case PEAL_REASON_RECV_LKEY_PD:
	case PEAL_REASON_RECV_LKEY_RANGE:
	case PEAL_REASON_RECV_LKEY_ACCESS:
	case PEAL_REASON_RECV_LKEY_PAGE:
		return &peal_refusal_buffer;
	case PEAL_REASON_PAGE_LATE:
		return op->remote ? &peal_refusal_access : &peal_refusal_buffer;
	case PEAL_REASON_RECV_WQE:
	case PEAL_REASON_RECV_RING_INDEX:
	case PEAL_REASON_SRQ_RING:
		return &peal_refusal_receive;
	default:
		return &peal_refusal_request;
	}
}

/*
 * Refuse a message with a fatal NAK. The queue pair accepts nothing from here on. Its transport
 * puts it into error, on the wire only after the NAK has been sent. A receive completion that
 * reports the error replaces the event.
 *
 * A peer on an unreliable connection can do no harm. Its message is lost, and the receive stays
 * for the next message (class D of IBTA 9.9.3.2).
 */
static struct peal_outcome peal_execute_refuse_as(struct peal_qp *qp, const struct peal_wqe *wqe,
						  u32 src_qpn, struct peal_notify *notify,
						  enum peal_reason reason,
						  const struct peal_refusal *refusal)
{
	const struct peal_op *op = peal_op(wqe->opcode);
	struct peal_cqe cqe = {
		.status = refusal->receiver, .vendor_err = reason, .opcode = wqe->opcode,
		.src_qp = src_qpn,
	};
	struct peal_outcome outcome = {
		.what = PEAL_FAILED, .status = peal_nak_meaning(refusal->nak)->status,
		.syndrome = PEAL_SYNDROME_NAK | refusal->nak, .reason = reason,
	};

	lockdep_assert_held(&qp->rq.lock);
	trace_peal_refuse(qp->ib.qp_num, src_qpn, wqe->opcode, wqe->rkey, wqe->remote_addr,
			  wqe->length, reason);
	peal_errors_add_refused(qp, wqe, src_qpn, outcome.status, reason);
	if (refusal->passes && qp->ib.qp_type == IB_QPT_UC)
		return outcome;
	if (qp->rq.holding && op->receives)
		peal_qp_complete_recv(qp, notify, &cqe);
	else
		peal_notify_event(notify, &qp->ib, refusal->event);
	peal_rq_refuse(&qp->rq);
	return outcome;
}

static noinline struct peal_outcome peal_execute_refuse(struct peal_qp *qp,
							const struct peal_wqe *wqe, u32 src_qpn,
							struct peal_notify *notify,
							enum peal_reason reason)
{
	return peal_execute_refuse_as(qp, wqe, src_qpn, notify, reason,
				      peal_refusal(reason, peal_op(wqe->opcode)));
}

/*
 * XRC (annex A14). The message names a shared receive queue, whose protection domain its keys must
 * have. The queue must be in the domain of the queue pair. Return: false if there is none.
 */
static bool peal_execute_name_srq(struct peal_qp *qp, const struct peal_wqe *wqe)
{
	struct peal_srq *srq = peal_table_srq(qp->table, wqe->srqn);

	peal_epoch_assert_held();
	lockdep_assert_held(&qp->rq.lock);
	if (!srq || srq->ib.ext.xrc.xrcd != qp->xrcd)
		return false;
	peal_qp_name_srq(qp, srq, peal_op(wqe->opcode)->receives);
	return true;
}

/*
 * The device has rules for faults, and a message begins. The caller holds rq.lock. Return: whether
 * an administrator wants @qp not to take the message, with *outcome set.
 */
bool peal_execute_find_fault(struct peal_qp *qp, const struct peal_wqe *wqe, u32 src_qpn,
			     struct peal_notify *notify, struct peal_outcome *outcome)
{
	const struct peal_refusal *refusal = &peal_refusal_receive;
	struct peal_fault_message message = {
		.kinds = 1 << PEAL_NL_FAULT_KIND_RNR | 1 << PEAL_NL_FAULT_KIND_NAK,
		.qpn = qp->ib.qp_num, .peer = qp->attr.ah_attr.grh.dgid.raw, .opcode = wqe->opcode,
	};
	struct peal_refusal receive = peal_refusal_receive;
	enum peal_reason reason;
	struct peal_fault fault;

	lockdep_assert_held(&qp->rq.lock);
	/* peal_execute_accept() will not take it in this turn, and a later try must not count. */
	if (qp->xrcd && !peal_notify_has_room(notify))
		return false;
	if (peal_op(wqe->opcode)->receives && (!qp->xrcd || peal_execute_name_srq(qp, wqe)) &&
	    peal_qp_take_recv(qp, notify, &reason) == PEAL_RQ_TAKEN)
		message.kinds |= 1 << PEAL_NL_FAULT_KIND_RECEIVE;
	if (!peal_faults_hit(&qp->table->faults, &message, &fault))
		return false;
	if (fault.kind == PEAL_NL_FAULT_KIND_RNR) {
		*outcome = peal_not_ready(qp, PEAL_REASON_FAULT);
		return true;
	}
	if (fault.kind == PEAL_NL_FAULT_KIND_RECEIVE) {
		receive.receiver = fault.status;
		refusal = &receive;
	} else if (fault.status == IB_WC_REM_INV_REQ_ERR) {
		refusal = &peal_refusal_request;
	} else if (fault.status == IB_WC_REM_ACCESS_ERR) {
		refusal = &peal_refusal_access;
	}
	*outcome = peal_execute_refuse_as(qp, wqe, src_qpn, notify, PEAL_REASON_FAULT, refusal);
	return true;
}

/*
 * Does the queue pair allow this operation (IBTA 9.7.4.1.4), and does the key allow this range
 * (9.7.4.1.5)? A request for no bytes has no key to check. If the reason is NONE, @cursor is set.
 */
static __always_inline enum peal_reason peal_execute_remote(struct peal_qp *qp,
							    const struct peal_wqe *wqe,
							    const struct peal_op *op,
							    struct peal_cursor *cursor)
{
	if (unlikely(op->access & ~qp->attr.qp_access_flags))
		return PEAL_REASON_QP_ACCESS;
	if (unlikely(op->resource && !qp->attr.max_dest_rd_atomic))
		return PEAL_REASON_RD_ATOMIC_LIMIT;
	return peal_cursor_remote(cursor, qp->table, qp->rkey_pd, qp->ib.qp_num, wqe, op->access);
}

/**
 * peal_execute_read() - find the bytes of a READ response
 * @wqe: describes only the bytes in this response
 *
 * Return: PEAL_DONE with @cursor set, whose use the caller ends, or PEAL_FAILED when the key
 * has become invalid since the request. On failure the queue pair has refused.
 */
struct peal_outcome peal_execute_read(struct peal_qp *qp, const struct peal_wqe *wqe,
				      u32 src_qpn, struct peal_notify *notify,
				      struct peal_cursor *cursor)
{
	enum peal_reason reason = PEAL_REASON_XRC_SRQ;

	lockdep_assert_held(&qp->rq.lock);
	if (!qp->xrcd || peal_execute_name_srq(qp, wqe))
		reason = peal_execute_remote(qp, wqe, peal_op(wqe->opcode), cursor);
	if (unlikely(reason))
		return peal_execute_refuse(qp, wqe, src_qpn, notify, reason);
	return (struct peal_outcome){ .what = PEAL_DONE };
}

/*
 * The same for a response that is sent again. Return: false when the key is not valid any more.
 * @qp does not refuse then, because no side has made an error.
 */
bool peal_execute_read_again(struct peal_qp *qp, const struct peal_wqe *wqe,
			     struct peal_cursor *cursor)
{
	lockdep_assert_held(&qp->rq.lock);
	if (unlikely(qp->xrcd) && !peal_execute_name_srq(qp, wqe))
		return false;
	return !peal_execute_remote(qp, wqe, peal_op(wqe->opcode), cursor);
}

/* Refuse packets of the peer that do not form a request. */
void peal_execute_invalid(struct peal_qp *qp, const struct peal_wqe *wqe, u32 src_qpn,
			  struct peal_notify *notify)
{
	lockdep_assert_held(&qp->rq.lock);
	peal_execute_refuse(qp, wqe, src_qpn, notify, PEAL_REASON_BAD_REQUEST);
}

/*
 * A turn of XRC concerns any number of shared receive queues and completion queues. When no more
 * can be notified, the message makes no progress, and its price ends the turn. The responder on
 * the wire looks before it takes a packet.
 */
static const struct peal_outcome peal_execute_later = {
	.what = PEAL_PROGRESS, .pieces = PEAL_TURN_BUDGET / PEAL_COST_PIECE + 1,
};

/**
 * peal_execute_accept() - check a message, or its next chunk, and find its bytes
 * @cursor: set to the responder's side of the copy on success. The message writes
 *	there, or a READ or atomic reads there. The caller ends its use
 *
 * Nothing is written before everything is checked. Every chunk is checked again, because keys
 * may have become invalid since the last one. A SEND takes a receive, unless one is held for it
 * already. An entry of the receive that gets no byte is not checked, because programs leave it
 * empty.
 *
 * Return: PEAL_DONE to go on, PEAL_NOT_READY, PEAL_PROGRESS without bytes to try again in the
 * next turn (XRC), or PEAL_FAILED when @qp has refused and is going into error.
 */
struct peal_outcome peal_execute_accept(struct peal_qp *qp, const struct peal_wqe *wqe,
					u32 src_qpn, struct peal_notify *notify,
					struct peal_cursor *cursor)
{
	const struct peal_op *op = peal_op(wqe->opcode);
	const struct peal_recv *recv = &qp->rq.wqe;
	enum peal_reason reason = PEAL_REASON_NONE;

	lockdep_assert_held(&qp->rq.lock);
	/* The first message since RTR, or any message of XRC. */
	if (unlikely(!qp->rq.routine)) {
		if (qp->xrcd && !peal_notify_has_room(notify))
			return peal_execute_later;
		if (peal_rq_establish(&qp->rq) && qp->state == IB_QPS_RTR)
			peal_notify_event(notify, &qp->ib, IB_EVENT_COMM_EST);
		if (qp->xrcd && !peal_execute_name_srq(qp, wqe)) {
			reason = PEAL_REASON_XRC_SRQ;
			goto refuse;
		}
	}
	if (op->remote) {
		reason = peal_execute_remote(qp, wqe, op, cursor);
		if (unlikely(reason))
			goto refuse;
	}
	if (!op->receives)
		return (struct peal_outcome){ .what = PEAL_DONE };
	switch (peal_qp_take_recv(qp, notify, &reason)) {
	case PEAL_RQ_EMPTY:
		if (op->remote)
			peal_cursor_end(cursor);
		return peal_not_ready(qp, PEAL_REASON_RNR_EXHAUSTED);
	case PEAL_RQ_MALFORMED:
		if (op->remote)
			peal_cursor_end(cursor);
		goto refuse;
	case PEAL_RQ_TAKEN:
		break;
	}
	if (!op->remote && unlikely(wqe->length > recv->length))
		reason = PEAL_REASON_RECV_TOO_SHORT;
	else if (!op->remote)
		reason = peal_cursor_find(cursor, qp->table, &qp->received, qp->recv_pd, recv->sge,
					  recv->num_sge, PEAL_RECEIVE, 0, wqe->length);
	if (likely(!reason))
		return (struct peal_outcome){ .what = PEAL_DONE };
refuse:
	return peal_execute_refuse(qp, wqe, src_qpn, notify, reason);
}

/*
 * The memory of an accepted message is not there (on-demand paging). @state: PEAL_ODP_FAULT or
 * PEAL_ODP_LATE. Return: PEAL_FAILED.
 */
struct peal_outcome peal_execute_no_page(struct peal_qp *qp, const struct peal_wqe *wqe,
					 u32 src_qpn, struct peal_notify *notify,
					 enum peal_odp_state state)
{
	lockdep_assert_held(&qp->rq.lock);
	return peal_execute_refuse(qp, wqe, src_qpn, notify,
				   peal_odp_reason(state, peal_op(wqe->opcode)->remote ?
						   PEAL_REASON_RKEY_PAGE :
						   PEAL_REASON_RECV_LKEY_PAGE));
}

/*
 * A19.4.2. Every byte that was placed before is in memory that all CPUs see, because CPUs have
 * placed it. So a flush to global visibility is only a barrier, after the checks. No region gives
 * the right to flush to persistence.
 */
static struct peal_outcome peal_execute_flush(struct peal_qp *qp, const struct peal_wqe *wqe,
					      u32 src_qpn, struct peal_notify *notify)
{
	const struct peal_flush_seg *flush = &wqe->flush;
	enum peal_reason reason;
	int access = 0;

	lockdep_assert_held(&qp->rq.lock);
	if (flush->placement & PEAL_FLUSH_GLOBAL)
		access |= IB_ACCESS_FLUSH_GLOBAL;
	if (flush->placement & PEAL_FLUSH_PERSISTENT)
		access |= IB_ACCESS_FLUSH_PERSISTENT;
	if (!access || flush->placement & ~PEAL_FLUSH_PLACEMENTS ||
	    flush->selectivity > PEAL_FLUSH_REGION)
		return peal_execute_refuse(qp, wqe, src_qpn, notify, PEAL_REASON_BAD_REQUEST);
	if (access & ~qp->attr.qp_access_flags)
		return peal_execute_refuse(qp, wqe, src_qpn, notify, PEAL_REASON_QP_ACCESS);
	reason = peal_rkey_check_flush(qp->table, qp->rkey_pd, wqe,
				       flush->selectivity == PEAL_FLUSH_REGION, access);
	if (reason)
		return peal_execute_refuse(qp, wqe, src_qpn, notify, reason);
	smp_mb();	/* the bytes of earlier messages are visible before the response */
	return (struct peal_outcome){ .what = PEAL_DONE };
}

/**
 * peal_execute_atomic() - execute an accepted atomic, ATOMIC_WRITE or FLUSH
 * @value: CMP_SWAP, FETCH_ADD: set to the value before, for the requester. ATOMIC_WRITE: the value
 *	to write
 *
 * It is a CPU atomic on the memory itself, so that it is atomic with respect to
 * the program, too. An ATOMIC_WRITE stores its eight bytes after those of earlier messages.
 */
struct peal_outcome peal_execute_atomic(struct peal_qp *qp, const struct peal_wqe *wqe,
					u32 src_qpn, struct peal_notify *notify,
					const struct peal_cursor *cursor, u64 *value)
{
	u64 bytes = sizeof(*value);
	atomic64_t *word;

	lockdep_assert_held(&qp->rq.lock);
	if (unlikely(wqe->opcode == PEAL_OP_FLUSH))
		return peal_execute_flush(qp, wqe, src_qpn, notify);
	word = peal_cursor_here(cursor, &bytes);
	/* In a region with gaps, a word may lie in two pieces. No CPU atomic covers that. */
	if (wqe->remote_addr & 7 || (unsigned long)word & 7 || bytes < sizeof(*value))
		return peal_execute_refuse(qp, wqe, src_qpn, notify, PEAL_REASON_ATOMIC_ALIGN);
	if (wqe->opcode == PEAL_OP_CMP_SWAP)
		*value = atomic64_cmpxchg(word, wqe->atomic.compare_add, wqe->atomic.swap);
	else if (wqe->opcode == PEAL_OP_FETCH_ADD)
		*value = atomic64_fetch_add(wqe->atomic.compare_add, word);
	else
		atomic64_set_release(word, *value);
	return (struct peal_outcome){ .what = PEAL_DONE };
}

/**
 * peal_execute_finish_receive() - the part of peal_execute_finish() for messages that leave a trace
 *
 * Not inlined, because other messages must not pay for its stack.
 */
struct peal_outcome peal_execute_finish_receive(struct peal_qp *qp, const struct peal_wqe *wqe,
						u32 src_qpn, struct peal_notify *notify)
{
	const struct peal_op *op = peal_op(wqe->opcode);
	struct peal_cqe cqe = {
		.opcode = wqe->opcode, .byte_len = wqe->length, .src_qp = src_qpn,
		.imm_or_rkey = wqe->imm_or_rkey,
		.flags = wqe->flags & PEAL_WQE_SOLICITED ? PEAL_CQE_SOLICITED : 0,
	};
	enum peal_reason reason = PEAL_REASON_NONE;

	lockdep_assert_held(&qp->rq.lock);
	if (op->invalidates)
		reason = peal_rkey_invalidate(qp->table, qp->rkey_pd, qp->ib.qp_num,
					      wqe->imm_or_rkey);
	if (unlikely(reason))
		return peal_execute_refuse(qp, wqe, src_qpn, notify, reason);
	if (op->receives)
		peal_qp_complete_recv(qp, notify, &cqe);
	return (struct peal_outcome){ .what = PEAL_DONE };
}

/* Is the buffer in memory (on-demand paging)? If not, the use of the buffer is ended. */
static noinline enum peal_drop peal_receive_look(struct peal_rq *rq, u32 bytes,
						 struct peal_cursor *to,
						 enum peal_reason *reason)
{
	enum peal_odp_state state = peal_cursor_look(to, 0, bytes, true);

	lockdep_assert_held(&rq->lock);
	if (state == PEAL_ODP_PRESENT)
		return PEAL_DROP_none;
	peal_cursor_end(to);
	if (state == PEAL_ODP_ABSENT)
		return PEAL_DROP_receive;
	*reason = peal_odp_reason(state, PEAL_REASON_RECV_LKEY_PAGE);
	return PEAL_DROP_none;
}

/**
 * peal_receive_begin() - take the receive for @bytes bytes, and begin a cursor over its buffer
 * @to: set to the buffer if the bytes can be placed. The caller ends its use and completes the
 *	receive
 * @reason: set to why the receive cannot be used, for which the caller refuses it. NONE: it can be
 *
 * An entry of the receive that gets no byte is not checked.
 *
 * The receive stays as it is, for the next arrival, if the bytes are too many for it (class D of
 * IBTA 9.9.3.2, table 58), or if its buffer is not in memory. The ring is read only once, because a
 * second read may find a different WQE. No kick is asked for when the ring is empty, because an
 * arrival does not wait (see peal_rq_set_no_kicks()).
 *
 * Return: why the bytes are lost. PEAL_DROP_none: they can be placed, or the receive cannot be
 * used.
 */
enum peal_drop peal_receive_begin(struct peal_qp *qp, struct peal_notify *notify, u32 bytes,
				  struct peal_cursor *to, enum peal_reason *reason)
{
	struct peal_rq *rq = &qp->rq;

	lockdep_assert_held(&rq->lock);
	if (qp->srq)
		peal_notify_srq(notify, qp->srq);
	switch (peal_rq_take(rq, reason)) {
	case PEAL_RQ_EMPTY:
		return PEAL_DROP_receive;
	case PEAL_RQ_MALFORMED:
		return PEAL_DROP_none;
	case PEAL_RQ_TAKEN:
		break;
	}
	if (unlikely(bytes > rq->wqe.length))
		return PEAL_DROP_length;
	*reason = peal_cursor_find(to, qp->table, &qp->received, qp->recv_pd, rq->wqe.sge,
				   rq->wqe.num_sge, PEAL_RECEIVE, 0, bytes);
	if (unlikely(*reason))
		return PEAL_DROP_none;
	return unlikely(to->counted) ? peal_receive_look(rq, bytes, to, reason) : PEAL_DROP_none;
}

static void peal_receive_refuse_as(struct peal_qp *qp, struct peal_notify *notify, u32 src_qpn,
				   u32 bytes, enum peal_reason reason, u8 status)
{
	struct peal_cqe cqe = {
		.status = status, .vendor_err = reason, .opcode = PEAL_OP_SEND, .src_qp = src_qpn,
	};
	struct peal_wqe wqe = { .opcode = PEAL_OP_SEND, .length = bytes };

	lockdep_assert_held(&qp->rq.lock);
	trace_peal_refuse(qp->ib.qp_num, src_qpn, PEAL_OP_SEND, 0, 0, bytes, reason);
	peal_errors_add_refused(qp, &wqe, src_qpn, IB_WC_SUCCESS, reason);
	if (likely(qp->rq.holding))
		peal_qp_complete_recv(qp, notify, &cqe);
	else
		peal_notify_event(notify, &qp->ib, IB_EVENT_QP_FATAL);
	peal_rq_refuse(&qp->rq);
	peal_notify_fail(notify, qp, qp->generation);
}

/*
 * Complete the receive in error, and put the queue pair into error. If a shared receive queue is in
 * error, there is no receive, and an event tells of the error. @bytes: of the payload that arrived.
 */
void peal_receive_refuse(struct peal_qp *qp, struct peal_notify *notify, u32 src_qpn, u32 bytes,
			 enum peal_reason reason)
{
	peal_receive_refuse_as(qp, notify, src_qpn, bytes, reason,
			       peal_refusal(reason, peal_op(PEAL_OP_SEND))->receiver);
}

/*
 * The device has rules for faults, and a datagram can be placed. @peer: the GID of its sender.
 * Return: whether an administrator wants the receive to fail, which was refused then.
 */
bool peal_receive_find_fault(struct peal_qp *qp, struct peal_notify *notify,
			     const struct peal_packet *packet, const u8 *peer)
{
	const struct peal_fault_message message = {
		.kinds = 1 << PEAL_NL_FAULT_KIND_RECEIVE, .qpn = qp->ib.qp_num, .peer = peer,
		.opcode = peal_packet_opcode(packet)->operation,
	};
	struct peal_fault fault;

	lockdep_assert_held(&qp->rq.lock);
	if (qp->ib.qp_type == IB_QPT_GSI || !peal_faults_hit(&qp->table->faults, &message, &fault))
		return false;
	peal_receive_refuse_as(qp, notify, packet->src_qpn, packet->payload_bytes,
			       PEAL_REASON_FAULT, fault.status);
	return true;
}
