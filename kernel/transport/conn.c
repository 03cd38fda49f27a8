// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See conn.h.
 *
 * The responder's half runs with rq.lock held, the requester's with sq.lock. Whatever processes or
 * sends packets runs inside the epoch, too. The operations of the transport run under the locks
 * that struct peal_transport_ops names.
 */
#include <linux/ktime.h>
#include <linux/mm.h>
#include <linux/nospec.h>

#include "base/compat.h"
#include "base/trace.h"
#include "engine/engine.h"
#include "net/rx_packet.h"
#include "object/cursor.h"
#include "object/errors.h"
#include "proto/packet.h"
#include "transport/conn.h"
#include "transport/exec.h"
#include "transport/local.h"
#include "transport/nic.h"
#include "transport/sender.h"

/* Most packets in flight. With the largest path MTU they fill 100 Gb/s and 10 ms. */
#define PEAL_WINDOW_PACKETS	32768

/*
 * Each acknowledgment moves the deadline of the requester, but not the timer, which is left to
 * expire too early. On a busy queue pair it would do so 10,000 times a second. When it was early,
 * it waits at least this long for the next silence. A packet that is lost meanwhile may be noticed
 * later by as much, unless another packet tells of the loss.
 */
#define PEAL_WIRE_EARLY_NS	NSEC_PER_MSEC

/* ---- both halves ---- */

static struct peal_reorder_mem *peal_wire_mem(const struct peal_wire *w)
{
	return &peal_nic(w->base.qp)->port.reorder_mem;
}

/* Return: what to keep if the packet is out of order. One with the PSN @expected is never kept. */
static struct sk_buff *peal_wire_may_keep(const struct peal_wire *w,
					  const struct peal_reorder *reorder, u32 expected,
					  struct peal_rx_packet *rx)
{
	if (likely(rx->packet.psn == expected))
		return NULL;
	return peal_reorder_mem_may(peal_wire_mem(w), rx,
				    ib_mtu_enum_to_int(w->base.qp->attr.path_mtu), reorder->count);
}

/* What it costs to send a packet, or a run of packets, or to process it. */
static u64 peal_wire_cost(const struct peal_packet *packet)
{
	return (u64)peal_packet_count(packet) * (PEAL_COST_PACKET + packet->payload_bytes);
}

/* How many packets may leave as one run? The last of them may overdraw the budget. */
static u32 peal_wire_most(const struct peal_wire *w, const struct peal_budget *budget)
{
	return clamp_t(s64, (budget->left >> peal_qp_mtu_shift(w->base.qp)) + 1, 1,
		       PEAL_TRAIN_PACKETS);
}

/* The turn of a kept packet has come. */
static void peal_wire_unkeep(const struct peal_wire *w, struct sk_buff *skb,
			     struct peal_rx_packet *rx, struct peal_budget *budget)
{
	peal_reorder_mem_take(peal_wire_mem(w), skb);
	peal_rx_read_again(skb, rx);
	peal_budget_spend(budget, peal_wire_cost(&rx->packet));
}

/* The callers assert the lock of that half, unless they free the queue pair. */
static void peal_wire_drop_reordered(const struct peal_wire *w, struct peal_reorder *reorder)
{
	struct sk_buff *skb;

	while ((skb = peal_reorder_drop(reorder)))
		peal_reorder_mem_lose(peal_wire_mem(w), skb);
}

static void peal_wire_count_nak(const struct peal_qp *qp, const struct peal_packet *packet,
				bool sent)
{
	static const u16 counters[][2] = {
		[PEAL_NAK_SEQUENCE] = {
			PEAL_COUNTER_naks_received_sequence, PEAL_COUNTER_naks_sent_sequence,
		},
		[PEAL_NAK_INVALID_REQUEST] = {
			PEAL_COUNTER_naks_received_invalid, PEAL_COUNTER_naks_sent_invalid,
		},
		[PEAL_NAK_REMOTE_ACCESS] = {
			PEAL_COUNTER_naks_received_access, PEAL_COUNTER_naks_sent_access,
		},
		[PEAL_NAK_REMOTE_OPERATION] = {
			PEAL_COUNTER_naks_received_operation, PEAL_COUNTER_naks_sent_operation,
		},
	};
	u32 code = packet->syndrome & PEAL_SYNDROME_VALUE;

	/* Packets without an AETH have syndrome 0, which is that of an ACK. */
	switch (packet->syndrome & PEAL_SYNDROME_KIND) {
	case PEAL_SYNDROME_RNR:
		if (sent) {
			peal_count(qp, naks_sent_rnr);
		} else {
			peal_count(qp, naks_received_rnr);
			peal_count(qp, rnr_waits);
		}
		break;
	case PEAL_SYNDROME_NAK:
		if (code < ARRAY_SIZE(counters)) {
			code = array_index_nospec(code, ARRAY_SIZE(counters));
			this_cpu_inc(qp->counters->value[counters[code][sent]]);
		}
		break;
	}
}

/* Under sq.lock or rq.lock. Something is due at @ns. U64_MAX: nothing is. */
static void peal_wire_schedule(struct peal_qp *qp, u64 ns)
{
	peal_qp_assert_either_held(qp);
	if (unlikely(ns < KTIME_MAX))
		peal_schedule_timer(qp, ns_to_ktime(ns));
}

/* ---- the responder: a request arrives ---- */

/*
 * On-demand paging: are the bytes of this packet in memory? These are the bytes that it writes, or
 * for a READ those of the first run of responses. A later response whose bytes are not there counts
 * as lost. If the bytes are not there, the peer is asked to wait, as for a missing receive.
 */
static noinline struct peal_outcome peal_wire_look_request(struct peal_wire *w,
							   const struct peal_request *request,
							   struct peal_notify *notify,
							   const struct peal_cursor *cursor)
{
	struct peal_qp *qp = w->base.qp;
	bool read = request->wqe.opcode == PEAL_OP_READ;
	enum peal_odp_state state = PEAL_ODP_PRESENT;
	u32 bytes = request->bytes;

	if (read)
		bytes = min_t(u64, request->wqe.length,
			      PEAL_TRAIN_PACKETS << peal_qp_mtu_shift(qp));
	else if (peal_op(request->wqe.opcode)->atomic)
		bytes = sizeof(u64);
	if (bytes)
		state = peal_cursor_look(cursor, request->offset, bytes, !read);
	switch (state) {
	case PEAL_ODP_PRESENT:
		break;
	case PEAL_ODP_ABSENT:
		return peal_not_ready(qp, PEAL_REASON_RKEY_PAGE);
	case PEAL_ODP_FAULT:
	case PEAL_ODP_LATE:
		return peal_execute_no_page(qp, &request->wqe, qp->attr.dest_qp_num, notify, state);
	}
	return (struct peal_outcome){ .what = PEAL_DONE };
}

/*
 * The common case of peal_wire_execute(): one packet of a WRITE without immediate data, to memory
 * that is contiguous and there. Return: false, if that function must look.
 */
