// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See conn.h.
 */
#include <linux/ktime.h>
#include <linux/mm.h>

#include "base/compat.h"
#include "base/trace.h"
#include "net/datagram.h"
#include "proto/packet.h"
#include "transport/conn.h"
#include "transport/exec.h"
#include "transport/local.h"
#include "transport/nic.h"
#include "transport/sender.h"

/* @items is a power of two. Return: 0, or -ENOMEM with everything undone. */
int peal_sg_lists_init(struct peal_sg_lists *sg_lists, u32 items, u32 max_sge)
{
	sg_lists->mask = items - 1;
	sg_lists->max_sge = max_sge;
	sg_lists->item = kvcalloc(items, sizeof(*sg_lists->item), GFP_KERNEL_ACCOUNT);
	sg_lists->sge = kvcalloc(items, max_sge * sizeof(*sg_lists->sge), GFP_KERNEL_ACCOUNT);
	if (sg_lists->item && sg_lists->sge)
		return 0;
	peal_sg_lists_free(sg_lists);
	return -ENOMEM;
}

void peal_sg_lists_free(struct peal_sg_lists *sg_lists)
{
	kvfree(sg_lists->item);
	kvfree(sg_lists->sge);
}

static struct peal_sge *peal_sg_lists_sges(const struct peal_sg_lists *sg_lists, u32 index)
{
	return sg_lists->sge + (size_t)(index & sg_lists->mask) * sg_lists->max_sge;
}

void peal_sg_lists_save(struct peal_sg_lists *sg_lists, u32 index, const struct peal_wqe *wqe)
{
	sg_lists->item[index & sg_lists->mask] = (struct peal_sg_list){
		.inline_data = wqe->inline_data, .length = wqe->length, .num_sge = wqe->num_sge,
	};
	memcpy(peal_sg_lists_sges(sg_lists, index), wqe->sge, wqe->num_sge * sizeof(*wqe->sge));
}

/**
 * peal_sg_lists_find() - set a cursor to some bytes of a message
 * @write: the bytes come from the peer
 * @offset: of the first byte in the message
 * @bytes: number of bytes. offset + bytes is within the message's length
 *
 * The keys are looked up for each packet, because they may have become invalid
 * since the last one.
 *
 * Return: PEAL_REASON_NONE or an LKEY reason.
 */
enum peal_reason peal_sg_lists_find(const struct peal_sg_lists *sg_lists, u32 index,
				    struct peal_table *table, const struct ib_pd *pd, bool write,
				    u64 offset, u64 bytes, struct peal_cursor *cursor)
{
	const struct peal_sg_list *item = &sg_lists->item[index & sg_lists->mask];

	if (!item->inline_data)
		return peal_cursor_part(cursor, table, pd, peal_sg_lists_sges(sg_lists, index),
					item->num_sge, write, offset, bytes);
	peal_cursor_inline(cursor, item->inline_data, item->length);
	peal_cursor_skip(cursor, offset);
	return PEAL_REASON_NONE;
}

/*
 * The responder. Unless its comment says otherwise, each function is called with
 * rq.lock held. Those that process packets and send replies run inside the epoch, too.
 */

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

	while ((skb = peal_reorder_drop(&r->responder.reorder)))
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
	return peal_execute_atomic(qp, &r->executing, qp->attr.dest_qp_num, notify, cursor,
				   &value);
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
				      peal_responder_conflict(&r->responder, dg->packet.psn));
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

/*
 * The requester. Functions that a turn calls run under sq.lock, inside the epoch. The operations of
 * the transport run under the locks that struct peal_transport_ops names.
 */

/*
 * Most bytes and packets in flight. The bytes are enough for 10 Gb/s and 200 us. There are no
 * more packets than a peal peer keeps when the first of them is late.
 */
#define PEAL_WINDOW_BYTES	(256 << 10)
#define PEAL_WINDOW_PACKETS	((u32)PEAL_REORDER_SLOTS)

static struct peal_qp *peal_wire_qp(const struct peal_wire *w)
{
	return w->base.qp;
}

static struct peal_reorder_mem *peal_wire_mem(const struct peal_wire *w)
{
	return &peal_nic(peal_wire_qp(w))->port.reorder_mem;
}

