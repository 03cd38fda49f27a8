// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See direct.h. The functions of the send side are called with sq.lock held. Those of the
 * receive side are called with rq.lock of the peer held. The two are of different lock classes,
 * because a queue pair may be its own peer. Functions that a turn calls run inside the epoch.
 */
#include <linux/slab.h>

#include "base/budget.h"
#include "base/compat.h"
#include "base/trace.h"
#include "proto/psn.h"
#include "proto/responder.h"
#include "transport/direct.h"
#include "transport/execute.h"
#include "transport/sender.h"

/*
 * How often to look for a silent peer when the program set no timeout. These
 * looks count no retries.
 */
#define PEAL_NO_TIMEOUT_NS	(100 * NSEC_PER_MSEC)

/* A step copies at most so much, so that the locks are not held for longer. */
#define PEAL_CHUNK_BYTES	(64 << 10)

static struct peal_direct *peal_direct(const struct peal_transport *transport)
{
	return container_of(transport, struct peal_direct, base);
}

/* ---- one message, or a chunk of it ---- */

/*
 * Would @peer accept a packet of @qp? If not, @peer does not answer and the requester runs into
 * its timeout, as on the wire.
 */
static enum peal_reason peal_direct_connected(const struct peal_qp *qp, const struct peal_qp *peer)
{
	lockdep_assert_held(&qp->sq.lock);
	lockdep_assert_held(&peer->rq.lock);
	if (unlikely(!peal_qp_receives(peer)))
		return PEAL_REASON_PEER_STATE;
	if (unlikely(peer->ib.qp_type != qp->peer_type ||
		     peer->attr.dest_qp_num != qp->ib.qp_num ||
		     memcmp(&peer->attr.ah_attr.grh.dgid, &qp->sgid, sizeof(qp->sgid)) ||
		     memcmp(&qp->attr.ah_attr.grh.dgid, &peer->sgid, sizeof(peer->sgid))))
		return PEAL_REASON_PEER_OTHER;
	return PEAL_REASON_NONE;
}

/* Set @cursor to the requester's side of the copy. */
static __always_inline enum peal_reason peal_direct_local(struct peal_qp *qp,
							  const struct peal_op *op,
							  struct peal_cursor *cursor)
{
	const struct peal_wqe *wqe = &qp->sq.wqe;

	if (wqe->inline_data) {
		peal_cursor_inline(cursor, wqe->inline_data, wqe->length);
		return PEAL_REASON_NONE;
	}
	return peal_cursor_local(cursor, qp->table, qp->ib.pd, wqe->sge, wqe->num_sge,
				 !op->sends);
}

/* Copy one chunk of @bytes in the message's direction. Return: the number of pieces copied. */
static u32 peal_direct_copy(const struct peal_direct *d, const struct peal_op *op,
			    struct peal_cursor *local, struct peal_cursor *remote, u64 bytes)
{
	if (unlikely(d->done)) {
		peal_cursor_skip(local, d->done);
		peal_cursor_skip(remote, d->done);
	}
	if (op->sends)
		return peal_cursor_copy(remote, local, bytes);
	return peal_cursor_copy(local, remote, bytes);
}

static struct peal_outcome peal_direct_atomic(struct peal_qp *qp, struct peal_qp *peer,
					      struct peal_notify *notify,
					      struct peal_cursor *local,
					      const struct peal_cursor *remote)
{
	struct peal_outcome outcome;
	struct peal_cursor result PEAL_UNINITIALIZED;
	u64 old;

	outcome = peal_execute_atomic(peer, &qp->sq.wqe, qp->ib.qp_num, notify, remote, &old);
	if (outcome.what != PEAL_CARRIED)
		return outcome;
	peal_cursor_inline(&result, &old, sizeof(old));
	peal_cursor_copy(local, &result, sizeof(old));
	outcome.bytes = sizeof(old);
	return outcome;
}

static noinline struct peal_outcome peal_direct_placement(struct peal_qp *qp, struct peal_qp *peer,
							  struct peal_notify *notify,
							  struct peal_cursor *local,
							  const struct peal_cursor *remote)
{
	struct peal_outcome outcome;
	struct peal_cursor word PEAL_UNINITIALIZED;
	u64 bytes = qp->sq.wqe.length;	/* 0 for a FLUSH */
	u64 value = 0;

	peal_cursor_inline(&word, &value, sizeof(value));
	peal_cursor_copy(&word, local, bytes);
	outcome = peal_execute_placement(peer, &qp->sq.wqe, qp->ib.qp_num, notify, remote, value);
	outcome.bytes = outcome.what == PEAL_CARRIED ? bytes : 0;
	return outcome;
}

