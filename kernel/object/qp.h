/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Queue pairs: identity, attributes, state, the rings' memory, the CQEs of both queues, and the
 * notifications that their users get.
 *
 * Locks: `control` serialises modify and query and may sleep. `attr` is written with control,
 * sq.lock and rq.lock all held, so any of the three is enough to read it. `state` is written with
 * sq.lock and rq.lock held, so either of the two is enough to read it. Errors change it without
 * control, because they come from the data path. Order: control, sq.lock, rq.lock, cq->lock.
 */
#ifndef PEAL_QP_H
#define PEAL_QP_H

#include <linux/hrtimer.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/workqueue.h>
#include <rdma/ib_verbs.h>

#include "base/epoch.h"
#include "base/table.h"
#include "proto/packet.h"
#include "object/cq.h"
#include "object/mr.h"
#include "object/srq.h"
#include "object/wqe.h"

/*
 * Deferred notifications: completions, events and queue pair errors that are collected under locks,
 * and raised after the locks are dropped. The struct lives on the stack of the function that begins
 * it. They are raised with no lock held, but still inside the epoch, because the epoch keeps the
 * objects alive. The handlers of kernel users, which may call back into the device, run later
 * (cq.h).
 */

#define PEAL_NOTIFY_CQS		8
#define PEAL_NOTIFY_EVENTS	8
#define PEAL_NOTIFY_QPS		2
#define PEAL_NOTIFY_SRQS	6

struct peal_qp;

struct peal_notify {
	union {
		struct {
			u8 num_cqs;
			u8 num_events;
			u8 num_srqs;
			u8 num_failed;
		};
		u32 counts;	/* all of them, because most turns collect nothing */
	};
	struct peal_cq *cq[PEAL_NOTIFY_CQS];
	struct {
		struct ib_qp *qp;
		enum ib_event_type type;
	} event[PEAL_NOTIFY_EVENTS];
	struct peal_srq *srq[PEAL_NOTIFY_SRQS];
	struct {
		struct peal_qp *qp;
		u32 generation;
	} failed[PEAL_NOTIFY_QPS];		/* queue pairs to put into error */
};

/* Leave the arrays uncleared, because they are read only up to these counts. */
static inline void peal_notify_begin(struct peal_notify *notify)
{
	notify->counts = 0;
}

/*
 * Note that @cq must be notified. All arrays are long enough, because one turn concerns only
 * one queue pair and its peer, or asks peal_notify_has_room() before the next receiver or, with
 * XRC, before the next shared receive queue.
 */
static inline void peal_notify_cq(struct peal_notify *notify, struct peal_cq *cq)
{
	u32 i;

	for (i = 0; i < notify->num_cqs; i++)
		if (notify->cq[i] == cq)
			return;
	if (!WARN_ON_ONCE(i == PEAL_NOTIFY_CQS))
		notify->cq[notify->num_cqs++] = cq;
}

/* Note that @srq must be notified. */
static inline void peal_notify_srq(struct peal_notify *notify, struct peal_srq *srq)
{
	u32 i;

	for (i = 0; i < notify->num_srqs; i++)
		if (notify->srq[i] == srq)
			return;
	if (!WARN_ON_ONCE(i == PEAL_NOTIFY_SRQS))
		notify->srq[notify->num_srqs++] = srq;
}

/* Note an event to raise. It raises each event type at most once per queue pair. */
static inline void peal_notify_event(struct peal_notify *notify, struct ib_qp *qp,
				     enum ib_event_type type)
{
	u32 i;

	for (i = 0; i < notify->num_events; i++)
		if (notify->event[i].qp == qp && notify->event[i].type == type)
			return;
	if (WARN_ON_ONCE(i == PEAL_NOTIFY_EVENTS))
		return;
	notify->event[notify->num_events].qp = qp;
	notify->event[notify->num_events++].type = type;
}

/*
 * Put @qp into error when the notifications are raised, because the caller may hold a lock that the
 * change to ERR takes. @generation is the current qp->generation; see peal_qp_end().
 */
