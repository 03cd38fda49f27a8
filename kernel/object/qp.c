// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include <linux/log2.h>

#include "base/compat.h"
#include "base/epoch.h"
#include "base/options.h"
#include "base/trace.h"
#include "proto/packet.h"
#include "proto/requester.h"
#include "object/dm.h"
#include "object/qp.h"

/* The attributes that peal supports. The core's table says which ones a queue pair type has. */
#define PEAL_QP_ATTRS								\
	(IB_QP_STATE | IB_QP_CUR_STATE | IB_QP_EN_SQD_ASYNC_NOTIFY | IB_QP_ACCESS_FLAGS | \
	 IB_QP_PKEY_INDEX | IB_QP_PORT | IB_QP_AV | IB_QP_PATH_MTU | IB_QP_TIMEOUT |	\
	 IB_QP_RETRY_CNT | IB_QP_RNR_RETRY | IB_QP_RQ_PSN | IB_QP_MAX_QP_RD_ATOMIC |	\
	 IB_QP_MIN_RNR_TIMER | IB_QP_SQ_PSN | IB_QP_MAX_DEST_RD_ATOMIC |		\
	 IB_QP_PATH_MIG_STATE | IB_QP_CAP | IB_QP_DEST_QPN | IB_QP_QKEY)

/* These mean nothing here, but programs give a queue pair the flags of a region. */
#define PEAL_QP_IGNORED_ACCESS							\
	(IB_ACCESS_ON_DEMAND | IB_ZERO_BASED | IB_ACCESS_HUGETLB | IB_ACCESS_OPTIONAL)

/*
 * A queue pair may have the right to flush to persistence, because the connection manager gives
 * both rights to flush to a device that has one of them. No region gives it.
 */
#define PEAL_QP_ACCESS								\
	(IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE | IB_ACCESS_REMOTE_READ |	\
	 IB_ACCESS_REMOTE_ATOMIC | IB_ACCESS_MW_BIND | IB_ACCESS_FLUSH_GLOBAL |	\
	 IB_ACCESS_FLUSH_PERSISTENT | PEAL_QP_IGNORED_ACCESS)

#define PEAL_QP_RINGS_OFFSET	ALIGN(sizeof(struct peal_qp_ctl), PEAL_WQE_UNIT)

/* Memory layout of the two rings. Strides and offsets are in bytes from the mapping's start. */
struct peal_qp_layout {
	u32 sq_entries, sq_stride;
	u32 rq_entries, rq_stride;
	size_t rq_offset, bytes;
};

static void peal_qp_lay_out(const struct ib_qp_cap *cap, struct peal_qp_layout *layout)
{
	u32 sges = max(cap->max_send_sge, 1U) * sizeof(struct peal_sge);
	/* An atomic needs its segment and one SGE. A bind needs its segment, which is as large. */
	u32 body = max3(sges, cap->max_inline_data, (u32)sizeof(struct peal_atomic_seg) + 16);

	layout->sq_entries = roundup_pow_of_two(max(cap->max_send_wr, 1U));
	layout->sq_stride = ALIGN(sizeof(struct peal_send_wqe) + body, PEAL_WQE_UNIT);
	layout->rq_entries = roundup_pow_of_two(max(cap->max_recv_wr, 1U));
	layout->rq_stride = ALIGN(sizeof(struct peal_recv_wqe) +
				  cap->max_recv_sge * sizeof(struct peal_sge), PEAL_WQE_UNIT);
	layout->rq_offset = PEAL_QP_RINGS_OFFSET + (size_t)layout->sq_entries * layout->sq_stride;
	layout->bytes = layout->rq_offset + (size_t)layout->rq_entries * layout->rq_stride;
}

/* Return: the operations that a send queue refuses, bits 1 << enum peal_opcode. */
static u32 peal_qp_refused(const struct peal_qp *qp, const struct peal_limits *limits, bool kernel)
{
	u32 refused = peal_ops_refused(peal_qp_bth_transport(qp), kernel);

	if (!peal_limits_have(limits, PEAL_NL_FEATURE_ATOMIC))
		refused |= 1U << PEAL_OP_CMP_SWAP | 1U << PEAL_OP_FETCH_ADD |
			   1U << PEAL_OP_ATOMIC_WRITE;
	return refused;
}

