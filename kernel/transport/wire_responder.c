// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See wire_responder.h. Unless its comment says otherwise, each function is called with
 * rq.lock held. Those that process packets and send replies run inside the epoch, too.
 */
#include <linux/ktime.h>
#include <linux/mm.h>

#include "base/compat.h"
#include "base/trace.h"
#include "net/datagram.h"
#include "transport/execute.h"
#include "transport/nic.h"
#include "transport/wire_responder.h"

static struct peal_qp *peal_wire_responder_qp(const struct peal_wire_responder *r)
{
	return r->output->qp;
}

static struct peal_reorder_mem *peal_wire_responder_mem(const struct peal_wire_responder *r)
{
	return &peal_nic(peal_wire_responder_qp(r))->port.reorder_mem;
}

/* Free the kept packets. The callers assert rq.lock, unless they free the queue pair. */
static void peal_wire_responder_lose_reordered(struct peal_wire_responder *r)
{
	struct sk_buff *skb;

	while ((skb = peal_responder_drop_reordered(&r->responder)))
		peal_reorder_mem_lose(peal_wire_responder_mem(r), skb);
}

/* Sleeps, before the queue pair can use the wire. Return: 0 or -ENOMEM. */
int peal_wire_responder_init(struct peal_wire_responder *r, struct peal_output *output)
{
	r->output = output;
	r->deadline = U64_MAX;
	r->resource = kvcalloc(PEAL_MAX_RD_ATOMIC, sizeof(*r->resource), GFP_KERNEL_ACCOUNT);
	if (!r->resource)
		return -ENOMEM;
	peal_responder_init(&r->responder, r->resource, PEAL_MAX_RD_ATOMIC);
	return 0;
}

/*
 * No lock is needed, because the queue pair is unpublished and the caller has
 * waited for the epoch.
 */
void peal_wire_responder_free(struct peal_wire_responder *r)
{
	peal_wire_responder_lose_reordered(r);
	kvfree(r->resource);
}

/* The transport of the requests that it accepts. An XRC initiator accepts none. */
static u8 peal_wire_responder_transport(const struct peal_qp *qp)
{
	return qp->ib.qp_type == IB_QPT_XRC_INI ? PEAL_NO_TRANSPORT : peal_qp_bth_transport(qp);
}

void peal_wire_responder_configure(struct peal_wire_responder *r)
{
	const struct peal_qp *qp = peal_wire_responder_qp(r);
	struct peal_responder_config config = {
		.transport = peal_wire_responder_transport(qp),
		.mtu_shift = peal_qp_mtu_shift(qp),
		.rd_atomic = qp->attr.max_dest_rd_atomic,
		.rnr_timer = qp->attr.min_rnr_timer,
		.reorder_ns = peal_output_reorder_ns(qp),
	};

	lockdep_assert_held(&qp->rq.lock);
	peal_responder_configure(&r->responder, &config);
}

void peal_wire_responder_set_psn(struct peal_wire_responder *r, u32 psn)
{
	lockdep_assert_held(&peal_wire_responder_qp(r)->rq.lock);
	peal_responder_set_psn(&r->responder, psn);
}

void peal_wire_responder_forget_reordered(struct peal_wire_responder *r)
{
	lockdep_assert_held(&peal_wire_responder_qp(r)->rq.lock);
	peal_wire_responder_lose_reordered(r);
}

void peal_wire_responder_reset(struct peal_wire_responder *r)
{
	lockdep_assert_held(&peal_wire_responder_qp(r)->rq.lock);
	peal_wire_responder_forget_reordered(r);
	peal_responder_reset(&r->responder);
	WRITE_ONCE(r->due, false);
	WRITE_ONCE(r->deadline, U64_MAX);
}

struct peal_recv_psn peal_wire_responder_psn(const struct peal_wire_responder *r)
{
	lockdep_assert_held(&peal_wire_responder_qp(r)->rq.lock);
	return (struct peal_recv_psn){.psn = r->responder.psn, .msn = r->responder.msn};
}

