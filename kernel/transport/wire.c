// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See wire.h. Every function wants sq.lock, inside the guard, if not said
 * otherwise.
 */
#include <linux/ktime.h>
#include <linux/mm.h>

#include "base/compat.h"
#include "base/trace.h"
#include "transport/keep.h"
#include "transport/place.h"
#include "transport/probe.h"
#include "transport/requester.h"
#include "transport/wire.h"
#include "verbs/dev.h"

/*
 * What may be on its way at most: enough for 10 Gb/s and 200 us, and no more packets
 * than a peer like us keeps when the first of them is late.
 */
#define PEAL_WINDOW_BYTES	(256 << 10)
#define PEAL_WINDOW_PACKETS	((u32)PEAL_EARLY_SLOTS)

static struct peal_qp *peal_wire_qp(const struct peal_carrier *c)
{
	return c->line.qp;
}

static u8 peal_wire_transport(const struct peal_qp *qp)
{
	return qp->ib.qp_type == IB_QPT_UC ? PEAL_UC : PEAL_RC;
}

/* ---- completions ---- */

/* A message of this queue pair failed: it goes into error, the rest is flushed. */
static void peal_wire_fail_queue(struct peal_qp *qp)
{
	spin_lock(&qp->rq.lock);
	peal_qp_fail_send_locked(qp);
	spin_unlock(&qp->rq.lock);
}

static void peal_wire_count_message(struct peal_qp *qp, const struct peal_completion *done)
{
	if (peal_op(done->opcode)->local)
		return;
	peal_count(qp->table, messages);
	peal_count(qp->table, wire_messages);
	peal_count_by(qp->table, bytes, done->length);
}

/* One answer may complete a whole ring. Return: true when the budget ended first. */
static bool peal_wire_complete(struct peal_carrier *c, struct peal_burst *burst,
			       struct peal_budget *budget)
{
	struct peal_qp *qp = peal_wire_qp(c);
	struct peal_completion done;

	while (peal_budget_is_left(budget)) {
		if (!peal_outbound_complete(&c->out, &done))
			return false;
		peal_budget_spend(budget, PEAL_COST_COMPLETION);
		peal_qp_complete_message(qp, burst, &done);
		if (unlikely(done.status)) {
			peal_wire_fail_queue(qp);
			return false;
		}
		peal_wire_count_message(qp, &done);
	}
	return true;
}

/* ---- from ring to flight ---- */

/* The memory that a message uses on this side is gone. */
static void peal_wire_spoil(struct peal_carrier *c, u32 flight, enum peal_reason reason)
{
	peal_outbound_spoil(&c->out, flight, IB_WC_LOC_PROT_ERR, reason);
}

/* All local keys are checked before the first packet, and again for each. */
static noinline enum peal_reason peal_wire_check_keys(const struct peal_qp *qp)
{
	const struct peal_send *wqe = &qp->sq.wqe;
	const struct peal_op *op = peal_op(wqe->opcode);
	struct peal_cursor cursor PEAL_UNINITIALIZED;

	if (wqe->inline_data || op->local)
		return PEAL_REASON_NONE;
	return peal_cursor_local(&cursor, qp->table, qp->ib.pd, wqe->sge, wqe->num_sge,
				 !op->sends);
}

/* sq.wqe to the protocol. */
static void peal_wire_post(struct peal_carrier *c)
{
	struct peal_qp *qp = peal_wire_qp(c);
	const struct peal_send *wqe = &qp->sq.wqe;
	struct peal_message message = {
		.opcode = wqe->opcode,
		.flags = wqe->flags,
		.index = wqe->index,
		.imm_or_rkey = wqe->imm_or_rkey,
		.rkey = wqe->rkey,
		.remote_addr = wqe->remote_addr,
		.length = wqe->length,
		.more = peal_sq_is_followed(&qp->sq),
	};

	if (peal_op(wqe->opcode)->atomic)
		message.atomic = wqe->atomic;
	trace_peal_execute(qp->ib.qp_num, wqe->index, wqe->opcode, wqe->length,
			   peal_outbound_psn(&c->out));
	peal_load_keep(&c->load, peal_outbound_head(&c->out), wqe);
	peal_outbound_post(&c->out, &message);
}