static __always_inline bool peal_wire_write(struct peal_wire *w, const struct peal_rx_packet *rx,
					    const struct peal_request *request)
{
	const struct peal_wqe *wqe = &request->wqe;
	const struct peal_op *op = peal_op(PEAL_OP_WRITE);
	const struct peal_qp *qp = w->base.qp;
	u64 bytes = request->bytes;
	void *to;

	lockdep_assert_held(&qp->rq.lock);
	if (wqe->opcode != PEAL_OP_WRITE || rx->packet.more || !bytes || !qp->rq.routine ||
	    op->access & ~qp->attr.qp_access_flags || peal_faults_exist(&qp->table->faults))
		return false;
	to = peal_mr_present(qp->table, &w->remote, qp->rkey_pd, wqe->rkey,
			     wqe->remote_addr + request->offset, wqe->length - request->offset,
			     op->access, &bytes);
	if (unlikely(!to || bytes != request->bytes))
		return false;
	peal_rx_copy(rx, 0, to, bytes);
	return true;
}

/* Check the request and move its bytes. *original gets the old value of an atomic. */
static noinline struct peal_outcome peal_wire_execute(struct peal_wire *w,
						      const struct peal_rx_packet *rx,
						      const struct peal_request *request,
						      struct peal_notify *notify, u64 *original)
{
	const struct peal_op *op = peal_op(request->wqe.opcode);
	struct peal_cursor cursor PEAL_UNINITIALIZED;
	struct peal_qp *qp = w->base.qp;
	u32 src_qpn = qp->attr.dest_qp_num;
	struct peal_outcome outcome;

	if (peal_faults_exist(&qp->table->faults) && !request->offset &&
	    peal_execute_find_fault(qp, &request->wqe, src_qpn, notify, &outcome))
		return outcome;
	outcome = peal_execute_accept(qp, &request->wqe, src_qpn, notify, &cursor);
	if (unlikely(outcome.what != PEAL_DONE))
		return outcome;
	if (unlikely(cursor.counted))
		outcome = peal_wire_look_request(w, request, notify, &cursor);
	if (unlikely(outcome.what != PEAL_DONE)) {
		;
	} else if (op->atomic) {
		/* The responder has checked that ATOMIC_WRITE has eight bytes, others none. */
		peal_rx_copy(rx, 0, original, min_t(u32, request->bytes, sizeof(*original)));
		outcome = peal_execute_atomic(qp, &request->wqe, src_qpn, notify, &cursor,
					      original);
	} else if (request->bytes) {
		peal_cursor_skip(&cursor, request->offset);
		peal_rx_scatter(rx, &cursor, request->bytes);
	}
	peal_cursor_end(&cursor);
	if (request->last && likely(outcome.what == PEAL_DONE))
		outcome = peal_execute_finish(qp, &request->wqe, src_qpn, notify);
	return outcome;
}

/* No NAK and no completion reports a lost message of an unreliable connection, so count it. */
static noinline void peal_wire_lose(const struct peal_qp *qp, const struct peal_packet *packet,
				    struct peal_outcome outcome)
{
	enum peal_drop drop = PEAL_DROP_rights;

	if (outcome.what == PEAL_NOT_READY)
		drop = PEAL_DROP_receive;
	else if (outcome.reason == PEAL_REASON_RECV_TOO_SHORT)
		drop = PEAL_DROP_length;
	peal_count_drop(qp->table, drop);
	trace_peal_drop(packet, drop);
}

/* Process one request. Consumes the packet. @again: it was kept until its turn came. */
static void peal_wire_take_request(struct peal_wire *w, struct peal_rx_packet *rx, u64 now,
				   struct peal_notify *notify, bool again)
{
	struct peal_responder *responder = &w->responder;
	struct peal_request request PEAL_UNINITIALIZED;
	u8 syndrome = PEAL_SYNDROME_ACK;
	struct peal_qp *qp = w->base.qp;
	struct peal_outcome outcome;
	u64 original = 0;
	struct sk_buff *handle;

	lockdep_assert_held(&qp->rq.lock);
	trace_peal_packet_received(qp->ib.qp_num, &rx->packet, again);
	handle = peal_wire_may_keep(w, &responder->reorder, responder->psn, rx);
	peal_responder_receive(responder, &rx->packet, now, handle, &request);
	if (request.duplicate)
		peal_count(qp, duplicates);
	switch (request.what) {
	case PEAL_REQUEST_KEPT:
		peal_reorder_mem_add(peal_wire_mem(w), rx->skb);
		return;
	case PEAL_REQUEST_COPY:
		/* If the two differ, one of them is forged. */
		if (!peal_rx_same(request.kept, rx)) {
			request.drop = PEAL_DROP_conflict;
			peal_reorder_mem_lose(peal_wire_mem(w),
					      peal_responder_conflict(responder, rx->packet.psn));
		}
		fallthrough;
	case PEAL_REQUEST_DROPPED:
		peal_count_drop(qp->table, request.drop);
		trace_peal_drop(&rx->packet, request.drop);
		break;
	case PEAL_REQUEST_ANSWERED:
		if (!request.fatal)
			break;
		/* A fatal NAK is due, so the queue pair refuses from now on. */
		peal_execute_invalid(qp, &request.wqe, qp->attr.dest_qp_num, notify);
		break;
	case PEAL_REQUEST_EXECUTE:
		outcome.what = PEAL_DONE;
		if (!peal_wire_write(w, rx, &request))
			outcome = peal_wire_execute(w, rx, &request, notify, &original);
		if (unlikely(outcome.what != PEAL_DONE)) {
			syndrome = outcome.syndrome;
			if (qp->ib.qp_type == IB_QPT_UC)
				peal_wire_lose(qp, &rx->packet, outcome);
		}
		peal_responder_done(responder, syndrome, original, now);
		break;
	}
	peal_rx_consume(rx);
}

/*
 * Process the kept requests whose turn has come. If the budget ends first, no budget is left
 * for peal_wire_reply() either, so the rest is due together with the replies. Check rq.refusing
 * each time, because another transport may have refused a request in the meantime. The messages of
 * XRC may complete in many completion queues. When no more can be notified, this counts as the end
 * of the budget.
 */
static void peal_wire_take_kept_requests(struct peal_wire *w, struct peal_notify *notify,
					 struct peal_budget *budget)
{
	struct peal_rx_packet rx PEAL_UNINITIALIZED;
	struct peal_qp *qp = w->base.qp;
	struct sk_buff *skb;

	lockdep_assert_held(&qp->rq.lock);
	while (w->responder.reorder.count && !qp->rq.refusing && peal_budget_is_left(budget)) {
		if (unlikely(!peal_notify_has_room(notify))) {
			peal_budget_spend(budget, budget->left);
			break;
		}
		skb = peal_responder_take_reordered(&w->responder);
		if (!skb)
			break;
		peal_wire_unkeep(w, skb, &rx, budget);
		peal_wire_take_request(w, &rx, ktime_get_ns(), notify, true);
	}
	WRITE_ONCE(w->deadline, peal_responder_deadline(&w->responder));
}

/* ---- the responder: a reply leaves ---- */

