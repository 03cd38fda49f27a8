// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See raw.h.
 */
#include <linux/if_ether.h>
#include <linux/slab.h>

#include "base/compat.h"
#include "engine/schedule.h"
#include "engine/turn.h"
#include "mem/cursor.h"
#include "net/frame.h"
#include "net/ingress.h"
#include "net/port.h"
#include "net/tx_quota.h"
#include "transport/outcome.h"
#include "transport/raw.h"
#include "transport/receive.h"
#include "transport/rss.h"
#include "transport/sender.h"

struct peal_raw {
	struct peal_transport base;
	struct peal_port *port;
	struct peal_ingress *ingress;	/* of the device, for frames that come back */
	struct peal_tx_quota *tx_quota;
	struct peal_rss *rss;		/* spreads the frames; NULL: the queue pair receives them */
	struct peal_waiter waiter;

	/* Guarded by sq.lock: */
	u32 page_waits;			/* for pages of sq.wqe, in a row */
};

static struct peal_raw *peal_raw(const struct peal_transport *transport)
{
	return container_of(transport, struct peal_raw, base);
}

/* ---- receiving ---- */

static enum peal_drop peal_raw_receive(struct peal_qp *qp, struct peal_notify *notify,
				       const struct peal_frame *frame)
{
	struct peal_receive_fault fault PEAL_UNINITIALIZED;
	struct peal_cursor to PEAL_UNINITIALIZED;
	u32 bytes = peal_frame_bytes(frame);
	struct peal_cqe cqe = {
		.opcode = PEAL_OP_SEND, .byte_len = bytes,
		.flags = frame->checksums_ok ? PEAL_CQE_IP_CSUM_OK : 0,
	};
	enum peal_drop drop;

	lockdep_assert_held(&qp->rq.lock);
	if (unlikely(!peal_qp_receives(qp)))
		return PEAL_DROP_state;
	drop = peal_receive_begin_qp(qp, notify, bytes, &to, &fault);
	if (unlikely(drop))
		return drop;
	if (unlikely(fault.reason)) {
		peal_receive_refuse(qp, notify, 0, bytes, &fault);
		return PEAL_DROP_none;
	}
	peal_frame_scatter(frame, &to);
	peal_cursor_end(&to);
	peal_qp_complete_recv(qp, notify, &cqe);
	return PEAL_DROP_none;
}

void peal_raw_deliver(struct peal_qp *qp, const struct peal_frame *frame)
{
	struct peal_notify notify PEAL_UNINITIALIZED;
	enum peal_drop drop;

	peal_epoch_assert_held();
	if (peal_raw(qp->wire)->rss) {
		peal_rss_deliver(peal_raw(qp->wire)->rss, qp, frame);
		return;
	}
	peal_notify_begin(&notify);
	spin_lock(&qp->rq.lock);
	drop = peal_raw_receive(qp, &notify, frame);
	spin_unlock(&qp->rq.lock);
	if (unlikely(drop))
		peal_count_drop(qp->table, drop);
	else
		peal_count(qp, frames_received);
	peal_turn_end(&notify);
}

/* ---- sending ---- */

/* There is room again. See struct peal_waiter for how this is called. */
static void peal_raw_ready(struct peal_waiter *waiter)
{
	struct peal_raw *raw = container_of(waiter, struct peal_raw, waiter);

	peal_defer(raw->base.qp);
}

/* A full transmit queue is back-pressure, so the WQE stays in its ring. */
static bool peal_raw_has_room(struct peal_raw *raw)
{
	return peal_tx_quota_is_left(raw->tx_quota) ||
	       !peal_tx_quota_wait(raw->tx_quota, &raw->waiter);
}

static enum peal_reason peal_raw_local(struct peal_qp *qp, struct peal_cursor *cursor)
{
	const struct peal_wqe *send = &qp->sq.wqe;

	if (send->inline_data) {
		peal_cursor_inline(cursor, send->inline_data, send->length);
		return PEAL_REASON_NONE;
	}
	return peal_cursor_local(cursor, qp->table, qp->ib.pd, send->sge, send->num_sge, false);
}

/* The bytes of the frame are in private memory now. */
static struct peal_outcome peal_raw_send(struct peal_raw *raw, struct peal_frame *frame)
{
	const struct peal_wqe *send = &raw->base.qp->sq.wqe;

	if (unlikely(!peal_frame_finish(frame, raw->port))) {
		peal_frame_drop(frame);
		return peal_failed(IB_WC_LOC_LEN_ERR, PEAL_REASON_FRAME_LENGTH);
	}
	if (send->flags & PEAL_WQE_IP_CSUM)
		peal_frame_add_checksums(frame);
	if (!peal_ingress_loop(raw->ingress, frame))
		peal_frame_send(frame, raw->port, raw->tx_quota);
	return (struct peal_outcome){ .what = PEAL_CARRIED };
}