static int peal_qp_init_rings(struct peal_qp *qp, struct ib_ucontext *uctx,
			      const struct peal_limits *limits, const struct peal_qp_layout *layout)
{
	enum ib_qp_type type = qp->ib.qp_type;
	struct peal_wqe_limits recv = { .max_sge = qp->cap.max_recv_sge };
	struct peal_wqe_limits send = {
		.max_sge = max(qp->cap.max_send_sge, 1U), .max_inline = qp->cap.max_inline_data,
		.refused = peal_qp_refused(qp, limits, !uctx),
		.datagram = peal_qp_is_datagram(qp), .raw = type == IB_QPT_RAW_PACKET,
		/* The number is an address handle's, or with XRC a shared receive queue's. */
		.max_target = peal_qp_is_datagram(qp) ? U32_MAX :
			      type == IB_QPT_XRC_INI ? PEAL_NUMBER_MAX : 0,
	};
	struct peal_qp_ctl *ctl;

	qp->map = peal_map_alloc(uctx, qp->account, layout->bytes);
	if (IS_ERR(qp->map))
		return PTR_ERR(qp->map);
	ctl = peal_map_address(qp->map);
	peal_sq_init(&qp->sq, &ctl->sq, (void *)ctl + PEAL_QP_RINGS_OFFSET, layout->sq_entries,
		     layout->sq_stride, &send);
	peal_rq_init(&qp->rq, &ctl->rq, (void *)ctl + layout->rq_offset, layout->rq_entries,
		     layout->rq_stride, &recv);
	if (qp->srq)
		peal_rq_share(&qp->rq, &qp->srq->ring);
	if (qp->xrcd || type == IB_QPT_XRC_INI)
		peal_rq_set_srq_by_message(&qp->rq);
	return 0;
}

/*
 * A program is asked for kicks where a sender in this kernel waits for its receives. Packets do not
 * wait, and neither do messages without a connection that is reliable.
 */
static void peal_qp_set_receiver(struct peal_qp *qp, struct peal_transport *receiver)
{
	lockdep_assert_held(&qp->rq.lock);
	qp->receiver = receiver;
	peal_rq_set_no_kicks(&qp->rq, receiver->ops->packets || !peal_qp_is_reliable(qp));
}

static void peal_qp_use(struct peal_qp *qp, struct peal_transport *transport)
{
	peal_qp_assert_both_held(qp);
	WRITE_ONCE(qp->transport, transport);
	WRITE_ONCE(qp->sender, transport);
	peal_qp_set_receiver(qp, transport);
}

/* RC, UC and XRC begin with the direct transport. The others have only the one in qp->wire. */
static void peal_qp_use_first(struct peal_qp *qp)
{
	peal_qp_use(qp, qp->direct ?: qp->wire);
}

static void peal_qp_call(struct peal_events *events, enum ib_event_type type)
{
	struct peal_qp *qp = container_of(events, struct peal_qp, events);
	struct ib_event event = {
		.device = qp->ib.device, .element.qp = &qp->ib, .event = type,
	};

	if (qp->ib.event_handler)
		qp->ib.event_handler(&event, qp->ib.qp_context);
}

/**
 * peal_qp_init() - make a queue pair in state RESET and give it a number
 * @account: the context's account, or the kernel's
 * @uctx: the program's context, or NULL for a kernel user
 * @limits: what the caller may have
 * @init: the requested values; cap is updated to the granted values. A shared receive queue is
 *	one of this device
 *
 * The caller has attached the first transport, which is the direct one for RC, UC and XRC.
 *
 * Return: 0, or after undoing everything -EINVAL (beyond the limits), -EBUSY (a second GSI),
 * -ENOMEM or -ENOSPC (the account's limit is reached).
 */
int peal_qp_init(struct peal_qp *qp, struct peal_table *table, struct peal_account *account,
		 struct ib_ucontext *uctx, const struct peal_limits *limits,
		 struct ib_qp_init_attr *init)
{
	u32 max_inline = peal_limits_most(limits, PEAL_LIMIT_INLINE);
	u32 max_sge = peal_limits_most(limits, PEAL_LIMIT_SGE);
	u32 max_wr = peal_limits_most(limits, PEAL_LIMIT_WR);
	bool gsi = init->qp_type == IB_QPT_GSI;
	struct ib_qp_cap *cap = &init->cap;
	struct peal_qp_layout layout;
	int ret;

