// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * A kernel user of peal0, with one queue pair connected to itself and one
 * completion queue. Loading the module runs the tests. When one fails, loading
 * fails and the log says what was expected. After its own tests it runs those of
 * the other files.
 *
 * Holds: kernel completion queues (poll, arm, missed events, events), posting
 * from process context, with interrupts off and from a completion handler,
 * no handler in the call chain of a verb, and one at a time for each queue,
 * inline data, ATOMIC_WRITE, requests that are not supported, a full ring, a
 * shared receive queue, making objects without memory, errors and flushes, a
 * queue pair that is queried after its destruction.
 * Does not hold: fast registration (ktest_fast_reg.c), completion queues that the
 * core polls (ktest_polling.c), programs, which the other guest tests cover.
 */
#include <linux/completion.h>
#include <linux/delay.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/version.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_verbs.h>

#include "ktest.h"
#include "peal_kfail.h"

#define KTEST_BYTES	4096
#define KTEST_HALF	(KTEST_BYTES / 2)
#define KTEST_REPOSTS	100
#define KTEST_RIVALS	2
#define KTEST_RIVAL_POSTS	200

struct ktest {
	struct ib_device *dev;
	struct ib_pd *pd;
	struct ib_cq *cq;
	struct ib_qp *qp;
	u8 *buf;
	struct ib_srq *srq;		/* of the queue pair, if not NULL */
	atomic_t events;
	atomic_t limits;		/* events SRQ_LIMIT_REACHED */
	atomic_t lasts;			/* events QP_LAST_WQE_REACHED */
	struct task_struct *caller;	/* the thread that runs the tests */
	atomic_t chained;		/* handlers in the call chain of its verbs */
	bool rivals;			/* several threads post; the handler takes long */
	atomic_t running, overlaps;	/* handlers at a time, while there are rivals */
	atomic_t unpolled;		/* their posts */
	atomic_t finished;		/* rivals that have posted all */
	int reposts_left;		/* the handler posts that many WRITEs */
	struct completion reposted;
	int error;
};

static struct ktest ktest;

static bool ktest_wire;
module_param_named(wire, ktest_wire, bool, 0444);
MODULE_PARM_DESC(wire, "peal0 has its direct path switched off");

static bool ktest_polling_only;
module_param_named(polling_only, ktest_polling_only, bool, 0444);
MODULE_PARM_DESC(polling_only, "run only the tests of completion queues that the core polls");

static struct ib_sge ktest_sge(struct ktest *t, u32 offset, u32 length)
{
	return (struct ib_sge){ (uintptr_t)t->buf + offset, length, t->pd->local_dma_lkey };
}

int ktest_wait(struct ib_cq *cq, struct ib_wc *wc)
{
	unsigned long end = jiffies + 20 * HZ;
	int n;

	do {
		n = ib_poll_cq(cq, 1, wc);
		cond_resched();
	} while (!n && time_before(jiffies, end));
	return n;
}

static int ktest_poll_one(struct ktest *t, struct ib_wc *wc)
{
	return ktest_wait(t->cq, wc);
}

/* A WRITE or READ between the first half of the buffer and the second. */
static int ktest_post(struct ktest *t, enum ib_wr_opcode opcode, u32 length, u64 id, int flags)
{
	struct ib_sge sge = ktest_sge(t, 0, length);
	const struct ib_send_wr *bad;
	struct ib_rdma_wr rdma = {
		.wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1, .opcode = opcode,
			.send_flags = flags },
		.remote_addr = (uintptr_t)t->buf + KTEST_HALF,
		.rkey = t->pd->unsafe_global_rkey,
	};

	return ib_post_send(t->qp, &rdma.wr, &bad);
}

/* A handler may interrupt the caller of a verb, but the verb must not call it. */
static void ktest_note_context(struct ktest *t)
{
	if (in_task() && current == t->caller)
		atomic_inc(&t->chained);
}

/* Other threads post meanwhile, and what they post makes further events. */
static void ktest_handle_slowly(struct ktest *t)
{
	struct ib_wc wc;

	if (atomic_inc_return(&t->running) > 1)
		atomic_inc(&t->overlaps);
	ib_req_notify_cq(t->cq, IB_CQ_NEXT_COMP);
	while (ib_poll_cq(t->cq, 1, &wc) > 0)
		atomic_dec(&t->unpolled);
	udelay(100);
	atomic_dec(&t->running);
}

static void ktest_handler(struct ib_cq *cq, void *context)
{
	struct ktest *t = context;
	struct ib_wc wc;

	ktest_note_context(t);
	if (t->rivals)
		ktest_handle_slowly(t);
	atomic_inc(&t->events);
	if (!t->reposts_left)
		return;
	ib_req_notify_cq(cq, IB_CQ_NEXT_COMP);
	while (ib_poll_cq(cq, 1, &wc) > 0)
		if (!--t->reposts_left)
			complete(&t->reposted);
		else
			ktest_post(t, IB_WR_RDMA_WRITE, 64, 7, IB_SEND_SIGNALED);
}