/*
 * May this message, or its next chunk, have the PSN that it has? After a lost message the PSNs of
 * an unreliable connection differ, so the beginning of a message may have another one.
 */
static bool peal_direct_psn_fits(const struct peal_direct *d, const struct peal_direct *to)
{
	if (likely(to->at.psn == d->psn))
		return true;
	return d->base.qp->ib.qp_type == IB_QPT_UC && !d->done &&
	       !peal_responder_is_late_uc(to->at.psn, d->psn);
}

/* The last byte is placed, so advance the expected PSN and the MSN. */
static void peal_direct_delivered(struct peal_direct *to, u64 length)
{
	to->message = false;
	to->at.psn = peal_psn_add(to->at.psn, peal_qp_packets(to->base.qp, length));
	to->at.msn = peal_psn_add(to->at.msn, 1);
}

/*
 * Are the next @bytes of both sides in memory? If so, they stay there until the epoch is left. If
 * the program has no such local memory, or it does not come, the message fails. If the peer has
 * none, the peer decides how the message ends.
 */
static noinline struct peal_outcome peal_direct_look(struct peal_direct *d,
						     struct peal_qp *peer,
						     struct peal_notify *notify,
						     const struct peal_cursor *local,
						     const struct peal_cursor *remote, u64 bytes)
{
	const struct peal_wqe *wqe = &d->base.qp->sq.wqe;
	const struct peal_op *op = peal_op(wqe->opcode);
	enum peal_odp_state near, far;

	/* Ask for both, so that both are brought in at the same time. */
	near = peal_cursor_look(local, d->done, bytes, !op->sends);
	far = peal_cursor_look(remote, d->done, bytes, op->sends || op->atomic);
	if (near == PEAL_ODP_FAULT || near == PEAL_ODP_LATE)
		return peal_failed(IB_WC_LOC_PROT_ERR,
				   peal_odp_reason(near, PEAL_REASON_LKEY_PAGE));
	if (far == PEAL_ODP_FAULT || far == PEAL_ODP_LATE)
		return peal_execute_no_page(peer, wqe, d->base.qp->ib.qp_num, notify, far);
	if (near == PEAL_ODP_ABSENT || far == PEAL_ODP_ABSENT)
		return peal_absent();
	d->page_waits = 0;
	return (struct peal_outcome){ .what = PEAL_CARRIED };
}

static struct peal_outcome peal_direct_deliver(struct peal_direct *d, struct peal_direct *to,
					       const struct peal_op *op,
					       struct peal_notify *notify,
					       struct peal_cursor *local)
{
	struct peal_qp *qp = d->base.qp, *peer = to->base.qp;
	const struct peal_wqe *wqe = &qp->sq.wqe;
	struct peal_cursor remote PEAL_UNINITIALIZED;
	struct peal_outcome outcome;
	u32 pieces = local->num_sge;
	u32 counted;
	u64 bytes;

	outcome = peal_execute_accept(peer, wqe, qp->ib.qp_num, notify, &remote);
	if (unlikely(outcome.what != PEAL_CARRIED))
		return outcome;
	to->message = true;
	to->at.psn = d->psn;
	bytes = min_t(u64, wqe->length - d->done, PEAL_CHUNK_BYTES);
	counted = local->counted | remote.counted;
	if (unlikely(counted))
		outcome = peal_direct_look(d, peer, notify, local, &remote, bytes);
	if (unlikely(outcome.what != PEAL_CARRIED)) {
		;
	} else if (op->atomic) {
		outcome = unlikely(op->placement) ?
			  peal_direct_placement(qp, peer, notify, local, &remote) :
			  peal_direct_atomic(qp, peer, notify, local, &remote);
		bytes = outcome.bytes;
	} else {
		pieces += remote.num_sge + peal_direct_copy(d, op, local, &remote, bytes);
	}
	if (unlikely(counted)) {
		peal_cursor_end(local);
		peal_cursor_end(&remote);
	}
	if (unlikely(outcome.what != PEAL_CARRIED))
		return outcome;
	outcome.what = PEAL_PROGRESS;
	if (d->done + bytes == wqe->length) {
		outcome = peal_execute_finish(peer, wqe, qp->ib.qp_num, notify);
		if (likely(outcome.what == PEAL_CARRIED))
			peal_direct_delivered(to, wqe->length);
	}
	outcome.bytes = bytes;
	outcome.pieces = pieces;
	return outcome;
}