	/* An XRC target learns from each message where it takes its receive from. */
	qp->recv_pd = qp->ib.pd;
	qp->rkey_pd = qp->ib.pd;
	qp->recv_cq = qp->ib.recv_cq;
	qp->peer_type = init->qp_type;
	if (init->qp_type == IB_QPT_XRC_INI)
		qp->peer_type = IB_QPT_XRC_TGT;
	if (init->qp_type == IB_QPT_XRC_TGT) {
		qp->peer_type = IB_QPT_XRC_INI;
		qp->xrcd = init->xrcd;
		*cap = (struct ib_qp_cap){ };	/* it has no queues of its own */
	}
	if (init->srq) {
		qp->srq = peal_srq(init->srq);
		qp->recv_pd = init->srq->pd;
		cap->max_recv_wr = 0;	/* it has no receive queue of its own */
		cap->max_recv_sge = 0;
	}
	if (cap->max_send_wr > max_wr || cap->max_recv_wr > max_wr ||
	    cap->max_send_sge > max_sge || cap->max_recv_sge > max_sge ||
	    cap->max_inline_data > max_inline)
		return -EINVAL;
	mutex_init(&qp->control);
	peal_events_init(&qp->events, peal_qp_call);
	qp->account = account;
	qp->errors.uid = INVALID_UID;
	qp->table = table;
	qp->counters = table->counters;
	qp->state = IB_QPS_RESET;
	qp->sig_type = init->sq_sig_type;

	/* The granted values are the limits. */
	peal_qp_lay_out(cap, &layout);
	cap->max_send_wr = qp->ib.send_cq ? layout.sq_entries : 0;
	cap->max_recv_wr = cap->max_recv_wr ? layout.rq_entries : 0;
	cap->max_inline_data = clamp_t(u32, layout.sq_stride - sizeof(struct peal_send_wqe),
				       cap->max_inline_data, max_inline);
	qp->cap = *cap;
	ret = peal_qp_init_rings(qp, uctx, limits, &layout);
	if (ret)
		return ret;
	ret = peal_quota_take(account, PEAL_QUOTA_QP);
	if (ret)
		goto free;

	/*
	 * Nothing can find the queue pair before it has its number. The locks are held for the
	 * functions that assert them.
	 */
	spin_lock_bh(&qp->sq.lock);
	spin_lock(&qp->rq.lock);
	peal_qp_use_first(qp);
	if (gsi)
		qp->attr.port_num = 1;
	spin_unlock(&qp->rq.lock);
	spin_unlock_bh(&qp->sq.lock);
	ret = gsi ? peal_table_add_gsi(table, qp, &qp->ib.qp_num) :
		    peal_table_add_qp(table, qp, &qp->ib.qp_num);
	if (!ret)
		return 0;
	peal_quota_give(account, PEAL_QUOTA_QP);
free:
	peal_map_free(qp->map);
	return ret;
}

/* Call before the queue pair is published. */
void peal_qp_set_engine(struct peal_qp *qp, struct peal_engine *engine)
{
	qp->engine = engine;
}

/* Count in @counters from now on. A CPU that counts at this moment may still use the set before. */
void peal_qp_set_counters(struct peal_qp *qp, struct peal_counters __percpu *counters)
{
	spin_lock_bh(&qp->sq.lock);
	spin_lock(&qp->rq.lock);
	WRITE_ONCE(qp->counters, counters);
	spin_unlock(&qp->rq.lock);
	spin_unlock_bh(&qp->sq.lock);
}

/* Call once, before @qp is published. */
void peal_qp_set_direct(struct peal_qp *qp, struct peal_transport *direct,
			struct peal_locality *locality)
{
	qp->direct = direct;
	qp->locality = locality;
}

/*
 * Call once, with `control` held or before @qp has a number. A connection uses @wire from the
 * next path on.
 */
void peal_qp_set_wire(struct peal_qp *qp, struct peal_transport *wire)
{
	lockdep_assert(!qp->ib.qp_num || lockdep_is_held(&qp->control));
	qp->wire = wire;
}

/* Let @to send the next messages. The caller holds sq.lock, and no message is in flight. */
void peal_qp_change_sender(struct peal_qp *qp, struct peal_transport *to)
{
	lockdep_assert_held(&qp->sq.lock);
	if (qp->sender == to)
		return;
	to->ops->start_send(to, qp->sender->ops->send_psn(qp->sender));
	WRITE_ONCE(qp->sender, to);
}

/* Let @to receive the next messages. The caller holds rq.lock. */
void peal_qp_change_receiver(struct peal_qp *qp, struct peal_transport *to)
{
	lockdep_assert_held(&qp->rq.lock);
	if (qp->receiver == to)
		return;
	to->ops->start_recv(to, qp->receiver->ops->recv_psn(qp->receiver));
	peal_qp_set_receiver(qp, to);
}

static void peal_qp_fill_recv(const struct peal_qp *qp, struct peal_cqe *cqe)
{
	lockdep_assert_held(&qp->rq.lock);
	cqe->qp_index = qp->index;
	cqe->qp_num = qp->ib.qp_num;
	cqe->wqe_index = qp->rq.wqe.index;
	cqe->kind = PEAL_CQE_RECV;
	if (unlikely(qp->xrcd)) {
		cqe->kind = PEAL_CQE_XRC_RECV;
		cqe->qp_index = qp->srq->index;
		cqe->srq_num = qp->srq->ib.ext.xrc.srq_num;
	}
}