/* ---- setting up ---- */

static int ktest_find_gid(struct ib_device *dev, union ib_gid *gid)
{
	int i;

	for (i = 0; i < 16; i++)
		if (!rdma_query_gid(dev, 1, i, gid) &&
		    ipv6_addr_v4mapped((struct in6_addr *)gid))
			return i;
	return -ENODEV;
}

static int ktest_to_init(struct ib_qp *qp)
{
	struct ib_qp_attr attr = {
		.qp_state = IB_QPS_INIT, .port_num = 1,
		.qp_access_flags = IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE |
				   IB_ACCESS_REMOTE_READ | IB_ACCESS_REMOTE_ATOMIC,
	};

	return ib_modify_qp(qp, &attr, IB_QP_STATE | IB_QP_PORT | IB_QP_PKEY_INDEX |
			    IB_QP_ACCESS_FLAGS);
}

static int ktest_to_rtr(struct ib_qp *qp, u32 peer)
{
	struct ib_qp_attr attr = {
		.qp_state = IB_QPS_RTR, .path_mtu = IB_MTU_1024, .dest_qp_num = peer,
		.max_dest_rd_atomic = 16, .min_rnr_timer = 1,
	};
	union ib_gid gid;
	int index = ktest_find_gid(qp->device, &gid);

	if (index < 0)
		return index;
	attr.ah_attr.type = rdma_ah_find_type(qp->device, 1);
	rdma_ah_set_port_num(&attr.ah_attr, 1);
	rdma_ah_set_grh(&attr.ah_attr, &gid, 0, index, 1, 0);
	return ib_modify_qp(qp, &attr, IB_QP_STATE | IB_QP_AV | IB_QP_PATH_MTU |
			    IB_QP_DEST_QPN | IB_QP_RQ_PSN | IB_QP_MAX_DEST_RD_ATOMIC |
			    IB_QP_MIN_RNR_TIMER);
}

static int ktest_to_rts(struct ib_qp *qp)
{
	struct ib_qp_attr attr = {
		.qp_state = IB_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
		.max_rd_atomic = 16,
	};

	return ib_modify_qp(qp, &attr, IB_QP_STATE | IB_QP_TIMEOUT | IB_QP_RETRY_CNT |
			    IB_QP_RNR_RETRY | IB_QP_SQ_PSN | IB_QP_MAX_QP_RD_ATOMIC);
}

static int ktest_create_cq(struct ktest *t)
{
	struct ib_cq_init_attr attr = { .cqe = 256 };

	t->cq = ib_create_cq(t->dev, ktest_handler, NULL, t, &attr);
	return PTR_ERR_OR_ZERO(t->cq);
}

static void ktest_event(struct ib_event *event, void *context)
{
	struct ktest *t = context;

	ktest_note_context(t);
	if (event->event == IB_EVENT_SRQ_LIMIT_REACHED && event->element.srq == t->srq)
		atomic_inc(&t->limits);
	if (event->event == IB_EVENT_QP_LAST_WQE_REACHED && event->element.qp == t->qp)
		atomic_inc(&t->lasts);
}

static int ktest_create_qp(struct ktest *t)
{
	struct ib_qp_init_attr attr = {
		.send_cq = t->cq, .recv_cq = t->cq, .srq = t->srq, .qp_type = IB_QPT_RC,
		.sq_sig_type = IB_SIGNAL_REQ_WR, .event_handler = ktest_event, .qp_context = t,
		.cap = { .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 2,
			 .max_recv_sge = 2, .max_inline_data = 64 },
	};

	t->qp = ib_create_qp(t->pd, &attr);
	return PTR_ERR_OR_ZERO(t->qp);
}

int ktest_connect_to(struct ib_qp *qp, u32 peer)
{
	int ret = ktest_to_init(qp);

	if (!ret)
		ret = ktest_to_rtr(qp, peer);
	if (!ret)
		ret = ktest_to_rts(qp);
	return ret;
}

static int ktest_connect(struct ktest *t)
{
	return ktest_connect_to(t->qp, t->qp->qp_num);
}

/* Return: whether the handlers have counted to @value. */
static bool ktest_becomes(const atomic_t *count, int value)
{
	unsigned long end = jiffies + 20 * HZ;

	while (atomic_read(count) != value && time_before(jiffies, end))
		cond_resched();
	return atomic_read(count) == value;
}

/* ---- the tests ---- */

static void ktest_fill(struct ktest *t)
{
	int i;

	for (i = 0; i < KTEST_HALF; i++)
		t->buf[i] = i * 7 + 1;
	memset(t->buf + KTEST_HALF, 0, KTEST_HALF);
}