/* A WQE that cannot be executed has its place in the order of completions too. */
static void peal_wire_post_bad(struct peal_carrier *c, enum peal_reason reason)
{
	const struct peal_send *wqe = &peal_wire_qp(c)->sq.wqe;
	struct peal_message message = {
		.opcode = PEAL_OP_INVALID, .flags = wqe->flags, .index = wqe->index,
	};
	u32 flight = peal_outbound_head(&c->out);

	peal_outbound_post(&c->out, &message);
	peal_outbound_spoil(&c->out, flight, reason == PEAL_REASON_WQE_LENGTH ?
			    IB_WC_LOC_LEN_ERR : IB_WC_LOC_QP_OP_ERR, reason);
}

/* Return: false when there is none. */
static bool peal_wire_fetch(struct peal_carrier *c)
{
	struct peal_qp *qp = peal_wire_qp(c);
	enum peal_reason reason;

	switch (peal_sq_fetch(&qp->sq, &reason)) {
	case PEAL_SQ_EMPTY:
		return false;
	case PEAL_SQ_MALFORMED:
		peal_wire_post_bad(c, reason);
		break;
	case PEAL_SQ_FETCHED:
		peal_wire_post(c);
		reason = peal_wire_check_keys(qp);
		if (unlikely(reason))
			peal_wire_spoil(c, peal_outbound_head(&c->out) - 1, reason);
		break;
	}
	/* From here on it is a message in flight. */
	peal_sq_finish(&qp->sq, 0);
	peal_count(qp->table, posts);
	return true;
}

/* What was begun as packets ends so; what comes next goes direct. */
static bool peal_wire_yields(const struct peal_qp *qp)
{
	return qp->reach.direct || qp->reach.wanted;
}

/* Return: false when nothing may or can be begun. */
static bool peal_wire_begin(struct peal_carrier *c, struct peal_burst *burst,
			    struct peal_budget *budget)
{
	struct peal_qp *qp = peal_wire_qp(c);

	if (!peal_requester_may_begin(qp, burst) || peal_wire_yields(qp)) {
		peal_outbound_hurry(&c->out, ktime_get_ns());
		return false;
	}
	if (!peal_outbound_has_room(&c->out) || !peal_wire_fetch(c))
		return false;
	peal_budget_spend(budget, PEAL_COST_WQE);
	return true;
}

/* ---- from flight to packet ---- */

/*
 * sq.wqe is still the WQE of a local operation: nothing is fetched before it is
 * executed.
 */
static void peal_wire_execute(struct peal_carrier *c, const struct peal_outgoing *out)
{
	struct peal_outcome outcome = peal_requester_local(peal_wire_qp(c));

	peal_outbound_local_done(&c->out, out->flight, outcome.status, outcome.reason);
}

/* The payload of a packet, from wherever the program has it. */
static noinline enum peal_reason peal_wire_gather(struct peal_carrier *c,
						  const struct peal_outgoing *out, void *payload)
{
	struct peal_qp *qp = peal_wire_qp(c);
	struct peal_cursor from PEAL_UNINITIALIZED;
	struct peal_cursor to PEAL_UNINITIALIZED;
	u32 bytes = out->header.payload_bytes;
	enum peal_reason reason;

	reason = peal_load_find(&c->load, out->flight, qp->table, qp->ib.pd, false, out->offset,
				bytes, &from);
	if (unlikely(reason))
		return reason;
	peal_cursor_inline(&to, payload, bytes);
	peal_cursor_copy(&to, &from, bytes);
	return PEAL_REASON_NONE;
}

/* What cannot be built for want of memory is a lost packet. */
static void peal_wire_emit(struct peal_carrier *c, struct peal_outgoing *out)
{
	void *payload;
	struct sk_buff *skb = peal_line_prepare(&c->line, &out->header, &payload);
	enum peal_reason reason = PEAL_REASON_NONE;

	if (unlikely(!skb))
		return;
	if (out->header.payload_bytes)
		reason = peal_wire_gather(c, out, payload);
	if (likely(!reason)) {
		peal_line_send(&c->line, &out->header, skb, out->again);
		return;
	}
	kfree_skb(skb);
	peal_wire_spoil(c, out->flight, reason);
}

/* A packet or a WQE. Return: false when there is nothing to do now. */
static bool peal_wire_step(struct peal_carrier *c, struct peal_burst *burst,
			   struct peal_budget *budget)
{
	struct peal_outgoing out;

