// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See rss.h.
 */
#include <linux/slab.h>

#include "base/compat.h"
#include "base/trace.h"
#include "base/workers.h"
#include "engine/turn.h"
#include "mem/cursor.h"
#include "net/frame.h"
#include "net/toeplitz.h"
#include "queue/qp.h"
#include "queue/wq.h"
#include "transport/receive.h"
#include "transport/rss.h"

struct peal_rss *peal_rss_create(struct ib_wq **wqs, u32 entries, u32 fields, const u8 *key)
{
	struct peal_rss *rss = kzalloc(sizeof(*rss), GFP_KERNEL_ACCOUNT);

	BUILD_BUG_ON(sizeof(rss->key) < PEAL_TOEPLITZ_INPUT + 4);
	if (!rss)
		return NULL;
	rss->wqs = wqs;
	rss->mask = entries - 1;
	rss->fields = fields;
	memcpy(rss->key, key, sizeof(rss->key));
	return rss;
}

/* ---- the choice of the work queue ---- */

/* The input of the hash. */
struct peal_rss_input {
	u8 bytes[PEAL_TOEPLITZ_INPUT];
	u32 length;
};

static void peal_rss_add(struct peal_rss_input *input, bool wanted, const void *bytes, u32 length)
{
	if (!wanted)
		return;
	memcpy(input->bytes + input->length, bytes, length);
	input->length += length;
}

static void peal_rss_add_addresses(struct peal_rss_input *input, u32 fields,
				   const struct peal_frame_fields *frame)
{
	if (frame->kinds & PEAL_FRAME_IPV4) {
		peal_rss_add(input, fields & PEAL_RX_HASH_SRC_IPV4, frame->src_ip, 4);
		peal_rss_add(input, fields & PEAL_RX_HASH_DST_IPV4, frame->dst_ip, 4);
	} else if (frame->kinds & PEAL_FRAME_IPV6) {
		peal_rss_add(input, fields & PEAL_RX_HASH_SRC_IPV6, frame->src_ip, 16);
		peal_rss_add(input, fields & PEAL_RX_HASH_DST_IPV6, frame->dst_ip, 16);
	}
}

static void peal_rss_add_ports(struct peal_rss_input *input, u32 fields,
			       const struct peal_frame_fields *frame)
{
	if (frame->kinds & PEAL_FRAME_TCP) {
		peal_rss_add(input, fields & PEAL_RX_HASH_SRC_PORT_TCP, &frame->src_port, 2);
		peal_rss_add(input, fields & PEAL_RX_HASH_DST_PORT_TCP, &frame->dst_port, 2);
	} else if (frame->kinds & PEAL_FRAME_UDP) {
		peal_rss_add(input, fields & PEAL_RX_HASH_SRC_PORT_UDP, &frame->src_port, 2);
		peal_rss_add(input, fields & PEAL_RX_HASH_DST_PORT_UDP, &frame->dst_port, 2);
	}
}

/* The hash of no bytes is 0. */
static struct peal_wq *peal_rss_choose(const struct peal_rss *rss, const struct peal_frame *frame)
{
	struct peal_rss_input input = { };

	peal_rss_add_addresses(&input, rss->fields, &frame->fields);
	if (!frame->fragment)
		peal_rss_add_ports(&input, rss->fields, &frame->fields);
	return peal_wq(rss->wqs[peal_toeplitz(rss->key, input.bytes, input.length) & rss->mask]);
}

/* ---- receiving ---- */

/* The receive cannot be used, and the work queue goes into error. */
static void peal_rss_refuse(struct peal_wq *wq, struct peal_notify *notify, u32 bytes,
			    const struct peal_receive_fault *fault)
{
	struct peal_cqe cqe = {
		.status = fault->status, .vendor_err = fault->reason, .opcode = PEAL_OP_SEND,
	};

	lockdep_assert_held(&wq->rq.lock);
	trace_peal_refuse(wq->ib.wq_num, 0, PEAL_OP_SEND, 0, 0, bytes, fault->reason);
	peal_count(wq->table, errors);
	peal_wq_complete(wq, notify, &cqe);
	peal_wq_fail_locked(wq);
}

static enum peal_drop peal_rss_receive(struct peal_wq *wq, struct peal_notify *notify,
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

	lockdep_assert_held(&wq->rq.lock);
	if (unlikely(wq->state != IB_WQS_RDY))
		return PEAL_DROP_state;
	drop = peal_receive_begin(&wq->rq, wq->table, wq->ib.pd, bytes, &to, &fault);
	if (unlikely(drop))
		return drop;
	if (unlikely(fault.reason)) {
		peal_rss_refuse(wq, notify, bytes, &fault);
		return PEAL_DROP_none;
	}
	peal_frame_scatter(frame, &to);
	peal_cursor_end(&to);
	peal_wq_complete(wq, notify, &cqe);
	return PEAL_DROP_none;
}

void peal_rss_deliver(const struct peal_rss *rss, struct peal_qp *qp,
		      const struct peal_frame *frame)
{
	struct peal_wq *wq = peal_rss_choose(rss, frame);
	struct peal_notify notify PEAL_UNINITIALIZED;
	enum peal_drop drop;
	bool fatal;

	peal_epoch_assert_held();
	peal_notify_begin(&notify);
	spin_lock(&wq->rq.lock);
	drop = peal_rss_receive(wq, &notify, frame);
	fatal = peal_wq_take_fatal(wq);
	spin_unlock(&wq->rq.lock);
	if (unlikely(drop))
		peal_count_drop(qp->table, drop);
	else
		peal_count(qp, frames_received);
	peal_turn_end(&notify);
	if (unlikely(fatal)) {
		peal_wq_raise_fatal(wq);
		peal_workers_queue(&wq->work);
	}
}