static inline void peal_notify_fail(struct peal_notify *notify, struct peal_qp *qp, u32 generation)
{
	u32 i;

	for (i = 0; i < notify->num_failed; i++)
		if (notify->failed[i].qp == qp)
			break;
	if (WARN_ON_ONCE(i == PEAL_NOTIFY_QPS))
		return;
	notify->failed[i].qp = qp;
	notify->failed[i].generation = generation;
	notify->num_failed = max_t(u8, notify->num_failed, i + 1);
}

/*
 * Is there room for what one more message may cause at its sender and its receiver? That is a
 * completion at each, an error of each, and the event that the send queue is drained.
 */
static inline bool peal_notify_has_room(const struct peal_notify *notify)
{
	return notify->num_cqs + 2 <= PEAL_NOTIFY_CQS &&
	       notify->num_events + 3 <= PEAL_NOTIFY_EVENTS && !notify->num_failed &&
	       notify->num_srqs < PEAL_NOTIFY_SRQS;
}

struct peal_context;
struct peal_engine;
struct peal_tx_quota;

/*
 * The engine's part of a queue pair. engine.c writes lists and timer, engine.c writes the CPU, and
 * so does peal_defer_here().
 */
struct peal_run {
	/* Guarded by runlists.lock: */
	struct list_head node;		/* on a run list of the engine, or empty */
	struct list_head overdue;	/* on the list of its context, or empty */

	/* Guarded by run.timer_lock: */
	struct hrtimer timer;		/* expires in softirq */

	spinlock_t timer_lock;	/* guards the fields marked with it */
	u32 expiries;		/* of the timer; only its handler writes it */

	/* Guarded by sq.lock: */
	int cpu;			/* CPU of the last turn with packets */
	unsigned long cpu_at;		/* when that turn ran, in jiffies */
};

/* The producer side of one ring of a kernel user. All indices are free-running. */
struct peal_post_side {
	/* Guarded by posts.lock: */
	u64 *ids;			/* wr_id by slot; pollers read it, too */
	u32 head;			/* next index to fill */

	u32 tail;			/* first index not yet polled; barrier L */
};

/* post.c's part of a queue pair. Only queue pairs of kernel users have it. */
struct peal_posts {
	spinlock_t lock;		/* also guards the slots of the rings */
	struct peal_post_side send, recv;
};

struct peal_budget;

struct peal_locality;
struct peal_qp;
struct peal_transport;

/* The position of a connection's receive side. */
struct peal_recv_psn {
	u32 psn;			/* PSN of the next packet expected */
	u32 msn;			/* messages completed */
};

/*
 * The operations of a transport on a queue pair. "Both locks" means sq.lock and rq.lock. All
 * operations but `free` are called inside the epoch or with `control` held. `apply`, `fail`,
 * `flush`, `idle` and `send_psn` may be NULL. Only a transport that can take turns with another one
 * on a queue pair has start_send, start_recv, recv_psn and waiting_sender.
 */
struct peal_transport_ops {
	bool packets;			/* messages leave as packets */

	/* Both locks: take over the state and the attributes in @mask, which have changed. */
	void (*apply)(struct peal_transport *transport, int mask);
	/* Both locks: forget everything in flight, because the queue pair goes to RESET. */
	void (*reset)(struct peal_transport *transport);
	/* Both locks: stop sending and receiving, replies too, because it goes to ERR. */
	void (*fail)(struct peal_transport *transport);
	/*
	 * Free the transport. The queue pair is unpublished and the caller has waited for
	 * the epoch. May sleep.
	 */
	void (*free)(struct peal_transport *transport);

	/*
	 * sq.lock, takes rq.lock: send all that may be sent, including replies and the packets
	 * that timers made due. In error, flush. Ask for a turn at the time when something will
	 * be due. Return: true when the budget ran out first.
	 */
	bool (*run)(struct peal_transport *transport, struct peal_notify *notify,
		    struct peal_budget *budget);
	/* sq.lock: complete the oldest message in flight as flushed. Return: false if none. */
	bool (*flush)(struct peal_transport *transport, struct peal_notify *notify);
	/*
	 * sq.lock: whether no message is in flight. SQD waits for that, and so does a change of
	 * the sending transport.
	 */
	bool (*idle)(struct peal_transport *transport);
	/* sq.lock: PSN of the next message's first packet. Frames have none. */
	u32 (*send_psn)(const struct peal_transport *transport);
	/* sq.lock, idle: send the next messages by this transport, the first one at @psn. */
	void (*start_send)(struct peal_transport *transport, u32 psn);