/* ---- completions ---- */

/*
 * A message of this queue pair failed. Put the queue pair or its send queue into error, so
 * that the rest is flushed.
 */
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
	peal_qp_count_message(qp, done->opcode, done->length);
	peal_count(qp, wire_messages);
}

/*
 * One response may complete a whole ring, so the budget limits this loop.
 * Return: true when the budget ended first.
 */
static bool peal_wire_complete(struct peal_wire *w, struct peal_notify *notify,
			       struct peal_budget *budget)
{
	struct peal_qp *qp = peal_wire_qp(w);
	struct peal_completion done;

	lockdep_assert_held(&qp->sq.lock);
	while (peal_budget_is_left(budget)) {
		if (!peal_requester_complete(&w->requester, &done))
			return false;
		peal_budget_spend(budget, PEAL_COST_COMPLETION);
		peal_qp_complete_message(qp, notify, &done);
		if (unlikely(done.status)) {
			peal_wire_fail_queue(qp);
			return false;
		}
		peal_wire_count_message(qp, &done);
	}
	return true;
}

/* ---- from ring to message ---- */

/* Fail a message because its memory on this side is not valid. */
static void peal_wire_fail_message(struct peal_wire *w, u32 message, enum peal_reason reason)
{
	peal_requester_fail_message(&w->requester, message, IB_WC_LOC_PROT_ERR, reason);
}

/*
 * Check all local keys before the first packet. Each packet checks them again, because keys may
 * become invalid in between.
 */
static noinline enum peal_reason peal_wire_check_keys(const struct peal_qp *qp)
{
	const struct peal_wqe *wqe = &qp->sq.wqe;
	const struct peal_op *op = peal_op(wqe->opcode);
	struct peal_cursor cursor PEAL_UNINITIALIZED;
	enum peal_reason reason;

	if (wqe->inline_data || op->local)
		return PEAL_REASON_NONE;
	reason = peal_cursor_local(&cursor, qp->table, qp->ib.pd, wqe->sge, wqe->num_sge,
				   !op->sends);
	if (likely(!reason))
		peal_cursor_end(&cursor);
	return reason;
}

/*
 * An invalidation by a kernel user may end the use of memory that earlier messages send from. They
 * need it until they are acknowledged, because their packets may have to be sent again. Programs
 * can invalidate windows only, which no message is sent from.
 */
static bool peal_wire_must_wait(const struct peal_qp *qp)
{
	return qp->sq.wqe.opcode == PEAL_OP_LOCAL_INV && !qp->context;
}

/*
 * Post the message in sq.wqe. That is free afterwards, because the requester and the
 * scatter-gather lists keep what they need of the message.
 */
static void peal_wire_post(struct peal_wire *w)
{
	struct peal_qp *qp = peal_wire_qp(w);
	const struct peal_wqe *wqe = &qp->sq.wqe;
	struct peal_wr wr = {
		.opcode = wqe->opcode,
		.flags = wqe->flags,
		.index = wqe->index,
		.imm_or_rkey = wqe->imm_or_rkey,
		.rkey = wqe->rkey,
		.srqn = wqe->srqn,
		.remote_addr = wqe->remote_addr,
		.length = wqe->length,
		.more = peal_sq_is_followed(&qp->sq),
		.last = peal_wire_must_wait(qp),
	};
	enum peal_reason reason;

	if (peal_op(wqe->opcode)->atomic)
		wr.atomic = wqe->atomic;
	trace_peal_execute(qp->ib.qp_num, wqe->index, wqe->opcode, wqe->length,
			   peal_requester_psn(&w->requester));
	peal_sg_lists_save(&w->sg_lists, peal_requester_head(&w->requester), wqe);
	peal_requester_post(&w->requester, &wr);
	reason = peal_wire_check_keys(qp);
	if (unlikely(reason))
		peal_wire_fail_message(w, peal_requester_head(&w->requester) - 1, reason);
	peal_sq_finish(&qp->sq);
}

/*
 * A WQE that cannot be executed is posted, too, because it must complete in its
 * place in the order.
 */
