/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * RC, UC and XRC on the wire: the transport, and the requester's side of it.
 *
 * Owns: struct peal_wire, which has the output to the peer, the messages in flight
 * and their scatter lists; what happens with responses; when the direct transport
 * sends instead of the wire.
 * Does not know: the protocol (proto/), IP (net/), the responder's side
 * (wire_responder.h), when it runs (engine/).
 */
#ifndef PEAL_WIRE_H
#define PEAL_WIRE_H

#include "proto/requester.h"
#include "queue/qp.h"
#include "transport/output.h"
#include "transport/sg_lists.h"
#include "transport/wire_responder.h"

struct peal_datagram;
struct peal_port;
struct peal_tx_quota;

struct peal_wire {
	struct peal_transport base;
	struct peal_output output;
	struct peal_wire_responder responder;

	/* Guarded by sq.lock: */
	struct peal_requester requester;
	struct peal_message *message;		/* the requester's array of messages */
	struct peal_sg_lists sg_lists;		/* one item for each entry of message */
	bool requester_first;			/* the requester goes first in this turn */
};

static inline struct peal_wire *peal_wire(const struct peal_transport *transport)
{
	return container_of(transport, struct peal_wire, base);
}

/**
 * peal_wire_attach() - let @qp use the wire
 * @tx_quota: its packets are charged to this transmit quota
 * @attr: has the path that the coming modify will apply, if IB_QP_AV is in @mask
 *
 * The caller holds `control`. Sleeps. If the path is not applied in the end, it is kept until
 * the next call or until free().
 *
 * Return: 0, -ENOMEM, -ENETUNREACH (no route), -EINVAL (path MTU too large for
 * the link, no RoCEv2 GID).
 */
int peal_wire_attach(struct peal_qp *qp, struct peal_port *port, struct peal_tx_quota *tx_quota,
		     const struct ib_qp_attr *attr, int mask);

/*
 * Process a request. Under rq.lock, in RTR or later. Consumes dg->skb. Return:
 * as run() of a transport.
 */
static inline bool peal_wire_request(struct peal_wire *w, struct peal_datagram *dg,
				     struct peal_notify *notify, struct peal_budget *budget)
{
	struct peal_qp *qp = w->base.qp;

	lockdep_assert_held(&qp->rq.lock);
	if (unlikely(qp->receiver != &w->base))
		peal_qp_change_receiver(qp, &w->base);
	peal_wire_responder_request(&w->responder, dg, notify, budget);
	return peal_wire_responder_reply(&w->responder, notify, budget);
}

/*
 * Process a response. Under sq.lock, inside the epoch, in RTS or SQD. Consumes dg->skb. The
 * caller runs the queue afterwards.
 */
void peal_wire_response(struct peal_wire *w, struct peal_datagram *dg);

#endif