	/* rq.lock: the position of the receive side. */
	struct peal_recv_psn (*recv_psn)(const struct peal_transport *transport);
	/* rq.lock: receive the peer's next messages by this transport, from @at on. */
	void (*start_recv)(struct peal_transport *transport, struct peal_recv_psn at);
	/*
	 * Inside the epoch, no lock: end the wait of the queue pair in this kernel that waits
	 * for a receive of this one. Return: that queue pair, or NULL if none waits.
	 */
	struct peal_qp *(*waiting_sender)(struct peal_transport *transport);
};

/* The base of each transport's own struct. */
struct peal_transport {
	const struct peal_transport_ops *ops;
	struct peal_qp *qp;
};

enum peal_error_side {
	PEAL_ERROR_REQUESTER,	/* a message of the queue pair failed */
	PEAL_ERROR_RESPONDER,	/* the queue pair refused a message of its peer */
	PEAL_ERROR_SIDES
};

/* Where a queue pair finds its records, and who may see them (errors.h). */
struct peal_error_places {
	u64 netns;		/* set when the queue pair is made, like the uid */
	kuid_t uid;

	/* Guarded by errors.lock: */
	u8 place[PEAL_ERROR_SIDES];
	u64 serial;		/* 0: it has had no error */
};

struct peal_qp {
	struct ib_qp ib;
	struct peal_table *table;

	/* Guarded by sq.lock and rq.lock: */
	struct peal_counters __percpu *counters; /* the table's, or own ones; see statistics.h */

	struct mutex control;		/* serialises modify and query */

	/* Guarded by sq.lock and rq.lock: */
	enum ib_qp_state state;
	/* Guarded by qp.control, sq.lock and rq.lock: */
	struct ib_qp_attr attr;
	union ib_gid sgid;		/* own GID, from the address vector */

	struct peal_transport *direct;	/* RC, UC, XRC: until destruction; else NULL */
	/* Guarded by qp.control: */
	struct peal_transport *wire;	/* RC, UC, XRC: NULL until a path needs it */
	int sgid_ifindex;		/* of the own GID's netdev; 0: unknown; read at any time */

	/* These three point to direct or wire, or are NULL during destruction. */
	/* Guarded by qp.control, sq.lock and rq.lock: */
	struct peal_transport *transport;	/* chosen by the path */
	/* Guarded by sq.lock: */
	struct peal_transport *sender;	/* sends the next message */
	/* Guarded by rq.lock: */
	struct peal_transport *receiver;	/* received the last message */

	struct peal_locality *locality;	/* with direct: tells if the peer is in this kernel */
	struct peal_engine *engine;

	/* Guarded by sq.lock and rq.lock: */
	u32 generation;			/* number of RESETs so far */
	u32 changes;			/* number of modifications so far */
	/* Guarded by sq.lock: */
	bool removed;			/* device removal began; flushes give it as the reason */

	struct peal_context *context;	/* the program's context; NULL for a kernel user */
	u32 index;			/* number of the doorbell bit */
	struct peal_account *account;	/* account of the context, or of the kernel */
	struct peal_error_places errors;
	u8 peer_type;			/* enum ib_qp_type of the queue pair that it sends to */
	struct ib_xrcd *xrcd;		/* XRC target: its domain; else NULL */

	/* Guarded by xrcd.lock: */
	struct list_head target;	/* XRC target: in xrcd->targets */

	/* Guarded by rq.lock: */
	/* Only XRC targets change the first five, because each message names its queue. */
	struct peal_srq *srq;		/* where receives are taken from; NULL: from rq.ring */
	struct ib_pd *recv_pd;		/* of the keys in receive WQEs */
	struct ib_pd *rkey_pd;		/* of the keys in messages */
	struct peal_srq *named_srq;	/* XRC target: whose rkey_pd is; NULL: none */
	struct ib_cq *recv_cq;		/* where receives complete */
	struct peal_mr_lookup received;	/* the last look-up of an lkey of a receive */