/*
 * The peer's next messages come as packets. Packets that were kept out of order before another
 * transport delivered whole messages are late now, so they are dropped.
 */
void peal_wire_responder_start(struct peal_wire_responder *r, struct peal_recv_psn at)
{
	lockdep_assert_held(&peal_wire_responder_qp(r)->rq.lock);
	if (at.psn == r->responder.psn)
		return;
	peal_wire_responder_forget_reordered(r);
	peal_responder_skip(&r->responder, at.psn, at.msn);
}

/* ---- requests ---- */

static void peal_wire_responder_describe(struct peal_wire_responder *r,
					 const struct peal_request *request)
{
	r->executing.opcode = request->operation;
	r->executing.flags = request->solicited ? PEAL_WQE_SOLICITED : 0;
	r->executing.imm_or_rkey = request->imm_or_rkey;
	r->executing.rkey = request->rkey;
	r->executing.srqn = request->srqn;
	r->executing.remote_addr = request->remote_addr;
	r->executing.length = request->length;
	r->executing.atomic = request->atomic;
	if (peal_op(request->operation)->atomic)
		r->executing.length = request->operation == PEAL_OP_FLUSH ? 0 : sizeof(u64);
}

/* Translate the result of the checks into the protocol's terms (IBTA 9.9.3, table 58). */
static enum peal_verdict peal_wire_responder_verdict(const struct peal_outcome *outcome)
{
	if (likely(outcome->what == PEAL_CARRIED))
		return PEAL_VERDICT_DONE;
	if (outcome->what == PEAL_NOT_READY)
		return PEAL_VERDICT_NOT_READY;
	switch (outcome->status) {
	case IB_WC_REM_ACCESS_ERR:
		return PEAL_VERDICT_ACCESS;
	case IB_WC_REM_OP_ERR:
		return PEAL_VERDICT_OPERATION;
	default:
		return PEAL_VERDICT_INVALID_REQUEST;
	}
}

/* Count a lost message of an unreliable connection, because no NAK and no completion reports it. */
static void peal_wire_responder_note_loss(struct peal_wire_responder *r,
					  const struct peal_packet *packet,
					  const struct peal_outcome *outcome)
{
	const struct peal_qp *qp = peal_wire_responder_qp(r);
	enum peal_drop drop = PEAL_DROP_rights;

	if (qp->ib.qp_type != IB_QPT_UC || outcome->what == PEAL_CARRIED)
		return;
	if (outcome->what == PEAL_NOT_READY)
		drop = PEAL_DROP_receive;
	else if (outcome->reason == PEAL_REASON_RECV_TOO_SHORT)
		drop = PEAL_DROP_length;
	peal_count_drop(qp->table, drop);
	trace_peal_drop(packet, drop);
}

static noinline struct peal_outcome peal_wire_responder_place(struct peal_wire_responder *r,
							      const struct peal_datagram *dg,
							      const struct peal_request *request,
							      struct peal_notify *notify,
							      const struct peal_cursor *cursor)
{
	struct peal_qp *qp = peal_wire_responder_qp(r);
	u64 value = 0;

	/* The responder has checked that an ATOMIC_WRITE has eight bytes, and a FLUSH none. */
	peal_datagram_copy(dg, 0, &value, min_t(u32, request->bytes, sizeof(value)));
	return peal_execute_placement(qp, &r->executing, qp->attr.dest_qp_num, notify, cursor,
				      value);
}

/*
 * How many bytes must be in memory for this packet: those that it writes, or for a READ those of
 * the first response. A later response whose bytes are not there counts as lost.
 */
static u32 peal_wire_responder_needs(const struct peal_wire_responder *r,
				     const struct peal_request *request)
{
	const struct peal_qp *qp = peal_wire_responder_qp(r);

	if (r->executing.opcode == PEAL_OP_READ)
		return min_t(u64, request->length, 1 << peal_qp_mtu_shift(qp));
	return peal_op(r->executing.opcode)->atomic ? sizeof(u64) : request->bytes;
}

