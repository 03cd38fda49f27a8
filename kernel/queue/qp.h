/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Queue pairs.
 *
 * Owns: identity, attributes, state, the rings' memory, and the CQEs that its
 * two queues produce.
 * Does not know: how messages are carried, who runs the queues and when.
 *
 * Locks: `control` serialises modify and query and may sleep. `state` and
 * `attr` are written with control, sq.lock and rq.lock all held, so that any of
 * the three is enough to read them. Order: control, sq.lock, rq.lock, cq->lock.
 */
#ifndef PEAL_QP_H
#define PEAL_QP_H

#include <linux/list.h>
#include <linux/mutex.h>
#include <rdma/ib_verbs.h>

#include "base/table.h"
#include "engine/alarm.h"
#include "queue/burst.h"
#include "queue/map.h"
#include "queue/rq.h"
#include "queue/sq.h"
#include "transport/reach.h"

struct peal_context;

/* The engine's part of a queue pair: only engine.c touches it, and runlist.c the lists. */
struct peal_run {
	struct list_head node;		/* on the engine's run list, or empty */
	struct list_head overdue;	/* on its context's list, or empty */
	struct peal_alarm alarm;
	void *engine;
	struct work_struct work;	/* what is left of packets, on CPU `home` */
	int home;			/* the last turn with packets was there, */
	unsigned long home_at;		/* then, in jiffies; both under sq.lock */
};

/*
 * READs and atomics that may be outstanding on a queue pair, either way. modify_qp
 * allows as many, also when the device advertises fewer: programs take what
 * their peer advertises.
 */
#define PEAL_MAX_RD_ATOMIC	128

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

/*
 * Net's part of a queue pair whose messages travel as packets. The structures
 * behind it are net's own; what this layer needs of them, it asks through here.
 * "Both locks": sq.lock and rq.lock. All but `free` are called inside the guard
 * or with `control` held, and only with on_wire set but for `reset`, so that the
 * carrier stays.
 */
struct peal_carrier;

struct peal_carrier_ops {
	/* Both locks: state and attributes in @mask have just changed. */
	void (*apply)(struct peal_qp *qp, int mask);
	/* Both locks: to RESET; everything in flight is forgotten. */
	void (*reset)(struct peal_qp *qp);
	/* Both locks: to ERR; nothing more is sent or taken, replies included. */
	void (*fail)(struct peal_qp *qp);
	/* Both locks: where the packet numbers stand: sq_psn, rq_psn. */
	void (*query)(struct peal_qp *qp, struct ib_qp_attr *attr);
	/*
	 * sq.lock, takes rq.lock: send what may be sent, also replies and what
	 * timers make due. Return: true when the budget ended before the work.
	 */
	bool (*run)(struct peal_qp *qp, struct peal_burst *burst, struct peal_budget *budget);
	/* sq.lock: complete the oldest message in flight as flushed; false: none. */
	bool (*flush)(struct peal_qp *qp, struct peal_burst *burst);
	/* sq.lock: is no message in flight? For SQD. */
	bool (*idle)(struct peal_qp *qp);
	/* sq.lock: when run() wants to be called again; KTIME_MAX: by events only. */
	ktime_t (*deadline)(struct peal_qp *qp);
	/* sq.lock, idle: ask whether packets reach another device of this kernel. */
	void (*ask_reach)(struct peal_qp *qp);
	/*
	 * The direct carrier stands in for packets (reach.h), for one direction.
	 * sq.lock, idle: from now on sq.psn counts; it does not any more.
	 */
	void (*lend_send)(struct peal_qp *qp);
	void (*take_back_send)(struct peal_qp *qp);
	/* rq.lock: the same with rq.psn and rq.msn, for the span of one call. */
	void (*lend_recv)(struct peal_qp *qp);
	void (*take_back_recv)(struct peal_qp *qp);
	/* The queue pair is unpublished and the guard was waited for. May sleep. */
	void (*free)(struct peal_qp *qp);
};

struct peal_qp {
	struct ib_qp ib;
	struct peal_table *table;
	struct mutex control;		/* modify and query, one at a time */
	enum ib_qp_state state;
	struct ib_qp_attr attr;
	union ib_gid sgid;		/* ours, from the address vector */
	bool on_wire;			/* the carrier carries, unless reach.direct */
	struct peal_reach reach;
	struct peal_lookup peer;	/* table.h's: of dest_qp_num on this device; sq.lock */
	struct peal_carrier *carrier;	/* NULL until needed; then until destruction */
	const struct peal_carrier_ops *carrier_ops;
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

/* Does what is posted to the send queue come back unexecuted? */
static inline bool peal_qp_send_failed(const struct peal_qp *qp)
{
	return qp->state == IB_QPS_ERR || qp->state == IB_QPS_SQE;
}

int peal_qp_init(struct peal_qp *qp, struct peal_table *table, struct peal_account *account,
		 struct ib_ucontext *uctx, struct ib_qp_init_attr *init);
void peal_qp_set_owner(struct peal_qp *qp, struct peal_context *ctx, u32 index);
void peal_qp_unpublish(struct peal_qp *qp);
void peal_qp_free(struct peal_qp *qp);
void peal_qp_describe(const struct peal_qp *qp, struct peal_create_qp_resp *resp);

void peal_qp_set_carrier(struct peal_qp *qp, struct peal_carrier *carrier,
			 const struct peal_carrier_ops *ops);
int peal_qp_check(struct peal_qp *qp, const struct ib_qp_attr *attr, int mask);
int peal_qp_modify(struct peal_qp *qp, const struct ib_qp_attr *attr, int mask, bool on_wire);
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

/* Packets that a message of @bytes occupies: at least one. */
static inline u32 peal_qp_packets(const struct peal_qp *qp, u64 bytes)
{
	u32 shift = qp->attr.path_mtu + 7;	/* IB_MTU_256 is 1 */

	return bytes ? (bytes + (1 << shift) - 1) >> shift : 1;
}

#endif