	struct ib_qp_cap cap;
	enum ib_sig_type sig_type;
	struct peal_map *map;
	struct peal_sq sq;
	struct peal_rq rq;
	struct peal_run run;
	struct peal_events events;	/* for the handler of a kernel user */
	struct peal_posts posts;
};

static inline struct peal_qp *peal_qp(struct ib_qp *ib)
{
	return container_of(ib, struct peal_qp, ib);
}

static inline void peal_qp_assert_both_held(const struct peal_qp *qp)
{
	lockdep_assert_held(&qp->sq.lock);
	lockdep_assert_held(&qp->rq.lock);
}

/* Call inside the epoch with no lock held, because the core's handlers take locks. */
static inline void peal_notify_raise(struct peal_notify *notify)
{
	struct peal_qp *qp;
	u32 i;

	peal_epoch_assert_held();
	for (i = 0; i < notify->num_cqs; i++)
		peal_cq_notify(notify->cq[i]);
	for (i = 0; i < notify->num_srqs; i++)
		peal_srq_notify(notify->srq[i]);
	for (i = 0; i < notify->num_events; i++) {
		qp = peal_qp(notify->event[i].qp);
		peal_events_raise(&qp->events, qp->context, notify->event[i].type);
	}
}

/* A macro, because only kernels with lockdep define lockdep_is_held(). */
#define peal_qp_assert_either_held(qp)						\
	lockdep_assert(lockdep_is_held(&(qp)->sq.lock) || lockdep_is_held(&(qp)->rq.lock))

/* UD and GSI: each send names its destination, and no send waits for an ACK. */
static inline bool peal_qp_is_datagram(const struct peal_qp *qp)
{
	return qp->ib.qp_type == IB_QPT_UD || qp->ib.qp_type == IB_QPT_GSI;
}

/* RC and XRC: each message is acknowledged, or the queue pair goes into error. */
static inline bool peal_qp_is_reliable(const struct peal_qp *qp)
{
	return qp->ib.qp_type == IB_QPT_RC || qp->ib.qp_type == IB_QPT_XRC_INI ||
	       qp->ib.qp_type == IB_QPT_XRC_TGT;
}

/*
 * Return: the transport in the opcodes of the queue pair's packets. A raw packet queue pair has
 * none, because it sends and receives frames.
 */
static inline u8 peal_qp_bth_transport(const struct peal_qp *qp)
{
	switch (qp->ib.qp_type) {
	case IB_QPT_RC:
		return PEAL_RC;
	case IB_QPT_UC:
		return PEAL_UC;
	case IB_QPT_XRC_INI:
	case IB_QPT_XRC_TGT:
		return PEAL_XRC;
	case IB_QPT_RAW_PACKET:
		return PEAL_NO_TRANSPORT;
	default:
		return PEAL_UD;
	}
}

/*
 * Return: whether messages leave as packets, unless the peer is in this kernel. Without a lock
 * the answer is a hint.
 */
static inline bool peal_qp_is_on_wire(const struct peal_qp *qp)
{
	const struct peal_transport *transport = READ_ONCE(qp->transport);

	return transport && transport->ops->packets;
}

/*
 * Return: whether the next message leaves as packets, and not by memory to a peer in this kernel.
 * Only a hint, because no lock is held.
 */
static inline bool peal_qp_sends_packets(const struct peal_qp *qp)
{
	const struct peal_transport *sender = READ_ONCE(qp->sender);

	return sender && sender->ops->packets;
}

/* Return: whether the queue pair accepts requests (IBTA 10.3.1). */
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

/* Return: whether the queue pair may have requests in flight, and accepts responses to them. */
static inline bool peal_qp_requests(const struct peal_qp *qp)
{
	return qp->state == IB_QPS_RTS || qp->state == IB_QPS_SQD;
}

/* Return: whether the send queue flushes its WQEs instead of executing them. */
static inline bool peal_qp_send_failed(const struct peal_qp *qp)
{
	return qp->state == IB_QPS_ERR || qp->state == IB_QPS_SQE;
}

int peal_qp_init(struct peal_qp *qp, struct peal_table *table, struct peal_account *account,
		 struct ib_ucontext *uctx, const struct peal_limits *limits,
		 struct ib_qp_init_attr *init);