static void peal_wire_post_bad(struct peal_wire *w, enum peal_reason reason)
{
	const struct peal_wqe *wqe = &peal_wire_qp(w)->sq.wqe;
	struct peal_wr wr = {
		.opcode = PEAL_OP_INVALID, .flags = wqe->flags, .index = wqe->index,
	};
	u32 message = peal_requester_head(&w->requester);

	peal_requester_post(&w->requester, &wr);
	peal_requester_fail_message(&w->requester, message, peal_wqe_status(reason), reason);
	peal_sq_finish(&peal_wire_qp(w)->sq);
}

/* Return: false when the ring has no WQE. */
static bool peal_wire_fetch(struct peal_wire *w)
{
	struct peal_qp *qp = peal_wire_qp(w);
	enum peal_reason reason;

	lockdep_assert_held(&qp->sq.lock);
	switch (peal_sq_fetch(&qp->sq, &reason)) {
	case PEAL_SQ_EMPTY:
		return false;
	case PEAL_SQ_MALFORMED:
		peal_wire_post_bad(w, reason);
		break;
	case PEAL_SQ_FETCHED:
		peal_wire_post(w);
		break;
	}
	peal_count(qp, posts);
	return true;
}

/* Messages started on the wire finish there; the next one may use the direct path. */
static bool peal_wire_yields(const struct peal_qp *qp)
{
	return qp->sender != qp->wire || qp->locality->wanted;
}

/*
 * Start the next message. When none may start, ask for an ACK of the packets in flight, because
 * no later packet will carry AckReq. Return: false when no message was started.
 */
static bool peal_wire_begin(struct peal_wire *w, struct peal_notify *notify,
			    struct peal_budget *budget)
{
	struct peal_qp *qp = peal_wire_qp(w);

	lockdep_assert_held(&qp->sq.lock);
	if (!peal_sender_may_begin(qp, notify) || peal_wire_yields(qp)) {
		peal_requester_request_ack(&w->requester, ktime_get_ns());
		return false;
	}
	if (!peal_requester_has_room(&w->requester) || !peal_wire_fetch(w))
		return false;
	peal_budget_spend(budget, PEAL_COST_WQE);
	return true;
}

/* ---- from message to packet ---- */

/*
 * sq.wqe still has the WQE of this local operation, because no other WQE is
 * fetched before it is executed.
 */
static void peal_wire_execute(struct peal_wire *w, const struct peal_outgoing *out)
{
	struct peal_outcome outcome = peal_sender_local(peal_wire_qp(w));

	peal_requester_local_done(&w->requester, out->message, outcome.status, outcome.reason);
}

/*
 * Are the bytes of a packet in memory? Return: PEAL_REASON_LKEY_PAGE if not, or
 * PEAL_REASON_PAGE_LATE. *absent: they are being brought in.
 */
static noinline enum peal_reason peal_wire_look(const struct peal_cursor *cursor, u32 bytes,
						bool write, bool *absent)
{
	enum peal_odp_state state = peal_cursor_look(cursor, 0, bytes, write);

	*absent = state == PEAL_ODP_ABSENT;
	return state == PEAL_ODP_PRESENT ? PEAL_REASON_NONE :
	       peal_odp_reason(state, PEAL_REASON_LKEY_PAGE);
}

/*
 * Copy the payload of a packet from the program's memory. *absent: it is not in memory (on-demand
 * paging).
 */
static noinline enum peal_reason peal_wire_gather(struct peal_wire *w,
						  const struct peal_outgoing *out, void *payload,
						  bool *absent)
{
	struct peal_qp *qp = peal_wire_qp(w);
	struct peal_cursor from PEAL_UNINITIALIZED;
	struct peal_cursor to PEAL_UNINITIALIZED;
	u32 bytes = out->header.payload_bytes;
	enum peal_reason reason;

	reason = peal_sg_lists_find(&w->sg_lists, out->message, qp->table, qp->ib.pd, false,
				    out->offset, bytes, &from);
	if (unlikely(reason))
		return reason;
	if (unlikely(from.counted))
		reason = peal_wire_look(&from, bytes, false, absent);
	if (likely(!reason)) {
		peal_cursor_inline(&to, payload, bytes);
		peal_cursor_copy(&to, &from, bytes);
	}
	peal_cursor_end(&from);
	return reason;
}