/* Are these bytes in memory? If not, the peer is asked to wait, as for a missing receive. */
static noinline struct peal_outcome peal_wire_responder_look(struct peal_wire_responder *r,
							     const struct peal_request *request,
							     struct peal_notify *notify,
							     const struct peal_cursor *cursor)
{
	struct peal_qp *qp = peal_wire_responder_qp(r);
	bool write = r->executing.opcode != PEAL_OP_READ;
	u32 bytes = peal_wire_responder_needs(r, request);
	enum peal_odp_state state;

	if (!bytes)
		return (struct peal_outcome){ .what = PEAL_CARRIED };
	state = peal_cursor_look(cursor, request->offset, bytes, write);
	switch (state) {
	case PEAL_ODP_PRESENT:
		break;
	case PEAL_ODP_ABSENT:
		return (struct peal_outcome){
			.what = PEAL_NOT_READY, .reason = PEAL_REASON_RKEY_PAGE,
			.timer = qp->attr.min_rnr_timer,
		};
	case PEAL_ODP_FAULT:
	case PEAL_ODP_LATE:
		return peal_execute_no_page(qp, &r->executing, qp->attr.dest_qp_num, notify, state);
	}
	return (struct peal_outcome){ .what = PEAL_CARRIED };
}

/* Execute the packet. *original gets the old value of an atomic. */
static noinline struct peal_outcome peal_wire_responder_carry(struct peal_wire_responder *r,
							      const struct peal_datagram *dg,
							      const struct peal_request *request,
							      struct peal_notify *notify,
							      u64 *original)
{
	struct peal_qp *qp = peal_wire_responder_qp(r);
	u32 src_qpn = qp->attr.dest_qp_num;
	struct peal_cursor cursor PEAL_UNINITIALIZED;
	struct peal_outcome outcome;

	outcome = peal_execute_accept(qp, &r->executing, src_qpn, notify, &cursor);
	if (unlikely(outcome.what != PEAL_CARRIED))
		return outcome;
	if (unlikely(cursor.counted))
		outcome = peal_wire_responder_look(r, request, notify, &cursor);
	if (unlikely(outcome.what != PEAL_CARRIED)) {
		;
	} else if (unlikely(peal_op(r->executing.opcode)->placement)) {
		outcome = peal_wire_responder_place(r, dg, request, notify, &cursor);
	} else if (peal_op(r->executing.opcode)->atomic) {
		outcome = peal_execute_atomic(qp, &r->executing, src_qpn, notify, &cursor,
					      original);
	} else if (request->bytes) {
		peal_cursor_skip(&cursor, request->offset);
		peal_datagram_scatter(dg, &cursor, request->bytes);
	}
	peal_cursor_end(&cursor);
	if (request->last && likely(outcome.what == PEAL_CARRIED))
		outcome = peal_execute_finish(qp, &r->executing, src_qpn, notify);
	return outcome;
}

static void peal_wire_responder_execute(struct peal_wire_responder *r,
					const struct peal_datagram *dg,
					const struct peal_request *request,
					struct peal_notify *notify, u64 now)
{
	struct peal_outcome outcome;
	u64 original = 0;

	peal_wire_responder_describe(r, request);
	outcome = peal_wire_responder_carry(r, dg, request, notify, &original);
	peal_wire_responder_note_loss(r, &dg->packet, &outcome);
	peal_responder_done(&r->responder, peal_wire_responder_verdict(&outcome), original, now);
}

/*
 * The packets do not form a valid request. A fatal NAK is due, so the queue pair
 * refuses from now on.
 */
static void peal_wire_responder_invalid(struct peal_wire_responder *r,
					const struct peal_request *request,
					struct peal_notify *notify)
{
	struct peal_qp *qp = peal_wire_responder_qp(r);

	peal_wire_responder_describe(r, request);
	peal_execute_invalid(qp, &r->executing, qp->attr.dest_qp_num, notify);
}

static void peal_wire_responder_drop(struct peal_wire_responder *r,
				     const struct peal_packet *packet,
				     const struct peal_request *request)
{
	peal_count_drop(peal_wire_responder_qp(r)->table, request->drop);
	trace_peal_drop(packet, request->drop);
}