/*
 * Note the device of a sender that may find no receive. The store is visible before the flag
 * that asks for a kick, because the kick reads it.
 */
static void peal_direct_note_waiter(struct peal_direct *to, u32 device)
{
	if (likely(to->waiter == device))
		return;
	WRITE_ONCE(to->waiter, device);
	smp_wmb();	/* K: pairs with peal_direct_waiting_sender() */
}

/*
 * A peer that has refused goes into error only when the notifications are raised, because that
 * needs the sq.lock of the peer.
 */
static struct peal_outcome peal_direct_attempt(struct peal_direct *d, struct peal_direct *to,
					       const struct peal_op *op,
					       struct peal_notify *notify,
					       struct peal_cursor *local)
{
	struct peal_qp *qp = d->base.qp, *peer = to->base.qp;
	struct peal_outcome outcome;

	lockdep_assert_held(&peer->rq.lock);
	if (unlikely(!peal_direct_psn_fits(d, to)))
		return peal_silent(PEAL_REASON_PEER_PSN);
	/* A peer that was reset meanwhile has forgotten our first bytes. */
	if (unlikely(d->done && !to->message)) {
		if (qp->ib.qp_type == IB_QPT_UC)
			return peal_silent(PEAL_REASON_PEER_PSN);
		d->done = 0;
	}
	peal_direct_note_waiter(to, qp->transport == qp->direct ? 0 : d->locality.device->number);
	outcome = peal_direct_deliver(d, to, op, notify, local);
	if (unlikely(peer->rq.refusing))
		peal_notify_fail(notify, peer, peer->generation);
	return outcome;
}

static struct peal_outcome peal_direct_try_peer(struct peal_direct *d, struct peal_qp *peer,
						const struct peal_op *op,
						struct peal_notify *notify,
						struct peal_cursor *local)
{
	enum peal_reason reason = peal_direct_connected(d->base.qp, peer);

	lockdep_assert_held(&peer->rq.lock);
	if (unlikely(reason))
		return peal_silent(reason);
	if (unlikely(peer->receiver != peer->direct))
		peal_qp_change_receiver(peer, peer->direct);
	return peal_direct_attempt(d, peal_direct(peer->direct), op, notify, local);
}

/*
 * Return: the peer, or NULL with *missing set. The look-up is not remembered for another device,
 * because that device may be removed, and a new one may get the same place in memory.
 */
static struct peal_qp *peal_direct_peer(struct peal_direct *d, struct peal_outcome *missing)
{
	struct peal_qp *qp = d->base.qp;
	struct peal_table *table = qp->table;

	*missing = peal_silent(PEAL_REASON_PEER_UNKNOWN);
	if (qp->transport == qp->direct)
		return peal_table_qp_again(table, &d->peer, qp->attr.dest_qp_num);
	table = peal_locality_table(qp);
	if (unlikely(!table)) {
		*missing = peal_unproven();
		return NULL;
	}
	return peal_table_qp(table, qp->attr.dest_qp_num);
}

/*
 * Take the peer's rq.lock and try the message. The caller has checked @local.
 *
 * A user of memory of a fast registration must not wait for a queue pair's lock (see mr.h). So the
 * use of it ends before the peer's lock is taken, and begins again when the lock is held.
 */
static struct peal_outcome peal_direct_transfer(struct peal_direct *d, const struct peal_op *op,
						struct peal_notify *notify,
						struct peal_cursor *local)
{
	bool counted = local->counted;
	struct peal_outcome outcome;
	enum peal_reason reason;
	struct peal_qp *peer;