static void ktest_send(struct ktest *t)
{
	struct ib_sge from = ktest_sge(t, 0, 1000), to = ktest_sge(t, KTEST_HALF, KTEST_HALF);
	struct ib_recv_wr recv = { .wr_id = 1, .sg_list = &to, .num_sge = 1 };
	struct ib_send_wr send = {
		.wr_id = 2, .sg_list = &from, .num_sge = 1, .opcode = IB_WR_SEND_WITH_IMM,
		.send_flags = IB_SEND_SIGNALED, .ex.imm_data = cpu_to_be32(0x12345678),
	};
	const struct ib_recv_wr *bad_recv;
	const struct ib_send_wr *bad_send;
	struct ib_wc wc[2];

	ktest_fill(t);
	KTEST_CHECK(t, !ib_post_recv(t->qp, &recv, &bad_recv));
	KTEST_CHECK(t, !ib_post_send(t->qp, &send, &bad_send));
	KTEST_CHECK(t, ktest_poll_one(t, &wc[0]) == 1 && ktest_poll_one(t, &wc[1]) == 1);
	KTEST_CHECK(t, wc[0].wr_id == 1 && wc[0].opcode == IB_WC_RECV && wc[0].byte_len == 1000);
	KTEST_CHECK(t, wc[0].wc_flags & IB_WC_WITH_IMM && wc[0].ex.imm_data == send.ex.imm_data);
	KTEST_CHECK(t, wc[1].wr_id == 2 && wc[1].opcode == IB_WC_SEND && !wc[1].status);
	KTEST_CHECK(t, wc[0].qp == t->qp && wc[1].qp == t->qp);
	KTEST_CHECK(t, !memcmp(t->buf, t->buf + KTEST_HALF, 1000));
}

/* The sender waits and is woken up, because the receive comes after the SEND. */
static void ktest_receive_late(struct ktest *t)
{
	struct ib_sge from = ktest_sge(t, 0, 8), to = ktest_sge(t, KTEST_HALF, 8);
	struct ib_recv_wr recv = { .wr_id = 3, .sg_list = &to, .num_sge = 1 };
	struct ib_send_wr send = {
		.wr_id = 4, .sg_list = &from, .num_sge = 1, .opcode = IB_WR_SEND,
		.send_flags = IB_SEND_SIGNALED,
	};
	const struct ib_recv_wr *bad_recv;
	const struct ib_send_wr *bad_send;
	struct ib_wc wc;

	KTEST_CHECK(t, !ib_post_send(t->qp, &send, &bad_send));
	KTEST_CHECK(t, !ib_poll_cq(t->cq, 1, &wc));
	KTEST_CHECK(t, !ib_post_recv(t->qp, &recv, &bad_recv));
	KTEST_CHECK(t, ktest_poll_one(t, &wc) == 1 && wc.wr_id == 3 && !wc.status);
	KTEST_CHECK(t, ktest_poll_one(t, &wc) == 1 && wc.wr_id == 4 && !wc.status);
}

static void ktest_remote(struct ktest *t)
{
	struct ib_wc wc;

	ktest_fill(t);
	KTEST_CHECK(t, !ktest_post(t, IB_WR_RDMA_WRITE, 1024, 1, IB_SEND_SIGNALED));
	KTEST_CHECK(t, ktest_poll_one(t, &wc) == 1 && wc.opcode == IB_WC_RDMA_WRITE && !wc.status);
	KTEST_CHECK(t, !memcmp(t->buf, t->buf + KTEST_HALF, 1024));
	memset(t->buf, 0, 1024);
	KTEST_CHECK(t, !ktest_post(t, IB_WR_RDMA_READ, 1024, 2, IB_SEND_SIGNALED));
	KTEST_CHECK(t, ktest_poll_one(t, &wc) == 1 && wc.opcode == IB_WC_RDMA_READ && !wc.status);
	KTEST_CHECK(t, !memcmp(t->buf, t->buf + KTEST_HALF, 1024) && t->buf[0] == 1);
	memset(t->buf, 0x5a, 32);
	KTEST_CHECK(t, !ktest_post(t, IB_WR_RDMA_WRITE, 32, 3, IB_SEND_SIGNALED | IB_SEND_INLINE));
	KTEST_CHECK(t, ktest_poll_one(t, &wc) == 1 && wc.wr_id == 3 && !wc.status);
	KTEST_CHECK(t, !memcmp(t->buf, t->buf + KTEST_HALF, 32));
}

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 2, 0)
/* The eight bytes arrive, and nothing beside them changes. */
static void ktest_atomic_write(struct ktest *t)
{
	struct ib_sge sge = ktest_sge(t, 24, 8);
	struct ib_rdma_wr write = {
		.wr = { .sg_list = &sge, .num_sge = 1, .opcode = IB_WR_ATOMIC_WRITE },
		.rkey = t->pd->unsafe_global_rkey,
	};
	u8 expected[256] = {};
	const struct ib_send_wr *bad;
	struct ib_wc wc;
	int i;

	ktest_fill(t);
	for (i = 0; i < 4; i++) {
		sge.addr = (uintptr_t)t->buf + 24 + i * 9;
		memcpy(expected + 64 + i * 16, t->buf + 24 + i * 9, 8);
		write.remote_addr = (uintptr_t)t->buf + KTEST_HALF + 64 + i * 16;
		write.wr.wr_id = 70 + i;
		write.wr.send_flags = IB_SEND_SIGNALED | (i % 2 ? IB_SEND_INLINE : 0);
		KTEST_CHECK(t, !ib_post_send(t->qp, &write.wr, &bad));
		KTEST_CHECK(t, ktest_poll_one(t, &wc) == 1 && wc.wr_id == 70 + i && !wc.status);
		KTEST_CHECK(t, wc.opcode == IB_WC_ATOMIC_WRITE);
		KTEST_CHECK(t, !memcmp(t->buf + KTEST_HALF, expected, sizeof(expected)));
	}
}
#else
static void ktest_atomic_write(struct ktest *t)
{
}
#endif

