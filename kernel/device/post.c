// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See post.h.
 */
#include <linux/slab.h>

#include "transport/ud.h"
#include "device/post.h"

/*
 * Allocate the arrays of a kernel user's queue, with every slot free. After a failure the caller
 * frees the queue, and peal_srq_post_free() frees what was allocated.
 */
int peal_srq_post_init(struct peal_srq *srq)
{
	struct peal_srq_posts *posts = &srq->posts;
	u32 i, entries = srq->ring.ring.mask + 1;
	u32 *free = kvcalloc(entries, sizeof(u32), GFP_KERNEL);

	for (i = 0; free && i < entries; i++)
		free[i] = entries - 1 - i;
	spin_lock_init(&posts->lock);
	posts->free = free;
	posts->num_free = entries;
	posts->ids = kvcalloc(entries, sizeof(u64), GFP_KERNEL);
	return posts->free && posts->ids ? 0 : -ENOMEM;
}

void peal_srq_post_free(struct peal_srq *srq)
{
	kvfree(srq->posts.free);
	kvfree(srq->posts.ids);
}

/* The ring has room whenever a slot is free; see peal-abi.h. */
static int peal_srq_post_build(struct peal_srq *srq, const struct ib_recv_wr *wr)
{
	struct peal_srq_posts *posts = &srq->posts;
	const struct peal_ring *ring = &srq->ring.ring;
	struct peal_recv_wqe *wqe;
	struct peal_sge *sge;
	u32 number;
	int i;

	lockdep_assert_held(&posts->lock);
	if (wr->num_sge > srq->ring.limits.max_sge)
		return -EINVAL;
	if (!posts->num_free)
		return -ENOMEM;
	number = posts->free[--posts->num_free];
	posts->ids[number] = wr->wr_id;
	wqe = ring->slots + (size_t)number * ring->stride;
	*wqe = (struct peal_recv_wqe){ .num_sge = wr->num_sge };
	sge = (struct peal_sge *)(wqe + 1);
	for (i = 0; i < wr->num_sge; i++)
		sge[i] = (struct peal_sge){ wr->sg_list[i].addr, wr->sg_list[i].length,
					    wr->sg_list[i].lkey };
	WRITE_ONCE(srq->ring.numbers[posts->head++ & ring->mask], number);
	return 0;
}

/**
 * peal_srq_post_recv() - put work requests into the ring
 * @bad: set to the first work request that was refused
 * @wants_kick: set if senders wait for receives
 *
 * Return: 0, -EINVAL or -ENOMEM. The work requests before @bad are posted.
 */
int peal_srq_post_recv(struct peal_srq *srq, const struct ib_recv_wr *wr,
		       const struct ib_recv_wr **bad, bool *wants_kick)
{
	struct peal_ring_ctl *ctl = srq->ring.ring.ctl;
	unsigned long flags;
	int ret = 0;

	spin_lock_irqsave(&srq->posts.lock, flags);
	for (; wr && !ret; wr = ret ? wr : wr->next)
		ret = peal_srq_post_build(srq, wr);
	smp_store_release(&ctl->producer, srq->posts.head);	/* A */
	spin_unlock_irqrestore(&srq->posts.lock, flags);
	smp_mb();	/* C: pairs with peal_ring_want_kick() */
	*wants_kick = READ_ONCE(ctl->flags) & PEAL_RING_WANTS_KICK;
	if (ret)
		*bad = wr;
	return ret;
}

/*
 * A CQE says that slot @number is done. The kernel has written both the CQE and the number, so it
 * is a slot in use.
 *
 * Return: the wr_id. The slot is free afterwards.
 */
u64 peal_srq_post_complete(struct peal_srq *srq, u32 number)
{
	struct peal_srq_posts *posts = &srq->posts;
	unsigned long flags;
	u64 id;

	spin_lock_irqsave(&posts->lock, flags);
	id = posts->ids[number];
	posts->free[posts->num_free++] = number;
	spin_unlock_irqrestore(&posts->lock, flags);
	return id;
}

struct peal_post_op {
	u8 opcode;			/* enum peal_opcode; 0: not supported */
	enum ib_wc_opcode wc;
};