/* A frame for which there is no memory is lost, as any other frame may be. */
static struct peal_outcome peal_raw_carry(struct peal_raw *raw)
{
	struct peal_qp *qp = raw->base.qp;
	const struct peal_wqe *send = &qp->sq.wqe;
	struct peal_cursor local PEAL_UNINITIALIZED;
	struct peal_cursor to PEAL_UNINITIALIZED;
	struct peal_outcome outcome = { .what = PEAL_CARRIED };
	struct peal_frame frame;
	enum peal_reason reason;
	void *bytes;

	lockdep_assert_held(&qp->sq.lock);
	if (unlikely(send->length < ETH_HLEN || send->length > peal_frame_most(raw->port)))
		return peal_failed(IB_WC_LOC_LEN_ERR, PEAL_REASON_FRAME_LENGTH);
	reason = peal_raw_local(qp, &local);
	if (unlikely(reason))
		return peal_failed(IB_WC_LOC_PROT_ERR, reason);
	if (unlikely(local.counted))
		outcome = peal_sender_look(qp, &local, send->length);
	if (unlikely(outcome.what != PEAL_CARRIED ||
		     !peal_frame_begin(&frame, raw->port, send->length, &bytes))) {
		peal_cursor_end(&local);
		return outcome;
	}
	peal_cursor_inline(&to, bytes, send->length);
	peal_cursor_copy(&to, &local, send->length);
	peal_cursor_end(&local);
	return peal_raw_send(raw, &frame);
}

/* Return: false when the frame has to wait. */
static bool peal_raw_execute(struct peal_raw *raw, struct peal_notify *notify)
{
	struct peal_qp *qp = raw->base.qp;
	struct peal_outcome outcome = peal_raw_carry(raw);

	if (unlikely(outcome.what == PEAL_FAILED)) {
		peal_sender_fail(qp, notify, outcome.status, outcome.reason);
		return true;
	}
	if (unlikely(outcome.what == PEAL_ABSENT)) {
		peal_sender_await_page(qp, &raw->page_waits);
		return false;
	}
	raw->page_waits = 0;
	peal_qp_count_message(qp, qp->sq.wqe.opcode, qp->sq.wqe.length);
	peal_count(qp, wire_messages);
	peal_sender_finish(qp, notify, IB_WC_SUCCESS, PEAL_REASON_NONE);
	return true;
}

/* A WQE completes as soon as its frame is with the netdev. */
static bool peal_raw_run(struct peal_transport *transport, struct peal_notify *notify,
			 struct peal_budget *budget)
{
	struct peal_raw *raw = peal_raw(transport);
	struct peal_qp *qp = transport->qp;

	peal_epoch_assert_held();
	lockdep_assert_held(&qp->sq.lock);
	while (peal_budget_is_left(budget)) {
		if (unlikely(peal_qp_send_failed(qp)))
			return peal_sender_flush(qp, notify, budget);
		if (!peal_sender_may_run(qp, notify) || !peal_raw_has_room(raw))
			return false;
		/* A WQE that waited for a page is still here. */
		if (likely(!qp->sq.busy) && !peal_sender_fetch(qp, notify, 0))
			return false;
		peal_budget_spend(budget, PEAL_COST_WQE);
		if (unlikely(!qp->sq.busy))
			continue;	/* malformed, and completed already */
		peal_budget_spend(budget, PEAL_COST_PACKET + qp->sq.wqe.length);
		if (unlikely(!peal_raw_execute(raw, notify)))
			return false;
	}
	return true;
}

/* ---- the transport ---- */

/*
 * Nothing is in flight. Cancel the wait for room, because ready() must not find a queue pair that
 * is being destroyed.
 */
static void peal_raw_reset(struct peal_transport *transport)
{
	peal_qp_assert_both_held(transport->qp);
	peal_tx_quota_cancel(peal_raw(transport)->tx_quota, &peal_raw(transport)->waiter);
}

/* Frames have no sequence numbers. */
static u32 peal_raw_send_psn(const struct peal_transport *transport)
{
	lockdep_assert_held(&transport->qp->sq.lock);
	return 0;
}

static void peal_raw_free(struct peal_transport *transport)
{
	kfree(peal_raw(transport)->rss);
	kfree(peal_raw(transport));
}

static const struct peal_transport_ops peal_raw_ops = {
	.packets = true,
	.reset = peal_raw_reset,
	.free = peal_raw_free,
	.run = peal_raw_run,
	.send_psn = peal_raw_send_psn,
};

int peal_raw_attach(struct peal_qp *qp, struct peal_port *port, struct peal_ingress *ingress,
		    struct peal_tx_quota *tx_quota)
{
	struct peal_raw *raw = kzalloc(sizeof(*raw), GFP_KERNEL_ACCOUNT);

	if (!raw)
		return -ENOMEM;
	raw->base.ops = &peal_raw_ops;
	raw->base.qp = qp;
	raw->port = port;
	raw->ingress = ingress;
	raw->tx_quota = tx_quota;
	raw->waiter.ready = peal_raw_ready;
	INIT_LIST_HEAD(&raw->waiter.node);
	peal_qp_set_wire(qp, &raw->base);
	return 0;
}

void peal_raw_spread(struct peal_qp *qp, struct peal_rss *rss)
{
	peal_raw(qp->wire)->rss = rss;
}