	switch (peal_outbound_next(&c->out, ktime_get_ns(), &out)) {
	case PEAL_PAUSE_NONE:
		break;
	case PEAL_PAUSE_EMPTY:
		return peal_wire_begin(c, burst, budget);
	default:
		return false;
	}
	if (out.local)
		peal_wire_execute(c, &out);
	else
		peal_wire_emit(c, &out);
	peal_budget_spend(budget,
			  PEAL_COST_PACKET + (out.local ? 0 : out.header.payload_bytes));
	return true;
}

static bool peal_wire_transmit(struct peal_carrier *c, struct peal_burst *burst,
			       struct peal_budget *budget)
{
	bool left = false, more = true;

	while (more && peal_budget_is_left(budget)) {
		more = !peal_qp_send_failed(peal_wire_qp(c)) && peal_line_has_room(&c->line) &&
		       peal_wire_step(c, burst, budget);
		left = peal_wire_complete(c, burst, budget);
	}
	return more || left;
}

/* ---- time ---- */

static void peal_wire_count_timer(struct peal_carrier *c, u64 now)
{
	struct peal_qp *qp = peal_wire_qp(c);
	bool gave_up = now >= c->out.give_up_at;

	if (gave_up)
		peal_count(qp->table, timeouts);
	else if (now >= c->out.probe_at)
		peal_count(qp->table, probes);
	else
		return;
	trace_peal_timeout(qp->ib.qp_num, !gave_up, c->out.trail.una, c->out.retry.used);
}

static void peal_wire_expire(struct peal_carrier *c)
{
	u64 deadline = peal_outbound_deadline(&c->out);
	struct sk_buff *skb;
	u64 now;

	if (deadline == U64_MAX)
		return;
	now = ktime_get_ns();
	if (now < deadline)
		return;
	peal_wire_count_timer(c, now);
	peal_outbound_expire(&c->out, now);
	while ((skb = peal_outbound_take_expired(&c->out, now)))
		peal_keep_lose(peal_wire_qp(c), skb);
}

static ktime_t peal_wire_deadline(struct peal_qp *qp)
{
	struct peal_carrier *c = qp->carrier;
	u64 at = peal_outbound_deadline(&c->out);

	return min(at < KTIME_MAX ? ns_to_ktime(at) : KTIME_MAX, peal_serve_deadline(&c->serve));
}

/* ---- responses ---- */

static void peal_wire_count_nak(struct peal_qp *qp, const struct peal_packet *packet)
{
	if (!(peal_packet_opcode(packet)->has & PEAL_HAS_AETH))
		return;
	if ((packet->syndrome & PEAL_SYNDROME_KIND) == PEAL_SYNDROME_RNR) {
		peal_count(qp->table, naks_received_rnr);
		peal_count(qp->table, rnr_waits);
	}
	switch (packet->syndrome) {
	case PEAL_SYNDROME_NAK | PEAL_NAK_SEQUENCE:
		peal_count(qp->table, naks_received_sequence);
		break;
	case PEAL_SYNDROME_NAK | PEAL_NAK_INVALID_REQUEST:
		peal_count(qp->table, naks_received_invalid);
		break;
	case PEAL_SYNDROME_NAK | PEAL_NAK_REMOTE_ACCESS:
		peal_count(qp->table, naks_received_access);
		break;
	case PEAL_SYNDROME_NAK | PEAL_NAK_REMOTE_OPERATION:
		peal_count(qp->table, naks_received_operation);
		break;
	}
}

/* The payload of a response, to wherever the program wants it. */
static noinline enum peal_reason peal_wire_scatter(struct peal_carrier *c,
						   const struct peal_datagram *dg,
						   const struct peal_landing *landing)
{
	struct peal_qp *qp = peal_wire_qp(c);
	struct peal_cursor to PEAL_UNINITIALIZED;
	enum peal_reason reason;

	reason = peal_load_find(&c->load, landing->flight, qp->table, qp->ib.pd, true,
				landing->offset, landing->bytes, &to);
	if (likely(!reason))
		peal_place(dg, &to, landing->bytes);
	return reason;
}

