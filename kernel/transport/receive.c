// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See receive.h.
 */
#include "base/trace.h"
#include "transport/receive.h"

/* Is the buffer in memory (on-demand paging)? If not, the use of the buffer is ended. */
static noinline enum peal_drop peal_receive_look(struct peal_rq *rq, u32 bytes,
						 struct peal_cursor *to,
						 struct peal_receive_fault *fault)
{
	enum peal_odp_state state = peal_cursor_look(to, 0, bytes, true);

	lockdep_assert_held(&rq->lock);
	if (state == PEAL_ODP_PRESENT)
		return PEAL_DROP_none;
	peal_cursor_end(to);
	if (state == PEAL_ODP_ABSENT)
		return PEAL_DROP_receive;
	*fault = (struct peal_receive_fault){
		IB_WC_LOC_PROT_ERR, peal_odp_reason(state, PEAL_REASON_RECV_LKEY_PAGE),
	};
	return PEAL_DROP_none;
}

/**
 * peal_receive_begin() - take the receive for @bytes bytes, and begin a cursor over its buffer
 * @to: set to the buffer if the bytes can be placed. The caller ends its use and completes the
 *	receive
 * @fault: set to why the receive cannot be used, for which the caller refuses it
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
				  struct peal_cursor *to, struct peal_receive_fault *fault)
{
	struct peal_rq *rq = &qp->rq;
	enum peal_reason reason;

	lockdep_assert_held(&rq->lock);
	if (qp->srq)
		peal_notify_srq(notify, qp->srq);
	fault->reason = PEAL_REASON_NONE;
	switch (peal_rq_take(rq, &reason)) {
	case PEAL_RQ_EMPTY:
		return PEAL_DROP_receive;
	case PEAL_RQ_MALFORMED:
		*fault = (struct peal_receive_fault){ IB_WC_LOC_QP_OP_ERR, reason };
		return PEAL_DROP_none;
	case PEAL_RQ_TAKEN:
		break;
	}
	if (unlikely(bytes > rq->wqe.length))
		return PEAL_DROP_length;
	reason = peal_cursor_part(to, qp->table, qp->recv_pd, rq->wqe.sge, rq->wqe.num_sge, true, 0,
				  bytes);
	if (unlikely(reason)) {
		*fault = (struct peal_receive_fault){
			IB_WC_LOC_PROT_ERR, peal_recv_reason(reason),
		};
		return PEAL_DROP_none;
	}
	return unlikely(to->counted) ? peal_receive_look(rq, bytes, to, fault) : PEAL_DROP_none;
}

/*
 * Complete the receive in error, and put the queue pair into error. If a shared receive queue is in
 * error, there is no receive, and an event tells of the error. @bytes: of the payload that arrived.
 */
void peal_receive_refuse(struct peal_qp *qp, struct peal_notify *notify, u32 src_qpn, u32 bytes,
			 const struct peal_receive_fault *fault)
{
	struct peal_cqe cqe = {
		.status = fault->status, .vendor_err = fault->reason, .opcode = PEAL_OP_SEND,
		.src_qp = src_qpn,
	};

	lockdep_assert_held(&qp->rq.lock);
	trace_peal_refuse(qp->ib.qp_num, src_qpn, PEAL_OP_SEND, 0, 0, bytes, fault->reason);
	if (likely(qp->rq.holding))
		peal_qp_complete_recv(qp, notify, &cqe);
	else
		peal_notify_event(notify, &qp->ib, IB_EVENT_QP_FATAL);
	peal_rq_refuse(&qp->rq);
	peal_notify_fail(notify, qp, qp->generation);
}
