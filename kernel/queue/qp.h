/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Queue pairs.
 *
 * Owns: identity, attributes, state, the rings' memory, and the CQEs that its
 * two queues produce.
 * Does not know: how messages travel (the transports), who runs the queues and when.
 *
 * Locks: `control` serialises modify and query and may sleep. `state` and
 * `attr` are written with control, sq.lock and rq.lock all held, so that any of
 * the three is enough to read them. Order: control, sq.lock, rq.lock, cq->lock.
 */
#ifndef PEAL_QP_H
#define PEAL_QP_H

#include <linux/hrtimer.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/workqueue.h>
#include <rdma/ib_verbs.h>

#include "base/table.h"
#include "queue/burst.h"
#include "queue/map.h"
#include "queue/rq.h"
#include "queue/sq.h"

struct peal_context;
struct peal_engine;

/* The engine's part of a queue pair: schedule.c writes the lists and the timer, turn.c the CPU. */
struct peal_run {
	struct list_head node;		/* on the engine's run list, or empty */
	struct list_head overdue;	/* on its context's list, or empty */
	struct hrtimer timer;		/* in softirq */
	spinlock_t timer_lock;		/* setting the timer */
	struct work_struct work;	/* what is left of packets, on CPU `home` */
	int home;			/* the last turn with packets was there, */
	unsigned long home_at;		/* then, in jiffies; both under sq.lock */
};

/* One ring as a kernel user fills it. */
struct peal_post_side {
	u64 *ids;			/* wr_id by slot */
	u32 head;			/* next index to fill */
	u32 tail;			/* first whose completion was not polled */
};

/* post.c's part, used by kernel queue pairs only. */
struct peal_posts {
	spinlock_t lock;		/* guards both heads and the slots */
	struct peal_post_side send, recv;
};

struct peal_budget;
struct peal_completion;

struct peal_locality;
struct peal_qp;
struct peal_transport;

/* Where the receive side of a connection stands. */
struct peal_recv_psn {
	u32 psn;			/* of the next packet */
	u32 msn;			/* messages completed */
};

/*
 * What a transport does for a queue pair. "Both locks": sq.lock and rq.lock. All but `free`
 * are called inside the guard or with `control` held. An operation that a transport has no
 * use for is NULL, which the functions of qp.c and the inlines below look at.
 */
struct peal_transport_ops {
	bool packets;			/* its messages leave as packets */

	/* Both locks: state and attributes in @mask have just changed. */
	void (*apply)(struct peal_transport *transport, int mask);
	/* Both locks: to RESET; everything in flight is forgotten. */
	void (*reset)(struct peal_transport *transport);
	/* Both locks: to ERR; nothing more is sent or taken, replies included. */
	void (*fail)(struct peal_transport *transport);
	/* The queue pair is unpublished and the guard was waited for. May sleep. */
	void (*free)(struct peal_transport *transport);

	/*
	 * sq.lock, takes rq.lock: send what may be sent, also replies and what timers make
	 * due; in error, flush. Return: true when the budget ended before the work.
	 */
	bool (*run)(struct peal_transport *transport, struct peal_burst *burst,
		    struct peal_budget *budget);
	/* sq.lock: when run() wants to be called again; KTIME_MAX: by events only. */
	ktime_t (*deadline)(struct peal_transport *transport);
	/* sq.lock: complete the oldest message in flight as flushed; false: none. */
	bool (*flush)(struct peal_transport *transport, struct peal_burst *burst);
	/* sq.lock: is no message in flight? For SQD, and before another transport sends. */
	bool (*idle)(struct peal_transport *transport);
	/* sq.lock: PSN of the next message's first packet. */
	u32 (*send_psn)(const struct peal_transport *transport);
	/* sq.lock, idle: the messages that come next are this transport's, from @psn on. */
	void (*start_send)(struct peal_transport *transport, u32 psn);

	/* rq.lock: where the receive side stands. */
	struct peal_recv_psn (*recv_psn)(const struct peal_transport *transport);
	/* rq.lock: the peer's messages come by this transport from here on. */
	void (*start_recv)(struct peal_transport *transport, struct peal_recv_psn at);
	/*
	 * Inside the guard, no lock: the queue pair of this kernel that waits for a receive
	 * of this one, and waits no more; or NULL.
	 */
	struct peal_qp *(*waiting_sender)(struct peal_transport *transport);
};

/* Embedded in the state of each transport. */
struct peal_transport {
	const struct peal_transport_ops *ops;
	struct peal_qp *qp;
};