/*
 * Add a READ response to @train. The packet counts as lost if on-demand paging must first bring its
 * bytes in. If the key has become invalid since the request, or the memory is gone, a repeated
 * response turns into a NAK at once. The NAK of a first response is due later, in its turn. Return:
 * false if @reply has become a NAK, which is still to be sent.
 */
static noinline bool peal_wire_reply_read(struct peal_wire *w, struct peal_train *train,
					  struct peal_reply *reply, struct peal_notify *notify)
{
	enum peal_odp_state state = PEAL_ODP_FAULT;
	struct peal_cursor from PEAL_UNINITIALIZED;
	u32 bytes = peal_packet_bytes(&reply->header);
	struct peal_qp *qp = w->base.qp;
	u32 src_qpn = qp->attr.dest_qp_num;
	struct peal_wqe wqe = {
		.opcode = PEAL_OP_READ, .rkey = reply->rkey, .remote_addr = reply->remote_addr,
		.srqn = reply->srqn, .length = bytes,
	};
	bool found;

	lockdep_assert_held(&qp->rq.lock);
	if (reply->again)
		found = peal_execute_read_again(qp, &wqe, &from);
	else
		found = peal_execute_read(qp, &wqe, src_qpn, notify, &from).what ==
			PEAL_DONE;
	if (likely(found)) {
		state = bytes ? peal_cursor_look(&from, 0, bytes, false) : PEAL_ODP_PRESENT;
		if (likely(state == PEAL_ODP_PRESENT))
			peal_output_add(&w->output, train, &reply->header, &from, reply->again);
		else if (state != PEAL_ODP_ABSENT && !reply->again)
			peal_execute_no_page(qp, &wqe, src_qpn, notify, state);
		peal_cursor_end(&from);
	}
	if (likely(state == PEAL_ODP_PRESENT) || state == PEAL_ODP_ABSENT)
		return true;
	if (reply->again) {
		peal_responder_refuse_again(&w->responder, reply);
		return false;
	}
	peal_responder_refuse_read(&w->responder);
	return true;
}

/*
 * Send the replies that are due, within a budget. A packet counts as lost when there is no memory
 * for it. Return: true when the budget ended first.
 */
static bool peal_wire_reply(struct peal_wire *w, struct peal_notify *notify,
			    struct peal_budget *budget)
{
	struct peal_train train PEAL_UNINITIALIZED;
	struct peal_reply reply PEAL_UNINITIALIZED;
	struct peal_qp *qp = w->base.qp;
	bool more = true;

	lockdep_assert_held(&qp->rq.lock);
	if (!peal_responder_has_reply(&w->responder) && likely(!qp->rq.refusing)) {
		WRITE_ONCE(w->due, false);
		return false;
	}
	/* Set this before looking for room. The turn that follows when room is free reads it. */
	WRITE_ONCE(w->due, true);
	peal_output_begin(&w->output, &train);
	while (peal_budget_is_left(budget)) {
		if (!peal_output_has_quota(&w->output)) {
			more = false;
			break;
		}
		if (!peal_responder_next(&w->responder, peal_wire_most(w, budget), &reply)) {
			WRITE_ONCE(w->due, false);
			/*
			 * The NAK of a refused request has left. The queue pair goes into error
			 * only now, because no reply is sent in error.
			 */
			if (unlikely(qp->rq.refusing))
				peal_notify_fail(notify, qp, qp->generation);
			more = false;
			break;
		}
		/* What is sent again leaves alone; see peal_wire_step(). */
		if (unlikely(reply.again)) {
			peal_output_flush(&w->output, &train);
			peal_count(qp, retransmits);
		}
		if (!reply.read || !peal_wire_reply_read(w, &train, &reply, notify)) {
			peal_wire_count_nak(qp, &reply.header, true);
			peal_output_add(&w->output, &train, &reply.header, NULL, reply.again);
		}
		if (unlikely(reply.again))
			peal_output_flush(&w->output, &train);
		peal_budget_spend(budget, peal_wire_cost(&reply.header));
	}
	peal_output_flush(&w->output, &train);
	return more;
}

/* ---- the responder: its turns ---- */

void peal_wire_request(struct peal_wire *w, struct peal_rx_packet *rx, u64 now,
		       struct peal_notify *notify, struct peal_budget *budget)
{
	struct peal_qp *qp = w->base.qp;

	peal_epoch_assert_held();
	lockdep_assert_held(&qp->rq.lock);
	if (unlikely(qp->receiver != &w->base))
		peal_qp_change_receiver(qp, &w->base);
	peal_wire_take_request(w, rx, now, notify, false);
	/* The next packet of a train may be among the kept ones. */
	if (unlikely(w->responder.reorder.count))
		peal_wire_take_kept_requests(w, notify, budget);
}

bool peal_wire_requests_end(struct peal_wire *w, struct peal_notify *notify,
			    struct peal_budget *budget)
{
	struct peal_qp *qp = w->base.qp;
	bool more;

	peal_epoch_assert_held();
	lockdep_assert_held(&qp->rq.lock);
	if (unlikely(w->responder.reorder.count))
		peal_wire_take_kept_requests(w, notify, budget);
	WRITE_ONCE(w->deadline, peal_responder_deadline(&w->responder));
	more = peal_wire_reply(w, notify, budget);
	peal_wire_schedule(qp, w->deadline);
	return more;
}

/*
 * If the responder has something to do, expire kept requests and gaps, process the kept requests
 * whose turn has come, and send the replies that were left. Return: true when the budget ended
 * first.
 */
static bool peal_wire_run_responder(struct peal_wire *w, struct peal_notify *notify,
				    struct peal_budget *budget)
{
	u64 deadline = READ_ONCE(w->deadline), now;
	struct peal_qp *qp = w->base.qp;
	struct sk_buff *skb;
	bool more;

	lockdep_assert_held(&qp->sq.lock);
	/* No rq.lock yet, so these are hints. */
	if (!READ_ONCE(w->due) && (deadline == U64_MAX || ktime_get_ns() < deadline))
		return false;
	spin_lock(&qp->rq.lock);
	peal_qp_change_receiver(qp, &w->base);
	if (w->deadline != U64_MAX) {
		now = ktime_get_ns();
		peal_responder_expire(&w->responder, now);
		while ((skb = peal_responder_take_expired(&w->responder, now)))
			peal_reorder_mem_lose(peal_wire_mem(w), skb);
	}
	peal_wire_take_kept_requests(w, notify, budget);
	more = peal_wire_reply(w, notify, budget);
	spin_unlock(&qp->rq.lock);
	return more;
}

/* ---- the requester: completions ---- */

/* @message: index of the message in flight. */
static struct peal_sge *peal_wire_sge(const struct peal_wire *w, u32 message)
{
	const struct peal_sq *sq = &w->base.qp->sq;

	return w->sge + (size_t)(message & sq->ring.mask) * sq->limits.max_sge;
}

/*
 * One response may complete a whole ring, so the budget limits this loop.
 * Return: true when the budget ended first.
 */
static bool peal_wire_complete(struct peal_wire *w, struct peal_notify *notify,
			       struct peal_budget *budget)
{
	struct peal_qp *qp = w->base.qp;
	const struct peal_message *done;

