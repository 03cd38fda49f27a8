// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See restrack.h.
 */
#include <net/netlink.h>
#include <rdma/rdma_netlink.h>
#include <rdma/restrack.h>
#include <uapi/rdma/rdma_netlink.h>

#include "base/epoch.h"
#include "mem/mr.h"
#include "queue/cq.h"
#include "queue/qp.h"
#include "queue/srq.h"
#include "verbs/restrack.h"

/* What a queue pair does, copied under its locks. */
struct peal_restrack_qp {
	const char *transport;
	u32 sends_posted, recvs_posted;	/* WQEs in the rings that no message has taken yet */
	bool sends_in_flight;
	bool wants_kick;
};

/* A program can make its ring's words say anything. */
static u32 peal_restrack_pending(const struct peal_ring *ring)
{
	return max(peal_ring_pending(ring), 0);
}

/*
 * Some cores list a queue pair until destroy_qp has returned. Then it has no transport any more,
 * and its rings may be gone. While it has one, the epoch keeps the rings.
 *
 * Return: false if the queue pair is being destroyed.
 */
static bool peal_restrack_look(struct peal_qp *qp, struct peal_restrack_qp *look)
{
	struct peal_transport *sender;
	bool alive;

	peal_epoch_enter();
	spin_lock(&qp->sq.lock);
	sender = qp->sender;
	alive = sender;
	if (alive) {
		spin_lock(&qp->rq.lock);
		*look = (struct peal_restrack_qp){
			.transport = sender == qp->direct ? "direct" : "packets",
			.sends_posted = peal_restrack_pending(&qp->sq.ring),
			.recvs_posted = peal_restrack_pending(&qp->rq.ring),
			.sends_in_flight = sender->ops->idle && !sender->ops->idle(sender),
			.wants_kick = qp->rq.kicked,
		};
		spin_unlock(&qp->rq.lock);
	}
	spin_unlock(&qp->sq.lock);
	peal_epoch_exit();
	return alive;
}

/* Return: 0 or -EMSGSIZE. */
static int peal_restrack_end(struct sk_buff *msg, struct nlattr *driver, int failed)
{
	if (failed) {
		nla_nest_cancel(msg, driver);
		return -EMSGSIZE;
	}
	nla_nest_end(msg, driver);
	return 0;
}

int peal_restrack_fill_qp(struct sk_buff *msg, struct ib_qp *ib)
{
	struct peal_qp *qp = peal_qp(ib);
	struct peal_restrack_qp look;
	struct nlattr *driver;
	int failed;

	if (!peal_restrack_look(qp, &look))
		return 0;
	driver = nla_nest_start(msg, RDMA_NLDEV_ATTR_DRIVER);
	if (!driver)
		return -EMSGSIZE;
	failed = rdma_nl_put_driver_string(msg, "transport", look.transport) ||
		 rdma_nl_put_driver_u32(msg, "doorbell", qp->index) ||
		 rdma_nl_put_driver_u32(msg, "sq-entries", qp->sq.ring.mask + 1) ||
		 rdma_nl_put_driver_u32(msg, "sq-posted", look.sends_posted) ||
		 rdma_nl_put_driver_u32(msg, "sq-in-flight", look.sends_in_flight) ||
		 rdma_nl_put_driver_u32(msg, "rq-entries", qp->rq.ring.mask + 1) ||
		 rdma_nl_put_driver_u32(msg, "rq-posted", look.recvs_posted) ||
		 rdma_nl_put_driver_u32(msg, "rq-wants-kick", look.wants_kick);
	return peal_restrack_end(msg, driver, failed);
}

/*
 * Only the kernel's own copy of the indices is read, because some cores list a completion queue
 * whose ring is freed already.
 */
int peal_restrack_fill_cq(struct sk_buff *msg, struct ib_cq *ib)
{
	struct peal_cq *cq = peal_cq(ib);
	struct nlattr *driver;
	u32 written, consumed;
	bool overflowed;
	int failed;

	spin_lock_bh(&cq->lock);
	written = cq->ring.next;
	consumed = cq->ring.consumer;
	overflowed = cq->overflowed;
	spin_unlock_bh(&cq->lock);
	driver = nla_nest_start(msg, RDMA_NLDEV_ATTR_DRIVER);
	if (!driver)
		return -EMSGSIZE;
	failed = rdma_nl_put_driver_u32(msg, "written", written) ||
		 rdma_nl_put_driver_u32(msg, "consumed-last-seen", consumed) ||
		 rdma_nl_put_driver_u32(msg, "overflowed", overflowed);
	return peal_restrack_end(msg, driver, failed);
}

int peal_restrack_fill_mr(struct sk_buff *msg, struct ib_mr *ib)
{
	const struct peal_mr *mr = peal_mr(ib);
	struct nlattr *driver = nla_nest_start(msg, RDMA_NLDEV_ATTR_DRIVER);
	int failed;

	if (!driver)
		return -EMSGSIZE;
	failed = rdma_nl_put_driver_u32_hex(msg, "access", mr->key.access) ||
		 rdma_nl_put_driver_u32(msg, "windows", max(atomic_read(&mr->windows), 0));
	return peal_restrack_end(msg, driver, failed);
}

/* Only the kernel's own words are read, because some cores list a queue whose ring is freed. */
int peal_restrack_fill_srq(struct sk_buff *msg, struct ib_srq *ib)
{
	struct peal_srq_ring *srq = &peal_srq(ib)->ring;
	u32 entries, taken, limit;
	struct nlattr *driver;
	bool wanted;
	int failed;

	spin_lock_bh(&srq->lock);
	entries = srq->ring.mask + 1;
	taken = srq->ring.next;
	limit = srq->limit;
	wanted = !list_empty(&srq->starving);
	spin_unlock_bh(&srq->lock);
	driver = nla_nest_start(msg, RDMA_NLDEV_ATTR_DRIVER);
	if (!driver)
		return -EMSGSIZE;
	failed = rdma_nl_put_driver_u32(msg, "entries", entries) ||
		 rdma_nl_put_driver_u32(msg, "taken", taken) ||
		 rdma_nl_put_driver_u32(msg, "limit", limit) ||
		 rdma_nl_put_driver_u32(msg, "senders-wait", wanted);
	return peal_restrack_end(msg, driver, failed);
}