/* A packet has the PSN of one that is kept. If the two differ, one of them is forged. */
static noinline void peal_wire_responder_compare(struct peal_wire_responder *r,
						 const struct peal_datagram *dg,
						 struct peal_request *request)
{
	if (!peal_datagram_same(request->kept, dg)) {
		request->drop = PEAL_DROP_conflict;
		peal_reorder_mem_lose(peal_wire_responder_mem(r),
				      peal_responder_contradict(&r->responder, dg->packet.psn));
	}
	peal_wire_responder_drop(r, &dg->packet, request);
}

/* Process one request. Consumes dg->skb. @again: it was kept until its turn came. */
static void peal_wire_responder_take(struct peal_wire_responder *r, struct peal_datagram *dg,
				     struct peal_notify *notify, bool again)
{
	struct peal_qp *qp = peal_wire_responder_qp(r);
	struct peal_request request;
	struct sk_buff *handle = NULL;
	u64 now = ktime_get_ns();

	lockdep_assert_held(&qp->rq.lock);
	trace_peal_packet_received(qp->ib.qp_num, &dg->packet, again);
	/* A packet in its turn is never kept. */
	if (unlikely(dg->packet.psn != r->responder.psn))
		handle = peal_reorder_mem_may(peal_wire_responder_mem(r), dg,
					      ib_mtu_enum_to_int(qp->attr.path_mtu),
					      r->responder.reorder.count);
	peal_responder_receive(&r->responder, &dg->packet, now, handle, &request);
	if (request.duplicate)
		peal_count(qp, duplicates);
	switch (request.what) {
	case PEAL_REQUEST_KEPT:
		peal_reorder_mem_add(peal_wire_responder_mem(r), dg->skb);
		return;
	case PEAL_REQUEST_DROPPED:
		peal_wire_responder_drop(r, &dg->packet, &request);
		break;
	case PEAL_REQUEST_COPY:
		peal_wire_responder_compare(r, dg, &request);
		break;
	case PEAL_REQUEST_ANSWERED:
		if (request.fatal)
			peal_wire_responder_invalid(r, &request, notify);
		break;
	case PEAL_REQUEST_EXECUTE:
		peal_wire_responder_execute(r, dg, &request, notify, now);
		break;
	}
	peal_datagram_consume(dg);
}

/*
 * Process the kept requests whose turn has come. If the budget ends first, no budget is left
 * for peal_wire_responder_reply() either, so the rest is due together with the replies. Check
 * rq.refusing each time, because another transport may have refused a request in the meantime.
 * The messages of XRC may complete in many completion queues. When no more can be notified, this
 * counts as the end of the budget.
 */
static void peal_wire_responder_take_reordered(struct peal_wire_responder *r,
					       struct peal_notify *notify,
					       struct peal_budget *budget)
{
	struct peal_qp *qp = peal_wire_responder_qp(r);
	struct peal_datagram reorder;
	struct sk_buff *skb;

	lockdep_assert_held(&peal_wire_responder_qp(r)->rq.lock);
	while (!qp->rq.refusing && peal_budget_is_left(budget) &&
	       (skb = peal_responder_take_reordered(&r->responder))) {
		peal_reorder_mem_take(peal_wire_responder_mem(r), skb);
		peal_datagram_parse(skb, &reorder);
		peal_budget_spend(budget, PEAL_COST_PACKET + reorder.packet.payload_bytes);
		peal_wire_responder_take(r, &reorder, notify, true);
		if (unlikely(!peal_notify_has_room(notify)))
			peal_budget_spend(budget, budget->left);
	}
	WRITE_ONCE(r->deadline, peal_responder_deadline(&r->responder));
}

/**
 * peal_wire_responder_request() - process a request that has arrived
 *
 * With it the turn of kept requests may have come, which are processed, too. In RTR or later.
 * Consumes dg->skb. The caller calls peal_wire_responder_reply() afterwards.
 */
