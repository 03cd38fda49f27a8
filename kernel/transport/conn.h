/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Connections on the wire: RC, XRC and UC as packets, both halves.
 *
 * Owns: the work between proto/ and the rest of the device: memory, packets, timers, completions.
 * Does not know: the protocol (proto/), how packets leave (output.h).
 */
#ifndef PEAL_CONN_H
#define PEAL_CONN_H

#include "proto/cnp.h"
#include "proto/requester.h"
#include "proto/responder.h"
#include "object/mr.h"
#include "object/qp.h"
#include "object/wqe.h"
#include "transport/output.h"

struct peal_rx_packet;
struct peal_port;
struct peal_tx_quota;

struct peal_wire {
	struct peal_transport base;
	struct peal_output output;

	/* Guarded by sq.lock: */
	struct peal_requester requester;
	struct peal_message *message;	/* the requester's array of messages */
	/*
	 * The scatter-gather list of each message, max_sge entries. It is kept until the message
	 * completes, because any packet may be requested again. Inline data stay in the WQE's slot,
	 * which the program may reuse only after the completion.
	 */
	struct peal_sge *sge;
	struct peal_mr_lookup local;	/* the last look-up of an lkey of a send WQE */
	bool requester_first;		/* the requester goes first in this turn */
	int cpu;			/* the last new packet was sent from here */
	u32 expiries;			/* run.expiries when the requester last looked */
	u64 ran_at;			/* when the requester ran last, ns */
	u64 timer_least;		/* earliest time of the timer for silence, ns */

	/* Guarded by rq.lock: */
	struct peal_responder responder;
	struct peal_resource *resource;	/* the responder's array of resources */
	struct peal_mr_lookup remote;	/* the last look-up of an rkey of a WRITE */
	struct peal_cnp cnp;		/* of both halves, because the queue pair has one limit */
	bool due;			/* hint: replies are left to send */
	u64 deadline;			/* hint: when the responder is due, ns; U64_MAX: never */
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
 * Process a request. Under rq.lock, inside the epoch, in RTR or later. Consumes the packet. The
 * caller calls peal_wire_requests_end() after one or more of them, with the lock still held.
 * @now: when the packet arrived, ns.
 */
void peal_wire_request(struct peal_wire *w, struct peal_rx_packet *rx, u64 now,
		       struct peal_notify *notify, struct peal_budget *budget);
/* Send the replies to the requests so far. Return: as run() of a transport. */
bool peal_wire_requests_end(struct peal_wire *w, struct peal_notify *notify,
			    struct peal_budget *budget);

/*
 * Process a response. Under sq.lock, inside the epoch, in RTS or SQD. Consumes rx->skb. The
 * caller calls peal_wire_responses_end() after one or more of them, with the lock still held.
 */
void peal_wire_response(struct peal_wire *w, struct peal_rx_packet *rx, u64 now);
/* Run the queue if the responses so far allow something. Return: as run() of a transport. */
bool peal_wire_responses_end(struct peal_wire *w, struct peal_notify *notify,
			     struct peal_budget *budget);

/*
 * A request of the peer, or a run of @packets, has arrived with CE. Notify the peer, unless it was
 * notified a moment ago. Under rq.lock, inside the epoch, in RTR or later.
 */
void peal_wire_request_marked(struct peal_wire *w, u32 packets);

/*
 * A response has arrived with CE. Notify the peer, as an RNIC paces its responses itself. The
 * requester paces a peal peer's, by when it requests them. Under sq.lock, inside the epoch, in RTS
 * or SQD, before peal_wire_response().
 */
void peal_wire_response_marked(struct peal_wire *w, const struct peal_packet *response);

/*
 * The peer notifies us that it has received marked packets. Under sq.lock, inside the epoch, in RTS
 * or SQD. A notification does not tell whether it is about requests or READ responses. The
 * responder has no window, so the requester reacts in both cases.
 */
void peal_wire_notified(struct peal_wire *w, const struct peal_packet *cnp);

#endif
