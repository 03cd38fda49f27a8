/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The wire carrier of connected queue pairs (RC and UC): the requester's side.
 *
 * Owns: struct peal_carrier of such a queue pair: its line, its messages in
 * flight and their loads; what becomes of responses.
 * Does not know: the protocol (proto/), IP (path.h, send.h), the responder's
 * side (serve.h), when it runs (engine.h).
 */
#ifndef PEAL_WIRE_H
#define PEAL_WIRE_H

#include "proto/outbound.h"
#include "queue/qp.h"
#include "transport/line.h"
#include "transport/load.h"
#include "transport/serve.h"

struct peal_dev;
struct peal_datagram;

struct peal_carrier {
	struct peal_line line;		/* either lock */
	struct peal_serve serve;	/* rq.lock */
	/* sq.lock: */
	struct peal_outbound out;
	struct peal_flight *flight;	/* the array behind `out` */
	struct peal_load load;		/* parallel to it */
	bool asks_first;		/* before it answers; the other way round next time */
};

/**
 * peal_wire_attach() - let @qp speak on the wire
 * @attr: with IB_QP_AV in @mask: the path that the coming modify will apply
 *
 * With `control` held; sleeps. What is not applied in the end is kept for the
 * next time or for free().
 *
 * Return: 0, -ENOMEM, -ENETUNREACH (no route), -EINVAL (path MTU too large for
 * the link, no RoCEv2 GID).
 */
int peal_wire_attach(struct peal_dev *dev, struct peal_qp *qp, const struct ib_qp_attr *attr,
		     int mask);

/* sq.lock, inside the guard, RTS or SQD; run the queue afterwards. Consumes dg->skb. */
void peal_wire_response(struct peal_carrier *c, struct peal_datagram *dg);

#endif