	lockdep_assert_held(&qp->sq.lock);
	if (!peal_requester_may_complete(&w->requester))
		return false;
	while (peal_budget_is_left(budget)) {
		done = peal_requester_complete(&w->requester);
		if (!done)
			return false;
		peal_budget_spend(budget, PEAL_COST_COMPLETION);
		if (unlikely(done->status))
			peal_errors_add_failed(qp, &done->wqe, peal_wire_sge(w, done - w->message),
					       done->status, done->reason);
		peal_qp_complete_message(qp, notify, &done->wqe, done->status, done->reason);
		if (unlikely(done->status)) {
			/* The queue pair or its send queue goes into error, the rest is flushed. */
			spin_lock(&qp->rq.lock);
			peal_qp_fail_send_locked(qp);
			spin_unlock(&qp->rq.lock);
			return false;
		}
		if (!done->op->local) {
			peal_qp_count_message(qp, done->wqe.opcode, done->wqe.length);
			peal_count(qp, wire_messages);
		}
	}
	return true;
}

/* Fail a message because its memory on this side is not valid. */
static void peal_wire_fail_message(struct peal_wire *w, u32 message, enum peal_reason reason)
{
	peal_requester_fail_message(&w->requester, message, IB_WC_LOC_PROT_ERR, reason);
}

/* ---- the requester: where the bytes of a message are ---- */

/*
 * Set @cursor to @bytes bytes of a message, from @offset on. The keys are looked up for each
 * packet, because they may have become invalid since the last one. *absent: the bytes are not in
 * memory, and on-demand paging brings them in. Return: PEAL_REASON_NONE, or why there is no cursor.
 */
static __always_inline enum peal_reason peal_wire_find(struct peal_wire *w, u32 message,
						       bool write, u64 offset, u32 bytes,
						       struct peal_cursor *cursor, bool *absent)
{
	const struct peal_qp *qp = w->base.qp;
	const struct peal_wqe *wqe = peal_requester_wqe(&w->requester, message);
	enum peal_odp_state state;
	enum peal_reason reason;

	if (wqe->inline_data) {
		peal_cursor_inline(cursor, wqe->inline_data, wqe->length);
		peal_cursor_skip(cursor, offset);
		return PEAL_REASON_NONE;
	}
	reason = peal_cursor_find(cursor, qp->table, &w->local, qp->ib.pd,
				  peal_wire_sge(w, message), wqe->num_sge, write, offset, bytes);
	if (unlikely(reason) || likely(!cursor->counted))
		return reason;
	state = peal_cursor_look(cursor, 0, bytes, write);
	if (state == PEAL_ODP_PRESENT)
		return PEAL_REASON_NONE;
	peal_cursor_end(cursor);
	*absent = state == PEAL_ODP_ABSENT;
	return peal_odp_reason(state, PEAL_REASON_LKEY_PAGE);
}

/* ---- the requester may send ---- */

/*
 * Must all local keys be checked before the first packet? Each packet checks those that it needs
 * again, because keys may become invalid in between. So a message of one packet, or with one key,
 * needs no check before. On UC it is checked, because UC goes on after the failure, and no PSN may
 * be missing then.
 */
static bool peal_wire_wants_check(const struct peal_qp *qp)
{
	const struct peal_wqe *wqe = &qp->sq.wqe;
	const struct peal_op *op = peal_op(wqe->opcode);

	return !wqe->inline_data && !op->local &&
	       !(op->sends && peal_qp_is_reliable(qp) &&
		 (wqe->num_sge == 1 || wqe->length <= 1 << peal_qp_mtu_shift(qp)));
}

static noinline enum peal_reason peal_wire_check_keys(const struct peal_qp *qp)
{
	const struct peal_wqe *wqe = &qp->sq.wqe;
	struct peal_cursor cursor PEAL_UNINITIALIZED;
	enum peal_reason reason;

	reason = peal_cursor_local(&cursor, qp->table, qp->ib.pd, qp->sq.sge, wqe->num_sge,
				   !peal_op(wqe->opcode)->sends);
	if (likely(!reason))
		peal_cursor_end(&cursor);
	return reason;
}

/*
 * Post the message in sq.wqe. That is free afterwards, because the requester keeps a copy
 * of it.
 */
static void peal_wire_post(struct peal_wire *w)
{
	struct peal_qp *qp = w->base.qp;
	struct peal_wqe *wqe = &qp->sq.wqe;
	u32 message = peal_requester_head(&w->requester);
	enum peal_reason reason = PEAL_REASON_NONE;
	enum peal_sq_next next = peal_sq_next(&qp->sq);
	u8 fault;

	wqe->more = next == PEAL_SQ_MESSAGE;
	wqe->end = next == PEAL_SQ_NOTHING;
	/*
	 * An invalidation by a kernel user may end the use of memory that earlier messages send
	 * from. They need it until they are acknowledged, because their packets may have to be sent
	 * again. Programs can invalidate windows only, which no message is sent from.
	 */
	wqe->last = wqe->opcode == PEAL_OP_LOCAL_INV && !qp->context;
	trace_peal_execute(qp->ib.qp_num, wqe->index, wqe->opcode, wqe->length,
			   peal_requester_psn(&w->requester));
	memcpy(peal_wire_sge(w, message), qp->sq.sge, wqe->num_sge * sizeof(*qp->sq.sge));
	peal_requester_post(&w->requester, wqe);
	if (peal_wire_wants_check(qp))
		reason = peal_wire_check_keys(qp);
	fault = peal_sender_fault(qp);
	if (unlikely(fault))
		peal_requester_fail_message(&w->requester, message, fault, PEAL_REASON_FAULT);
	else if (unlikely(reason))
		peal_wire_fail_message(w, message, reason);
	peal_sq_finish(&qp->sq);
}

/* Post the malformed WQE in sq.wqe, too, because it must complete in its place in the order. */
static noinline void peal_wire_post_malformed(struct peal_wire *w, enum peal_reason reason)
{
	u32 message = peal_requester_head(&w->requester);
	struct peal_sq *sq = &w->base.qp->sq;
	struct peal_wqe bad = {
		.opcode = PEAL_OP_INVALID, .flags = sq->wqe.flags, .index = sq->wqe.index,
	};

	peal_requester_post(&w->requester, &bad);
	peal_requester_fail_message(&w->requester, message, peal_wqe_status(reason), reason);
	peal_sq_finish(sq);
}

/* This CPU is not the one that sent the last new packet; see peal_wire_is_elsewhere(). */
static noinline bool peal_wire_leave(struct peal_wire *w)
{
	struct peal_requester *requester = &w->requester;
	struct peal_qp *qp = w->base.qp;

	lockdep_assert_held(&qp->sq.lock);
	if (!peal_requester_is_under_way(requester) || !peal_requester_reliable(requester) ||
	    !peal_turn_leave_to(qp, w->cpu))
		return false;
	if (!peal_requester_asks(requester))
		peal_defer_on_cpu(qp);
	peal_requester_end_stream(requester);
	return true;
}