static const struct peal_post_op peal_post_ops[] = {
	[IB_WR_SEND] = { PEAL_OP_SEND, IB_WC_SEND },
	[IB_WR_SEND_WITH_IMM] = { PEAL_OP_SEND_IMM, IB_WC_SEND },
	[IB_WR_SEND_WITH_INV] = { PEAL_OP_SEND_INV, IB_WC_SEND },
	[IB_WR_RDMA_WRITE] = { PEAL_OP_WRITE, IB_WC_RDMA_WRITE },
	[IB_WR_RDMA_WRITE_WITH_IMM] = { PEAL_OP_WRITE_IMM, IB_WC_RDMA_WRITE },
	[IB_WR_RDMA_READ] = { PEAL_OP_READ, IB_WC_RDMA_READ },
	[IB_WR_ATOMIC_CMP_AND_SWP] = { PEAL_OP_CMP_SWAP, IB_WC_COMP_SWAP },
	[IB_WR_ATOMIC_FETCH_AND_ADD] = { PEAL_OP_FETCH_ADD, IB_WC_FETCH_ADD },
	[IB_WR_LOCAL_INV] = { PEAL_OP_LOCAL_INV, IB_WC_LOCAL_INV },
	[IB_WR_REG_MR] = { PEAL_OP_REG_MR, IB_WC_REG_MR },
#ifdef PEAL_HAS_FLUSH
	[IB_WR_ATOMIC_WRITE] = { PEAL_OP_ATOMIC_WRITE, IB_WC_ATOMIC_WRITE },
#endif
};

/*
 * Allocate the wr_id arrays of a kernel queue pair. Programs keep their wr_ids in user space.
 * After a failure the caller removes the queue pair, and peal_post_free() frees what was allocated.
 */
int peal_post_init(struct peal_qp *qp)
{
	struct peal_posts *posts = &qp->posts;

	spin_lock_init(&posts->lock);
	posts->send.ids = kvcalloc(qp->sq.ring.mask + 1, sizeof(u64), GFP_KERNEL);
	posts->recv.ids = kvcalloc(qp->rq.ring.mask + 1, sizeof(u64), GFP_KERNEL);
	return posts->send.ids && posts->recv.ids ? 0 : -ENOMEM;
}

void peal_post_free(struct peal_qp *qp)
{
	kvfree(qp->posts.send.ids);
	kvfree(qp->posts.recv.ids);
}

/*
 * The queue pair is in RESET, so it pushes no further CQE. Free the slots of a shared receive queue
 * that its CQEs name, and mark these CQEs, because no poll returns them.
 */
void peal_post_drop_shared(struct peal_qp *qp)
{
	struct peal_cq *cq;
	struct peal_cqe *cqe;
	unsigned long flags;
	u32 i;

	/* A program's queue pair may not have its context yet, so ask the queue whose it is. */
	if (!qp->ib.srq || !peal_srq(qp->ib.srq)->posts.ids)
		return;
	cq = peal_cq(qp->ib.recv_cq);
	spin_lock_irqsave(&cq->poll_lock, flags);
	for (i = 0; (cqe = peal_cq_untaken(cq, i)); i++) {
		if (cqe->qp_num != qp->ib.qp_num || cqe->kind != PEAL_CQE_RECV)
			continue;
		peal_srq_post_complete(qp->srq, cqe->wqe_index);
		cqe->kind = 0;
	}
	spin_unlock_irqrestore(&cq->poll_lock, flags);
}

/*
 * The queue pair is back in RESET, so the posted requests will not complete. Moving the tails makes
 * peal_post_fill() ignore completions of them that are not polled yet, because their slots may hold
 * other requests by then.
 */
void peal_post_forget(struct peal_qp *qp)
{
	struct peal_posts *posts = &qp->posts;
	unsigned long flags;

	if (!posts->send.ids)
		return;		/* queue pair of a program */
	spin_lock_irqsave(&posts->lock, flags);
	smp_store_release(&posts->send.tail, posts->send.head);	/* L */
	smp_store_release(&posts->recv.tail, posts->recv.head);	/* L */
	spin_unlock_irqrestore(&posts->lock, flags);
	peal_post_drop_shared(qp);
}

static void *peal_post_slot(const struct peal_ring *ring, u32 index)
{
	return ring->slots + (size_t)(index & ring->mask) * ring->stride;
}