/*
 * A packet that cannot be built for lack of memory counts as lost, like one that
 * the network drops. So does a packet whose payload is not in memory (on-demand paging).
 */
static void peal_wire_emit(struct peal_wire *w, struct peal_outgoing *out)
{
	void *payload;
	struct sk_buff *skb = peal_output_prepare(&w->output, &out->header, &payload);
	enum peal_reason reason = PEAL_REASON_NONE;
	bool absent = false;

	if (unlikely(!skb))
		return;
	if (out->header.payload_bytes)
		reason = peal_wire_gather(w, out, payload, &absent);
	if (likely(!reason)) {
		if (unlikely(peal_output_send(&w->output, &out->header, skb, out->again) ==
			     -EMSGSIZE))
			peal_requester_too_long(&w->requester, out->header.psn);
		return;
	}
	peal_output_discard(skb);
	if (absent)
		peal_requester_excuse_silence(&w->requester, ktime_get_ns());
	else
		peal_wire_fail_message(w, out->message, reason);
}

/*
 * Send a packet, execute a local operation, or start the next message.
 * Return: false when there is nothing to do now.
 */
static bool peal_wire_step(struct peal_wire *w, struct peal_notify *notify,
			   struct peal_budget *budget)
{
	struct peal_outgoing out;

	switch (peal_requester_next(&w->requester, ktime_get_ns(), &out)) {
	case PEAL_BLOCKED_NONE:
		break;
	case PEAL_BLOCKED_EMPTY:
		return peal_wire_begin(w, notify, budget);
	default:
		return false;
	}
	if (out.local)
		peal_wire_execute(w, &out);
	else
		peal_wire_emit(w, &out);
	peal_budget_spend(budget,
			  PEAL_COST_PACKET + (out.local ? 0 : out.header.payload_bytes));
	return true;
}

static bool peal_wire_transmit(struct peal_wire *w, struct peal_notify *notify,
			       struct peal_budget *budget)
{
	bool left = false, more = true;

	lockdep_assert_held(&peal_wire_qp(w)->sq.lock);
	while (more && peal_budget_is_left(budget)) {
		more = !peal_qp_send_failed(peal_wire_qp(w)) && peal_output_has_quota(&w->output) &&
		       peal_wire_step(w, notify, budget);
		left = peal_wire_complete(w, notify, budget);
	}
	return more || left;
}

/* ---- time ---- */

static void peal_wire_count_timer(struct peal_wire *w, u64 now)
{
	struct peal_qp *qp = peal_wire_qp(w);
	bool gave_up = now >= w->requester.give_up_at;

	if (gave_up)
		peal_count(qp, timeouts);
	else if (now >= w->requester.probe_at)
		peal_count(qp, probes);
	else
		return;
	trace_peal_timeout(qp->ib.qp_num, !gave_up, w->requester.inflight.una,
			   w->requester.retry.used);
}

static void peal_wire_expire(struct peal_wire *w)
{
	u64 deadline = peal_requester_deadline(&w->requester);
	struct sk_buff *skb;
	u64 now;

	lockdep_assert_held(&peal_wire_qp(w)->sq.lock);
	if (deadline == U64_MAX)
		return;
	now = ktime_get_ns();
	if (now < deadline)
		return;
	peal_wire_count_timer(w, now);
	peal_requester_expire(&w->requester, now);
	while ((skb = peal_requester_take_expired(&w->requester, now)))
		peal_reorder_mem_lose(peal_wire_mem(w), skb);
}

/* ---- responses ---- */

static void peal_wire_count_nak(struct peal_qp *qp, const struct peal_packet *packet)
{
	if (!(peal_packet_opcode(packet)->has & PEAL_HAS_AETH))
		return;
	if ((packet->syndrome & PEAL_SYNDROME_KIND) == PEAL_SYNDROME_RNR) {
		peal_count(qp, naks_received_rnr);
		peal_count(qp, rnr_waits);
	}
	switch (packet->syndrome) {
	case PEAL_SYNDROME_NAK | PEAL_NAK_SEQUENCE:
		peal_count(qp, naks_received_sequence);
		break;
	case PEAL_SYNDROME_NAK | PEAL_NAK_INVALID_REQUEST:
		peal_count(qp, naks_received_invalid);
		break;
	case PEAL_SYNDROME_NAK | PEAL_NAK_REMOTE_ACCESS:
		peal_count(qp, naks_received_access);
		break;
	case PEAL_SYNDROME_NAK | PEAL_NAK_REMOTE_OPERATION:
		peal_count(qp, naks_received_operation);
		break;
	}
}