/*
 * End the use of the held receive, whose CQE was pushed unless the completion queue has overflowed.
 * Without a CQE a receive of a shared receive queue stays posted, because the program gets its slot
 * back only by a CQE. The work wakes senders that wait for it.
 */
static __always_inline void peal_qp_end_recv(struct peal_qp *qp, bool pushed)
{
	lockdep_assert_held(&qp->rq.lock);
	if (likely(pushed || !qp->srq))
		peal_rq_done(&qp->rq);
	else if (peal_rq_repost(&qp->rq))
		peal_workers_queue(&qp->srq->work);
}

/*
 * The message of the held receive was given up. The program gets a slot of a shared receive queue
 * back only by a CQE. Before a RESET it drops that CQE, as it drops the others of this queue pair,
 * so no event is raised. The owner of an XRC shared receive queue finds it with its next
 * completion.
 */
static void peal_qp_return_recv(struct peal_qp *qp)
{
	struct peal_cqe cqe = {
		.status = IB_WC_WR_FLUSH_ERR, .vendor_err = PEAL_REASON_FLUSHED,
	};

	lockdep_assert_held(&qp->rq.lock);
	if (!qp->srq || !qp->rq.holding)
		return;
	peal_qp_fill_recv(qp, &cqe);
	peal_qp_end_recv(qp, peal_cq_push(peal_cq(qp->recv_cq), &cqe));
}

/**
 * peal_qp_name_srq() - a message names its shared receive queue
 * @srq: a queue of the domain of @qp, found inside this epoch
 * @receives: the message takes a receive from it
 *
 * XRC target, under rq.lock. A receive of another queue is held only if its message was given up.
 */
void peal_qp_name_srq(struct peal_qp *qp, struct peal_srq *srq, bool receives)
{
	lockdep_assert_held(&qp->rq.lock);
	qp->named_srq = srq;
	WRITE_ONCE(qp->rkey_pd, srq->ib.pd);
	if (!receives || likely(qp->srq == srq))
		return;
	peal_qp_return_recv(qp);
	peal_rq_change_shared(&qp->rq, &srq->ring);
	qp->srq = srq;
	qp->recv_pd = srq->ib.pd;
	qp->recv_cq = srq->ib.ext.cq;
}

static void peal_qp_apply_state(struct peal_qp *qp, enum ib_qp_state state)
{
	peal_qp_assert_both_held(qp);
	if (state == IB_QPS_ERR) {
		peal_qp_fail_locked(qp);
		return;
	}
	if (state == IB_QPS_RESET) {
		qp->generation++;
		peal_qp_return_recv(qp);
		peal_sq_reset(&qp->sq);
		peal_rq_reset(&qp->rq);
		if (qp->direct)
			qp->direct->ops->reset(qp->direct);
		if (qp->wire)
			qp->wire->ops->reset(qp->wire);
		peal_qp_use_first(qp);
	}
	if (state == IB_QPS_SQD && qp->state != IB_QPS_SQD)
		peal_sq_begin_drain(&qp->sq);
	qp->state = state;
}

/*
 * First part of destruction. A CPU that finds the queue pair sees RESET, so it runs nothing, and
 * sees no transport. The query checks for that, because some cores forget a queue pair only after
 * destroy_qp and may query this one until then. No CQE is pushed from here on.
 */
void peal_qp_stop(struct peal_qp *qp)
{
	spin_lock_bh(&qp->sq.lock);
	spin_lock(&qp->rq.lock);
	peal_qp_apply_state(qp, IB_QPS_RESET);
	WRITE_ONCE(qp->transport, NULL);
	WRITE_ONCE(qp->sender, NULL);
	qp->receiver = NULL;
	spin_unlock(&qp->rq.lock);
	spin_unlock_bh(&qp->sq.lock);
}

/* Second part of destruction. No later look-up finds the queue pair. */
void peal_qp_unpublish(struct peal_qp *qp)
{
	peal_table_remove_qp(qp->table, qp->ib.qp_num);
	peal_quota_give(qp->account, PEAL_QUOTA_QP);
}

/* The queue pair was never published, or it is unpublished and the epoch was waited for. */
void peal_qp_free_transports(struct peal_qp *qp)
{
	if (qp->direct)
		qp->direct->ops->free(qp->direct);
	if (qp->wire)
		qp->wire->ops->free(qp->wire);
}