static void *peal_post_sges(struct peal_sge *to, const struct ib_sge *from, int num)
{
	int i;

	for (i = 0; i < num; i++)
		to[i] = (struct peal_sge){ from[i].addr, from[i].length, from[i].lkey };
	return to + num;
}

/* A kernel user's inline data is at kernel addresses. */
static int peal_post_inline(struct peal_send_wqe *wqe, const struct ib_send_wr *wr, u32 most)
{
	void *to = wqe + 1;
	int i;

	for (i = 0; i < wr->num_sge; i++) {
		if (wr->sg_list[i].length > most - wqe->inline_len)
			return -EINVAL;
		memcpy(to + wqe->inline_len, (void *)(uintptr_t)wr->sg_list[i].addr,
		       wr->sg_list[i].length);
		wqe->inline_len += wr->sg_list[i].length;
	}
	wqe->flags |= PEAL_WQE_INLINE;
	return 0;
}

static u8 peal_post_flags(const struct peal_qp *qp, const struct ib_send_wr *wr)
{
	u8 flags = 0;

	if (qp->sig_type == IB_SIGNAL_ALL_WR || wr->send_flags & IB_SEND_SIGNALED)
		flags |= PEAL_WQE_SIGNALED;
	if (wr->send_flags & IB_SEND_SOLICITED)
		flags |= PEAL_WQE_SOLICITED;
	if (wr->send_flags & IB_SEND_FENCE)
		flags |= PEAL_WQE_FENCE;
	return flags;
}

/*
 * Copy what the region says now, because its user may map it anew when the registration is posted.
 * The pages are not copied. peal_mr_fast_register() takes them when the request is executed.
 */
static void peal_post_reg(struct peal_bind_seg *seg, const struct ib_reg_wr *reg)
{
	*seg = (struct peal_bind_seg){
		.addr = reg->mr->iova, .length = reg->mr->length, .mr_lkey = reg->mr->lkey,
		.access = reg->access, .new_rkey = reg->key,
	};
}

/*
 * Fill in the remote address, or address handle, and the atomic segment.
 *
 * Return: where the scatter-gather list begins.
 */
static void *peal_post_address(const struct peal_qp *qp, struct peal_send_wqe *wqe,
			       const struct ib_send_wr *wr)
{
	const struct peal_op *op = peal_op(wqe->opcode);
	struct peal_atomic_seg *atomic = (void *)(wqe + 1);

	if (op->immediate)
		wqe->imm_or_rkey = (__force u32)wr->ex.imm_data;
	if (op->invalidates)
		wqe->imm_or_rkey = wr->ex.invalidate_rkey;
	if (op->atomic && !op->placement) {
		wqe->remote_addr = atomic_wr(wr)->remote_addr;
		wqe->rkey = atomic_wr(wr)->rkey;
		atomic->compare_add = atomic_wr(wr)->compare_add;
		atomic->swap = atomic_wr(wr)->swap;
		return atomic + 1;
	}
	if (op->remote) {
		wqe->remote_addr = rdma_wr(wr)->remote_addr;
		wqe->rkey = rdma_wr(wr)->rkey;
	}
	if (wqe->opcode == PEAL_OP_REG_MR)
		peal_post_reg((void *)(wqe + 1), reg_wr(wr));
	if (peal_qp_is_datagram(qp)) {
		wqe->ah_index = peal_ah(ud_wr(wr)->ah)->address->index;
		wqe->ud.qpn = ud_wr(wr)->remote_qpn;
		wqe->ud.qkey = ud_wr(wr)->remote_qkey;
	}
	return wqe + 1;
}

