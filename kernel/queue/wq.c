// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See wq.h.
 */
#include <linux/log2.h>

#include "base/trace.h"
#include "queue/wq.h"

#define PEAL_WQ_SLOTS_OFFSET	ALIGN(sizeof(struct peal_ring_ctl), PEAL_WQE_UNIT)

static int peal_wq_init_ring(struct peal_wq *wq, struct ib_ucontext *uctx,
			     const struct ib_wq_init_attr *init)
{
	struct peal_wqe_limits limits = { .max_sge = init->max_sge };
	u32 stride = ALIGN(sizeof(struct peal_recv_wqe) + init->max_sge * sizeof(struct peal_sge),
			   PEAL_WQE_UNIT);
	u32 entries = roundup_pow_of_two(init->max_wr);
	void *base;

	wq->map = peal_map_alloc(uctx, wq->account,
				 PEAL_WQ_SLOTS_OFFSET + (size_t)entries * stride);
	if (IS_ERR(wq->map))
		return PTR_ERR(wq->map);
	base = peal_map_address(wq->map);
	peal_rq_init(&wq->rq, base, base + PEAL_WQ_SLOTS_OFFSET, entries, stride, &limits);
	/* Frames do not wait for receives. The lock is held for the function that asserts it. */
	spin_lock_bh(&wq->rq.lock);
	peal_rq_set_no_kicks(&wq->rq, true);
	spin_unlock_bh(&wq->rq.lock);
	return 0;
}

static int peal_wq_check(const struct ib_wq_init_attr *init)
{
	if (init->create_flags)
		return -EOPNOTSUPP;
	if (init->wq_type != IB_WQT_RQ || !init->max_wr || init->max_wr > PEAL_MAX_QP_WR ||
	    init->max_sge > PEAL_MAX_SGE)
		return -EINVAL;
	return 0;
}

/* The core fills in these members only after the creation. */
static void peal_wq_identify(struct peal_wq *wq, struct ib_pd *pd,
			     const struct ib_wq_init_attr *init)
{
	wq->ib.device = pd->device;
	wq->ib.pd = pd;
	wq->ib.cq = init->cq;
	wq->ib.wq_type = init->wq_type;
	wq->ib.event_handler = init->event_handler;
	wq->ib.wq_context = init->wq_context;
	wq->state = IB_WQS_RESET;
}

/**
 * peal_wq_init() - make a work queue in state RESET and give it a number
 * @account: the context's account
 * @uctx: the program's context
 * @init: the requested values, updated to the granted values
 *
 * Return: 0, or after undoing everything -EINVAL (beyond the limits), -EOPNOTSUPP (flags), -ENOMEM,
 * -ENOSPC (the account's limit is reached) or -EBUSY (no number is left).
 */
int peal_wq_init(struct peal_wq *wq, struct peal_table *table, struct peal_account *account,
		 struct ib_ucontext *uctx, struct ib_pd *pd, struct ib_wq_init_attr *init)
{
	int ret = peal_wq_check(init);

	if (!ret)
		ret = peal_quota_take(account, PEAL_QUOTA_WQ);
	if (ret)
		return ret;
	wq->table = table;
	wq->account = account;
	peal_wq_identify(wq, pd, init);
	ret = peal_wq_init_ring(wq, uctx, init);
	if (ret)
		goto give;
	ret = peal_table_add_wq(table, wq, &wq->ib.wq_num);
	if (ret)
		goto free;
	init->max_wr = wq->rq.ring.mask + 1;
	return 0;
free:
	peal_map_free(wq->map);
give:
	peal_quota_give(account, PEAL_QUOTA_WQ);
	return ret;
}

/* Call before others can find the queue. */
void peal_wq_set_work(struct peal_wq *wq, work_func_t work)
{
	INIT_WORK(&wq->work, work);
}

/* Note the context, and the number of the queue there. */
void peal_wq_set_owner(struct peal_wq *wq, struct peal_context *ctx, u32 index)
{
	wq->context = ctx;
	wq->index = index;
}

void peal_wq_describe(const struct peal_wq *wq, struct peal_create_wq_resp *resp)
{
	*resp = (struct peal_create_wq_resp){
		.wq_index = wq->index,
		.map_offset = peal_map_offset(wq->map),
		.map_bytes = peal_map_bytes(wq->map),
		.slots_offset = PEAL_WQ_SLOTS_OFFSET,
		.entries = wq->rq.ring.mask + 1,
		.stride = wq->rq.ring.stride,
	};
}

/* First part of destruction. The removal of the device finds it no more. */
void peal_wq_unpublish(struct peal_wq *wq)
{
	peal_table_remove_wq(wq->table, wq->ib.wq_num);
}

/* Last part of destruction. The core has destroyed the tables, and the epoch was waited for. */
void peal_wq_free(struct peal_wq *wq)
{
	peal_map_free(wq->map);
	peal_quota_give(wq->account, PEAL_QUOTA_WQ);
}

/* ---- states ---- */

static bool peal_wq_may_go(enum ib_wq_state from, enum ib_wq_state to)
{
	if (from == IB_WQS_RESET)
		return to != IB_WQS_ERR;
	return from != IB_WQS_ERR || to != IB_WQS_RDY;
}