/*
 * Last part of destruction. The caller has waited for the epoch. Do not destroy the mutex,
 * because a query may still come; see peal_qp_stop(). Such a query reads only struct peal_qp,
 * which the core frees.
 */
void peal_qp_free(struct peal_qp *qp)
{
	peal_qp_free_transports(qp);
	peal_map_free(qp->map);
}

void peal_qp_describe(const struct peal_qp *qp, struct peal_create_qp_resp *resp)
{
	void *base = peal_map_address(qp->map);

	*resp = (struct peal_create_qp_resp){
		.qp_index = qp->index,
		.map_offset = peal_map_offset(qp->map),
		.map_bytes = peal_map_bytes(qp->map),
		.sq_offset = qp->sq.ring.slots - base,
		.sq_entries = qp->sq.ring.mask + 1,
		.sq_stride = qp->sq.ring.stride,
		.rq_offset = qp->rq.ring.slots - base,
		.rq_entries = qp->rq.ring.mask + 1,
		.rq_stride = qp->rq.ring.stride,
	};
}

static int peal_qp_check_transition(struct peal_qp *qp, const struct ib_qp_attr *attr, int mask)
{
	enum ib_qp_state cur = mask & IB_QP_CUR_STATE ? attr->cur_qp_state : qp->state;
	enum ib_qp_state next = mask & IB_QP_STATE ? attr->qp_state : cur;

	if (cur != qp->state || !ib_modify_qp_is_ok(cur, next, qp->ib.qp_type, mask))
		return -EINVAL;
	if (mask & IB_QP_AV && !(rdma_ah_get_ah_flags(&attr->ah_attr) & IB_AH_GRH))
		return -EINVAL;
	return 0;
}

static void peal_qp_apply(struct peal_qp *qp, const struct ib_qp_attr *attr, int mask)
{
	const struct ib_global_route *grh;
	struct ib_qp_attr *to = &qp->attr;

	peal_qp_assert_both_held(qp);
	qp->changes++;
	if (mask & IB_QP_PKEY_INDEX)
		to->pkey_index = attr->pkey_index;
	if (mask & IB_QP_PORT)
		to->port_num = attr->port_num;
	if (mask & IB_QP_PATH_MTU)
		to->path_mtu = attr->path_mtu;
	if (mask & IB_QP_DEST_QPN)
		WRITE_ONCE(to->dest_qp_num, attr->dest_qp_num & PEAL_NUMBER_MAX);
	if (mask & IB_QP_QKEY)
		to->qkey = attr->qkey;
	if (mask & IB_QP_TIMEOUT)
		to->timeout = attr->timeout;
	if (mask & IB_QP_RETRY_CNT)
		to->retry_cnt = attr->retry_cnt;
	if (mask & IB_QP_RNR_RETRY)
		to->rnr_retry = attr->rnr_retry;
	if (mask & IB_QP_MIN_RNR_TIMER)
		to->min_rnr_timer = attr->min_rnr_timer;
	if (mask & IB_QP_ACCESS_FLAGS)
		to->qp_access_flags = attr->qp_access_flags & ~PEAL_QP_IGNORED_ACCESS;
	if (mask & IB_QP_MAX_QP_RD_ATOMIC)
		to->max_rd_atomic = attr->max_rd_atomic;
	if (mask & IB_QP_MAX_DEST_RD_ATOMIC)
		to->max_dest_rd_atomic = attr->max_dest_rd_atomic;
	if (mask & IB_QP_SQ_PSN)
		to->sq_psn = attr->sq_psn & PEAL_PSN_MASK;
	if (mask & IB_QP_RQ_PSN)
		to->rq_psn = attr->rq_psn & PEAL_PSN_MASK;
	if (mask & IB_QP_AV) {
		grh = rdma_ah_read_grh(&attr->ah_attr);
		to->ah_attr = attr->ah_attr;
		to->ah_attr.grh.sgid_attr = NULL;	/* the reference belongs to the core */
		qp->sgid = grh->sgid_attr ? grh->sgid_attr->gid : (union ib_gid){};
	}
	if (!(mask & IB_QP_STATE))
		return;
	/* A request for SQ_DRAINED is for one change to SQD, so any later change ends it. */
	if (attr->qp_state != qp->state)
		to->en_sqd_async_notify = mask & IB_QP_EN_SQD_ASYNC_NOTIFY &&
					  attr->en_sqd_async_notify;
	peal_qp_apply_state(qp, attr->qp_state);
}