/* Copy the payload of a response to the program's memory. */
static noinline enum peal_reason peal_wire_scatter(struct peal_wire *w,
						   const struct peal_datagram *dg,
						   const struct peal_response *response,
						   bool *absent)
{
	struct peal_qp *qp = peal_wire_qp(w);
	struct peal_cursor to PEAL_UNINITIALIZED;
	enum peal_reason reason;

	reason = peal_sg_lists_find(&w->sg_lists, response->message, qp->table, qp->ib.pd, true,
				    response->offset, response->bytes, &to);
	if (unlikely(reason))
		return reason;
	if (unlikely(to.counted))
		reason = peal_wire_look(&to, response->bytes, true, absent);
	if (likely(!reason))
		peal_datagram_scatter(dg, &to, response->bytes);
	peal_cursor_end(&to);
	return reason;
}

static noinline enum peal_reason peal_wire_store(struct peal_wire *w,
						 const struct peal_response *response, bool *absent)
{
	struct peal_qp *qp = peal_wire_qp(w);
	struct peal_cursor from PEAL_UNINITIALIZED;
	struct peal_cursor to PEAL_UNINITIALIZED;
	enum peal_reason reason;

	reason = peal_sg_lists_find(&w->sg_lists, response->message, qp->table, qp->ib.pd, true, 0,
				    sizeof(response->original), &to);
	if (unlikely(reason))
		return reason;
	if (unlikely(to.counted))
		reason = peal_wire_look(&to, sizeof(response->original), true, absent);
	if (likely(!reason)) {
		peal_cursor_inline(&from, &response->original, sizeof(response->original));
		peal_cursor_copy(&to, &from, sizeof(response->original));
	}
	peal_cursor_end(&to);
	return reason;
}

/* A response whose destination is not in memory (on-demand paging) counts as lost. */
static void peal_wire_place(struct peal_wire *w, const struct peal_datagram *dg,
			    const struct peal_response *response, u64 now)
{
	enum peal_reason reason = PEAL_REASON_NONE;
	bool absent = false;

	if (response->what == PEAL_RESPONSE_ATOMIC)
		reason = peal_wire_store(w, response, &absent);
	else if (response->bytes)
		reason = peal_wire_scatter(w, dg, response, &absent);
	if (likely(!reason))
		peal_requester_placed(&w->requester, response, now);
	else if (absent)
		peal_requester_excuse_silence(&w->requester, now);
	else
		peal_wire_fail_message(w, response->message, reason);
}

static void peal_wire_drop(struct peal_qp *qp, const struct peal_packet *packet,
			   const struct peal_response *response)
{
	if (response->duplicate)
		peal_count(qp, duplicates);
	peal_count_drop(qp->table, response->drop);
	trace_peal_drop(packet, response->drop);
}

/* A response has the PSN of one that is kept. If the two differ, one of them is forged. */
static noinline void peal_wire_compare(struct peal_wire *w, const struct peal_datagram *dg,
				       struct peal_response *response, u64 now)
{
	struct peal_qp *qp = peal_wire_qp(w);

	if (!peal_datagram_same(response->kept, dg)) {
		response->drop = PEAL_DROP_conflict;
		response->duplicate = false;
		peal_reorder_mem_lose(peal_wire_mem(w), peal_requester_contradict(&w->requester,
										  dg->packet.psn,
										  now));
	}
	peal_wire_drop(qp, &dg->packet, response);
}