/* The queue pair takes the WRITE in front of the request that it refuses, and works on. */
static void ktest_unsupported(struct ktest *t)
{
	static const int opcodes[] = {
		IB_WR_MASKED_ATOMIC_CMP_AND_SWP, IB_WR_MASKED_ATOMIC_FETCH_AND_ADD, IB_WR_LSO,
		IB_WR_RDMA_READ_WITH_INV, IB_WR_REG_MR_INTEGRITY, 14 /* IB_WR_FLUSH */, 255,
	};
	struct ib_sge sge = ktest_sge(t, 0, 8);
	struct ib_sge two[] = { ktest_sge(t, 0, 4), ktest_sge(t, 4, 4) };
	struct ib_atomic_wr refused = {
		.wr = { .sg_list = &sge, .num_sge = 1, .send_flags = IB_SEND_SIGNALED },
		.remote_addr = (uintptr_t)t->buf + KTEST_HALF, .rkey = t->pd->unsafe_global_rkey,
		.compare_add_mask = ~0ULL, .swap_mask = ~0ULL,
	};
	struct ib_rdma_wr write = {
		.wr = { .wr_id = 5, .sg_list = &sge, .num_sge = 1, .opcode = IB_WR_RDMA_WRITE,
			.send_flags = IB_SEND_SIGNALED, .next = &refused.wr },
		.remote_addr = (uintptr_t)t->buf + KTEST_HALF, .rkey = t->pd->unsafe_global_rkey,
	};
	const struct ib_send_wr *bad = NULL;
	struct ib_wc wc;
	int i;

	KTEST_CHECK(t, t->dev->attrs.masked_atomic_cap == IB_ATOMIC_NONE);
	for (i = 0; i < ARRAY_SIZE(opcodes); i++) {
		refused.wr.opcode = opcodes[i];
		KTEST_CHECK(t, ib_post_send(t->qp, &write.wr, &bad) == -EOPNOTSUPP);
		KTEST_CHECK(t, bad == &refused.wr);
		KTEST_CHECK(t, ktest_poll_one(t, &wc) == 1 && wc.wr_id == 5 && !wc.status);
		KTEST_CHECK(t, !ib_poll_cq(t->cq, 1, &wc));
	}
	/* The segment of an atomic takes the place of the second SGE. */
	refused.wr.opcode = IB_WR_ATOMIC_FETCH_AND_ADD;
	refused.wr.sg_list = two;
	refused.wr.num_sge = ARRAY_SIZE(two);
	KTEST_CHECK(t, ib_post_send(t->qp, &refused.wr, &bad) == -EINVAL);
}

static void ktest_events(struct ktest *t)
{
	struct ib_wc wc;

	atomic_set(&t->events, 0);
	KTEST_CHECK(t, !ib_req_notify_cq(t->cq, IB_CQ_NEXT_COMP | IB_CQ_REPORT_MISSED_EVENTS));
	KTEST_CHECK(t, !ktest_post(t, IB_WR_RDMA_WRITE, 8, 1, IB_SEND_SIGNALED));
	KTEST_CHECK(t, ktest_becomes(&t->events, 1));
	KTEST_CHECK(t, !ktest_post(t, IB_WR_RDMA_WRITE, 8, 1, IB_SEND_SIGNALED));
	KTEST_CHECK(t, atomic_read(&t->events) == 1);
	KTEST_CHECK(t, ib_req_notify_cq(t->cq, IB_CQ_SOLICITED | IB_CQ_REPORT_MISSED_EVENTS) == 1);
	KTEST_CHECK(t, !ktest_post(t, IB_WR_RDMA_WRITE, 8, 1, IB_SEND_SIGNALED));
	KTEST_CHECK(t, atomic_read(&t->events) == 1);
	KTEST_CHECK(t, ktest_poll_one(t, &wc) && ktest_poll_one(t, &wc) && ktest_poll_one(t, &wc));

	KTEST_CHECK(t, !ib_req_notify_cq(t->cq, IB_CQ_NEXT_COMP));
	KTEST_CHECK(t, !ib_req_notify_cq(t->cq, IB_CQ_SOLICITED));
	KTEST_CHECK(t, !ktest_post(t, IB_WR_RDMA_WRITE, 8, 1, IB_SEND_SIGNALED));
	KTEST_CHECK(t, ktest_becomes(&t->events, 2));
	KTEST_CHECK(t, ktest_poll_one(t, &wc));
}