static noinline enum peal_reason peal_wire_store(struct peal_carrier *c,
						 const struct peal_landing *landing)
{
	struct peal_qp *qp = peal_wire_qp(c);
	struct peal_cursor from PEAL_UNINITIALIZED;
	struct peal_cursor to PEAL_UNINITIALIZED;
	enum peal_reason reason;

	reason = peal_load_find(&c->load, landing->flight, qp->table, qp->ib.pd, true, 0,
				sizeof(landing->original), &to);
	if (unlikely(reason))
		return reason;
	peal_cursor_inline(&from, &landing->original, sizeof(landing->original));
	peal_cursor_copy(&to, &from, sizeof(landing->original));
	return PEAL_REASON_NONE;
}

static void peal_wire_land(struct peal_carrier *c, const struct peal_datagram *dg,
			   const struct peal_landing *landing, u64 now)
{
	enum peal_reason reason = PEAL_REASON_NONE;

	if (landing->what == PEAL_LANDING_ATOMIC)
		reason = peal_wire_store(c, landing);
	else if (landing->bytes)
		reason = peal_wire_scatter(c, dg, landing);
	if (likely(!reason))
		peal_outbound_landed(&c->out, landing, now);
	else
		peal_wire_spoil(c, landing->flight, reason);
}

static void peal_wire_drop(struct peal_qp *qp, const struct peal_packet *packet,
			   const struct peal_landing *landing)
{
	if (landing->duplicate)
		peal_count(qp->table, duplicates);
	peal_count_drop(qp->table, landing->drop);
	trace_peal_drop(packet, landing->drop);
}

/* A response with the PSN of one that is kept. When they differ, one of them is forged. */
static noinline void peal_wire_compare(struct peal_carrier *c, const struct peal_datagram *dg,
				       struct peal_landing *landing, u64 now)
{
	struct peal_qp *qp = peal_wire_qp(c);

	if (!peal_receive_same(landing->kept, dg)) {
		landing->drop = PEAL_DROP_conflict;
		landing->duplicate = false;
		peal_keep_lose(qp, peal_outbound_contradict(&c->out, dg->packet.psn, now));
	}
	peal_wire_drop(qp, &dg->packet, landing);
}

/* One response. Consumes dg->skb. @again: it had been kept for its turn. */
static void peal_wire_take(struct peal_carrier *c, struct peal_datagram *dg, bool again)
{
	struct peal_qp *qp = peal_wire_qp(c);
	struct peal_landing landing;
	u64 now = ktime_get_ns();

	trace_peal_packet_received(qp->ib.qp_num, &dg->packet, again);
	peal_outbound_receive(&c->out, &dg->packet, now,
			      peal_keep_may(qp, dg, c->out.early.count), &landing);
	switch (landing.what) {
	case PEAL_LANDING_KEPT:
		peal_keep_add(qp, dg->skb);
		return;
	case PEAL_LANDING_DROPPED:
		peal_wire_drop(qp, &dg->packet, &landing);
		break;
	case PEAL_LANDING_COPY:
		peal_wire_compare(c, dg, &landing, now);
		break;
	case PEAL_LANDING_TAKEN:
		peal_wire_count_nak(qp, &dg->packet);
		break;
	case PEAL_LANDING_READ:
	case PEAL_LANDING_ATOMIC:
		peal_wire_land(c, dg, &landing, now);
		break;
	}
	consume_skb(dg->skb);
}

/* Others may have their turn behind it: peal_wire_run() takes those. */
void peal_wire_response(struct peal_carrier *c, struct peal_datagram *dg)
{
	peal_wire_take(c, dg, false);
}

static void peal_wire_take_early(struct peal_carrier *c, struct peal_budget *budget)
{
	struct peal_datagram early;
	struct sk_buff *skb;

	while (peal_budget_is_left(budget) && (skb = peal_outbound_take_early(&c->out))) {
		peal_keep_take(peal_wire_qp(c), skb);
		peal_budget_spend(budget, PEAL_COST_PACKET + skb->len);
		peal_receive_again(skb, &early);
		peal_wire_take(c, &early, true);
	}
}

static void peal_wire_forget_early(struct peal_carrier *c)
{
	struct sk_buff *skb;

	while ((skb = peal_outbound_drop_early(&c->out)))
		peal_keep_lose(peal_wire_qp(c), skb);
}

/* ---- what a queue pair asks ---- */

static bool peal_wire_connected(const struct peal_qp *qp)
{
	return qp->state == IB_QPS_RTS || qp->state == IB_QPS_SQD;
}

