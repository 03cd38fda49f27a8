// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See srq_post.h.
 */
#include <linux/slab.h>

#include "verbs/srq_post.h"

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
