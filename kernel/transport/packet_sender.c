// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See packet_sender.h.
 */
#include "engine/schedule.h"
#include "transport/packet_sender.h"

/* There is room again. See struct peal_waiter for how this is called. */
static void peal_packet_sender_ready(struct peal_waiter *waiter)
{
	peal_defer(container_of(waiter, struct peal_packet_sender, waiter)->base.qp);
}

void peal_packet_sender_init(struct peal_packet_sender *sender, struct peal_qp *qp,
			     const struct peal_transport_ops *ops, struct peal_tx_quota *tx_quota)
{
	sender->base.ops = ops;
	sender->base.qp = qp;
	sender->tx_quota = tx_quota;
	sender->waiter.ready = peal_packet_sender_ready;
	INIT_LIST_HEAD(&sender->waiter.node);
}

/* Cancel the wait for room, because ready() must not find a queue pair that is being destroyed. */
void peal_packet_sender_reset(struct peal_transport *transport)
{
	struct peal_packet_sender *sender = peal_packet_sender(transport);

	peal_qp_assert_both_held(transport->qp);
	peal_tx_quota_cancel(sender->tx_quota, &sender->waiter);
}

/*
 * Are the bytes of the message in memory (on-demand paging)? Return: PEAL_CARRIED if they are. If
 * not, PEAL_ABSENT or PEAL_FAILED, and the use of @local is ended.
 */
struct peal_outcome peal_packet_sender_look(const struct peal_qp *qp, struct peal_cursor *local)
{
	enum peal_odp_state state = peal_cursor_look(local, 0, qp->sq.wqe.length, false);

	lockdep_assert_held(&qp->sq.lock);
	if (state == PEAL_ODP_PRESENT)
		return (struct peal_outcome){ .what = PEAL_CARRIED };
	peal_cursor_end(local);
	return state == PEAL_ODP_ABSENT ? peal_absent() :
	       peal_failed(IB_WC_LOC_PROT_ERR, peal_odp_reason(state, PEAL_REASON_LKEY_PAGE));
}

/* A page of sq.wqe is being brought in. The WQE stays, and the timer gives the next turn. */
static void peal_packet_sender_await_page(struct peal_packet_sender *sender)
{
	struct peal_qp *qp = sender->base.qp;
	u32 shift = min_t(u32, sender->page_waits, PEAL_ODP_RETRY_SHIFT);

	lockdep_assert_held(&qp->sq.lock);
	sender->page_waits++;
	peal_schedule_timer(qp, ktime_add_ns(ktime_get(), PEAL_ODP_RETRY_NS << shift));
}

/* The message was not carried. Return: false when it waits for a page. */
bool peal_packet_sender_stop(struct peal_packet_sender *sender, struct peal_notify *notify,
			     struct peal_outcome outcome)
{
	struct peal_qp *qp = sender->base.qp;

	lockdep_assert_held(&qp->sq.lock);
	if (outcome.what == PEAL_ABSENT) {
		peal_packet_sender_await_page(sender);
		return false;
	}
	peal_sender_fail(qp, notify, outcome.status, outcome.reason);
	return true;
}