/* Process one response. Consumes dg->skb. @again: it was kept until its turn came. */
static void peal_wire_take(struct peal_wire *w, struct peal_datagram *dg, bool again)
{
	struct peal_qp *qp = peal_wire_qp(w);
	struct sk_buff *handle = NULL;
	struct peal_response response;
	u64 now = ktime_get_ns();

	lockdep_assert_held(&qp->sq.lock);
	trace_peal_packet_received(qp->ib.qp_num, &dg->packet, again);
	/* A packet in its turn is never kept. */
	if (unlikely(dg->packet.psn != w->requester.inflight.una))
		handle = peal_reorder_mem_may(peal_wire_mem(w), dg,
					      ib_mtu_enum_to_int(qp->attr.path_mtu),
					      w->requester.reorder.count);
	peal_requester_receive(&w->requester, &dg->packet, now, handle, &response);
	switch (response.what) {
	case PEAL_RESPONSE_KEPT:
		peal_reorder_mem_add(peal_wire_mem(w), dg->skb);
		return;
	case PEAL_RESPONSE_DROPPED:
		peal_wire_drop(qp, &dg->packet, &response);
		break;
	case PEAL_RESPONSE_COPY:
		peal_wire_compare(w, dg, &response, now);
		break;
	case PEAL_RESPONSE_TAKEN:
		peal_wire_count_nak(qp, &dg->packet);
		break;
	case PEAL_RESPONSE_READ:
	case PEAL_RESPONSE_ATOMIC:
		peal_wire_place(w, dg, &response, now);
		break;
	}
	peal_datagram_consume(dg);
}

/*
 * Process one response. The turn of kept responses may have come with it.
 * peal_wire_run() processes those.
 */
void peal_wire_response(struct peal_wire *w, struct peal_datagram *dg)
{
	peal_epoch_assert_held();
	lockdep_assert_held(&peal_wire_qp(w)->sq.lock);
	peal_wire_take(w, dg, false);
}

static void peal_wire_take_reordered(struct peal_wire *w, struct peal_budget *budget)
{
	struct peal_datagram reorder;
	struct sk_buff *skb;

	while (peal_budget_is_left(budget) &&
	       (skb = peal_requester_take_reordered(&w->requester))) {
		peal_reorder_mem_take(peal_wire_mem(w), skb);
		peal_datagram_parse(skb, &reorder);
		peal_budget_spend(budget, PEAL_COST_PACKET + reorder.packet.payload_bytes);
		peal_wire_take(w, &reorder, true);
	}
}

static void peal_wire_forget_reordered(struct peal_wire *w)
{
	struct sk_buff *skb;

	while ((skb = peal_requester_drop_reordered(&w->requester)))
		peal_reorder_mem_lose(peal_wire_mem(w), skb);
}

/* ---- turns ---- */

static bool peal_wire_run_requester(struct peal_wire *w, struct peal_notify *notify,
				    struct peal_budget *budget)
{
	if (!peal_qp_requests(peal_wire_qp(w)))
		return false;
	peal_wire_expire(w);
	return peal_wire_transmit(w, notify, budget);
}

static bool peal_wire_run_responder(struct peal_wire *w, struct peal_notify *notify,
				    struct peal_budget *budget)
{
	struct peal_qp *qp = peal_wire_qp(w);
	bool more;

	lockdep_assert_held(&qp->sq.lock);
	if (!peal_wire_responder_is_due(&w->responder))
		return false;
	spin_lock(&qp->rq.lock);
	peal_qp_change_receiver(qp, &w->base);
	more = peal_wire_responder_run(&w->responder, notify, budget);
	spin_unlock(&qp->rq.lock);
	return more;
}

/*
 * The requester and the responder take turns in going first. Each of them can use up every turn
 * and all room in the transmit queue, because a peer may ask for 2 GiB at once. Completions go
 * before both, because they need no room.
 */
static bool peal_wire_run_packets(struct peal_wire *w, struct peal_notify *notify,
				  struct peal_budget *budget)
{
	struct peal_qp *qp = peal_wire_qp(w);
	bool more = false;