	peal_cursor_end(local);
	peer = peal_direct_peer(d, &outcome);
	if (unlikely(!peer))
		return outcome;
	spin_lock(&peer->rq.lock);
	reason = unlikely(counted) ? peal_direct_local(d->base.qp, op, local) : PEAL_REASON_NONE;
	if (likely(!reason)) {
		outcome = peal_direct_try_peer(d, peer, op, notify, local);
		peal_cursor_end(local);
	} else {
		outcome = peal_failed(IB_WC_LOC_PROT_ERR, reason);
	}
	spin_unlock(&peer->rq.lock);
	return outcome;
}

static enum peal_drop peal_direct_drop(enum peal_outcome_kind what, enum peal_reason reason)
{
	if (what == PEAL_NOT_READY)
		return PEAL_DROP_receive;
	switch (reason) {
	case PEAL_REASON_PEER_UNKNOWN:
		return PEAL_DROP_qpn;
	case PEAL_REASON_PEER_STATE:
		return PEAL_DROP_state;
	case PEAL_REASON_PEER_OTHER:
		return PEAL_DROP_source;
	case PEAL_REASON_PEER_PSN:
		return PEAL_DROP_sequence;
	case PEAL_REASON_RECV_TOO_SHORT:
		return PEAL_DROP_length;
	default:
		return PEAL_DROP_rights;
	}
}

/*
 * The peer on an unreliable connection has not taken the message. The message is lost, and
 * counted where packets would be. The requester is not told.
 */
static noinline struct peal_outcome peal_direct_lose(const struct peal_direct *d,
						     enum peal_outcome_kind what,
						     enum peal_reason reason)
{
	const struct peal_qp *qp = d->base.qp;
	enum peal_drop drop = peal_direct_drop(what, reason);
	struct peal_packet packet = {
		.opcode = peal_opcode_request(PEAL_UC, qp->sq.wqe.opcode, !d->done, true),
		.qpn = qp->attr.dest_qp_num,
		.psn = d->psn,
	};

	peal_count_drop(qp->table, drop);
	trace_peal_drop(&packet, drop);
	return (struct peal_outcome){ .what = PEAL_CARRIED };
}

/* Transfer the message in sq.wqe, or its next chunk. */
static struct peal_outcome peal_direct_carry(struct peal_direct *d, const struct peal_op *op,
					     struct peal_notify *notify)
{
	struct peal_outcome outcome;
	struct peal_cursor local PEAL_UNINITIALIZED;
	enum peal_reason reason = peal_direct_local(d->base.qp, op, &local);

	if (unlikely(reason))
		return peal_failed(IB_WC_LOC_PROT_ERR, reason);
	outcome = peal_direct_transfer(d, op, notify, &local);
	if (unlikely(outcome.what > PEAL_PROGRESS) && d->base.qp->ib.qp_type == IB_QPT_UC &&
	    outcome.what != PEAL_ABSENT &&
	    !(outcome.what == PEAL_FAILED && outcome.status == IB_WC_LOC_PROT_ERR))
		return peal_direct_lose(d, outcome.what, outcome.reason);
	return outcome;
}

/* A READ or atomic needs a depth. The depth was negotiated, so 0 is an error of the program. */
static bool peal_direct_may_read(const struct peal_qp *qp, const struct peal_op *op)
{
	return !op->resource || qp->attr.max_rd_atomic;
}

static struct peal_outcome peal_direct_execute(struct peal_direct *d, struct peal_notify *notify)
{
	struct peal_qp *qp = d->base.qp;
	const struct peal_op *op = peal_op(qp->sq.wqe.opcode);

	lockdep_assert_held(&qp->sq.lock);
	if (op->local)
		return peal_sender_local(qp);
	if (unlikely(!peal_direct_may_read(qp, op)))
		return peal_failed(IB_WC_LOC_QP_OP_ERR, PEAL_REASON_RD_ATOMIC_LIMIT);
	return peal_direct_carry(d, op, notify);
}

/* ---- the result of an attempt ---- */

static void peal_direct_wait(struct peal_direct *d, enum peal_direct_wait wait, u64 ns,
			     enum peal_reason why)
{
	const struct peal_qp *qp = d->base.qp;

	trace_peal_wait(qp->ib.qp_num, qp->sq.wqe.index, why, ns);
	d->wait = wait;
	d->why = why;
	d->until = ktime_add_ns(ktime_get(), ns);
	d->woken = false;
}