/**
 * peal_qp_check() - check whether the attributes may change to these values
 *
 * The caller holds `control`. Until peal_qp_modify() only an error of the queue pair can make
 * the answer stale.
 *
 * Return: 0, -EINVAL (wrong value, or a transition that IBTA 10.3.1 and the core's table do not
 * allow), -EOPNOTSUPP (alternate paths, rate limits, resizing).
 */
int peal_qp_check(struct peal_qp *qp, const struct ib_qp_attr *attr, int mask)
{
	lockdep_assert_held(&qp->control);
	if (mask & (IB_QP_ALT_PATH | IB_QP_CAP | IB_QP_RATE_LIMIT))
		return -EOPNOTSUPP;
	if (mask & IB_QP_PATH_MIG_STATE && attr->path_mig_state != IB_MIG_MIGRATED)
		return -EOPNOTSUPP;
	if (mask & ~PEAL_QP_ATTRS ||
	    (mask & IB_QP_PORT && attr->port_num != 1) ||
	    (mask & IB_QP_PKEY_INDEX && attr->pkey_index) ||
	    (mask & IB_QP_ACCESS_FLAGS && attr->qp_access_flags & ~PEAL_QP_ACCESS) ||
	    (mask & IB_QP_PATH_MTU &&
	     (attr->path_mtu < IB_MTU_256 || attr->path_mtu > IB_MTU_4096)) ||
	    (mask & IB_QP_TIMEOUT && attr->timeout > 31) ||
	    (mask & IB_QP_RETRY_CNT && attr->retry_cnt > 7) ||
	    (mask & IB_QP_RNR_RETRY && attr->rnr_retry > 7) ||
	    (mask & IB_QP_MIN_RNR_TIMER && attr->min_rnr_timer > 31) ||
	    (mask & IB_QP_MAX_QP_RD_ATOMIC && attr->max_rd_atomic > PEAL_MAX_RD_ATOMIC) ||
	    (mask & IB_QP_MAX_DEST_RD_ATOMIC && attr->max_dest_rd_atomic > PEAL_MAX_RD_ATOMIC))
		return -EINVAL;
	return peal_qp_check_transition(qp, attr, mask);
}

/* The caller holds sq.lock. Return: whether no message is being executed or in flight. */
bool peal_qp_idle(struct peal_qp *qp)
{
	const struct peal_transport *transport = qp->transport;

	lockdep_assert_held(&qp->sq.lock);
	return !qp->sq.busy &&
	       (!transport || !transport->ops->idle || transport->ops->idle(qp->transport));
}

/**
 * peal_qp_modify() - change attributes and state
 * @transport: with IB_QP_AV: the transport for the new path
 *
 * The caller holds `control` and has called peal_qp_check(). A message must finish on the path
 * on which it started, because each transport keeps the state of a message in its own struct.
 *
 * Return: 0, -EBUSY (a new path while a message is still in flight), -EINVAL (the queue pair went
 * into error since peal_qp_check()).
 */
int peal_qp_modify(struct peal_qp *qp, const struct ib_qp_attr *attr, int mask,
		   struct peal_transport *transport)
{
	int ret;

	lockdep_assert_held(&qp->control);
	spin_lock_bh(&qp->sq.lock);
	spin_lock(&qp->rq.lock);
	ret = peal_qp_check_transition(qp, attr, mask);
	if (!ret && mask & IB_QP_AV && !peal_qp_idle(qp))
		ret = -EBUSY;
	if (ret)
		goto unlock;
	if (mask & IB_QP_AV && transport != qp->transport)
		peal_qp_use(qp, transport);	/* in INIT; the PSNs follow */
	else if (mask & IB_QP_AV)
		peal_qp_change_sender(qp, transport);
	peal_qp_apply(qp, attr, mask);
	if (qp->transport->ops->apply)
		qp->transport->ops->apply(qp->transport, mask);
unlock:
	spin_unlock(&qp->rq.lock);
	spin_unlock_bh(&qp->sq.lock);
	return ret;
}

/* Fill in every attribute. The PSNs are the current ones, not those that were set. */
void peal_qp_query(struct peal_qp *qp, struct ib_qp_attr *attr, struct ib_qp_init_attr *init)
{
	mutex_lock(&qp->control);
	spin_lock_bh(&qp->sq.lock);
	spin_lock(&qp->rq.lock);
	*attr = qp->attr;
	attr->qp_state = qp->state;
	attr->cur_qp_state = qp->state;
	if (qp->sender && qp->sender->ops->send_psn)
		attr->sq_psn = qp->sender->ops->send_psn(qp->sender);
	if (qp->receiver && qp->receiver->ops->recv_psn)
		attr->rq_psn = qp->receiver->ops->recv_psn(qp->receiver).psn;
	attr->cap = qp->cap;
	attr->path_mig_state = IB_MIG_MIGRATED;
	attr->sq_draining = qp->state == IB_QPS_SQD && !peal_qp_idle(qp);
	spin_unlock(&qp->rq.lock);
	spin_unlock_bh(&qp->sq.lock);
	mutex_unlock(&qp->control);
	init->cap = qp->cap;
	init->sq_sig_type = qp->sig_type;
	init->qp_type = qp->ib.qp_type;
	init->send_cq = qp->ib.send_cq;
	init->recv_cq = qp->ib.recv_cq;
	init->srq = qp->ib.srq;
	init->event_handler = qp->ib.event_handler;
	init->qp_context = qp->ib.qp_context;
}