static int ktest_rival(void *context)
{
	struct ktest *t = context;
	int i, ret;

	for (i = 0; i < KTEST_RIVAL_POSTS && !kthread_should_stop(); i += !ret) {
		ret = ktest_post(t, IB_WR_RDMA_WRITE, 8, i, IB_SEND_SIGNALED);
		if (!ret)
			atomic_inc(&t->unpolled);
		cond_resched();
	}
	atomic_inc(&t->finished);
	while (!kthread_should_stop())
		schedule_timeout_idle(1);
	return 0;
}

/* One handler of a completion queue at a time, whatever the threads that post. */
static void ktest_rivals(struct ktest *t)
{
	struct task_struct *rivals[KTEST_RIVALS];
	unsigned long end = jiffies + 20 * HZ;
	int cpu, i, n = 0;
	struct ib_wc wc;

	t->rivals = true;
	ib_req_notify_cq(t->cq, IB_CQ_NEXT_COMP);
	for_each_online_cpu(cpu) {
		if (n == KTEST_RIVALS)
			break;
		rivals[n] = kthread_create(ktest_rival, t, "ktest-rival%d", n);
		if (IS_ERR(rivals[n]))
			break;
		kthread_bind(rivals[n], cpu);
		wake_up_process(rivals[n++]);
	}
	ktest_becomes(&t->finished, n);
	for (i = 0; i < n; i++)
		kthread_stop(rivals[i]);
	while (atomic_read(&t->unpolled) && time_before(jiffies, end)) {
		if (ib_poll_cq(t->cq, 1, &wc) > 0)
			atomic_dec(&t->unpolled);
		cond_resched();
	}
	t->rivals = false;
	KTEST_CHECK(t, n && atomic_read(&t->finished) == n && !atomic_read(&t->unpolled));
	KTEST_CHECK(t, !atomic_read(&t->overlaps));
}

static void ktest_no_chain(struct ktest *t)
{
	KTEST_CHECK(t, !atomic_read(&t->chained));
}

/* Nothing can be executed here, so the worker does it. */
static void ktest_interrupts_off(struct ktest *t)
{
	struct ib_wc wc;
	int ret;

	local_irq_disable();
	ret = ktest_post(t, IB_WR_RDMA_WRITE, 64, 9, IB_SEND_SIGNALED);
	local_irq_enable();
	KTEST_CHECK(t, !ret);
	KTEST_CHECK(t, ktest_poll_one(t, &wc) == 1 && wc.wr_id == 9 && !wc.status);
}

/* The handler polls and posts many times. The stack must not grow. */
static void ktest_post_from_handler(struct ktest *t)
{
	t->reposts_left = KTEST_REPOSTS;
	ib_req_notify_cq(t->cq, IB_CQ_NEXT_COMP);
	KTEST_CHECK(t, !ktest_post(t, IB_WR_RDMA_WRITE, 64, 7, IB_SEND_SIGNALED));
	KTEST_CHECK(t, wait_for_completion_timeout(&t->reposted, 10 * HZ));
}

static void ktest_full(struct ktest *t)
{
	struct ib_wc wc;
	int i;

	for (i = 0; i < 16; i++)
		KTEST_CHECK(t, !ktest_post(t, IB_WR_RDMA_WRITE, 8, i, IB_SEND_SIGNALED));
	KTEST_CHECK(t, ktest_post(t, IB_WR_RDMA_WRITE, 8, i, IB_SEND_SIGNALED) == -ENOMEM);
	for (i = 0; i < 16; i++)
		KTEST_CHECK(t, ktest_poll_one(t, &wc) == 1 && wc.wr_id == i && !wc.status);
}

static void ktest_post_ring(struct ktest *t, u64 first_id)
{
	int i;

	for (i = 0; i < 16; i++)
		KTEST_CHECK(t, !ktest_post(t, IB_WR_RDMA_WRITE, 8, first_id + i,
					   IB_SEND_SIGNALED));
}

/* Completions that were not polled before RESET must not be taken for later requests. */
static void ktest_reset(struct ktest *t)
{
	struct ib_qp_attr reset = { .qp_state = IB_QPS_RESET };
	struct ib_wc wc;
	int i;

	ktest_post_ring(t, 100);
	KTEST_CHECK(t, !ib_modify_qp(t->qp, &reset, IB_QP_STATE) && !ktest_connect(t));
	ktest_post_ring(t, 200);
	for (i = 0; i < 16; i++)
		KTEST_CHECK(t, ktest_poll_one(t, &wc) == 1 && wc.wr_id == 200 + i && !wc.status);
	KTEST_CHECK(t, !ib_poll_cq(t->cq, 1, &wc));
}

/* ---- a shared receive queue, of 4 receives ---- */