static void peal_direct_carried(struct peal_direct *d, struct peal_notify *notify)
{
	struct peal_qp *qp = d->base.qp;

	if (!peal_op(qp->sq.wqe.opcode)->local) {
		peal_qp_count_message(qp, qp->sq.wqe.opcode, qp->sq.wqe.length);
		peal_count(qp, direct_messages);
		d->psn = peal_psn_add(d->psn, peal_qp_packets(qp, qp->sq.wqe.length));
	}
	peal_sender_finish(qp, notify, IB_WC_SUCCESS, PEAL_REASON_NONE);
}

/*
 * A kick ended the wait early, but another queue pair has taken the receive. Wait for the rest of
 * the time, because only a wait of the full time is a retry.
 */
static bool peal_direct_wait_on(struct peal_direct *d)
{
	if (!d->woken || !ktime_before(ktime_get(), d->until))
		return false;
	d->wait = PEAL_DIRECT_WAITS_RECEIVE;
	return true;
}

/*
 * IBTA 9.7.5.2.8: the peer gives the time to wait, and the attribute rnr_retry
 * limits the retries.
 */
static void peal_direct_not_ready(struct peal_direct *d, struct peal_notify *notify,
				  const struct peal_outcome *outcome)
{
	struct peal_qp *qp = d->base.qp;

	if (peal_direct_wait_on(d))
		return;
	peal_count(qp, rnr_waits);
	if (peal_retry_use_rnr(&d->retry, qp->attr.rnr_retry))
		peal_direct_wait(d, PEAL_DIRECT_WAITS_RECEIVE,
				 peal_retry_rnr_ns(&d->retry, outcome->timer), outcome->reason);
	else
		peal_sender_fail(qp, notify, IB_WC_RNR_RETRY_EXC_ERR, outcome->reason);
}

/*
 * Wait for a peer that does not answer. Without a timeout the wait uses up no retry. The last
 * retry gets a full wait, too.
 */
static void peal_direct_silence(struct peal_direct *d, const struct peal_outcome *outcome)
{
	struct peal_qp *qp = d->base.qp;

	peal_count(qp, silence_waits);
	peal_direct_wait(d, PEAL_DIRECT_WAITS_ANSWER,
			 peal_qp_timeout_ns(qp) ?: PEAL_NO_TIMEOUT_NS, outcome->reason);
}

/* The time between two tries grows, because a page may come from a slow disk. */
static void peal_direct_await_page(struct peal_direct *d, const struct peal_outcome *outcome)
{
	u32 shift = min_t(u32, d->page_waits, PEAL_ODP_RETRY_SHIFT);

	d->page_waits++;
	peal_direct_wait(d, PEAL_DIRECT_WAITS_PAGE, PEAL_ODP_RETRY_NS << shift, outcome->reason);
}

static void peal_direct_conclude(struct peal_direct *d, struct peal_notify *notify,
				 const struct peal_outcome *outcome)
{
	switch (outcome->what) {
	case PEAL_CARRIED:
		peal_direct_carried(d, notify);
		break;
	case PEAL_PROGRESS:
		d->done += outcome->bytes;
		peal_retry_reset(&d->retry);	/* the peer answered */
		break;
	case PEAL_NOT_READY:
		peal_direct_not_ready(d, notify, outcome);
		break;
	case PEAL_SILENT:
		peal_direct_silence(d, outcome);
		break;
	case PEAL_ABSENT:
		peal_direct_await_page(d, outcome);
		break;
	case PEAL_UNPROVEN:
		peal_direct_wait(d, PEAL_DIRECT_WAITS_WIRE, 0, outcome->reason);
		break;
	case PEAL_FAILED:
		peal_sender_fail(d->base.qp, notify, outcome->status, outcome->reason);
		break;
	}
}

/* ---- the send queue ---- */

/* Return: false when the queue is empty. True without sq.busy means that the WQE was malformed. */
static bool peal_direct_fetch(struct peal_direct *d, struct peal_notify *notify)
{
	struct peal_qp *qp = d->base.qp;

	if (qp->sq.busy)
		return true;
	d->done = 0;
	d->woken = false;
	peal_retry_reset(&d->retry);
	return peal_sender_fetch(qp, notify, d->psn);
}

