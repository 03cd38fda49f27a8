// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See line.h.
 */
#include <linux/hash.h>

#include "base/trace.h"
#include "engine/schedule.h"
#include "net/port.h"
#include "transport/line.h"

static void peal_line_ready(struct peal_waiter *waiter)
{
	struct peal_line *line = container_of(waiter, struct peal_line, waiter);

	peal_defer(line->qp);
}

void peal_line_init(struct peal_line *line, struct peal_qp *qp)
{
	line->qp = qp;
	INIT_LIST_HEAD(&line->waiter.node);
	line->waiter.ready = peal_line_ready;
}

static struct peal_path *peal_line_path(struct peal_line *line)
{
	return &line->path[line->now];
}

static struct peal_path *peal_line_other(struct peal_line *line)
{
	return &line->path[!line->now];
}

static void peal_line_unstage(struct peal_line *line)
{
	if (line->staged)
		peal_path_release(peal_line_other(line));
	line->staged = false;
}

/**
 * peal_line_stage() - prepare another path, while the present one stays in use
 * @room: the path's packets are charged to this room
 * @mtu: the path MTU that packets will have
 *
 * The caller holds `control`.
 *
 * Return: 0, -EINVAL (path MTU too large for the link, or no RoCEv2 GID), -ENETUNREACH or
 * another error of the route lookup.
 */
int peal_line_stage(struct peal_line *line, struct peal_port *port, struct peal_room *room,
		    const struct rdma_ah_attr *attr, u32 peer_qpn, enum ib_mtu mtu)
{
	struct peal_path *path = peal_line_other(line);
	u32 qpn = line->qp->ib.qp_num;
	int ret;

	lockdep_assert_held(&line->qp->control);
	peal_line_unstage(line);
	ret = peal_path_resolve(path, port, room, attr, hash_64((u64)qpn << 32 | peer_qpn, 32));
	if (ret) {
		trace_peal_path(qpn, ret, PEAL_REASON_NO_ROUTE);
		return ret;
	}
	line->staged = true;
	if (peal_path_fits(path, mtu))
		return 0;
	trace_peal_path(qpn, -EINVAL, PEAL_REASON_PATH_MTU);
	peal_line_unstage(line);
	return -EINVAL;
}

/* Under qp->control, sq.lock and rq.lock. */
void peal_line_use_staged(struct peal_line *line)
{
	lockdep_assert_held(&line->qp->control);
	peal_qp_assert_both_held(line->qp);
	if (!line->staged)
		return;
	if (line->open)
		peal_path_release(peal_line_path(line));
	line->now = !line->now;
	line->open = true;
	line->staged = false;
}

static struct peal_room *peal_line_room(struct peal_line *line)
{
	return peal_line_path(line)->room;
}

/* Stop waiting for room. After this line->waiter.ready is not running and will not be called. */
void peal_line_stop(struct peal_line *line)
{
	if (line->open)
		peal_room_cancel(peal_line_room(line), &line->waiter);
}

void peal_line_free(struct peal_line *line)
{
	peal_line_stop(line);
	peal_line_unstage(line);
	if (line->open)
		peal_path_release(peal_line_path(line));
	line->open = false;
}

/* Do packets to the peer leave through the netdev @ifindex? Under sq.lock or rq.lock. */
bool peal_line_leaves_by(struct peal_line *line, int ifindex)
{
	peal_qp_assert_either_held(line->qp);
	return line->open && peal_path_leaves_by(peal_line_path(line), ifindex);
}

/* Is there room to send? If not, the engine gives the queue pair a turn once there is. */
bool peal_line_has_room(struct peal_line *line)
{
	struct peal_room *room = peal_line_room(line);

	peal_qp_assert_either_held(line->qp);
	if (likely(peal_room_is_left(room)))
		return true;
	peal_count(line->qp->table, full_queues);
	return !peal_room_wait(room, &line->waiter);
}

/*
 * Time for which an early packet is kept. The requester retransmits a missing packet within a
 * round trip. If the retransmission is lost as well, the requester's timeout helps. The queue
 * pair's own timeout is the best guess of the peer's, and a second if it is not set. A packet
 * that has waited for several timeouts is dropped, because the requester does not know of the
 * packet before it any more.
 */
#define PEAL_REORDER_TIMEOUTS	2
#define PEAL_REORDER_LEAST_NS	(50 * NSEC_PER_MSEC)
#define PEAL_REORDER_MOST_NS	(30 * NSEC_PER_SEC)

u64 peal_line_reorder_ns(const struct peal_qp *qp)
{
	u64 timeout = peal_qp_timeout_ns(qp) ?: NSEC_PER_SEC;

	return clamp_t(u64, PEAL_REORDER_TIMEOUTS * timeout, PEAL_REORDER_LEAST_NS,
		       PEAL_REORDER_MOST_NS);
}

/*
 * Prepare an skb for a packet to the peer. Return: NULL when there is no memory. The
 * packet then counts as lost.
 */
struct sk_buff *peal_line_prepare(struct peal_line *line, struct peal_packet *header,
				  void **payload)
{
	peal_qp_assert_either_held(line->qp);
	header->qpn = line->qp->attr.dest_qp_num;
	header->pkey = PEAL_DEFAULT_PKEY;
	return peal_tx_prepare(peal_line_path(line), header, payload);
}

void peal_line_send(struct peal_line *line, const struct peal_packet *header,
		    struct sk_buff *skb, bool again)
{
	peal_qp_assert_either_held(line->qp);
	trace_peal_packet_sent(line->qp->ib.qp_num, header, again);
	if (again)
		peal_count(line->qp->table, retransmits);
	peal_tx_send(peal_line_path(line), skb);
}

void peal_line_discard(struct sk_buff *skb)
{
	kfree_skb(skb);
}