static void peal_wq_go(struct peal_wq *wq, enum ib_wq_state to)
{
	lockdep_assert_held(&wq->rq.lock);
	if (to == IB_WQS_RESET) {
		peal_rq_reset(&wq->rq);
		wq->fatal = false;
	}
	if (to == IB_WQS_ERR)
		peal_rq_refuse(&wq->rq);
	wq->state = to;
}

/**
 * peal_wq_modify() - change the state
 *
 * The caller must then flush the queue if it is in error.
 *
 * Return: 0, -EINVAL (a wrong state or attribute, RESET to ERR, ERR to RDY) or -EOPNOTSUPP (flags).
 */
int peal_wq_modify(struct peal_wq *wq, const struct ib_wq_attr *attr, u32 mask)
{
	int ret = 0;

	if (mask & ~(IB_WQ_STATE | IB_WQ_CUR_STATE | IB_WQ_FLAGS))
		return -EINVAL;
	if (mask & IB_WQ_FLAGS)
		return -EOPNOTSUPP;
	if (mask & IB_WQ_STATE && attr->wq_state > IB_WQS_ERR)
		return -EINVAL;
	spin_lock_bh(&wq->rq.lock);
	if ((mask & IB_WQ_CUR_STATE && attr->curr_wq_state != wq->state) ||
	    (mask & IB_WQ_STATE && !peal_wq_may_go(wq->state, attr->wq_state)))
		ret = -EINVAL;
	else if (mask & IB_WQ_STATE)
		peal_wq_go(wq, attr->wq_state);
	spin_unlock_bh(&wq->rq.lock);
	return ret;
}

/* The device is being removed. The caller must flush the queue. */
void peal_wq_abandon(struct peal_wq *wq)
{
	spin_lock_bh(&wq->rq.lock);
	wq->removed = true;
	if (wq->state == IB_WQS_RDY)
		peal_wq_go(wq, IB_WQS_ERR);
	spin_unlock_bh(&wq->rq.lock);
}

/* ---- completions and errors ---- */

/* Go to ERR because of an error. The event is due, and the WQEs must be flushed. */
void peal_wq_fail_locked(struct peal_wq *wq)
{
	lockdep_assert_held(&wq->rq.lock);
	if (wq->state != IB_WQS_RDY)
		return;
	peal_wq_go(wq, IB_WQS_ERR);
	wq->fatal = true;
}

/* Return: true once after an error. Then the caller raises the event when it holds no lock. */
bool peal_wq_take_fatal(struct peal_wq *wq)
{
	bool fatal = wq->fatal;

	lockdep_assert_held(&wq->rq.lock);
	wq->fatal = false;
	return fatal;
}

/* Call inside the epoch with no lock held. */
void peal_wq_raise_fatal(struct peal_wq *wq)
{
	struct ib_event event = {
		.device = wq->ib.device, .element.wq = &wq->ib, .event = IB_EVENT_WQ_FATAL,
	};

	peal_epoch_assert_held();
	if (wq->ib.event_handler)
		wq->ib.event_handler(&event, wq->ib.wq_context);
}

/*
 * Complete the WQE in rq.wqe. The caller holds rq.lock, and has filled in the fields of @cqe that
 * come from the frame.
 */
void peal_wq_complete(struct peal_wq *wq, struct peal_notify *notify, const struct peal_cqe *cqe)
{
	struct peal_cqe full = *cqe;

	lockdep_assert_held(&wq->rq.lock);
	full.kind = PEAL_CQE_WQ_RECV;
	full.qp_index = wq->index;
	full.qp_num = wq->ib.wq_num;
	full.wqe_index = wq->rq.wqe.index;
	peal_notify_cq(notify, peal_cq(wq->ib.cq));
	trace_peal_complete(&full);
	if (unlikely(!peal_cq_push(peal_cq(wq->ib.cq), &full))) {
		peal_count(wq->table, cq_overflows);
		peal_wq_fail_locked(wq);
	}
	peal_rq_done(&wq->rq);
}

u32 peal_wq_entries(const struct peal_wq *wq)
{
	return wq->rq.ring.mask + 1;
}

/*
 * Flush the queue if it is in error, as far as @budget lasts. Call inside the epoch.
 * Return: true when the budget ended before the WQEs.
 */
bool peal_wq_flush(struct peal_wq *wq, struct peal_notify *notify, struct peal_budget *budget)
{
	struct peal_cqe cqe = { .status = IB_WC_WR_FLUSH_ERR };
	bool more = true;

	peal_epoch_assert_held();
	spin_lock(&wq->rq.lock);
	cqe.vendor_err = wq->removed ? PEAL_REASON_DEVICE_REMOVED : PEAL_REASON_FLUSHED;
	while (more && peal_budget_is_left(budget)) {
		more = wq->state == IB_WQS_ERR && peal_rq_take_flushed(&wq->rq);
		if (!more)
			break;
		peal_budget_spend(budget, PEAL_COST_WQE);
		peal_count(wq->table, flushes);
		peal_wq_complete(wq, notify, &cqe);
	}
	spin_unlock(&wq->rq.lock);
	return more;
}