/*
 * Must new packets leave from another CPU? Each CPU has a backlog of its own, so packets of two
 * CPUs overtake each other, and the peer answers with a NAK. A turn on another CPU is asked for
 * unless an answer is sure to give one. UC stays on a CPU by peal_turn_may_send().
 */
static inline bool peal_wire_is_elsewhere(struct peal_wire *w)
{
	return unlikely(w->cpu != smp_processor_id()) && peal_wire_leave(w);
}

/*
 * Start the next message. @train: the packets of this turn that have not left yet. Return: false
 * when no message was started.
 */
static bool peal_wire_begin(struct peal_wire *w, const struct peal_train *train, u64 now,
			    struct peal_notify *notify, struct peal_budget *budget)
{
	struct peal_requester *requester = &w->requester;
	struct peal_qp *qp = w->base.qp;
	enum peal_reason reason;

	lockdep_assert_held(&qp->sq.lock);
	/*
	 * Messages started on the wire finish there; the next one may use the direct path. When no
	 * message may start, ask for an ACK of the packets in flight, because no later packet will
	 * carry AckReq.
	 */
	if (!peal_sender_may_begin(qp, notify) || qp->sender != qp->wire || qp->locality->wanted) {
		peal_requester_request_ack(requester, now);
		return false;
	}
	if (!peal_requester_has_room(requester) || peal_wire_is_elsewhere(w))
		return false;
	/*
	 * What follows a packet of this train leaves with it. The ring gives only hints here,
	 * because the program may change it before the fetch.
	 */
	if (peal_requester_may_cork(requester) && !train->packets &&
	    peal_sq_next(&qp->sq) == PEAL_SQ_MESSAGE &&
	    peal_requester_corks(requester, peal_ring_pending(&qp->sq.ring), now))
		return false;
	switch (peal_sq_fetch(&qp->sq, &reason)) {
	case PEAL_SQ_EMPTY:
		return false;
	case PEAL_SQ_MALFORMED:
		peal_wire_post_malformed(w, reason);
		break;
	case PEAL_SQ_FETCHED:
		peal_wire_post(w);
		break;
	}
	peal_count(qp, posts);
	peal_budget_spend(budget, PEAL_COST_WQE);
	return true;
}

/* Add a packet with payload from the program's memory. *absent: as for peal_wire_find(). */
static noinline enum peal_reason peal_wire_add(struct peal_wire *w, struct peal_train *train,
					       struct peal_outgoing *out, bool *absent)
{
	struct peal_cursor from PEAL_UNINITIALIZED;
	enum peal_reason reason;

	reason = peal_wire_find(w, out->message, false, out->offset,
				peal_packet_bytes(&out->header), &from, absent);
	if (unlikely(reason))
		return reason;
	peal_output_add(&w->output, train, &out->header, &from, out->again);
	peal_cursor_end(&from);
	return PEAL_REASON_NONE;
}

/* Send the packets that are collected in @train. */
static void peal_wire_flush_train(struct peal_wire *w, struct peal_train *train)
{
	if (!train->packets && !train->error)
		return;
	if (unlikely(peal_output_flush(&w->output, train) == -EMSGSIZE))
		peal_requester_too_long(&w->requester, train->error_psn);
}

/*
 * Add a packet to @train, or execute a local operation. Start the next message when all of the last
 * one has left. A packet counts as lost, like one that the network drops, when there is no memory
 * for it, or when its payload is not in memory (on-demand paging). A packet that is sent again
 * leaves alone, because the network may have lost the train that it was in. Return: false when
 * there is nothing to do now.
 */
static bool peal_wire_step(struct peal_wire *w, struct peal_train *train, u64 *now,
			   struct peal_notify *notify, struct peal_budget *budget)
{
	struct peal_requester *requester = &w->requester;
	enum peal_blocked blocked = PEAL_BLOCKED_EMPTY;
	struct peal_outgoing out PEAL_UNINITIALIZED;
	enum peal_reason reason = PEAL_REASON_NONE;
	struct peal_outcome outcome;
	bool absent = false;

	if (peal_requester_unsent(requester) && peal_wire_is_elsewhere(w))
		return false;
	if (!peal_requester_is_empty(requester))
		blocked = peal_requester_next(requester, *now, peal_wire_most(w, budget), &out);
	if (blocked == PEAL_BLOCKED_EMPTY && peal_wire_begin(w, train, *now, notify, budget))
		blocked = peal_requester_next(requester, *now, peal_wire_most(w, budget), &out);
	if (blocked)
		return false;
	if (out.local) {
		/* sq.wqe still has this WQE, because no other is fetched before it is executed. */
		outcome = peal_sender_local(w->base.qp);
		peal_requester_local_done(requester, out.message, outcome.status, outcome.reason);
		peal_budget_spend(budget, PEAL_COST_PACKET);
		return true;
	}
	peal_budget_spend(budget, peal_wire_cost(&out.header));
	if (likely(!out.again)) {
		w->cpu = smp_processor_id();
	} else {
		peal_wire_flush_train(w, train);
		if (out.asks)
			peal_count(w->base.qp, ack_requests);
		else
			peal_count(w->base.qp, retransmits);
	}
	if (out.header.payload_bytes)
		reason = peal_wire_add(w, train, &out, &absent);
	else
		peal_output_add(&w->output, train, &out.header, NULL, out.again);
	if (likely(!reason)) {
		if (unlikely(out.again)) {
			peal_wire_flush_train(w, train);
			*now = ktime_get_ns();
		}
	} else if (absent) {
		peal_requester_excuse_silence(requester, ktime_get_ns());
	} else {
		peal_wire_fail_message(w, out.message, reason);
	}
	return true;
}

/* ---- the requester: a timer fires ---- */

static void peal_wire_expire(struct peal_wire *w, u64 now)
{
	struct peal_requester *requester = &w->requester;
	bool early = now < peal_requester_deadline(requester);
	struct peal_qp *qp = w->base.qp;
	u32 expiries = READ_ONCE(qp->run.expiries);
	struct sk_buff *skb;
	bool gave_up;

	lockdep_assert_held(&qp->sq.lock);
	w->ran_at = now;
	if (unlikely(expiries != w->expiries) || unlikely(!early))
		w->timer_least = early ? now + PEAL_WIRE_EARLY_NS : 0;
	w->expiries = expiries;
	if (likely(early))
		return;
	gave_up = now >= requester->give_up_at;
	if (gave_up || (now >= requester->probe_at && !peal_requester_only_asks(requester))) {
		if (gave_up)
			peal_count(qp, timeouts);
		else
			peal_count(qp, probes);
		trace_peal_timeout(qp->ib.qp_num, !gave_up, requester->inflight.una,
				   requester->retry.used);
	}
	peal_requester_expire(requester, now);
	while ((skb = peal_requester_take_expired(requester, now)))
		peal_reorder_mem_lose(peal_wire_mem(w), skb);
}

/*
 * When is the requester's next turn due? Silence may be noticed late after the timer was early,
 * but not when anything else is due, a packet was retransmitted, or a probe is due at once.
 */