/* Go to ERR. The caller holds sq.lock and rq.lock, and must make the queues flush. */
void peal_qp_fail_locked(struct peal_qp *qp)
{
	peal_qp_assert_both_held(qp);
	qp->state = IB_QPS_ERR;
	peal_rq_refuse(&qp->rq);
	if (qp->transport->ops->fail)
		qp->transport->ops->fail(qp->transport);
}

/**
 * peal_qp_fail_send_locked() - change the state after a send failed for a local reason
 *
 * RC and XRC go to ERR. With UC and UD only the send queue goes into error (SQE). Receives
 * continue, and the program may move the queue pair back to RTS (IBTA 10.3.1). The caller holds
 * sq.lock and rq.lock.
 */
void peal_qp_fail_send_locked(struct peal_qp *qp)
{
	peal_qp_assert_both_held(qp);
	if (peal_qp_is_reliable(qp))
		peal_qp_fail_locked(qp);
	else if (qp->state == IB_QPS_RTS || qp->state == IB_QPS_SQD)
		qp->state = IB_QPS_SQE;
}

static bool peal_qp_is_alive(const struct peal_qp *qp)
{
	return qp->state != IB_QPS_ERR && qp->state != IB_QPS_RESET;
}

/* Go to ERR. The caller holds neither sq.lock nor rq.lock, and must make the queues flush. */
void peal_qp_fail(struct peal_qp *qp)
{
	spin_lock_bh(&qp->sq.lock);
	spin_lock(&qp->rq.lock);
	if (peal_qp_is_alive(qp))
		peal_qp_fail_locked(qp);
	spin_unlock(&qp->rq.lock);
	spin_unlock_bh(&qp->sq.lock);
}

/*
 * Go to ERR, unless the queue pair has been in RESET since the error was noted with @generation.
 * After a RESET it is another connection, which the error does not concern.
 */
void peal_qp_end(struct peal_qp *qp, u32 generation)
{
	spin_lock_bh(&qp->sq.lock);
	spin_lock(&qp->rq.lock);
	if (peal_qp_is_alive(qp) && qp->generation == generation)
		peal_qp_fail_locked(qp);
	spin_unlock(&qp->rq.lock);
	spin_unlock_bh(&qp->sq.lock);
}

/* The device is being removed. Later flushes give that as their reason. */
void peal_qp_mark_removed(struct peal_qp *qp)
{
	spin_lock_bh(&qp->sq.lock);
	qp->removed = true;
	spin_unlock_bh(&qp->sq.lock);
}

enum peal_reason peal_qp_flush_reason(const struct peal_qp *qp)
{
	return READ_ONCE(qp->removed) ? PEAL_REASON_DEVICE_REMOVED : PEAL_REASON_FLUSHED;
}

/* Some optional counters are enabled. Is that of this operation among them? */
void peal_qp_count_operation(struct peal_qp *qp, u8 opcode)
{
	const struct peal_op *op = peal_op(opcode);
	enum peal_counter counter = PEAL_COUNTER_sends;

	if (op->access & IB_ACCESS_REMOTE_WRITE)
		counter = PEAL_COUNTER_writes;
	else if (op->access & IB_ACCESS_REMOTE_READ)
		counter = PEAL_COUNTER_reads;
	else if (op->access & IB_ACCESS_REMOTE_ATOMIC)
		counter = PEAL_COUNTER_atomics;
	else if (op->placement)
		counter = PEAL_COUNTER_remote_flushes;
	if (!op->local && peal_table_counter_is_enabled(qp->table, counter))
		this_cpu_inc(qp->counters->value[counter]);
}

