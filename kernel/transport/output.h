/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The output of a connected queue pair. Its requester and its responder send through it, and wait
 * here for room in the transmit queues.
 *
 * Lock: hold sq.lock or rq.lock to send. Hold both, and qp->control, to replace the path.
 */
#ifndef PEAL_OUTPUT_H
#define PEAL_OUTPUT_H

#include "base/options.h"
#include "net/path.h"
#include "net/tx_quota.h"
#include "object/qp.h"

struct peal_output {
	struct peal_qp *qp;
	const struct peal_options *options;	/* of the device */

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
static inline bool peal_output_leads_to(const struct peal_output *output, const union ib_gid *sgid,
					const union ib_gid *dgid)
{
	const struct peal_path *path = &output->path[output->now];

	peal_qp_assert_either_held(output->qp);
	return output->open && !memcmp(&path->sgid, sgid, sizeof(*sgid)) &&
	       !memcmp(&path->dgid, dgid, sizeof(*dgid));
}

/* Return: the most bytes of an IP packet on the path; 0: there is no path yet. */
static inline u32 peal_output_route_mtu(const struct peal_output *output)
{
	peal_qp_assert_both_held(output->qp);
	return output->open ? output->path[output->now].route_mtu : 0;
}

void peal_output_init(struct peal_output *output, struct peal_qp *qp,
		      const struct peal_options *options);
int peal_output_stage(struct peal_output *output, struct peal_port *port,
		      struct peal_tx_quota *tx_quota, const struct rdma_ah_attr *attr, u32 peer_qpn,
		      enum ib_mtu mtu);
void peal_output_use_staged(struct peal_output *output);
void peal_output_stop(struct peal_output *output);
void peal_output_free(struct peal_output *output);

bool peal_output_leaves_by(struct peal_output *output, int ifindex);
bool peal_output_has_quota(struct peal_output *output);
/* The calls of a train (path.h) for the peer. Hold the same lock from begin() to flush(). */
void peal_output_begin(struct peal_output *output, struct peal_train *train);
bool peal_output_add(struct peal_output *output, struct peal_train *train,
		     struct peal_packet *header, struct peal_cursor *payload, bool again);
int peal_output_flush(struct peal_output *output, struct peal_train *train);
void peal_output_send_bytes(struct peal_output *output, struct peal_packet *header,
			    const void *payload);
/*
 * Send a congestion notification packet (CNP, IBTA A17.9.3), without waiting for room, because the
 * next marked packet makes another one. Return: false when it did not leave.
 */
bool peal_output_send_cnp(struct peal_output *output);
/*
 * Return: how long a packet is kept until its turn comes, in ns. It is kept for at least this
 * long and at most twice as long.
 */
u64 peal_output_reorder_ns(const struct peal_qp *qp);

#endif
