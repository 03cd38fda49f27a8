// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Completion queues that the RDMA core polls, and draining.
 *
 * Holds: Each poll context (softirq, workqueues, direct) gets each completion once, also when its
 * handler posts the next request, when requests are posted with a spinlock held, and when all
 * contexts work at once. ib_drain_qp() returns after all completions, from RTS and from error. With
 * each completion vector the handlers run on the vector's CPU, in softirq and on the workqueue,
 * whichever CPU posts; if that CPU is offline, they run elsewhere.
 * Does not hold: completion queues that the user polls itself (ktest.c).
 */
#include <linux/cpu.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <rdma/ib_verbs.h>

#include "ktest.h"

#define KPOLL_CHAIN	200	/* WRITEs that handlers post one after the other */
#define KPOLL_BATCH	16

struct kpoll {
	struct ib_device *dev;
	struct ib_pd *pd;
	struct ib_cq *cq;
	struct ib_qp *qp;
	struct ib_cqe cqe, recv_cqe;
	spinlock_t lock;
	u8 *buf;
	int left;		/* WRITEs to post from the handler */
	atomic_t completed, flushed;
	bool atomic;		/* the last handler could not sleep */
	int vector;
	int cpu;		/* where the handlers must run, or -1 */
	int strays;		/* handlers that ran elsewhere */
	int error;
};

static int kpoll_post(struct kpoll *t)
{
	struct ib_sge sge = { (uintptr_t)t->buf, 64, t->pd->local_dma_lkey };
	struct ib_rdma_wr write = {
		.wr = { .wr_cqe = &t->cqe, .sg_list = &sge, .num_sge = 1,
			.opcode = IB_WR_RDMA_WRITE, .send_flags = IB_SEND_SIGNALED },
		.remote_addr = (uintptr_t)t->buf + 64, .rkey = t->pd->unsafe_global_rkey,
	};
	const struct ib_send_wr *bad;

	return ib_post_send(t->qp, &write.wr, &bad);
}

static int kpoll_post_recv(struct kpoll *t)
{
	struct ib_sge sge = { (uintptr_t)t->buf, 64, t->pd->local_dma_lkey };
	struct ib_recv_wr recv = { .wr_cqe = &t->recv_cqe, .sg_list = &sge, .num_sge = 1 };
	const struct ib_recv_wr *bad;

	return ib_post_recv(t->qp, &recv, &bad);
}

static void kpoll_done(struct ib_cq *cq, struct ib_wc *wc)
{
	struct kpoll *t = container_of(wc->wr_cqe, struct kpoll, cqe);

	t->atomic = in_serving_softirq();
	t->strays += t->cpu >= 0 && t->cpu != raw_smp_processor_id();
	if (!wc->status && t->left > 0 && --t->left && kpoll_post(t))
		t->error = -EIO;
	/* The count comes last, because kpoll_wait() reads the other fields when it is full. */
	smp_mb__before_atomic();
	atomic_inc(wc->status == IB_WC_WR_FLUSH_ERR ? &t->flushed : &t->completed);
}

static void kpoll_recv_done(struct ib_cq *cq, struct ib_wc *wc)
{
	struct kpoll *t = container_of(wc->wr_cqe, struct kpoll, recv_cqe);

	atomic_inc(wc->status == IB_WC_WR_FLUSH_ERR ? &t->flushed : &t->completed);
}

/* A poller that is not the core's, for IB_POLL_DIRECT. */
static bool kpoll_wait(struct kpoll *t, atomic_t *count, int value)
{
	unsigned long end = jiffies + 20 * HZ;

	while (atomic_read(count) < value && time_before(jiffies, end)) {
		if (t->cq->poll_ctx == IB_POLL_DIRECT)
			ib_process_cq_direct(t->cq, -1);
		cond_resched();
	}
	return atomic_read_acquire(count) == value;	/* pairs with kpoll_done() */
}

/* Each handler posts the next WRITE. */
static void kpoll_chain(struct kpoll *t)
{
	t->left = KPOLL_CHAIN;
	KTEST_CHECK(t, !kpoll_post(t));
	KTEST_CHECK(t, kpoll_wait(t, &t->completed, KPOLL_CHAIN) && !t->left && !t->error);
	KTEST_CHECK(t, t->atomic == (t->cq->poll_ctx == IB_POLL_SOFTIRQ));
}

/* A user posts while it holds its own lock, with interrupts off. */
static void kpoll_locked(struct kpoll *t)
{
	unsigned long flags;
	int i, ret = 0;

	atomic_set(&t->completed, 0);
	spin_lock_irqsave(&t->lock, flags);
	for (i = 0; i < KPOLL_BATCH; i++)
		ret = ret ?: kpoll_post(t);
	spin_unlock_irqrestore(&t->lock, flags);
	KTEST_CHECK(t, !ret && kpoll_wait(t, &t->completed, KPOLL_BATCH));

	atomic_set(&t->completed, 0);
	spin_lock_bh(&t->lock);
	for (i = 0; i < KPOLL_BATCH; i++)
		ret = ret ?: kpoll_post(t);
	spin_unlock_bh(&t->lock);
	KTEST_CHECK(t, !ret && kpoll_wait(t, &t->completed, KPOLL_BATCH));
}