	if (peal_qp_requests(qp)) {
		peal_wire_take_reordered(w, budget);
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
 * This happens between two messages, when all packets that were sent are acknowledged. A message
 * that has started on the direct path finishes there as long as the proof lasts, whatever an
 * administrator sets meanwhile. When the proof has ended, the direct transport gives back to the
 * wire, also a message that waits or is placed in part. Its retries begin anew.
 * Return: the transport that sends now.
 */
static struct peal_transport *peal_wire_choose_sender(struct peal_wire *w)
{
	struct peal_qp *qp = peal_wire_qp(w);
	bool near;

	lockdep_assert_held(&qp->sq.lock);
	if (!peal_qp_is_reliable(qp) || !peal_sender_works(qp))
		return qp->sender;
	if (unlikely(peal_locality_is_due(qp->locality)))
		peal_locality_challenge_peer(qp, &w->output, peal_rto_estimate(&w->requester.rto));
	near = peal_locality_look(qp);
	if (qp->sender == qp->wire && !peal_qp_idle(qp))
		return qp->sender;
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

/*
 * Have all packets been acknowledged, so that waiting messages can use the direct path?
 */
static bool peal_wire_may_change(struct peal_qp *qp)
{
	lockdep_assert_held(&qp->sq.lock);
	return qp->locality->wanted && qp->sender == qp->wire && peal_qp_idle(qp);
}

/* The turn that finds the last ACK changes the transport, because no other turn may come. */
static bool peal_wire_run(struct peal_transport *transport, struct peal_notify *notify,
			  struct peal_budget *budget)
{
	struct peal_wire *w = peal_wire(transport);
	struct peal_qp *qp = transport->qp;
	struct peal_transport *sender = peal_wire_choose_sender(w);
	bool more = !peal_qp_send_failed(qp) && peal_wire_run_packets(w, notify, budget);

	peal_epoch_assert_held();
	lockdep_assert_held(&qp->sq.lock);
	if (unlikely(peal_qp_send_failed(qp)))
		return peal_sender_flush(qp, notify, budget);
	if (sender == transport && !more && peal_wire_may_change(qp)) {
		sender = peal_wire_choose_sender(w);
		more = sender == transport && peal_wire_run_packets(w, notify, budget);
	}
	if (sender != transport)
		more |= sender->ops->run(sender, notify, budget);
	return more;
}

static bool peal_wire_flush(struct peal_transport *transport, struct peal_notify *notify)
{
	struct peal_qp *qp = transport->qp;
	struct peal_completion done;

	lockdep_assert_held(&qp->sq.lock);
	if (!peal_requester_flush(&peal_wire(transport)->requester, &done))
		return false;
	done.status = IB_WC_WR_FLUSH_ERR;
	done.reason = peal_qp_flush_reason(qp);
	peal_qp_complete_message(qp, notify, &done);
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
	peal_wire_forget_reordered(w);
	peal_requester_reset(&w->requester);
	peal_wire_responder_reset(&w->responder);
}

/* Under sq.lock and rq.lock. */
static void peal_wire_fail(struct peal_transport *transport)
{
	struct peal_wire *w = peal_wire(transport);

	peal_qp_assert_both_held(transport->qp);
	peal_wire_forget_reordered(w);
	peal_wire_responder_forget_reordered(&w->responder);
}

static void peal_wire_configure(struct peal_wire *w)
{
	const struct peal_qp *qp = peal_wire_qp(w);
	u8 shift = peal_qp_mtu_shift(qp);
	struct peal_requester_config config = {
		.transport = peal_qp_bth_transport(qp),
		.mtu_shift = shift,
		.retry_limit = qp->attr.retry_cnt,
		.rnr_limit = qp->attr.rnr_retry,
		.max_rd_atomic = qp->attr.max_rd_atomic,
		.timeout_ns = peal_qp_timeout_ns(qp),
		.window = min((u32)PEAL_WINDOW_BYTES >> shift, PEAL_WINDOW_PACKETS),
		.reorder_ns = peal_output_reorder_ns(qp),
	};

	peal_requester_configure(&w->requester, &config);
}

/*
 * Continue after UC has come from SQE back to RTS. The failed message was completed and is
 * forgotten, and the PSNs go on. RC never comes back to RTS this way. Until it is in ERR,
 * messages before the failed one are still waited for.
 */
static void peal_wire_resume(struct peal_wire *w)
{
	u32 psn = peal_requester_psn(&w->requester);

	peal_wire_forget_reordered(w);
	peal_requester_reset(&w->requester);
	peal_requester_set_psn(&w->requester, psn);
}

/* Under sq.lock and rq.lock. */
static void peal_wire_apply(struct peal_transport *transport, int mask)
{
	struct peal_wire *w = peal_wire(transport);
	struct peal_qp *qp = transport->qp;

	peal_qp_assert_both_held(qp);
	if (mask & IB_QP_AV) {
		peal_output_use_staged(&w->output);
		peal_locality_forget(qp);	/* the proof was for the old path */
	}
	peal_wire_configure(w);
	peal_wire_responder_configure(&w->responder);
	if (qp->ib.qp_type == IB_QPT_UC && peal_requester_failed(&w->requester) &&
	    mask & IB_QP_STATE && qp->state == IB_QPS_RTS)
		peal_wire_resume(w);
	if (mask & IB_QP_SQ_PSN)
		peal_requester_set_psn(&w->requester, qp->attr.sq_psn);
	if (mask & IB_QP_RQ_PSN)
		peal_wire_responder_set_psn(&w->responder, qp->attr.rq_psn);
}

static ktime_t peal_wire_deadline(struct peal_transport *transport)
{
	struct peal_wire *w = peal_wire(transport);
	struct peal_transport *sender = transport->qp->sender;
	u64 at = peal_requester_deadline(&w->requester);
	ktime_t when = at < KTIME_MAX ? ns_to_ktime(at) : KTIME_MAX;

	lockdep_assert_held(&transport->qp->sq.lock);
	if (transport->qp->state == IB_QPS_ERR)
		return KTIME_MAX;
	when = min(when, peal_wire_responder_deadline(&w->responder));
	return sender == transport ? when : min(when, sender->ops->deadline(sender));
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
	lockdep_assert_held(&transport->qp->rq.lock);
	return peal_wire_responder_psn(&peal_wire(transport)->responder);
}

static void peal_wire_start_recv(struct peal_transport *transport, struct peal_recv_psn at)
{
	lockdep_assert_held(&transport->qp->rq.lock);
	peal_wire_responder_start(&peal_wire(transport)->responder, at);
}

/* The queue pair is unpublished, and the caller has waited for the epoch, so no lock is needed. */
static void peal_wire_free(struct peal_transport *transport)
{
	struct peal_wire *w = peal_wire(transport);

	peal_output_free(&w->output);
	peal_wire_forget_reordered(w);
	peal_wire_responder_free(&w->responder);
	peal_sg_lists_free(&w->sg_lists);
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
	.deadline = peal_wire_deadline,
	.flush = peal_wire_flush,
	.idle = peal_wire_idle,
	.send_psn = peal_wire_send_psn,
	.start_send = peal_wire_start_send,
	.recv_psn = peal_wire_recv_psn,
	.start_recv = peal_wire_start_recv,
};

/* ---- set-up ---- */

static int peal_wire_init(struct peal_wire *w, struct peal_qp *qp)
{
	u32 entries = qp->sq.ring.mask + 1;
	int ret;

	w->base.ops = &peal_wire_ops;
	w->base.qp = qp;
	peal_output_init(&w->output, qp);
	w->message = kvcalloc(entries, sizeof(*w->message), GFP_KERNEL_ACCOUNT);
	if (!w->message)
		return -ENOMEM;
	ret = peal_sg_lists_init(&w->sg_lists, entries, qp->sq.limits.max_sge);
	if (ret)
		goto free_message;
	ret = peal_wire_responder_init(&w->responder, &w->output);
	if (ret)
		goto free_sg_lists;
	peal_requester_init(&w->requester, w->message, entries);
	return 0;

free_sg_lists:
	peal_sg_lists_free(&w->sg_lists);
free_message:
	kvfree(w->message);
	return ret;
}

static int peal_wire_create(struct peal_qp *qp)
{
	struct peal_wire *w = kzalloc(sizeof(*w), GFP_KERNEL_ACCOUNT);
	int ret;

	lockdep_assert_held(&qp->control);
	if (!w)
		return -ENOMEM;
	ret = peal_wire_init(w, qp);
	if (ret)
		kfree(w);
	else
		peal_qp_set_wire(qp, &w->base);
	return ret;
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
