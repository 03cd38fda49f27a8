/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The line of a connected queue pair, through which its requester and its responder send.
 *
 * Owns: the path to the peer, its replacement that is not in use yet, and the wait for room in
 * the transmit queues. When there is room again, the engine gives the queue pair a turn.
 * Does not know: what is sent, and in which order.
 *
 * Lock: hold sq.lock or rq.lock to send. Hold both, and qp->control, to replace the path.
 */
#ifndef PEAL_LINE_H
#define PEAL_LINE_H

#include "net/room.h"
#include "net/tx.h"
#include "queue/qp.h"

struct peal_line {
	struct peal_qp *qp;

	/* Guarded by qp.control, sq.lock and rq.lock: */
	struct peal_path path[2];	/* the one that is not in use: only qp.control */
	u8 now;				/* index of the path in use */
	bool open;			/* a path is in use */
	/* Guarded by qp.control: */
	bool staged;			/* the other path is ready for use */

	struct peal_waiter waiter;
};

/*
 * Do packets of the queue pair go to the GID @dgid, and do they have the source GID @sgid?
 * Under sq.lock or rq.lock.
 */
static inline bool peal_line_leads_to(const struct peal_line *line, const union ib_gid *sgid,
				      const union ib_gid *dgid)
{
	const struct peal_path *path = &line->path[line->now];

	peal_qp_assert_either_held(line->qp);
	return line->open && !memcmp(&path->sgid, sgid, sizeof(*sgid)) &&
	       !memcmp(&path->dgid, dgid, sizeof(*dgid));
}

void peal_line_init(struct peal_line *line, struct peal_qp *qp);
int peal_line_stage(struct peal_line *line, struct peal_port *port, struct peal_room *room,
		    const struct rdma_ah_attr *attr, u32 peer_qpn, enum ib_mtu mtu);
void peal_line_use_staged(struct peal_line *line);
void peal_line_stop(struct peal_line *line);
void peal_line_free(struct peal_line *line);

bool peal_line_leaves_by(struct peal_line *line, int ifindex);
bool peal_line_has_room(struct peal_line *line);
struct sk_buff *peal_line_prepare(struct peal_line *line, struct peal_packet *header,
				  void **payload);
void peal_line_send(struct peal_line *line, const struct peal_packet *header,
		    struct sk_buff *skb, bool again);
/*
 * Return: how long a packet is kept until its turn comes, in ns. It is kept for at least this
 * long and at most twice as long.
 */
u64 peal_line_reorder_ns(const struct peal_qp *qp);
void peal_line_discard(struct sk_buff *skb);

#endif
