/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Connections on the wire: RC, XRC and UC as packets, both halves.
 *
 * Owns: the work between proto/ and the rest of the device: memory, packets, timers, completions.
 * Does not know: the protocol (proto/), how packets leave (output.h).
 */
#ifndef PEAL_CONN_H
#define PEAL_CONN_H

#include "object/cursor.h"
#include "proto/requester.h"
#include "proto/responder.h"
#include "object/qp.h"
#include "object/wqe.h"
#include "transport/output.h"

/*
 * The scatter-gather lists of messages in flight. A list says where the bytes of a message are
 * on this side. It is kept from the WQE until the message completes, because any
 * packet may be requested again.
 *
 * Owns: a copy of each message's scatter-gather list. Inline data stay in the WQE's slot, which
 * the program may reuse only after the completion.
 *
 * Lock: everything is under sq.lock, inside the epoch. The callers assert it, because the
 * lists do not know their queue pair.
 */

struct peal_sg_list {
	const void *inline_data;	/* NULL: the bytes are in the scatter-gather list */
	u64 length;
	u8 num_sge;
};

struct peal_sg_lists {
	struct peal_sg_list *item;	/* by the message's index in flight, modulo the size */
	struct peal_sge *sge;		/* max_sge entries for each item */
	u32 mask;			/* items - 1 */
	u32 max_sge;
};

int peal_sg_lists_init(struct peal_sg_lists *sg_lists, u32 items, u32 max_sge);
void peal_sg_lists_free(struct peal_sg_lists *sg_lists);
void peal_sg_lists_save(struct peal_sg_lists *sg_lists, u32 index, const struct peal_wqe *wqe);
enum peal_reason peal_sg_lists_find(const struct peal_sg_lists *sg_lists, u32 index,
				    struct peal_table *table, const struct ib_pd *pd, bool write,
				    u64 offset, u64 bytes, struct peal_cursor *cursor);

/*
 * RC, UC and XRC on the wire: the responder's side.
 *
 * Owns: struct peal_wire_responder, one half of a queue pair's transport. It knows what has
 * been requested so far and which replies are due.
 *
 * Lock: everything is under rq.lock, inside the epoch. The fields marked as hints can also
 * be read without the lock.
 */

struct peal_datagram;

struct peal_wire_responder {
	struct peal_output *output;

	/* Guarded by rq.lock: */
	struct peal_responder responder;
	struct peal_resource *resource;	/* the responder's array of resources */
	struct peal_wqe executing;	/* the request being executed, as exec.h wants it */
	bool due;			/* hint: replies are left to send */
	u64 deadline;			/* hint: when run() is due, ns; U64_MAX: never */
};

int peal_wire_responder_init(struct peal_wire_responder *r, struct peal_output *output);
void peal_wire_responder_free(struct peal_wire_responder *r);
void peal_wire_responder_configure(struct peal_wire_responder *r);
void peal_wire_responder_set_psn(struct peal_wire_responder *r, u32 psn);
struct peal_recv_psn peal_wire_responder_psn(const struct peal_wire_responder *r);
void peal_wire_responder_start(struct peal_wire_responder *r, struct peal_recv_psn at);
void peal_wire_responder_reset(struct peal_wire_responder *r);
void peal_wire_responder_forget_reordered(struct peal_wire_responder *r);

void peal_wire_responder_request(struct peal_wire_responder *r, struct peal_datagram *dg,
				 struct peal_notify *notify, struct peal_budget *budget);
bool peal_wire_responder_reply(struct peal_wire_responder *r, struct peal_notify *notify,
			       struct peal_budget *budget);
ktime_t peal_wire_responder_deadline(const struct peal_wire_responder *r);
bool peal_wire_responder_is_due(const struct peal_wire_responder *r);
bool peal_wire_responder_run(struct peal_wire_responder *r, struct peal_notify *notify,
			     struct peal_budget *budget);

/*
 * RC, UC and XRC on the wire: the transport, and the requester's side of it.
 *
 * Owns: struct peal_wire, which has the output to the peer, the messages in flight
 * and their scatter lists; what happens with responses; when the direct transport
 * sends instead of the wire.
 */

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