static int peal_post_build_send(struct peal_qp *qp, u32 index, const struct ib_send_wr *wr)
{
	struct peal_send_wqe *wqe = peal_post_slot(&qp->sq.ring, index);
	u8 opcode = wr->opcode < ARRAY_SIZE(peal_post_ops) ? peal_post_ops[wr->opcode].opcode : 0;

	lockdep_assert_held(&qp->posts.lock);
	if (unlikely(!opcode))
		return -EOPNOTSUPP;
	/* The slot of an atomic has room for one SGE only, because of its segment. */
	if (wr->num_sge > min(qp->cap.max_send_sge, peal_op(opcode)->atomic ? 1U : U32_MAX))
		return -EINVAL;
	if (index - smp_load_acquire(&qp->posts.send.tail) > qp->sq.ring.mask)	/* L */
		return -ENOMEM;
	memset(wqe, 0, sizeof(*wqe));
	wqe->opcode = opcode;
	wqe->flags = peal_post_flags(qp, wr);
	qp->posts.send.ids[index & qp->sq.ring.mask] = wr->wr_id;
	if (wr->send_flags & IB_SEND_INLINE && peal_op(opcode)->sends) {
		peal_post_address(qp, wqe, wr);
		return peal_post_inline(wqe, wr, qp->cap.max_inline_data);
	}
	wqe->num_sge = wr->num_sge;
	peal_post_sges(peal_post_address(qp, wqe, wr), wr->sg_list, wr->num_sge);
	return 0;
}

/**
 * peal_post_send() - put work requests into the send ring
 * @bad: set to the first work request that was refused
 *
 * Return: 0, -EINVAL, -ENOMEM or -EOPNOTSUPP. The work requests before @bad are posted.
 */
int peal_post_send(struct peal_qp *qp, const struct ib_send_wr *wr, const struct ib_send_wr **bad)
{
	struct peal_post_side *side = &qp->posts.send;
	unsigned long flags;
	int ret = 0;

	spin_lock_irqsave(&qp->posts.lock, flags);
	for (; wr; wr = wr->next) {
		ret = peal_post_build_send(qp, side->head, wr);
		if (ret)
			break;
		side->head++;
	}
	smp_store_release(&qp->sq.ring.ctl->producer, side->head);	/* A */
	spin_unlock_irqrestore(&qp->posts.lock, flags);
	if (ret)
		*bad = wr;
	return ret;
}

static int peal_post_build_recv(struct peal_qp *qp, u32 index, const struct ib_recv_wr *wr)
{
	struct peal_recv_wqe *wqe = peal_post_slot(&qp->rq.ring, index);

	lockdep_assert_held(&qp->posts.lock);
	if (wr->num_sge > qp->cap.max_recv_sge)
		return -EINVAL;
	if (index - smp_load_acquire(&qp->posts.recv.tail) > qp->rq.ring.mask)	/* L */
		return -ENOMEM;
	*wqe = (struct peal_recv_wqe){ .num_sge = wr->num_sge };
	qp->posts.recv.ids[index & qp->rq.ring.mask] = wr->wr_id;
	peal_post_sges((struct peal_sge *)(wqe + 1), wr->sg_list, wr->num_sge);
	return 0;
}

/* Like peal_post_send(). @wants_kick: set if a sender waits for receives. */
int peal_post_recv(struct peal_qp *qp, const struct ib_recv_wr *wr, const struct ib_recv_wr **bad,
		   bool *wants_kick)
{
	struct peal_post_side *side = &qp->posts.recv;
	unsigned long flags;
	int ret = 0;

	spin_lock_irqsave(&qp->posts.lock, flags);
	for (; wr; wr = wr->next) {
		ret = peal_post_build_recv(qp, side->head, wr);
		if (ret)
			break;
		side->head++;
	}
	smp_store_release(&qp->rq.ring.ctl->producer, side->head);	/* A */
	spin_unlock_irqrestore(&qp->posts.lock, flags);
	smp_mb();	/* C: pairs with peal_ring_want_kick() */
	*wants_kick = READ_ONCE(qp->rq.ring.ctl->flags) & PEAL_RING_WANTS_KICK;
	if (ret)
		*bad = wr;
	return ret;
}

static enum ib_wc_opcode peal_post_send_opcode(u8 opcode)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(peal_post_ops); i++)
		if (peal_post_ops[i].opcode == opcode)
			return peal_post_ops[i].wc;
	return IB_WC_SEND;
}

/* ib_init_ah_attr_from_wc() needs these fields to answer a datagram. */
static void peal_post_fill_datagram(struct ib_wc *wc, const struct peal_cqe *cqe)
{
	wc->wc_flags |= IB_WC_GRH | IB_WC_WITH_NETWORK_HDR_TYPE;
	wc->network_hdr_type = cqe->flags & PEAL_CQE_IPV4 ? RDMA_NETWORK_IPV4 : RDMA_NETWORK_IPV6;
	if (cqe->flags & PEAL_CQE_VLAN) {
		wc->wc_flags |= IB_WC_WITH_VLAN;
		wc->vlan_id = cqe->vlan_id;
	}
}