/* Process the next WQE or chunk. Return: false when there is nothing to do now. */
static bool peal_direct_step(struct peal_direct *d, struct peal_notify *notify,
			     struct peal_budget *budget)
{
	struct peal_outcome outcome;

	if (!peal_direct_fetch(d, notify))
		return false;
	peal_budget_spend(budget, PEAL_COST_WQE);
	if (unlikely(!d->base.qp->sq.busy))
		return true;	/* malformed, and completed already */
	outcome = peal_direct_execute(d, notify);
	if (likely(outcome.what <= PEAL_PROGRESS))
		peal_budget_spend(budget, outcome.bytes + outcome.pieces * PEAL_COST_PIECE);
	peal_direct_conclude(d, notify, &outcome);
	return !d->wait;
}

static bool peal_direct_resume(struct peal_direct *d)
{
	d->wait = PEAL_DIRECT_RUNS;
	return true;
}

/*
 * End a wait whose time is over. Another try follows, or the message fails if the last retry
 * was used (IBTA 9.7.6.1.3). In error the flush completes the message, so its wait ends at once and
 * does not fail it.
 */
static void peal_direct_expire(struct peal_direct *d, struct peal_notify *notify)
{
	struct peal_qp *qp = d->base.qp;
	bool silent = d->wait == PEAL_DIRECT_WAITS_ANSWER && peal_qp_timeout_ns(qp);

	if (likely(!d->wait))
		return;
	if (unlikely(peal_qp_send_failed(qp)))
		silent = false;
	else if (ktime_before(ktime_get(), d->until))
		return;
	peal_direct_resume(d);
	if (silent && !peal_retry_use(&d->retry, qp->attr.retry_cnt))
		peal_sender_fail(qp, notify, IB_WC_RETRY_EXC_ERR, d->why);
}

static bool peal_direct_run(struct peal_transport *transport, struct peal_notify *notify,
			    struct peal_budget *budget)
{
	struct peal_direct *d = peal_direct(transport);
	struct peal_qp *qp = transport->qp;

	peal_epoch_assert_held();
	lockdep_assert_held(&qp->sq.lock);
	while (peal_budget_is_left(budget)) {
		peal_direct_expire(d, notify);
		if (unlikely(peal_qp_send_failed(qp)))
			return peal_sender_flush(qp, notify, budget);
		if (!peal_sender_may_run(qp, notify) || d->wait || !peal_direct_step(d, notify,
										     budget))
			return false;
	}
	return true;
}

static ktime_t peal_direct_deadline(struct peal_transport *transport)
{
	const struct peal_direct *d = peal_direct(transport);

	lockdep_assert_held(&transport->qp->sq.lock);
	return d->wait && transport->qp->state != IB_QPS_ERR ? d->until : KTIME_MAX;
}

void peal_direct_give_up(struct peal_qp *qp)
{
	struct peal_direct *d = peal_direct(qp->direct);

	lockdep_assert_held(&qp->sq.lock);
	d->wait = PEAL_DIRECT_RUNS;
	d->page_waits = 0;
}

/* ---- receives were posted ---- */

/*
 * Under @sender's sq.lock. Does @sender send to @qp on the direct path? A program may name
 * any queue pair as its peer. A sender that does not send to @qp must not be woken, because
 * each try in vain costs it a retry.
 */
static bool peal_direct_sends_to(const struct peal_qp *sender, const struct peal_qp *qp)
{
	lockdep_assert_held(&sender->sq.lock);
	if (!peal_qp_is_reliable(sender) || sender->attr.dest_qp_num != qp->ib.qp_num ||
	    !sender->direct || sender->sender != sender->direct)
		return false;
	if (peal_qp_is_on_wire(sender))
		return sender->locality->proven == qp->locality->device->number;
	return sender->table == qp->table;
}

/*
 * Is it worth taking @sender's lock? Not if @sender names another queue pair as its peer,
 * otherwise a program could disturb the queue pairs of others by naming them. Only a hint,
 * because no lock is held. peal_direct_sends_to() decides.
 */
static bool peal_direct_may_send_to(const struct peal_qp *sender, const struct peal_qp *qp)
{
	return peal_qp_is_reliable(sender) && sender->peer_type == qp->ib.qp_type &&
	       READ_ONCE(sender->attr.dest_qp_num) == qp->ib.qp_num;
}