static int ktest_post_shared(struct ktest *t, u64 id)
{
	struct ib_sge to = ktest_sge(t, KTEST_HALF, KTEST_HALF);
	struct ib_recv_wr recv = { .wr_id = id, .sg_list = &to, .num_sge = 1 };
	const struct ib_recv_wr *bad;

	return ib_post_srq_recv(t->srq, &recv, &bad);
}

static int ktest_post_message(struct ktest *t, u64 id)
{
	struct ib_sge from = ktest_sge(t, 0, 1000);
	struct ib_send_wr send = {
		.wr_id = id, .sg_list = &from, .num_sge = 1, .opcode = IB_WR_SEND,
		.send_flags = IB_SEND_SIGNALED,
	};
	const struct ib_send_wr *bad;

	return ib_post_send(t->qp, &send, &bad);
}

static void ktest_shared_order(struct ktest *t)
{
	struct ib_sge to = ktest_sge(t, KTEST_HALF, 8);
	struct ib_recv_wr recv = { .sg_list = &to, .num_sge = 1 };
	const struct ib_recv_wr *bad;
	struct ib_wc wc;
	int i, round;

	KTEST_CHECK(t, ib_post_recv(t->qp, &recv, &bad) == -EINVAL);
	for (round = 0; round < 5; round++) {
		ktest_fill(t);
		for (i = 0; i < 4; i++)
			KTEST_CHECK(t, !ktest_post_shared(t, 10 + i));
		KTEST_CHECK(t, ktest_post_shared(t, 99) == -ENOMEM);
		for (i = 0; i < 4; i++) {
			KTEST_CHECK(t, !ktest_post_message(t, 20 + i));
			KTEST_CHECK(t, ktest_poll_one(t, &wc) == 1 && wc.wr_id == 10 + i);
			KTEST_CHECK(t, !wc.status && wc.byte_len == 1000 && wc.qp == t->qp);
			KTEST_CHECK(t, ktest_poll_one(t, &wc) == 1 && wc.wr_id == 20 + i);
		}
		KTEST_CHECK(t, !memcmp(t->buf, t->buf + KTEST_HALF, 1000));
	}
}

/* A sender waits, and a post wakes it, also where nothing can be executed. */
static void ktest_shared_late(struct ktest *t)
{
	struct ib_wc wc;
	int ret, round;

	for (round = 0; round < 2; round++) {
		KTEST_CHECK(t, !ktest_post_message(t, 2));
		KTEST_CHECK(t, !ib_poll_cq(t->cq, 1, &wc));
		if (round)
			local_irq_disable();
		ret = ktest_post_shared(t, 1);
		if (round)
			local_irq_enable();
		KTEST_CHECK(t, !ret);
		KTEST_CHECK(t, ktest_poll_one(t, &wc) == 1 && wc.wr_id == 1 && !wc.status);
		KTEST_CHECK(t, ktest_poll_one(t, &wc) == 1 && wc.wr_id == 2 && !wc.status);
	}
}

static void ktest_shared_limit(struct ktest *t)
{
	struct ib_srq_attr attr = { .srq_limit = 2 };
	struct ib_wc wc;
	int i;

	for (i = 0; i < 3; i++)
		KTEST_CHECK(t, !ktest_post_shared(t, i));
	KTEST_CHECK(t, !ib_modify_srq(t->srq, &attr, IB_SRQ_LIMIT));
	KTEST_CHECK(t, !ib_query_srq(t->srq, &attr) && attr.srq_limit == 2 && attr.max_wr == 4);
	for (i = 0; i < 3; i++) {
		KTEST_CHECK(t, !ktest_post_message(t, i));
		KTEST_CHECK(t, ktest_poll_one(t, &wc) == 1 && ktest_poll_one(t, &wc) == 1);
		KTEST_CHECK(t, ktest_becomes(&t->limits, i >= 1));
	}
}

/* Slots of completions that nobody polls before the RESET are free. So is that of the error. */
static void ktest_shared_reset(struct ktest *t)
{
	struct ib_qp_attr error = { .qp_state = IB_QPS_ERR }, reset = { .qp_state = IB_QPS_RESET };
	struct ib_wc wc;
	int i;

	for (i = 0; i < 4; i++)
		KTEST_CHECK(t, !ktest_post_shared(t, i) && !ktest_post_message(t, i));
	/* The last message of a queue pair that is its own peer is acknowledged when it is done. */
	for (i = 0; i < 4; i++)
		KTEST_CHECK(t, ktest_poll_one(t, &wc) == 1);
	KTEST_CHECK(t, !ib_modify_qp(t->qp, &error, IB_QP_STATE));
	KTEST_CHECK(t, ktest_becomes(&t->lasts, 1));
	KTEST_CHECK(t, !ib_modify_qp(t->qp, &reset, IB_QP_STATE) && !ktest_connect(t));
	KTEST_CHECK(t, !ib_poll_cq(t->cq, 1, &wc));
}