/* Draining completes what was posted, receives as flushed. The queue pair is in error then. */
static void kpoll_drain(struct kpoll *t)
{
	int i;

	atomic_set(&t->completed, 0);
	for (i = 0; i < KPOLL_BATCH / 2; i++)
		KTEST_CHECK(t, !kpoll_post(t) && !kpoll_post_recv(t));
	ib_drain_qp(t->qp);
	KTEST_CHECK(t, atomic_read(&t->completed) + atomic_read(&t->flushed) == KPOLL_BATCH);
	KTEST_CHECK(t, atomic_read(&t->flushed) >= KPOLL_BATCH / 2);
	atomic_set(&t->flushed, 0);
	for (i = 0; i < KPOLL_BATCH / 2; i++)
		KTEST_CHECK(t, !kpoll_post(t) && !kpoll_post_recv(t));
	ib_drain_qp(t->qp);
	KTEST_CHECK(t, atomic_read(&t->flushed) == KPOLL_BATCH);
}

static int kpoll_make_qp(struct kpoll *t)
{
	struct ib_qp_init_attr attr = {
		.send_cq = t->cq, .recv_cq = t->cq, .qp_type = IB_QPT_RC,
		.sq_sig_type = IB_SIGNAL_REQ_WR,
		.cap = { .max_send_wr = 32, .max_recv_wr = 32, .max_send_sge = 1,
			 .max_recv_sge = 1 },
	};

	t->qp = ib_create_qp(t->pd, &attr);
	if (IS_ERR(t->qp))
		return PTR_ERR(t->qp);
	return ktest_connect_to(t->qp, t->qp->qp_num);
}

static void kpoll_run(struct kpoll *t)
{
	kpoll_chain(t);
	if (!t->error)
		kpoll_locked(t);
	if (!t->error)
		kpoll_drain(t);
	KTEST_CHECK(t, !t->strays);
}

static int kpoll_with_context(struct kpoll *t, enum ib_poll_context context)
{
	int ret;

	t->error = 0;
	t->left = 0;
	t->strays = 0;
	atomic_set(&t->completed, 0);
	atomic_set(&t->flushed, 0);
	t->cq = ib_alloc_cq(t->dev, t, 128, t->vector, context);
	if (IS_ERR(t->cq))
		return PTR_ERR(t->cq);
	ret = kpoll_make_qp(t);
	if (!ret) {
		kpoll_run(t);
		ret = t->error;
	}
	if (!IS_ERR(t->qp))
		ib_destroy_qp(t->qp);
	ib_free_cq(t->cq);
	if (ret)
		pr_info("peal_ktest: poll context %d, vector %d: %d\n", context, t->vector, ret);
	return ret;
}

/* Requests are posted on another CPU than that of the vector, if there is one. */
static int kpoll_with_vector(struct kpoll *t, int vector, int cpu)
{
	unsigned int other = cpumask_any_but(cpu_online_mask, cpu);
	int ret;

	if (other >= nr_cpu_ids)
		other = cpu;
	set_cpus_allowed_ptr(current, cpumask_of(other));
	t->vector = vector;
	t->cpu = cpu_online(cpu) ? cpu : -1;
	ret = kpoll_with_context(t, IB_POLL_SOFTIRQ) ?: kpoll_with_context(t, IB_POLL_WORKQUEUE);
	set_cpus_allowed_ptr(current, cpu_possible_mask);
	return ret;
}

/* Vector number n is the n-th possible CPU, and there is no further vector. */
static int kpoll_with_vectors(struct kpoll *t)
{
	int cpu, vector = 0, ret = 0;
	struct ib_cq *cq;

	for_each_possible_cpu(cpu)
		ret = ret ?: kpoll_with_vector(t, vector++, cpu);
	if (ret || vector != t->dev->num_comp_vectors)
		return ret ?: -EIO;
	cq = ib_alloc_cq(t->dev, t, 128, vector, IB_POLL_SOFTIRQ);
	if (!IS_ERR(cq))
		ib_free_cq(cq);
	return PTR_ERR_OR_ZERO(cq) == -EINVAL ? 0 : -EIO;
}

int ktest_polling(struct ib_device *dev)
{
	static const enum ib_poll_context contexts[] = {
		IB_POLL_SOFTIRQ, IB_POLL_WORKQUEUE, IB_POLL_UNBOUND_WORKQUEUE, IB_POLL_DIRECT,
	};
	struct kpoll *t = kzalloc(sizeof(*t), GFP_KERNEL);
	int i, ret = 0;

	if (!t)
		return -ENOMEM;
	t->dev = dev;
	t->cpu = -1;
	t->cqe.done = kpoll_done;
	t->recv_cqe.done = kpoll_recv_done;
	spin_lock_init(&t->lock);
	t->buf = kzalloc(128, GFP_KERNEL);
	t->pd = ib_alloc_pd(dev, IB_PD_UNSAFE_GLOBAL_RKEY);
	if (IS_ERR(t->pd) || !t->buf)
		ret = -ENOMEM;
	for (i = 0; i < ARRAY_SIZE(contexts) && !ret; i++)
		ret = kpoll_with_context(t, contexts[i]);
	if (!ret)
		ret = kpoll_with_vectors(t);
	if (!IS_ERR(t->pd))
		ib_dealloc_pd(t->pd);
	kfree(t->buf);
	kfree(t);
	return ret;
}