static bool peal_direct_end_wait(struct peal_qp *sender, const struct peal_qp *qp)
{
	struct peal_direct *d;

	if (!peal_direct_sends_to(sender, qp))
		return false;
	d = peal_direct(sender->direct);
	if (d->wait != PEAL_DIRECT_WAITS_RECEIVE)
		return false;
	d->woken = true;
	return peal_direct_resume(d);
}

/* Return: the one sender that can wait for receives of this queue pair, if it did wait, or NULL. */
static struct peal_qp *peal_direct_waiting_sender(struct peal_transport *transport)
{
	struct peal_qp *qp = transport->qp, *sender = NULL;
	struct peal_table *table = qp->table;
	bool waited;
	u32 device;

	peal_epoch_assert_held();
	smp_rmb();	/* K: the flag was seen; pairs with peal_direct_note_waiter() */
	device = READ_ONCE(peal_direct(transport)->waiter);
	if (device)
		table = peal_locality_device_table(device);
	if (table)
		sender = peal_table_qp(table, READ_ONCE(qp->attr.dest_qp_num));
	if (!sender || !peal_direct_may_send_to(sender, qp))
		return NULL;
	spin_lock(&sender->sq.lock);
	waited = peal_direct_end_wait(sender, qp);
	spin_unlock(&sender->sq.lock);
	return waited ? sender : NULL;
}

/* ---- the transport ---- */

/* Under sq.lock and rq.lock. */
static void peal_direct_apply(struct peal_transport *transport, int mask)
{
	struct peal_direct *d = peal_direct(transport);

	peal_qp_assert_both_held(transport->qp);
	if (mask & IB_QP_SQ_PSN)
		d->psn = transport->qp->attr.sq_psn;
	if (mask & IB_QP_RQ_PSN)
		d->at.psn = transport->qp->attr.rq_psn;
}

/* Under sq.lock and rq.lock. */
static void peal_direct_reset(struct peal_transport *transport)
{
	struct peal_direct *d = peal_direct(transport);

	peal_qp_assert_both_held(transport->qp);
	d->wait = PEAL_DIRECT_RUNS;
	d->message = false;
	d->at.msn = 0;
	peal_locality_forget(transport->qp);
}

static u32 peal_direct_send_psn(const struct peal_transport *transport)
{
	lockdep_assert_held(&transport->qp->sq.lock);
	return peal_direct(transport)->psn;
}

static void peal_direct_start_send(struct peal_transport *transport, u32 psn)
{
	lockdep_assert_held(&transport->qp->sq.lock);
	peal_direct(transport)->psn = psn;
}

static struct peal_recv_psn peal_direct_recv_psn(const struct peal_transport *transport)
{
	lockdep_assert_held(&transport->qp->rq.lock);
	return peal_direct(transport)->at;
}

static void peal_direct_start_recv(struct peal_transport *transport, struct peal_recv_psn at)
{
	struct peal_direct *d = peal_direct(transport);

	lockdep_assert_held(&transport->qp->rq.lock);
	/*
	 * If the PSN is the same, a message that goes on here after packets in between
	 * is still the same message.
	 */
	if (d->at.psn != at.psn)
		d->message = false;
	d->at = at;
}

static void peal_direct_free(struct peal_transport *transport)
{
	kfree(peal_direct(transport));
}

static const struct peal_transport_ops peal_direct_ops = {
	.apply = peal_direct_apply,
	.reset = peal_direct_reset,
	.free = peal_direct_free,
	.run = peal_direct_run,
	.deadline = peal_direct_deadline,
	.send_psn = peal_direct_send_psn,
	.start_send = peal_direct_start_send,
	.recv_psn = peal_direct_recv_psn,
	.start_recv = peal_direct_start_recv,
	.waiting_sender = peal_direct_waiting_sender,
};

int peal_direct_attach(struct peal_qp *qp, const struct peal_locality_device *device)
{
	struct peal_direct *d = kzalloc(sizeof(*d), GFP_KERNEL_ACCOUNT);

	if (!d)
		return -ENOMEM;
	d->base.ops = &peal_direct_ops;
	d->base.qp = qp;
	peal_locality_init(&d->locality, device);
	peal_qp_set_direct(qp, &d->base, &d->locality);
	return 0;
}