static bool peal_wire_ask(struct peal_carrier *c, struct peal_burst *burst,
			  struct peal_budget *budget)
{
	if (!peal_wire_connected(peal_wire_qp(c)))
		return false;
	peal_wire_expire(c);
	return peal_wire_transmit(c, burst, budget);
}

static bool peal_wire_answer(struct peal_carrier *c, struct peal_burst *burst,
			     struct peal_budget *budget)
{
	struct peal_rq *rq = &peal_wire_qp(c)->rq;
	bool more;

	if (!peal_serve_is_due(&c->serve))
		return false;
	spin_lock(&rq->lock);
	more = peal_serve_run(&c->serve, burst, budget);
	spin_unlock(&rq->lock);
	return more;
}

/*
 * Each of both can use up every turn, and the room: a peer may ask for 2 GiB at once.
 * So they take turns in going first. Completions need no room, and go before.
 */
static bool peal_wire_run(struct peal_qp *qp, struct peal_burst *burst,
			  struct peal_budget *budget)
{
	struct peal_carrier *c = qp->carrier;
	bool more = false;

	if (peal_wire_connected(qp)) {
		peal_wire_take_early(c, budget);
		more = peal_wire_complete(c, burst, budget);
	}
	c->asks_first = !c->asks_first;
	if (c->asks_first)
		more |= peal_wire_ask(c, burst, budget);
	more |= peal_wire_answer(c, burst, budget);
	if (!c->asks_first)
		more |= peal_wire_ask(c, burst, budget);
	return more;
}

static bool peal_wire_flush(struct peal_qp *qp, struct peal_burst *burst)
{
	struct peal_completion done;

	if (!peal_outbound_flush(&qp->carrier->out, &done))
		return false;
	done.status = IB_WC_WR_FLUSH_ERR;
	done.reason = peal_qp_flush_reason(qp);
	peal_qp_complete_message(qp, burst, &done);
	return true;
}

static bool peal_wire_idle(struct peal_qp *qp)
{
	return peal_outbound_idle(&qp->carrier->out);
}

/* Both locks. */
static void peal_wire_reset(struct peal_qp *qp)
{
	struct peal_carrier *c = qp->carrier;

	peal_line_stop(&c->line);
	peal_wire_forget_early(c);
	peal_outbound_reset(&c->out);
	peal_serve_reset(&c->serve);
}

/* Both locks. */
static void peal_wire_fail(struct peal_qp *qp)
{
	peal_wire_forget_early(qp->carrier);
	peal_serve_forget_early(&qp->carrier->serve);
}

static void peal_wire_configure(struct peal_carrier *c)
{
	const struct peal_qp *qp = peal_wire_qp(c);
	u8 shift = qp->attr.path_mtu + 7;	/* IB_MTU_256 is 1 */
	struct peal_outbound_config config = {
		.transport = peal_wire_transport(qp),
		.mtu_shift = shift,
		.retry_limit = qp->attr.retry_cnt,
		.rnr_limit = qp->attr.rnr_retry,
		.max_rd_atomic = qp->attr.max_rd_atomic,
		.timeout_ns = qp->attr.timeout ? 4096ULL << qp->attr.timeout : 0,
		.window = min((u32)PEAL_WINDOW_BYTES >> shift, PEAL_WINDOW_PACKETS),
		.keep_ns = peal_keep_ns(qp),
	};

	peal_outbound_configure(&c->out, &config);
}

/*
 * From SQE back to RTS, UC alone: the failed message was completed and is forgotten,
 * the numbers go on. RC does not come back, and until it is in ERR messages before
 * the failed one are waited for.
 */
static void peal_wire_resume(struct peal_carrier *c)
{
	u32 psn = peal_outbound_psn(&c->out);

	peal_wire_forget_early(c);
	peal_outbound_reset(&c->out);
	peal_outbound_set_psn(&c->out, psn);
}

/* Both locks. */
static void peal_wire_apply(struct peal_qp *qp, int mask)
{
	struct peal_carrier *c = qp->carrier;

	if (mask & IB_QP_AV)
		peal_line_use_staged(&c->line);
	peal_wire_configure(c);
	peal_serve_configure(&c->serve);
	if (qp->ib.qp_type == IB_QPT_UC && peal_outbound_failed(&c->out) && mask & IB_QP_STATE &&
	    qp->state == IB_QPS_RTS)
		peal_wire_resume(c);
	if (mask & IB_QP_SQ_PSN)
		peal_outbound_set_psn(&c->out, qp->sq.psn);
	if (mask & IB_QP_RQ_PSN)
		peal_serve_set_psn(&c->serve, qp->rq.psn);
}