void peal_wire_responder_request(struct peal_wire_responder *r, struct peal_datagram *dg,
				 struct peal_notify *notify, struct peal_budget *budget)
{
	peal_epoch_assert_held();
	lockdep_assert_held(&peal_wire_responder_qp(r)->rq.lock);
	peal_wire_responder_take(r, dg, notify, false);
	peal_wire_responder_take_reordered(r, notify, budget);
}

/* ---- replies ---- */

static void peal_wire_responder_count_nak(struct peal_qp *qp, const struct peal_packet *packet)
{
	if (!(peal_packet_opcode(packet)->has & PEAL_HAS_AETH))
		return;
	if ((packet->syndrome & PEAL_SYNDROME_KIND) == PEAL_SYNDROME_RNR)
		peal_count(qp, naks_sent_rnr);
	switch (packet->syndrome) {
	case PEAL_SYNDROME_NAK | PEAL_NAK_SEQUENCE:
		peal_count(qp, naks_sent_sequence);
		break;
	case PEAL_SYNDROME_NAK | PEAL_NAK_INVALID_REQUEST:
		peal_count(qp, naks_sent_invalid);
		break;
	case PEAL_SYNDROME_NAK | PEAL_NAK_REMOTE_ACCESS:
		peal_count(qp, naks_sent_access);
		break;
	case PEAL_SYNDROME_NAK | PEAL_NAK_REMOTE_OPERATION:
		peal_count(qp, naks_sent_operation);
		break;
	}
}

/*
 * Copy the bytes of a READ response. Return: PEAL_ODP_FAULT when the key has become invalid since
 * the request, or when the memory is gone; PEAL_ODP_LATE when it does not come.
 */
static noinline enum peal_odp_state
peal_wire_responder_read(struct peal_wire_responder *r, const struct peal_reply *reply,
			 void *payload, struct peal_notify *notify)
{
	struct peal_qp *qp = peal_wire_responder_qp(r);
	struct peal_cursor from PEAL_UNINITIALIZED;
	struct peal_cursor to PEAL_UNINITIALIZED;
	u32 bytes = reply->header.payload_bytes;
	enum peal_odp_state state;
	bool found;

	lockdep_assert_held(&qp->rq.lock);
	r->executing.opcode = PEAL_OP_READ;
	r->executing.rkey = reply->rkey;
	r->executing.srqn = reply->srqn;
	r->executing.remote_addr = reply->remote_addr;
	r->executing.length = bytes;
	if (reply->again)
		found = peal_execute_read_again(qp, &r->executing, &from);
	else
		found = peal_execute_read(qp, &r->executing, qp->attr.dest_qp_num, notify,
					  &from).what == PEAL_CARRIED;
	if (!found)
		return PEAL_ODP_FAULT;
	state = bytes ? peal_cursor_look(&from, 0, bytes, false) : PEAL_ODP_PRESENT;
	if (likely(state == PEAL_ODP_PRESENT)) {
		peal_cursor_inline(&to, payload, bytes);
		peal_cursor_copy(&to, &from, bytes);
	} else if (state != PEAL_ODP_ABSENT && !reply->again) {
		peal_execute_no_page(qp, &r->executing, qp->attr.dest_qp_num, notify, state);
	}
	peal_cursor_end(&from);
	return state;
}

/*
 * A packet counts as lost when there is no memory for it, or when on-demand paging must first bring
 * its bytes in. If the key of a READ is not valid any more, a repeated response turns into a NAK at
 * once. The NAK of a first response is due later, in its turn.
 */
static struct sk_buff *peal_wire_responder_build(struct peal_wire_responder *r,
						 struct peal_reply *reply,
						 struct peal_notify *notify)
{
	void *payload;
	struct sk_buff *skb = peal_output_prepare(r->output, &reply->header, &payload);
	enum peal_odp_state state;