struct peal_qp {
	struct ib_qp ib;
	struct peal_table *table;
	struct mutex control;		/* modify and query, one at a time */
	enum ib_qp_state state;
	struct ib_qp_attr attr;
	union ib_gid sgid;		/* ours, from the address vector */
	struct peal_transport *direct;	/* RC and UC: from creation to destruction; else NULL */
	struct peal_transport *wire;	/* NULL until a path needs it; then until destruction */
	/* Each is one of the two above; NULL: the queue pair is being destroyed. */
	struct peal_transport *transport;	/* by the path; written with both locks */
	struct peal_transport *sender;	/* that, or direct between messages; sq.lock */
	struct peal_transport *receiver;	/* that by which the last message came; rq.lock */
	struct peal_locality *locality;	/* with direct: is the peer in this kernel? */
	struct peal_engine *engine;
	u32 life;			/* RESETs so far; both locks */
	bool removed;			/* the device goes: say so when flushing */
	struct peal_context *context;	/* the program's; NULL: the kernel's */
	u32 index;			/* doorbell bit */
	struct peal_account *account;	/* the context's, or the kernel's */
	struct ib_qp_cap cap;
	enum ib_sig_type sig_type;
	struct peal_map *map;
	struct peal_sq sq;
	struct peal_rq rq;
	struct peal_run run;
	struct peal_posts posts;
};

static inline struct peal_qp *peal_qp(struct ib_qp *ib)
{
	return container_of(ib, struct peal_qp, ib);
}

/* UD and GSI: each send names its destination, and none waits for an answer. */
static inline bool peal_qp_is_datagram(const struct peal_qp *qp)
{
	return qp->ib.qp_type == IB_QPT_UD || qp->ib.qp_type == IB_QPT_GSI;
}

/* Do its messages leave as packets, unless the peer is in this kernel? A hint without a lock. */
static inline bool peal_qp_is_on_wire(const struct peal_qp *qp)
{
	const struct peal_transport *transport = READ_ONCE(qp->transport);

	return transport && transport->ops->packets;
}

/* Does it take requests? (IBTA 10.3.1) */
static inline bool peal_qp_receives(const struct peal_qp *qp)
{
	switch (qp->state) {
	case IB_QPS_RTR:
	case IB_QPS_RTS:
	case IB_QPS_SQD:
	case IB_QPS_SQE:
		return !qp->rq.refusing;
	default:
		return false;
	}
}

/* May it have requests under way, and take responses to them? */
static inline bool peal_qp_requests(const struct peal_qp *qp)
{
	return qp->state == IB_QPS_RTS || qp->state == IB_QPS_SQD;
}

/* Does what is posted to the send queue come back unexecuted? */
static inline bool peal_qp_send_failed(const struct peal_qp *qp)
{
	return qp->state == IB_QPS_ERR || qp->state == IB_QPS_SQE;
}

int peal_qp_init(struct peal_qp *qp, struct peal_table *table, struct peal_account *account,
		 struct ib_ucontext *uctx, struct ib_qp_init_attr *init);
void peal_qp_set_engine(struct peal_qp *qp, struct peal_engine *engine);
void peal_qp_set_owner(struct peal_qp *qp, struct peal_context *ctx, u32 index);
void peal_qp_unpublish(struct peal_qp *qp);
void peal_qp_free_transports(struct peal_qp *qp);
void peal_qp_free(struct peal_qp *qp);
void peal_qp_describe(const struct peal_qp *qp, struct peal_create_qp_resp *resp);

void peal_qp_set_direct(struct peal_qp *qp, struct peal_transport *direct,
			struct peal_locality *locality);
void peal_qp_set_wire(struct peal_qp *qp, struct peal_transport *wire);
void peal_qp_change_sender(struct peal_qp *qp, struct peal_transport *to);
void peal_qp_change_receiver(struct peal_qp *qp, struct peal_transport *to);
int peal_qp_check(struct peal_qp *qp, const struct ib_qp_attr *attr, int mask);
int peal_qp_modify(struct peal_qp *qp, const struct ib_qp_attr *attr, int mask,
		   struct peal_transport *transport);
void peal_qp_query(struct peal_qp *qp, struct ib_qp_attr *attr, struct ib_qp_init_attr *init);

void peal_qp_fail_locked(struct peal_qp *qp);
void peal_qp_fail_send_locked(struct peal_qp *qp);
void peal_qp_fail(struct peal_qp *qp);
void peal_qp_end(struct peal_qp *qp, u32 life);
bool peal_qp_idle(struct peal_qp *qp);
void peal_qp_mark_removed(struct peal_qp *qp);

void peal_qp_complete_send(struct peal_qp *qp, struct peal_burst *burst, u8 status,
			   enum peal_reason reason);
void peal_qp_complete_message(struct peal_qp *qp, struct peal_burst *burst,
			      const struct peal_completion *done);
void peal_qp_complete_recv(struct peal_qp *qp, struct peal_burst *burst,
			   const struct peal_cqe *cqe);
enum peal_reason peal_qp_flush_reason(const struct peal_qp *qp);

/* The path MTU is 1 << this; IB_MTU_256 is 1. */
static inline u8 peal_qp_mtu_shift(const struct peal_qp *qp)
{
	return qp->attr.path_mtu + 7;
}

/* The timeout attribute, ns; 0: the transport never gives up. */
static inline u64 peal_qp_timeout_ns(const struct peal_qp *qp)
{
	return qp->attr.timeout ? 4096ULL << qp->attr.timeout : 0;
}

/* Packets that a message of @bytes occupies: at least one. */
static inline u32 peal_qp_packets(const struct peal_qp *qp, u64 bytes)
{
	u32 shift = peal_qp_mtu_shift(qp);

	return bytes ? (bytes + (1 << shift) - 1) >> shift : 1;
}

#endif