/* Both locks. */
static void peal_wire_query(struct peal_qp *qp, struct ib_qp_attr *attr)
{
	attr->sq_psn = peal_outbound_psn(&qp->carrier->out);
	attr->rq_psn = qp->carrier->serve.in.psn;
}

/* Nobody can find it any more. */
static void peal_wire_free(struct peal_qp *qp)
{
	struct peal_carrier *c = qp->carrier;

	peal_line_free(&c->line);
	peal_wire_forget_early(c);
	peal_serve_free(&c->serve);
	peal_load_free(&c->load);
	kvfree(c->flight);
	kfree(c);
}

static void peal_wire_ask_reach(struct peal_qp *qp)
{
	struct peal_carrier *c = qp->carrier;

	peal_probe_ask(qp, &c->line, peal_rto_estimate(&c->out.rto));
}

static void peal_wire_lend_send(struct peal_qp *qp)
{
	peal_sq_set_psn(&qp->sq, peal_outbound_psn(&qp->carrier->out));
}

static void peal_wire_take_back_send(struct peal_qp *qp)
{
	peal_outbound_set_psn(&qp->carrier->out, qp->sq.psn);
}

/* rq.lock */
static void peal_wire_lend_recv(struct peal_qp *qp)
{
	peal_serve_lend(&qp->carrier->serve);
}

/* rq.lock */
static void peal_wire_take_back_recv(struct peal_qp *qp)
{
	peal_serve_take_back(&qp->carrier->serve);
}

static const struct peal_carrier_ops peal_wire_ops = {
	.apply = peal_wire_apply,
	.reset = peal_wire_reset,
	.fail = peal_wire_fail,
	.query = peal_wire_query,
	.run = peal_wire_run,
	.flush = peal_wire_flush,
	.idle = peal_wire_idle,
	.deadline = peal_wire_deadline,
	.ask_reach = peal_wire_ask_reach,
	.lend_send = peal_wire_lend_send,
	.take_back_send = peal_wire_take_back_send,
	.lend_recv = peal_wire_lend_recv,
	.take_back_recv = peal_wire_take_back_recv,
	.free = peal_wire_free,
};

/* ---- set-up ---- */

static int peal_wire_init(struct peal_carrier *c, struct peal_qp *qp)
{
	u32 entries = qp->sq.ring.mask + 1;
	int ret;

	peal_line_init(&c->line, qp);
	c->flight = kvcalloc(entries, sizeof(*c->flight), GFP_KERNEL_ACCOUNT);
	if (!c->flight)
		return -ENOMEM;
	ret = peal_load_init(&c->load, entries, qp->sq.limits.max_sge);
	if (ret)
		goto free_flight;
	ret = peal_serve_init(&c->serve, &c->line);
	if (ret)
		goto free_load;
	peal_outbound_init(&c->out, c->flight, entries);
	return 0;

free_load:
	peal_load_free(&c->load);
free_flight:
	kvfree(c->flight);
	return ret;
}

static int peal_wire_create(struct peal_qp *qp)
{
	struct peal_carrier *c = kzalloc(sizeof(*c), GFP_KERNEL_ACCOUNT);
	int ret;

	if (!c)
		return -ENOMEM;
	ret = peal_wire_init(c, qp);
	if (ret)
		kfree(c);
	else
		peal_qp_set_carrier(qp, c, &peal_wire_ops);
	return ret;
}

int peal_wire_attach(struct peal_dev *dev, struct peal_qp *qp, const struct ib_qp_attr *attr,
		     int mask)
{
	u32 peer = mask & IB_QP_DEST_QPN ? attr->dest_qp_num : qp->attr.dest_qp_num;
	enum ib_mtu mtu = mask & IB_QP_PATH_MTU ? attr->path_mtu : qp->attr.path_mtu;
	int ret = qp->carrier ? 0 : peal_wire_create(qp);

	return ret ? ret : peal_line_stage(&qp->carrier->line, dev, &attr->ah_attr, peer, mtu);
}