static void ktest_shared_run(struct ktest *t)
{
	struct ib_wc wc;
	int i;

	ktest_shared_order(t);
	if (!t->error)
		ktest_shared_late(t);
	if (!t->error)
		ktest_shared_limit(t);
	if (!t->error)
		ktest_shared_reset(t);
	if (!t->error)
		ktest_shared_order(t);
	for (i = 0; i < 4 && !t->error; i++)
		KTEST_CHECK(t, !ktest_post_shared(t, i) && !ktest_post_message(t, i) &&
			    ktest_poll_one(t, &wc) == 1);
	KTEST_CHECK(t, ib_destroy_srq_user(t->srq, NULL) == -EBUSY);
}

static void ktest_shared(struct ktest *t)
{
	struct ib_srq_init_attr init = {
		.event_handler = ktest_event, .srq_context = t,
		.attr = { .max_wr = 4, .max_sge = 1 },
	};
	struct ib_qp *qp = t->qp;
	struct ib_wc wc;
	int i;

	t->srq = ib_create_srq(t->pd, &init);
	if (IS_ERR(t->srq)) {
		t->error = PTR_ERR(t->srq);
		t->srq = NULL;
		return;
	}
	t->error = ktest_create_qp(t);
	if (!t->error) {
		t->error = ktest_connect(t);
		if (!t->error)
			ktest_shared_run(t);
		ib_destroy_qp(t->qp);
	}
	t->qp = qp;
	/* The queue pair has left completions, whose slots are free. */
	for (i = 0; i < 4 && !t->error; i++)
		if (ktest_post_shared(t, i))
			t->error = -EIO;
	ib_destroy_srq(t->srq);
	t->srq = NULL;
	KTEST_CHECK(t, !ib_poll_cq(t->cq, 1, &wc));
}

/*
 * The core's global rkey does not allow atomics. On the wire the queue pair that refuses is in
 * error before its NAK comes back to the requester, which is the same queue pair.
 */
static void ktest_errors(struct ktest *t)
{
	struct ib_sge sge = ktest_sge(t, 0, 8);
	struct ib_atomic_wr add = {
		.wr = { .wr_id = 1, .sg_list = &sge, .num_sge = 1,
			.opcode = IB_WR_ATOMIC_FETCH_AND_ADD, .send_flags = IB_SEND_SIGNALED },
		.remote_addr = (uintptr_t)t->buf + KTEST_HALF,
		.rkey = t->pd->unsafe_global_rkey, .compare_add = 5,
	};
	const struct ib_send_wr *bad;
	struct ib_wc wc;

	KTEST_CHECK(t, !ib_post_send(t->qp, &add.wr, &bad));
	KTEST_CHECK(t, ktest_poll_one(t, &wc) == 1 && wc.wr_id == 1);
	KTEST_CHECK(t, wc.status == IB_WC_REM_ACCESS_ERR ||
		    (ktest_wire && wc.status == IB_WC_WR_FLUSH_ERR));
	KTEST_CHECK(t, !ktest_post(t, IB_WR_RDMA_WRITE, 8, 2, 0));
	KTEST_CHECK(t, ktest_poll_one(t, &wc) == 1 && wc.wr_id == 2 &&
		    wc.status == IB_WC_WR_FLUSH_ERR);
}

/* ---- out of memory: needs peal_kfail ---- */

static int ktest_make_cq(struct ktest *t)
{
	struct ib_cq_init_attr attr = { .cqe = 256 };
	struct ib_cq *cq = ib_create_cq(t->dev, ktest_handler, NULL, t, &attr);

	if (IS_ERR(cq))
		return PTR_ERR(cq);
	ib_destroy_cq(cq);
	return 0;
}

static int ktest_make_qp(struct ktest *t)
{
	struct ib_qp_init_attr attr = {
		.send_cq = t->cq, .recv_cq = t->cq, .qp_type = IB_QPT_RC,
		.cap = { .max_send_wr = 64, .max_recv_wr = 64, .max_send_sge = 1,
			 .max_recv_sge = 1 },
	};
	struct ib_qp *qp = ib_create_qp(t->pd, &attr);

	if (IS_ERR(qp))
		return PTR_ERR(qp);
	ib_destroy_qp(qp);
	return 0;
}

static int ktest_make_srq(struct ktest *t)
{
	struct ib_srq_init_attr init = { .attr = { .max_wr = 64, .max_sge = 1 } };
	struct ib_srq *srq = ib_create_srq(t->pd, &init);

	if (IS_ERR(srq))
		return PTR_ERR(srq);
	ib_destroy_srq(srq);
	return 0;
}

static int ktest_make_pd(struct ktest *t)
{
	struct ib_pd *pd = ib_alloc_pd(t->dev, IB_PD_UNSAFE_GLOBAL_RKEY);

	if (IS_ERR(pd))
		return PTR_ERR(pd);
	ib_dealloc_pd(pd);
	return 0;
}

static int ktest_make_mr(struct ktest *t)
{
	struct ib_mr *mr = ib_alloc_mr(t->pd, IB_MR_TYPE_SG_GAPS, 600);

	if (IS_ERR(mr))
		return PTR_ERR(mr);
	ib_dereg_mr(mr);
	return 0;
}