	if (!skb || !reply->read)
		return skb;
	state = peal_wire_responder_read(r, reply, payload, notify);
	if (likely(state == PEAL_ODP_PRESENT))
		return skb;
	peal_output_discard(skb);
	if (state == PEAL_ODP_ABSENT)
		return NULL;
	if (!reply->again) {
		peal_responder_refuse_read(&r->responder);
		return NULL;
	}
	peal_responder_refuse_again(&r->responder, reply);
	return peal_output_prepare(r->output, &reply->header, &payload);
}

static void peal_wire_responder_send(struct peal_wire_responder *r, struct peal_reply *reply,
				     struct peal_notify *notify)
{
	struct sk_buff *skb = peal_wire_responder_build(r, reply, notify);

	if (unlikely(!skb))
		return;
	peal_wire_responder_count_nak(peal_wire_responder_qp(r), &reply->header);
	peal_output_send(r->output, &reply->header, skb, reply->again);
}

/*
 * All replies that were due have been sent, among them the NAK of a refused request. Therefore
 * the queue pair goes into error only now, because no reply is sent in error.
 */
static bool peal_wire_responder_finish(struct peal_wire_responder *r, struct peal_notify *notify)
{
	struct peal_qp *qp = peal_wire_responder_qp(r);

	lockdep_assert_held(&qp->rq.lock);
	WRITE_ONCE(r->due, false);
	if (unlikely(qp->rq.refusing))
		peal_notify_fail(notify, qp, qp->generation);
	return false;
}

/**
 * peal_wire_responder_reply() - send the replies that are due, within a budget
 *
 * Return: true when the budget ended first.
 */
bool peal_wire_responder_reply(struct peal_wire_responder *r, struct peal_notify *notify,
			       struct peal_budget *budget)
{
	struct peal_reply reply;

	peal_epoch_assert_held();
	lockdep_assert_held(&peal_wire_responder_qp(r)->rq.lock);
	/* Set this before looking for room. The turn that follows when room is free reads it. */
	WRITE_ONCE(r->due, true);
	while (peal_budget_is_left(budget)) {
		if (!peal_output_has_quota(r->output))
			return false;
		if (!peal_responder_next(&r->responder, &reply))
			return peal_wire_responder_finish(r, notify);
		peal_wire_responder_send(r, &reply, notify);
		peal_budget_spend(budget, PEAL_COST_PACKET + reply.header.payload_bytes);
	}
	return true;
}

/* ---- turns ---- */

/*
 * No lock. Return: when peal_wire_responder_run() is due at the latest. KTIME_MAX:
 * only packets make it due.
 */
ktime_t peal_wire_responder_deadline(const struct peal_wire_responder *r)
{
	u64 deadline = READ_ONCE(r->deadline);

	return deadline < KTIME_MAX ? ns_to_ktime(deadline) : KTIME_MAX;
}

/* No lock, so only a hint. Would peal_wire_responder_run() find something to do? */
bool peal_wire_responder_is_due(const struct peal_wire_responder *r)
{
	u64 deadline = READ_ONCE(r->deadline);

	return READ_ONCE(r->due) || (deadline != U64_MAX && ktime_get_ns() >= deadline);
}

static void peal_wire_responder_expire(struct peal_wire_responder *r)
{
	u64 now = ktime_get_ns();
	struct sk_buff *skb;

	lockdep_assert_held(&peal_wire_responder_qp(r)->rq.lock);
	peal_responder_expire(&r->responder, now);
	while ((skb = peal_responder_take_expired(&r->responder, now)))
		peal_reorder_mem_lose(peal_wire_responder_mem(r), skb);
}

/*
 * Process kept requests, expire them, and send the replies that were left.
 * Return: true when the budget ended first.
 */
bool peal_wire_responder_run(struct peal_wire_responder *r, struct peal_notify *notify,
			     struct peal_budget *budget)
{
	peal_epoch_assert_held();
	lockdep_assert_held(&peal_wire_responder_qp(r)->rq.lock);
	if (r->deadline != U64_MAX)
		peal_wire_responder_expire(r);
	peal_wire_responder_take_reordered(r, notify, budget);
	return peal_wire_responder_reply(r, notify, budget);
}
