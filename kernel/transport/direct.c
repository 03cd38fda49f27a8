// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See direct.h.
 */
#include "base/compat.h"
#include "transport/direct.h"
#include "transport/responder.h"

static bool peal_direct_receives(enum ib_qp_state state)
{
	return state == IB_QPS_RTR || state == IB_QPS_RTS || state == IB_QPS_SQD;
}

/*
 * Would a packet of ours be taken by this queue pair? When not, it answers
 * nothing, and the requester runs into its timeout like on a wire.
 */
static enum peal_reason peal_direct_connected(const struct peal_qp *qp, const struct peal_qp *peer)
{
	if (unlikely(!peal_direct_receives(peer->state) || peer->rq.refusing))
		return PEAL_REASON_PEER_STATE;
	if (unlikely(peer->ib.qp_type != qp->ib.qp_type ||
		     peer->attr.dest_qp_num != qp->ib.qp_num ||
		     memcmp(&peer->attr.ah_attr.grh.dgid, &qp->sgid, sizeof(qp->sgid))))
		return PEAL_REASON_PEER_OTHER;
	return PEAL_REASON_NONE;
}

/* The requester's side of the copy. */
static enum peal_reason peal_direct_local(struct peal_qp *qp, struct peal_cursor *cursor)
{
	const struct peal_send *send = &qp->sq.wqe;

	if (send->inline_data) {
		peal_cursor_inline(cursor, send->inline_data, send->length);
		return PEAL_REASON_NONE;
	}
	return peal_cursor_local(cursor, qp->table, qp->ib.pd, send->sge, send->num_sge,
				 !peal_op(send->opcode)->sends);
}

/* One chunk of @bytes in the message's direction. Return: in how many pieces. */
static u32 peal_direct_copy(const struct peal_sq *sq, struct peal_cursor *local,
			    struct peal_cursor *remote, u64 bytes)
{
	peal_cursor_skip(local, sq->done);
	peal_cursor_skip(remote, sq->done);
	if (peal_op(sq->wqe.opcode)->sends)
		return peal_cursor_copy(remote, local, bytes);
	return peal_cursor_copy(local, remote, bytes);
}

static struct peal_outcome peal_direct_atomic(struct peal_qp *qp, struct peal_qp *peer,
					      struct peal_burst *burst,
					      struct peal_cursor *local,
					      const struct peal_cursor *remote)
{
	struct peal_outcome outcome;
	struct peal_cursor result PEAL_UNINITIALIZED;
	u64 old;

	outcome = peal_responder_atomic(peer, &qp->sq.wqe, qp->ib.qp_num, burst, remote, &old);
	if (outcome.what != PEAL_CARRIED)
		return outcome;
	peal_cursor_inline(&result, &old, sizeof(old));
	peal_cursor_copy(local, &result, sizeof(old));
	outcome.bytes = sizeof(old);
	return outcome;
}

/* Accept, move, finish. Holds the peer's rq.lock. */
static struct peal_outcome peal_direct_deliver(struct peal_qp *qp, struct peal_qp *peer,
					       struct peal_burst *burst,
					       struct peal_cursor *local, u64 max_bytes)
{
	const struct peal_send *send = &qp->sq.wqe;
	struct peal_cursor remote PEAL_UNINITIALIZED;
	struct peal_outcome outcome;
	u32 pieces = local->num_sge;
	u64 bytes;

	outcome = peal_responder_accept(peer, send, qp->ib.qp_num, burst, &remote);
	if (unlikely(outcome.what != PEAL_CARRIED))
		return outcome;
	if (peal_op(send->opcode)->atomic) {
		outcome = peal_direct_atomic(qp, peer, burst, local, &remote);
		if (outcome.what != PEAL_CARRIED)
			return outcome;
		bytes = outcome.bytes;
	} else {
		bytes = min(send->length - qp->sq.done, max_bytes);
		pieces += remote.num_sge + peal_direct_copy(&qp->sq, local, &remote, bytes);
	}
	outcome.what = PEAL_PROGRESS;
	if (qp->sq.done + bytes == send->length)
		outcome = peal_responder_finish(peer, send, qp->ib.qp_num, burst);
	outcome.bytes = bytes;
	outcome.pieces = pieces;
	return outcome;
}

/*
 * Holds the peer's rq.lock. One that has refused goes into error when the burst
 * ends, because that needs its send queue's lock.
 */
static struct peal_outcome peal_direct_attempt(struct peal_qp *qp, struct peal_qp *peer,
					       struct peal_burst *burst,
					       struct peal_cursor *local, u64 max_bytes)
{
	struct peal_outcome outcome;

	if (unlikely(peer->rq.psn != qp->sq.psn))
		return peal_silent(PEAL_REASON_PEER_PSN);
	/* A peer that was reset under way has forgotten our first bytes. */
	if (unlikely(qp->sq.done && !peer->rq.message))
		peal_sq_restart(&qp->sq);
	peal_rq_note_waiter(&peer->rq, qp->reach.direct ? qp->reach.home->number : 0);
	outcome = peal_direct_deliver(qp, peer, burst, local, max_bytes);
	if (unlikely(peer->rq.refusing))
		peal_burst_fail(burst, peer, peer->life);
	return outcome;
}

/* Holds the peer's rq.lock. One whose path is the wire lends what it has received so far. */
static struct peal_outcome peal_direct_meet(struct peal_qp *qp, struct peal_qp *peer,
					    struct peal_burst *burst, struct peal_cursor *local,
					    u64 max_bytes)
{
	enum peal_reason reason = peal_direct_connected(qp, peer);
	struct peal_outcome outcome;

	if (unlikely(reason))
		return peal_silent(reason);
	if (peer->on_wire)
		peer->carrier_ops->lend_recv(peer);
	outcome = peal_direct_attempt(qp, peer, burst, local, max_bytes);
	if (peer->on_wire)
		peer->carrier_ops->take_back_recv(peer);
	return outcome;
}

/**
 * peal_direct_carry() - carry the message in sq.wqe, or its next chunk
 * @max_bytes: at most that much now
 *
 * Holds qp->sq.lock, inside the guard; takes the peer's rq.lock, which is of
 * another class: a queue pair may be its own peer.
 */
struct peal_outcome peal_direct_carry(struct peal_qp *qp, struct peal_burst *burst,
				      u64 max_bytes)
{
	struct peal_outcome outcome;
	struct peal_cursor local PEAL_UNINITIALIZED;
	struct peal_table *table;
	struct peal_qp *peer;
	enum peal_reason reason = peal_direct_local(qp, &local);

	if (unlikely(reason))
		return peal_failed(IB_WC_LOC_PROT_ERR, reason);
	table = qp->on_wire ? peal_reach_table(qp) : qp->table;
	if (unlikely(!table))
		return peal_silent(PEAL_REASON_PEER_UNREACHABLE);
	/* Another device's table may go, and a new one come to its place in memory. */
	if (unlikely(table != qp->table))
		peer = peal_table_qp(table, qp->attr.dest_qp_num);
	else
		peer = peal_table_qp_again(table, &qp->peer, qp->attr.dest_qp_num);
	if (unlikely(!peer))
		return peal_silent(PEAL_REASON_PEER_UNKNOWN);
	spin_lock(&peer->rq.lock);
	outcome = peal_direct_meet(qp, peer, burst, &local, max_bytes);
	spin_unlock(&peer->rq.lock);
	return outcome;
}