void peal_qp_set_engine(struct peal_qp *qp, struct peal_engine *engine);
void peal_qp_set_counters(struct peal_qp *qp, struct peal_counters __percpu *counters);
void peal_qp_stop(struct peal_qp *qp);
void peal_qp_unpublish(struct peal_qp *qp);
void peal_qp_free_transports(struct peal_qp *qp);
void peal_qp_free(struct peal_qp *qp);
void peal_qp_describe(const struct peal_qp *qp, struct peal_create_qp_resp *resp);

void peal_qp_name_srq(struct peal_qp *qp, struct peal_srq *srq, bool receives);

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
void peal_qp_end(struct peal_qp *qp, u32 generation);
bool peal_qp_idle(struct peal_qp *qp);
void peal_qp_mark_removed(struct peal_qp *qp);

void peal_qp_complete_message(struct peal_qp *qp, struct peal_notify *notify,
			      const struct peal_wqe *wqe, u8 status, u32 reason);
void peal_qp_complete_recv(struct peal_qp *qp, struct peal_notify *notify,
			   const struct peal_cqe *cqe);
enum peal_reason peal_qp_flush_reason(const struct peal_qp *qp);
void peal_qp_count_operation(struct peal_qp *qp, u8 opcode);

/* Take a receive WQE; see peal_rq_take(). The caller holds rq.lock. */
static inline enum peal_rq_taken peal_qp_take_recv(struct peal_qp *qp, struct peal_notify *notify,
						   enum peal_reason *reason)
{
	lockdep_assert_held(&qp->rq.lock);
	if (qp->srq)
		peal_notify_srq(notify, qp->srq);
	return peal_rq_take(&qp->rq, reason);
}

/* Count a message that the requester has completed. */
static inline void peal_qp_count_message(struct peal_qp *qp, u8 opcode, u64 bytes)
{
	peal_count(qp, messages);
	peal_count_by(qp, bytes, bytes);
	if (unlikely(READ_ONCE(qp->table->optional)))
		peal_qp_count_operation(qp, opcode);
}

/* log2 of the path MTU in bytes. Adding 7 is right because IB_MTU_256 is 1. */
static inline u8 peal_qp_mtu_shift(const struct peal_qp *qp)
{
	return qp->attr.path_mtu + 7;
}

/* The timeout attribute in ns: 4.096 us * 2^timeout. 0: the transport never gives up. */
static inline u64 peal_qp_timeout_ns(const struct peal_qp *qp)
{
	return qp->attr.timeout ? 4096ULL << qp->attr.timeout : 0;
}

/* The number of packets in a message of @bytes. An empty message still takes one packet. */
static inline u32 peal_qp_packets(const struct peal_qp *qp, u64 bytes)
{
	u32 shift = peal_qp_mtu_shift(qp);

	return bytes ? (bytes + (1 << shift) - 1) >> shift : 1;
}

/*
 * XRC domains: target queue pairs and shared receive queues that may be used together. The core
 * knows which processes share a domain. It may outlive the context that made it, so it has an
 * account and a quota of its own.
 *
 * A message names its shared receive queue by number, and the target queue pair keeps a pointer to
 * the last one. So a queue that is destroyed has to leave the target queue pairs first.
 */
struct peal_xrcd {
	struct ib_xrcd ib;
	struct peal_account account;	/* of the target queue pairs */
	struct peal_tx_quota *tx_quota;	/* transmit memory of the target queue pairs' packets */
	struct mutex lock;		/* may sleep; outside of rq->lock */

	/* Guarded by xrcd.lock: */
	struct list_head targets;	/* peal_qp.target */
};

static inline struct peal_xrcd *peal_xrcd(struct ib_xrcd *ib)
{
	return container_of(ib, struct peal_xrcd, ib);
}

int peal_xrcd_init(struct peal_xrcd *xrcd, struct peal_quota *quota,
		   struct peal_tx_quota *tx_quota);
void peal_xrcd_end(struct peal_xrcd *xrcd);
void peal_xrcd_add(struct peal_xrcd *xrcd, struct peal_qp *qp);
void peal_xrcd_remove(struct peal_xrcd *xrcd, struct peal_qp *qp);
void peal_xrcd_forget(struct peal_xrcd *xrcd, struct peal_srq *srq);

#endif