/* Each allocation fails in turn. With @more the later ones fail, too. */
static void ktest_starve(struct ktest *t, int (*make)(struct ktest *), bool more)
{
	unsigned long number = 0, refused = 0, failed;
	int ret;

	do {
		peal_kfail_start(++number, more);
		ret = make(t);
		failed = peal_kfail_stop();
		KTEST_CHECK(t, ret == -ENOMEM || !ret);
		KTEST_CHECK(t, !ret || failed);
		KTEST_CHECK(t, !make(t));
		refused += ret == -ENOMEM;
	} while (failed);
	KTEST_CHECK(t, refused);
}

static void ktest_no_memory(struct ktest *t)
{
	static int (*const makers[])(struct ktest *) = {
		ktest_make_cq, ktest_make_qp, ktest_make_srq, ktest_make_pd,
		ktest_make_mr,
	};
	int i;

	for (i = 0; i < ARRAY_SIZE(makers) && !t->error; i++) {
		ktest_starve(t, makers[i], false);
		ktest_starve(t, makers[i], true);
	}
}

static void ktest_run_all(struct ktest *t)
{
	static void (*const tests[])(struct ktest *) = {
		ktest_send, ktest_receive_late, ktest_remote, ktest_atomic_write,
		ktest_unsupported, ktest_events, ktest_interrupts_off,
		ktest_post_from_handler, ktest_rivals, ktest_full, ktest_reset, ktest_shared,
		ktest_no_memory, ktest_errors, ktest_no_chain,
	};
	int i;

	for (i = 0; i < ARRAY_SIZE(tests) && !t->error; i++)
		tests[i](t);
}

static int (*ktest_destroy)(struct ib_qp *qp, struct ib_udata *udata);

/*
 * Some cores list a queue pair until after this call, and query it for that. A debug
 * kernel reports reads of freed memory.
 */
static int ktest_destroy_and_query(struct ib_qp *qp, struct ib_udata *udata)
{
	struct ib_qp_init_attr init;
	struct ib_qp_attr attr;
	int ret = ktest_destroy(qp, udata);

	if (!ret && (ib_query_qp(qp, &attr, 0, &init) || attr.qp_state != IB_QPS_RESET))
		ktest.error = -EIO;
	return ret;
}

/* No other thread destroys queue pairs meanwhile, because the machine runs only this test. */
static void ktest_destroy_qp(struct ktest *t)
{
	ktest_destroy = t->dev->ops.destroy_qp;
	t->dev->ops.destroy_qp = ktest_destroy_and_query;
	ib_destroy_qp(t->qp);
	t->dev->ops.destroy_qp = ktest_destroy;
}

static int ktest_with_cq(struct ktest *t)
{
	int ret = ktest_create_qp(t);

	if (ret)
		return ret;
	ret = ktest_connect(t);
	if (!ret) {
		ktest_run_all(t);
		ret = t->error;
	}
	ktest_destroy_qp(t);
	return ret ?: t->error;
}

static int ktest_with_pd(struct ktest *t)
{
	int ret = ktest_create_cq(t);

	if (ret)
		return ret;
	ret = ktest_with_cq(t);
	ib_destroy_cq(t->cq);
	return ret;
}

static int ktest_with_device(struct ktest *t)
{
	int ret;

	t->buf = kzalloc(KTEST_BYTES, GFP_KERNEL);
	if (!t->buf)
		return -ENOMEM;
	t->pd = ib_alloc_pd(t->dev, IB_PD_UNSAFE_GLOBAL_RKEY);
	ret = PTR_ERR_OR_ZERO(t->pd);
	if (!ret) {
		ret = ktest_with_pd(t);
		ib_dealloc_pd(t->pd);
	}
	kfree(t->buf);
	return ret;
}

/* The core calls a client that wants kernel verbs only if the device has all of them. */
static int ktest_add(struct ib_device *dev)
{
	if (strcmp(dev_name(&dev->dev), "peal0"))
		return -EOPNOTSUPP;
	ktest.dev = dev;
	ktest.caller = current;
	init_completion(&ktest.reposted);
	if (!ktest_polling_only)
		ktest.error = ktest_with_device(&ktest) ?: ktest_fast_reg(dev);
	ktest.error = ktest.error ?: ktest_polling(dev);
	return -EOPNOTSUPP;
}

static struct ib_client ktest_client = { .name = "peal_ktest", .add = ktest_add };

static int __init ktest_init(void)
{
	int ret = ib_register_client(&ktest_client);

	if (ret)
		return ret;
	if (!ktest.error && !ktest.dev)
		ktest.error = -ENODEV;
	if (ktest.error)
		ib_unregister_client(&ktest_client);
	return ktest.error;
}

static void __exit ktest_exit(void)
{
	ib_unregister_client(&ktest_client);
}

module_init(ktest_init);
module_exit(ktest_exit);

MODULE_DESCRIPTION("Tests of peal as a kernel user");
MODULE_LICENSE("Dual BSD/GPL");