static u64 peal_wire_requester_deadline(const struct peal_wire *w)
{
	const struct peal_requester *requester = &w->requester;
	u64 deadline = peal_requester_deadline(requester);

	if (deadline >= w->timer_least || deadline <= w->ran_at ||
	    deadline != min(requester->probe_at, requester->give_up_at) ||
	    requester->gap_at != U64_MAX || requester->reorder.count ||
	    requester->retransmit.probe)
		return deadline;
	return w->timer_least;
}

/* ---- the requester: a response arrives ---- */

/* Copy the data of a response to the program's memory. *absent: as for peal_wire_find(). */
static noinline enum peal_reason peal_wire_place(struct peal_wire *w,
						 const struct peal_rx_packet *rx,
						 const struct peal_response *response, bool *absent)
{
	bool atomic = response->what == PEAL_RESPONSE_ATOMIC;
	u32 bytes = atomic ? sizeof(response->original) : response->bytes;
	u64 offset = atomic ? 0 : response->offset;
	struct peal_cursor from PEAL_UNINITIALIZED;
	struct peal_cursor to PEAL_UNINITIALIZED;
	enum peal_reason reason;

	reason = peal_wire_find(w, response->message, true, offset, bytes, &to, absent);
	if (unlikely(reason))
		return reason;
	if (atomic) {
		peal_cursor_inline(&from, &response->original, bytes);
		peal_cursor_copy(&to, &from, bytes);
	} else {
		peal_rx_scatter(rx, &to, bytes);
	}
	peal_cursor_end(&to);
	return PEAL_REASON_NONE;
}

/* Process one response. Consumes the packet. @again: it was kept until its turn came. */
static void peal_wire_take_response(struct peal_wire *w, struct peal_rx_packet *rx, u64 now,
				    bool again)
{
	struct peal_response response PEAL_UNINITIALIZED;
	struct peal_requester *requester = &w->requester;
	enum peal_reason reason = PEAL_REASON_NONE;
	struct peal_qp *qp = w->base.qp;
	struct sk_buff *handle;
	bool absent = false;

	lockdep_assert_held(&qp->sq.lock);
	trace_peal_packet_received(qp->ib.qp_num, &rx->packet, again);
	handle = peal_wire_may_keep(w, &requester->reorder, requester->inflight.una, rx);
	peal_requester_receive(requester, &rx->packet, now, handle, &response);
	switch (response.what) {
	case PEAL_RESPONSE_KEPT:
		peal_reorder_mem_add(peal_wire_mem(w), rx->skb);
		return;
	case PEAL_RESPONSE_COPY:
		/* If the two differ, one of them is forged. */
		if (!peal_rx_same(response.kept, rx)) {
			response.drop = PEAL_DROP_conflict;
			response.duplicate = false;
			peal_reorder_mem_lose(peal_wire_mem(w),
					      peal_requester_conflict(requester, rx->packet.psn,
								      now));
		}
		fallthrough;
	case PEAL_RESPONSE_DROPPED:
		if (response.duplicate)
			peal_count(qp, duplicates);
		peal_count_drop(qp->table, response.drop);
		trace_peal_drop(&rx->packet, response.drop);
		break;
	case PEAL_RESPONSE_TAKEN:
		peal_wire_count_nak(qp, &rx->packet, false);
		break;
	case PEAL_RESPONSE_READ:
	case PEAL_RESPONSE_ATOMIC:
		if (response.what == PEAL_RESPONSE_ATOMIC || response.bytes)
			reason = peal_wire_place(w, rx, &response, &absent);
		if (likely(!reason))
			peal_requester_placed(requester, &response, now);
		else if (absent)	/* it counts as lost */
			peal_requester_excuse_silence(requester, now);
		else
			peal_wire_fail_message(w, response.message, reason);
		break;
	}
	peal_rx_consume(rx);
}

void peal_wire_response(struct peal_wire *w, struct peal_rx_packet *rx, u64 now)
{
	peal_epoch_assert_held();
	lockdep_assert_held(&w->base.qp->sq.lock);
	peal_wire_take_response(w, rx, now, false);
}

/* ---- congestion: marks, and notifications of them (IBTA A17.9) ---- */

void peal_wire_request_marked(struct peal_wire *w, u32 packets)
{
	struct peal_qp *qp = w->base.qp;
	u64 now = ktime_get_ns();

	peal_epoch_assert_held();
	lockdep_assert_held(&qp->rq.lock);
	peal_count_by(qp, np_ecn_marked_roce_packets, packets);
	if (!peal_cnp_is_due(&w->cnp, now) || !peal_output_send_cnp(&w->output))
		return;
	peal_cnp_sent(&w->cnp, now);
	peal_count(qp, np_cnp_sent);
}

void peal_wire_response_marked(struct peal_wire *w, const struct peal_packet *response)
{
	struct peal_qp *qp = w->base.qp;

	lockdep_assert_held(&qp->sq.lock);
	if (peal_packet_opcode(response)->has & PEAL_HAS_READ)
		peal_requester_notified(&w->requester);
	spin_lock(&qp->rq.lock);
	peal_wire_request_marked(w, peal_packet_count(response));
	spin_unlock(&qp->rq.lock);
}

void peal_wire_notified(struct peal_wire *w, const struct peal_packet *cnp)
{
	struct peal_qp *qp = w->base.qp;

	lockdep_assert_held(&qp->sq.lock);
	trace_peal_packet_received(qp->ib.qp_num, cnp, false);
	peal_count(qp, rp_cnp_handled);
	peal_requester_notified(&w->requester);
}

/* ---- turns ---- */

static bool peal_wire_run_requester(struct peal_wire *w, struct peal_notify *notify,
				    struct peal_budget *budget)
{
	struct peal_train train PEAL_UNINITIALIZED;
	struct peal_qp *qp = w->base.qp;
	bool left = false, more = true;
	u64 now;

	lockdep_assert_held(&qp->sq.lock);
	if (!peal_qp_requests(qp))
		return false;
	now = ktime_get_ns();
	peal_wire_expire(w, now);
	peal_output_begin(&w->output, &train);
	while (more && peal_budget_is_left(budget)) {
		more = !peal_qp_send_failed(qp) && peal_output_has_quota(&w->output) &&
		       peal_wire_step(w, &train, &now, notify, budget);
		left = peal_wire_complete(w, notify, budget);
	}
	peal_wire_flush_train(w, &train);
	return more || left;
}

/*
 * The requester and the responder take turns in going first. Each of them can use up every turn
 * and all room in the transmit queue, because a peer may ask for 2 GiB at once. Kept responses and
 * completions go before both, because they need no room.
 */
static bool peal_wire_run_packets(struct peal_wire *w, struct peal_notify *notify,
				  struct peal_budget *budget)
{
	struct peal_rx_packet rx PEAL_UNINITIALIZED;
	struct peal_qp *qp = w->base.qp;
	struct sk_buff *skb;
	bool more = false;