/* Return: false when the CQE was lost. */
static bool peal_qp_push(struct peal_qp *qp, struct peal_notify *notify, struct ib_cq *ibcq,
			 const struct peal_cqe *cqe)
{
	struct peal_cq *cq = peal_cq(ibcq);

	peal_qp_assert_either_held(qp);
	peal_notify_cq(notify, cq);
	trace_peal_complete(cqe);
	if (likely(peal_cq_push(cq, cqe)))
		return true;
	peal_count(qp, cq_overflows);
	if (qp->state != IB_QPS_ERR) {
		peal_notify_fail(notify, qp, qp->generation);
		peal_notify_event(notify, &qp->ib, IB_EVENT_QP_FATAL);
	}
	return false;
}

static void peal_qp_count_status(struct peal_qp *qp, u8 status)
{
	if (status == IB_WC_WR_FLUSH_ERR)
		peal_count(qp, flushes);
	else if (status)
		peal_count(qp, errors);
}

/* The caller holds sq.lock. A failed message gets a CQE even if it is unsignaled. */
void peal_qp_complete_message(struct peal_qp *qp, struct peal_notify *notify,
			      const struct peal_wqe *wqe, u8 status, u32 reason)
{
	struct peal_cqe cqe;

	lockdep_assert_held(&qp->sq.lock);
	if (!status && !(wqe->flags & PEAL_WQE_SIGNALED))
		return;
	cqe = (struct peal_cqe){
		.qp_index = qp->index, .qp_num = qp->ib.qp_num, .wqe_index = wqe->index,
		.kind = PEAL_CQE_SEND, .opcode = wqe->opcode, .status = status,
		.vendor_err = reason, .byte_len = status ? 0 : wqe->length,
	};
	peal_qp_count_status(qp, status);
	peal_qp_push(qp, notify, qp->ib.send_cq, &cqe);
}

/*
 * Complete the WQE in rq.wqe. The caller holds rq.lock, and has filled in the fields of @cqe that
 * come from the message.
 */
void peal_qp_complete_recv(struct peal_qp *qp, struct peal_notify *notify,
			   const struct peal_cqe *cqe)
{
	struct peal_cqe full = *cqe;

	lockdep_assert_held(&qp->rq.lock);
	peal_qp_fill_recv(qp, &full);
	peal_qp_count_status(qp, cqe->status);
	peal_qp_end_recv(qp, peal_qp_push(qp, notify, qp->recv_cq, &full));
}

/* ---- XRC domains ---- */

/*
 * The account's user is the caller. @tx_quota outlives the domain.
 *
 * Return: 0, -ENOMEM or -ENOSPC (the user's limit is reached).
 */
int peal_xrcd_init(struct peal_xrcd *xrcd, struct peal_quota *quota,
		   struct peal_tx_quota *tx_quota)
{
	int ret = peal_quota_open(quota, &xrcd->account);

	if (ret)
		return ret;
	ret = peal_quota_take(&xrcd->account, PEAL_QUOTA_XRCD);
	if (ret)
		peal_quota_close(&xrcd->account);
	xrcd->tx_quota = tx_quota;
	mutex_init(&xrcd->lock);
	INIT_LIST_HEAD(&xrcd->targets);
	return ret;
}

/* The core has destroyed the queue pairs and the shared receive queues of the domain. */
void peal_xrcd_end(struct peal_xrcd *xrcd)
{
	peal_quota_give(&xrcd->account, PEAL_QUOTA_XRCD);
	peal_quota_close(&xrcd->account);
}

/* Call before @qp can receive messages. */
void peal_xrcd_add(struct peal_xrcd *xrcd, struct peal_qp *qp)
{
	mutex_lock(&xrcd->lock);
	list_add(&qp->target, &xrcd->targets);
	mutex_unlock(&xrcd->lock);
}

/* Call when @qp receives no messages any more. */
void peal_xrcd_remove(struct peal_xrcd *xrcd, struct peal_qp *qp)
{
	mutex_lock(&xrcd->lock);
	list_del(&qp->target);
	mutex_unlock(&xrcd->lock);
}

/*
 * No look-up finds @srq any more, and the caller has waited for the epoch. When this returns, no
 * queue pair has a WQE of it, waits for one, or remembers it.
 */
void peal_xrcd_forget(struct peal_xrcd *xrcd, struct peal_srq *srq)
{
	struct peal_qp *qp;

	mutex_lock(&xrcd->lock);
	list_for_each_entry(qp, &xrcd->targets, target) {
		spin_lock_bh(&qp->rq.lock);
		if (qp->named_srq == srq) {
			qp->named_srq = NULL;
			WRITE_ONCE(qp->rkey_pd, NULL);
		}
		if (qp->srq == srq) {
			peal_rq_change_shared(&qp->rq, NULL);
			qp->srq = NULL;
		}
		spin_unlock_bh(&qp->rq.lock);
		cond_resched();
	}
	mutex_unlock(&xrcd->lock);
}