static void peal_post_fill_recv(struct ib_wc *wc, const struct peal_cqe *cqe)
{
	const struct peal_op *op = peal_op(cqe->opcode);

	wc->opcode = op->remote ? IB_WC_RECV_RDMA_WITH_IMM : IB_WC_RECV;
	wc->src_qp = cqe->src_qp;
	if (cqe->flags & PEAL_CQE_GRH)
		peal_post_fill_datagram(wc, cqe);
	if (op->immediate) {
		wc->wc_flags |= IB_WC_WITH_IMM;
		wc->ex.imm_data = (__force __be32)cqe->imm_or_rkey;
	}
	if (op->invalidates) {
		wc->wc_flags |= IB_WC_WITH_INVALIDATE;
		wc->ex.invalidate_rkey = cqe->imm_or_rkey;
	}
}

/*
 * A receive of a shared receive queue. Its slot is free afterwards. A CQE of a slot that is free
 * already is not found here, because peal_post_drop_shared() has marked it.
 */
static void peal_post_fill_shared(struct ib_wc *wc, struct peal_qp *qp, const struct peal_cqe *cqe)
{
	*wc = (struct ib_wc){
		.wr_id = peal_srq_post_complete(qp->srq, cqe->wqe_index), .status = cqe->status,
		.vendor_err = cqe->vendor_err, .byte_len = cqe->byte_len, .qp = &qp->ib,
		.port_num = 1,
	};
	peal_post_fill_recv(wc, cqe);
}

/*
 * This frees the slot of the WQE, and the slots of the unsignaled WQEs before it.
 *
 * Return: false if a RESET or the end of the queue pair has discarded the request.
 */
static bool peal_post_fill(struct ib_wc *wc, struct peal_qp *qp, const struct peal_cqe *cqe)
{
	bool recv = cqe->kind == PEAL_CQE_RECV;
	struct peal_post_side *side = recv ? &qp->posts.recv : &qp->posts.send;
	u32 mask = recv ? qp->rq.ring.mask : qp->sq.ring.mask;
	u32 tail = READ_ONCE(side->tail);

	if (!cqe->kind)
		return false;		/* see peal_post_drop_shared() */
	if (recv && qp->srq) {
		peal_post_fill_shared(wc, qp, cqe);
		return true;
	}
	if (cqe->wqe_index - tail > mask)
		return false;
	*wc = (struct ib_wc){
		.wr_id = side->ids[cqe->wqe_index & mask], .status = cqe->status,
		.vendor_err = cqe->vendor_err, .byte_len = cqe->byte_len, .qp = &qp->ib,
		.port_num = 1,
	};
	if (recv)
		peal_post_fill_recv(wc, cqe);
	else
		wc->opcode = peal_post_send_opcode(cqe->opcode);
	/* L: wr_id is read before. If a RESET moved the tail meanwhile, the exchange fails. */
	return cmpxchg_release(&side->tail, tail, cqe->wqe_index + 1) == tail;
}

/**
 * peal_post_poll() - ib_poll_cq() of a kernel user's completion queue
 *
 * A queue pair that is found here stays valid until poll_lock is dropped, because
 * peal_verbs_destroy_qp() takes it out of the table and then waits for the holders of that
 * lock (peal_cq_wait_pollers()).
 *
 * Return: how many entries of @wc were filled.
 */
int peal_post_poll(struct peal_table *table, struct peal_cq *cq, int n, struct ib_wc *wc)
{
	unsigned long flags;
	struct peal_cqe cqe;
	struct peal_qp *qp;
	int filled = 0;

	spin_lock_irqsave(&cq->poll_lock, flags);
	while (filled < n && peal_cq_take(cq, &cqe)) {
		qp = peal_table_qp_again(table, &cq->completed, cqe.qp_num);
		if (qp && peal_post_fill(&wc[filled], qp, &cqe))
			filled++;
	}
	peal_cq_show_taken(cq);
	spin_unlock_irqrestore(&cq->poll_lock, flags);
	return filled;
}
