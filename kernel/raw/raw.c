// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See raw.h.
 */
#include <linux/if_ether.h>
#include <linux/slab.h>

#include "base/compat.h"
#include "engine/engine.h"
#include "object/cursor.h"
#include "raw/frame.h"
#include "raw/ingress.h"
#include "net/port.h"
#include "transport/exec.h"
#include "transport/sender.h"
#include "raw/raw.h"

struct peal_raw {
	struct peal_packet_sender sender;
	struct peal_port *port;
	struct peal_ingress *ingress;	/* of the device, for frames that come back */
};

static struct peal_raw *peal_raw(const struct peal_transport *transport)
{
	return container_of(transport, struct peal_raw, sender.base);
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
	drop = peal_receive_begin(qp, notify, bytes, &to, &fault);
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

/* The bytes of the frame are in private memory now. */
static struct peal_outcome peal_raw_send(struct peal_raw *raw, struct peal_frame *frame)
{
	const struct peal_wqe *send = &raw->sender.base.qp->sq.wqe;

	if (unlikely(!peal_frame_finish(frame, raw->port))) {
		peal_frame_drop(frame);
		return peal_failed(IB_WC_LOC_LEN_ERR, PEAL_REASON_FRAME_LENGTH);
	}
	if (send->flags & PEAL_WQE_IP_CSUM)
		peal_frame_add_checksums(frame);
	if (!peal_ingress_loop(raw->ingress, frame))
		peal_frame_send(frame, raw->port, raw->sender.tx_quota);
	return (struct peal_outcome){ .what = PEAL_CARRIED };
}

/* A frame for which there is no memory is lost, as any other frame may be. */
static struct peal_outcome peal_raw_make(struct peal_raw *raw)
{
	struct peal_qp *qp = raw->sender.base.qp;
	const struct peal_wqe *send = &qp->sq.wqe;
	struct peal_cursor local PEAL_UNINITIALIZED;
	struct peal_cursor to PEAL_UNINITIALIZED;
	struct peal_outcome outcome;
	struct peal_frame frame;
	void *bytes;

	lockdep_assert_held(&qp->sq.lock);
	if (unlikely(send->length < ETH_HLEN || send->length > peal_frame_most(raw->port)))
		return peal_failed(IB_WC_LOC_LEN_ERR, PEAL_REASON_FRAME_LENGTH);
	outcome = peal_packet_sender_begin(qp, &local);
	if (unlikely(outcome.what != PEAL_CARRIED))
		return outcome;
	if (unlikely(!peal_frame_begin(&frame, raw->port, send->length, &bytes))) {
		peal_cursor_end(&local);
		return outcome;
	}
	peal_cursor_inline(&to, bytes, send->length);
	peal_cursor_copy(&to, &local, send->length);
	peal_cursor_end(&local);
	return peal_raw_send(raw, &frame);
}

static struct peal_outcome peal_raw_carry(struct peal_packet_sender *sender,
					  struct peal_notify *notify)
{
	struct peal_outcome outcome = peal_raw_make(container_of(sender, struct peal_raw, sender));

	if (likely(outcome.what == PEAL_CARRIED))
		peal_count(sender->base.qp, wire_messages);
	return outcome;
}

static bool peal_raw_run(struct peal_transport *transport, struct peal_notify *notify,
			 struct peal_budget *budget)
{
	peal_epoch_assert_held();
	lockdep_assert_held(&transport->qp->sq.lock);
	return peal_packet_sender_run(transport, notify, budget, peal_raw_carry);
}

/* ---- the transport ---- */

static void peal_raw_free(struct peal_transport *transport)
{
	kfree(peal_raw(transport));
}

static const struct peal_transport_ops peal_raw_ops = {
	.packets = true,
	.reset = peal_packet_sender_reset,
	.free = peal_raw_free,
	.run = peal_raw_run,
};

int peal_raw_attach(struct peal_qp *qp, struct peal_port *port, struct peal_ingress *ingress,
		    struct peal_tx_quota *tx_quota)
{
	struct peal_raw *raw = kzalloc(sizeof(*raw), GFP_KERNEL_ACCOUNT);

	if (!raw)
		return -ENOMEM;
	peal_packet_sender_init(&raw->sender, qp, &peal_raw_ops, tx_quota);
	raw->port = port;
	raw->ingress = ingress;
	peal_qp_set_wire(qp, &raw->sender.base);
	return 0;
}