	lockdep_assert_held(&qp->sq.lock);
	if (peal_qp_requests(qp)) {
		while (peal_budget_is_left(budget) &&
		       (skb = peal_requester_take_reordered(&w->requester))) {
			peal_wire_unkeep(w, skb, &rx, budget);
			peal_wire_take_response(w, &rx, ktime_get_ns(), true);
		}
		more = peal_wire_complete(w, notify, budget);
	}
	w->requester_first = !w->requester_first;
	if (w->requester_first)
		more |= peal_wire_run_requester(w, notify, budget);
	more |= peal_wire_run_responder(w, notify, budget);
	if (!w->requester_first)
		more |= peal_wire_run_requester(w, notify, budget);
	return more;
}

/*
 * The direct transport may take over from the wire if the peer is proven to be in this kernel.
 * This happens between two messages, when all packets that were sent are acknowledged, or have
 * arrived on an unreliable connection. A message that has started on the direct path finishes there
 * as long as the proof lasts, whatever an administrator sets meanwhile. When the proof has ended,
 * the direct transport gives back to the wire, also a message that waits or is placed in part. Its
 * retries begin anew. Return: the transport that sends now.
 */
static struct peal_transport *peal_wire_choose_sender(struct peal_wire *w)
{
	struct peal_qp *qp = w->base.qp;
	u32 psn = peal_requester_psn(&w->requester);
	u64 trip;
	bool near;

	lockdep_assert_held(&qp->sq.lock);
	if (!peal_sender_works(qp))
		return qp->sender;
	trip = peal_rto_estimate(&w->requester.rto);
	if (unlikely(peal_locality_is_due(qp->locality)))
		peal_locality_challenge_peer(qp, &w->output, trip, psn);
	near = peal_locality_look(qp);
	if (qp->sender == qp->wire && !peal_qp_idle(qp))
		return qp->sender;
	if (near && qp->sender == qp->wire && peal_locality_waits(qp, psn)) {
		if (!qp->locality->pending)
			peal_locality_challenge_peer(qp, &w->output, trip, psn);
		return qp->sender;
	}
	near = qp->locality->wanted;	/* peal_locality_waits() may have ended the proof */
	if (near || (qp->sq.busy && peal_locality_table(qp))) {
		peal_qp_change_sender(qp, qp->direct);
	} else if (qp->sender == qp->direct) {
		peal_direct_give_up(qp);
		peal_qp_change_sender(qp, qp->wire);
		if (qp->sq.busy)
			peal_wire_post(w);
	}
	return qp->sender;
}

static bool peal_wire_run(struct peal_transport *transport, struct peal_notify *notify,
			  struct peal_budget *budget)
{
	struct peal_wire *w = peal_wire(transport);
	struct peal_qp *qp = transport->qp;
	struct peal_transport *sender;
	bool more;

	peal_epoch_assert_held();
	lockdep_assert_held(&qp->sq.lock);
	/*
	 * While the direct transport sends, no packet of a request is in flight. So the wire has
	 * nothing to do, unless the responder has or the proof must be renewed or has ended.
	 */
	if (qp->sender == qp->direct && qp->state == IB_QPS_RTS &&
	    !peal_locality_is_due(qp->locality) && !READ_ONCE(w->due) &&
	    READ_ONCE(w->deadline) == U64_MAX && peal_locality_look(qp))
		return qp->direct->ops->run(qp->direct, notify, budget);

	sender = peal_wire_choose_sender(w);
	more = !peal_qp_send_failed(qp) && peal_wire_run_packets(w, notify, budget);
	if (unlikely(peal_qp_send_failed(qp))) {
		more = peal_sender_flush(qp, notify, budget);
		goto out;
	}
	/*
	 * If messages wait for the direct path and this turn has found the last ACK, change the
	 * transport now, because no other turn may come.
	 */
	if (sender == transport && !more && qp->locality->wanted && qp->sender == qp->wire &&
	    peal_qp_idle(qp)) {
		sender = peal_wire_choose_sender(w);
		more = sender == transport && peal_wire_run_packets(w, notify, budget);
	}
	if (sender != transport)
		more |= sender->ops->run(sender, notify, budget);
out:
	if (qp->state != IB_QPS_ERR)
		peal_wire_schedule(qp, min(peal_wire_requester_deadline(w),
					   READ_ONCE(w->deadline)));
	if (unlikely(qp->locality->wanted && qp->sender == qp->wire && qp->locality->pending &&
		     !peal_qp_is_reliable(qp)))
		peal_wire_schedule(qp, qp->locality->late);
	return more;
}

/*
 * May the responses cause more than completions? A turn sends what the window allows now, drains
 * the send queue, or goes over to the direct path.
 */
static bool peal_wire_wants_turn(const struct peal_wire *w)
{
	const struct peal_requester *requester = &w->requester;
	const struct peal_qp *qp = w->base.qp;

	lockdep_assert_held(&qp->sq.lock);
	return !peal_requester_is_empty(requester) || requester->reorder.count ||
	       peal_ring_pending(&qp->sq.ring) || qp->state != IB_QPS_RTS ||
	       qp->locality->wanted;
}

/* Complete messages, and run the queue at once if there is more to do. */
bool peal_wire_responses_end(struct peal_wire *w, struct peal_notify *notify,
			     struct peal_budget *budget)
{
	struct peal_qp *qp = w->base.qp;

	peal_epoch_assert_held();
	lockdep_assert_held(&qp->sq.lock);
	if (peal_wire_wants_turn(w) || peal_wire_complete(w, notify, budget) ||
	    peal_qp_send_failed(qp))
		return peal_turn_locked(qp, notify, budget);
	peal_wire_schedule(qp, peal_wire_requester_deadline(w));
	return false;
}

static bool peal_wire_flush(struct peal_transport *transport, struct peal_notify *notify)
{
	struct peal_qp *qp = transport->qp;
	const struct peal_message *done;

	lockdep_assert_held(&qp->sq.lock);
	done = peal_requester_flush(&peal_wire(transport)->requester);
	if (!done)
		return false;
	peal_qp_complete_message(qp, notify, &done->wqe, done->status, peal_qp_flush_reason(qp));
	return true;
}

static bool peal_wire_idle(struct peal_transport *transport)
{
	lockdep_assert_held(&transport->qp->sq.lock);
	return peal_requester_idle(&peal_wire(transport)->requester);
}

/* Under sq.lock and rq.lock. */
static void peal_wire_reset(struct peal_transport *transport)
{
	struct peal_wire *w = peal_wire(transport);

	peal_qp_assert_both_held(transport->qp);
	peal_output_stop(&w->output);
	peal_wire_drop_reordered(w, &w->requester.reorder);
	peal_wire_drop_reordered(w, &w->responder.reorder);
	peal_requester_reset(&w->requester);
	peal_responder_reset(&w->responder);
	WRITE_ONCE(w->due, false);
	WRITE_ONCE(w->deadline, U64_MAX);
}

/* Under sq.lock and rq.lock. */
static void peal_wire_fail(struct peal_transport *transport)
{
	struct peal_wire *w = peal_wire(transport);

	peal_qp_assert_both_held(transport->qp);
	peal_wire_drop_reordered(w, &w->requester.reorder);
	peal_wire_drop_reordered(w, &w->responder.reorder);
}

static void peal_wire_configure(struct peal_wire *w)
{
	const struct peal_qp *qp = w->base.qp;
	u8 transport = peal_qp_bth_transport(qp), shift = peal_qp_mtu_shift(qp);
	u64 reorder_ns = peal_output_reorder_ns(qp);
	struct peal_requester_config requester = {
		.transport = transport,
		.mtu_shift = shift,
		.retry_limit = qp->attr.retry_cnt,
		.rnr_limit = qp->attr.rnr_retry,
		.max_rd_atomic = qp->attr.max_rd_atomic,
		.timeout_ns = peal_qp_timeout_ns(qp),
		.window = PEAL_WINDOW_PACKETS,
		.route_mtu = peal_output_route_mtu(&w->output),
		.reorder_ns = reorder_ns,
	};
	struct peal_responder_config responder = {
		/* An XRC initiator accepts no requests. */
		.transport = qp->ib.qp_type == IB_QPT_XRC_INI ? PEAL_NO_TRANSPORT : transport,
		.mtu_shift = shift,
		.rd_atomic = qp->attr.max_dest_rd_atomic,
		.reorder_ns = reorder_ns,
	};

	peal_qp_assert_both_held(qp);
	peal_requester_configure(&w->requester, &requester);
	peal_responder_configure(&w->responder, &responder);
}

/* Under sq.lock and rq.lock. */
static void peal_wire_apply(struct peal_transport *transport, int mask)
{
	struct peal_wire *w = peal_wire(transport);
	struct peal_qp *qp = transport->qp;
	u32 psn;

	peal_qp_assert_both_held(qp);
	if (mask & IB_QP_AV) {
		peal_output_use_staged(&w->output);
		peal_locality_forget(qp);	/* the proof was for the old path */
	}
	peal_wire_configure(w);
	/*
	 * UC has come from SQE back to RTS. The failed message was completed and is forgotten, and
	 * the PSNs go on. RC never comes back to RTS this way. Until it is in ERR, messages before
	 * the failed one are still waited for.
	 */
	if (qp->ib.qp_type == IB_QPT_UC && peal_requester_failed(&w->requester) &&
	    mask & IB_QP_STATE && qp->state == IB_QPS_RTS) {
		psn = peal_requester_psn(&w->requester);
		peal_wire_drop_reordered(w, &w->requester.reorder);
		peal_requester_reset(&w->requester);
		peal_requester_set_psn(&w->requester, psn);
	}
	if (mask & IB_QP_SQ_PSN)
		peal_requester_set_psn(&w->requester, qp->attr.sq_psn);
	if (mask & IB_QP_RQ_PSN)
		peal_responder_set_psn(&w->responder, qp->attr.rq_psn);
}

static u32 peal_wire_send_psn(const struct peal_transport *transport)
{
	lockdep_assert_held(&transport->qp->sq.lock);
	return peal_requester_psn(&peal_wire(transport)->requester);
}

static void peal_wire_start_send(struct peal_transport *transport, u32 psn)
{
	lockdep_assert_held(&transport->qp->sq.lock);
	peal_requester_set_psn(&peal_wire(transport)->requester, psn);
}

static struct peal_recv_psn peal_wire_recv_psn(const struct peal_transport *transport)
{
	const struct peal_responder *responder = &peal_wire(transport)->responder;

	lockdep_assert_held(&transport->qp->rq.lock);
	return (struct peal_recv_psn){ .psn = responder->psn, .msn = responder->msn };
}

/*
 * The peer's next messages come as packets. Packets that were kept out of order before another
 * transport delivered whole messages are late now, so they are dropped.
 */
static void peal_wire_start_recv(struct peal_transport *transport, struct peal_recv_psn at)
{
	struct peal_wire *w = peal_wire(transport);

	lockdep_assert_held(&transport->qp->rq.lock);
	if (at.psn == w->responder.psn)
		return;
	peal_wire_drop_reordered(w, &w->responder.reorder);
	peal_responder_skip(&w->responder, at.psn, at.msn);
}

/* The queue pair is unpublished, and the caller has waited for the epoch, so no lock is needed. */
static void peal_wire_free(struct peal_transport *transport)
{
	struct peal_wire *w = peal_wire(transport);

	peal_output_free(&w->output);
	peal_wire_drop_reordered(w, &w->requester.reorder);
	peal_wire_drop_reordered(w, &w->responder.reorder);
	kvfree(w->resource);
	kvfree(w->sge);
	kvfree(w->message);
	kfree(w);
}

static const struct peal_transport_ops peal_wire_ops = {
	.packets = true,
	.apply = peal_wire_apply,
	.reset = peal_wire_reset,
	.fail = peal_wire_fail,
	.free = peal_wire_free,
	.run = peal_wire_run,
	.flush = peal_wire_flush,
	.idle = peal_wire_idle,
	.send_psn = peal_wire_send_psn,
	.start_send = peal_wire_start_send,
	.recv_psn = peal_wire_recv_psn,
	.start_recv = peal_wire_start_recv,
};

/* ---- set-up ---- */

static int peal_wire_create(struct peal_qp *qp)
{
	struct peal_wire *w = kzalloc(sizeof(*w), GFP_KERNEL_ACCOUNT);
	u32 entries = qp->sq.ring.mask + 1;

	lockdep_assert_held(&qp->control);
	if (!w)
		return -ENOMEM;
	w->message = kvcalloc(entries, sizeof(*w->message), GFP_KERNEL_ACCOUNT);
	w->sge = kvcalloc(entries, qp->sq.limits.max_sge * sizeof(*w->sge), GFP_KERNEL_ACCOUNT);
	w->resource = kvcalloc(PEAL_MAX_RD_ATOMIC, sizeof(*w->resource), GFP_KERNEL_ACCOUNT);
	if (!w->message || !w->sge || !w->resource) {
		kvfree(w->resource);
		kvfree(w->sge);
			kvfree(w->message);
		kfree(w);
		return -ENOMEM;
	}
	w->base.ops = &peal_wire_ops;
	w->base.qp = qp;
	w->deadline = U64_MAX;
	peal_output_init(&w->output, qp, &peal_nic(qp)->options);
	peal_requester_init(&w->requester, w->message, entries);
	peal_responder_init(&w->responder, w->resource, PEAL_MAX_RD_ATOMIC);
	peal_qp_set_wire(qp, &w->base);
	return 0;
}

int peal_wire_attach(struct peal_qp *qp, struct peal_port *port, struct peal_tx_quota *tx_quota,
		     const struct ib_qp_attr *attr, int mask)
{
	u32 peer = mask & IB_QP_DEST_QPN ? attr->dest_qp_num : qp->attr.dest_qp_num;
	enum ib_mtu mtu = mask & IB_QP_PATH_MTU ? attr->path_mtu : qp->attr.path_mtu;
	int ret = qp->wire ? 0 : peal_wire_create(qp);

	lockdep_assert_held(&qp->control);
	return ret ? ret :
		     peal_output_stage(&peal_wire(qp->wire)->output, port, tx_quota, &attr->ah_attr,
				       peer & PEAL_NUMBER_MAX, mtu);
}
