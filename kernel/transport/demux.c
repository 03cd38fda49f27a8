// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Delivery of checked packets to their queue pairs. The checks are those of IBTA 9.6.1 that need
 * the queue pair.
 */
#include "base/compat.h"
#include "engine/engine.h"
#include "net/rx_packet.h"
#include "net/port.h"
#include "transport/conn.h"
#include "transport/local.h"
#include "transport/nic.h"
#include "transport/sender.h"
#include "transport/ud.h"

/*
 * May a connected queue pair have this packet? @request: it is one, so rq.lock is held, and
 * otherwise sq.lock. IBTA 9.6.1.5: a connected queue pair accepts packets only from its peer.
 */
static enum peal_drop peal_demux_check(const struct peal_qp *qp, const struct peal_rx_packet *rx,
				       bool request)
{
	peal_qp_assert_either_held(qp);
	if (unlikely(!(request ? peal_qp_receives(qp) : peal_qp_requests(qp)) ||
		     !peal_qp_is_on_wire(qp)))
		return PEAL_DROP_state;
	if (unlikely(!peal_output_leads_to(&peal_wire(qp->wire)->output, &rx->dgid, &rx->sgid)))
		return PEAL_DROP_source;
	if (unlikely(!peal_packet_pkey_matches(&rx->packet)))
		return PEAL_DROP_pkey;
	return PEAL_DROP_none;
}

/*
 * The lock of the half that gets the packet. peal_demux_connected() takes it, and peal_demux_end()
 * drops it. Both tell sparse that the lock has not changed, because sparse looks at one function
 * only.
 */
static spinlock_t *peal_demux_lock(struct peal_qp *qp, bool request)
{
	return request ? &qp->rq.lock : &qp->sq.lock;
}

/* Do what the packets so far cause together. They were all for one half of one queue pair. */
void peal_demux_end(struct peal_delivery *delivery)
{
	struct peal_qp *qp = delivery->qp;
	bool more = false;

	peal_epoch_assert_held();
	if (!qp)
		return;
	delivery->qp = NULL;
	/* If all packets were dropped, nothing has changed. */
	if (delivery->taken && delivery->request)
		more = peal_wire_requests_end(peal_wire(qp->wire), &delivery->notify,
					      delivery->budget);
	else if (delivery->taken)
		more = peal_wire_responses_end(peal_wire(qp->wire), &delivery->notify,
					       delivery->budget);
	__acquire(peal_demux_lock(qp, delivery->request));
	spin_unlock(peal_demux_lock(qp, delivery->request));
	peal_turn_end(&delivery->notify);
	if (unlikely(more))
		peal_defer_here(qp);
}

/*
 * Take the lock of the half of @qp that @rx is for, unless it is held. Return: why @qp may not have
 * @rx, or PEAL_DROP_none.
 */
static enum peal_drop peal_demux_open(struct peal_delivery *delivery, struct peal_qp *qp,
				      const struct peal_rx_packet *rx)
{
	bool request = peal_packet_opcode(&rx->packet)->has & PEAL_HAS_REQUEST;

	peal_epoch_assert_held();
	if (delivery->qp &&
	    (delivery->qp != qp || delivery->request != request ||
	     !peal_notify_has_room(&delivery->notify)))
		peal_demux_end(delivery);
	if (!delivery->qp) {
		spin_lock(peal_demux_lock(qp, request));
		__release(peal_demux_lock(qp, request));
		delivery->qp = qp;
		delivery->request = request;
		delivery->taken = false;
		delivery->now = ktime_get_ns();
		peal_notify_begin(&delivery->notify);
	}
	return peal_demux_check(qp, rx, request);
}

/* A packet, or a run of packets, for a connected queue pair. Consumes it. */
static void peal_demux_connected(struct peal_delivery *delivery, struct peal_qp *qp,
				 struct peal_rx_packet *rx)
{
	enum peal_drop drop = peal_demux_open(delivery, qp, rx);
	struct peal_wire *w;

	if (unlikely(drop)) {
		peal_rx_drop(delivery->port, rx, drop);
		return;
	}
	delivery->taken = true;
	w = peal_wire(qp->wire);
	if (delivery->request) {
		if (unlikely(peal_rx_is_marked(rx)))
			peal_wire_request_marked(w, peal_packet_count(&rx->packet));
		peal_wire_request(w, rx, delivery->now, &delivery->notify, delivery->budget);
	} else {
		if (unlikely(peal_rx_is_marked(rx)))
			peal_wire_response_marked(w, &rx->packet);
		peal_wire_response(w, rx, delivery->now);
	}
}

/*
 * A congestion notification packet. It has no place in the order of PSNs. It is checked like a
 * response, because it is about what the queue pair has sent.
 */
static enum peal_drop peal_demux_cnp(struct peal_qp *qp, const struct peal_rx_packet *rx)
{
	enum peal_drop drop = PEAL_DROP_opcode;
	u8 transport = peal_qp_bth_transport(qp);

	peal_epoch_assert_held();
	if (peal_transport_is_reliable(transport) || transport == PEAL_UC) {
		spin_lock(&qp->sq.lock);
		drop = peal_demux_check(qp, rx, false);
		if (!drop)
			peal_wire_notified(peal_wire(qp->wire), &rx->packet);
		spin_unlock(&qp->sq.lock);
	}
	if (drop)
		peal_count(qp, rp_cnp_ignored);
	return drop;
}

/*
 * The checks of a challenge and of the response to it, which ask about the path of a queue pair. An
 * ordinary packet may arrive through any netdev. These must arrive through the netdev that leads to
 * the peer. Under rq.lock for a challenge, which is a request, and under sq.lock for the response.
 */
static enum peal_drop peal_demux_check_way(struct peal_qp *qp, const struct peal_rx_packet *rx,
					   bool request)
{
	enum peal_drop drop = peal_demux_check(qp, rx, request);

	peal_qp_assert_either_held(qp);
	if (!drop && !peal_output_leaves_by(&peal_wire(qp->wire)->output, peal_rx_iif(rx)))
		drop = PEAL_DROP_path;
	return drop;
}

static enum peal_drop peal_demux_challenge(struct peal_nic *nic, struct peal_qp *qp,
					   const struct peal_rx_packet *rx)
{
	struct peal_locality_challenge challenge;
	enum peal_drop drop;

	if (qp->ib.qp_type == IB_QPT_UD)
		return peal_ud_challenged(&nic->locality, rx);
	if (!qp->locality)
		return PEAL_DROP_opcode;
	if (!peal_locality_read(rx, &challenge))
		return PEAL_DROP_pad;
	if (challenge.is_response) {
		spin_lock(&qp->sq.lock);
		drop = peal_demux_check_way(qp, rx, false);
		if (!drop && !peal_locality_prove(qp, &challenge))
			drop = PEAL_DROP_stale;
		spin_unlock(&qp->sq.lock);
		/* Messages of UC may wait for this (peal_locality_waits()). */
		if (!drop && !peal_qp_is_reliable(qp))
			peal_defer_here(qp);
		return drop;
	}
	/*
	 * The sq.lock of the queue pair that asks must not be taken inside rq.lock. So rq.lock is
	 * dropped in between, and the checks are repeated before the response leaves.
	 */
	spin_lock(&qp->rq.lock);
	drop = peal_demux_check_way(qp, rx, true);
	spin_unlock(&qp->rq.lock);
	if (drop)
		return drop;
	if (!peal_locality_see(&challenge, &nic->locality, qp->ib.qp_num))
		return PEAL_DROP_stale;
	spin_lock(&qp->rq.lock);
	drop = peal_demux_check_way(qp, rx, true);
	if (!drop)
		peal_locality_respond(qp, &peal_wire(qp->wire)->output, &challenge);
	spin_unlock(&qp->rq.lock);
	return drop;
}

void peal_demux_begin(struct peal_delivery *delivery, struct peal_port *port,
		      struct peal_budget *budget)
{
	delivery->port = port;
	delivery->budget = budget;
	delivery->qp = NULL;
}

/*
 * Return: the queue pair of the packet, or NULL. The packets of a train may be for different queue
 * pairs. And the sender may still write the memory from which rx.c read the QP number.
 */
static struct peal_qp *peal_demux_find(const struct peal_delivery *delivery, struct peal_qp *qp,
				       const struct peal_rx_packet *rx)
{
	if (likely(qp && qp->ib.qp_num == rx->packet.qpn))
		return qp;
	return peal_table_receiver(delivery->port->table, rx->packet.qpn);
}

u32 peal_demux_takes(struct peal_delivery *delivery, struct peal_qp *qp,
		     const struct peal_rx_packet *rx)
{
	struct peal_wire *w;

	peal_epoch_assert_held();
	if (!peal_packet_is_middle(&rx->packet))
		return 0;
	/* A rule concerns single packets. */
	if (peal_faults_exist(&delivery->port->table->faults))
		return 0;
	qp = peal_demux_find(delivery, qp, rx);
	if (!qp || peal_opcode_transport(rx->packet.opcode) != peal_qp_bth_transport(qp) ||
	    peal_demux_open(delivery, qp, rx))
		return 0;
	w = peal_wire(qp->wire);
	return delivery->request ? peal_responder_takes(&w->responder, &rx->packet) :
				   peal_requester_takes(&w->requester, &rx->packet);
}

/* A LAST packet that goes to a requester has a header more than those in front of it. */
bool peal_demux_takes_last(const struct peal_delivery *delivery, const struct peal_packet *run,
			   const struct peal_packet *last)
{
	peal_epoch_assert_held();
	return delivery->request &&
	       peal_responder_takes_last(&peal_wire(delivery->qp->wire)->responder, run, last);
}

/* A packet that is no message of a connection. Consumes it. */
static noinline void peal_demux_other(struct peal_delivery *delivery, struct peal_qp *qp,
				      struct peal_rx_packet *rx)
{
	u8 transport = peal_opcode_transport(rx->packet.opcode);
	struct peal_port *port = delivery->port;
	struct peal_nic *nic = peal_nic_of_port(port);
	enum peal_drop drop = PEAL_DROP_none;

	peal_epoch_assert_held();
	/* These take locks of their own. */
	peal_demux_end(delivery);
	if (rx->packet.qpn == PEAL_QPN_MULTICAST) {
		/*
		 * If many members have used up the budget for a train of packets, the rest of the
		 * train is lost, which UD allows.
		 */
		if (!rx->multicast || transport != PEAL_UD)
			drop = PEAL_DROP_group;
		else if (unlikely(!peal_budget_is_left(delivery->budget)))
			drop = PEAL_DROP_resource;
		else
			peal_group_deliver(&nic->groups, rx, delivery->budget);
	} else if (unlikely(!qp)) {
		drop = PEAL_DROP_qpn;
	} else if (unlikely(rx->packet.opcode == PEAL_OPCODE_CHALLENGE)) {
		drop = peal_demux_challenge(nic, qp, rx);
	} else if (rx->packet.opcode == PEAL_OPCODE_CNP) {
		drop = peal_demux_cnp(qp, rx);
	} else if (unlikely(transport != peal_qp_bth_transport(qp))) {
		drop = PEAL_DROP_opcode;
	} else {
		peal_ud_deliver(qp, rx);
	}
	if (unlikely(drop))
		peal_rx_drop(port, rx, drop);
	else
		peal_rx_consume(rx);
}

/* @qp: what the table has for the QP number. Consumes the packet, or the run of packets. */
static __always_inline void peal_demux_carry(struct peal_delivery *delivery, struct peal_qp *qp,
					     struct peal_rx_packet *rx)
{
	u8 transport = peal_opcode_transport(rx->packet.opcode);

	if (likely(qp && rx->packet.opcode != PEAL_OPCODE_CHALLENGE && transport != PEAL_UD &&
		   transport == peal_qp_bth_transport(qp)))
		peal_demux_connected(delivery, qp, rx);
	else
		peal_demux_other(delivery, qp, rx);
}

/* If no packet overtakes a packet within this time, it is delivered nevertheless. */
#define PEAL_DEMUX_OVERTAKE_NS	(10 * NSEC_PER_MSEC)

/* Which fault does an administrator want for this packet? Return: false if none. */
static bool peal_demux_fault(const struct peal_qp *qp, const struct peal_rx_packet *rx,
			     struct peal_fault *fault)
{
	struct peal_fault_message message = {
		.kinds = 1 << PEAL_NL_FAULT_KIND_DROP | 1 << PEAL_NL_FAULT_KIND_CORRUPT |
			 1 << PEAL_NL_FAULT_KIND_DELAY | 1 << PEAL_NL_FAULT_KIND_REORDER |
			 1 << PEAL_NL_FAULT_KIND_DUPLICATE,
		.qpn = qp->ib.qp_num, .peer = rx->sgid.raw,
	};

	/* No program could connect without these. */
	if (qp->ib.qp_type == IB_QPT_GSI || rx->packet.opcode == PEAL_OPCODE_CHALLENGE)
		return false;
	/* The receiver of a datagram does not look at the mark. */
	if (qp->ib.qp_type != IB_QPT_UD)
		message.kinds |= 1 << PEAL_NL_FAULT_KIND_MARK;
	return peal_faults_hit(&qp->table->faults, &message, fault);
}

/* The device has rules. */
static noinline void peal_demux_deliver_faulty(struct peal_delivery *delivery, struct peal_qp *qp,
					       struct peal_rx_packet *rx)
{
	struct peal_rx_packet held PEAL_UNINITIALIZED;
	struct peal_port *port = delivery->port;
	u32 qpn = rx->packet.qpn;
	struct peal_fault fault;
	bool reorder;

	peal_epoch_assert_held();
	/* A packet that was held was hit already. */
	if (!qp || peal_rx_was_held(rx) || !peal_demux_fault(qp, rx, &fault))
		fault.kind = PEAL_NL_FAULT_KIND_COUNT_;
	switch (fault.kind) {
	case PEAL_NL_FAULT_KIND_DROP:
		/* The network has lost it, so no counter of the device knows it. */
		peal_rx_consume(rx);
		return;
	case PEAL_NL_FAULT_KIND_CORRUPT:
		peal_rx_drop(port, rx, PEAL_DROP_icrc);
		return;
	case PEAL_NL_FAULT_KIND_DELAY:
	case PEAL_NL_FAULT_KIND_REORDER:
		reorder = fault.kind == PEAL_NL_FAULT_KIND_REORDER;
		if (peal_hold_packet(&port->hold, rx, reorder ? PEAL_DEMUX_OVERTAKE_NS :
				     (u64)fault.delay_us * NSEC_PER_USEC, reorder))
			peal_rx_consume(rx);
		else
			peal_rx_drop(port, rx, PEAL_DROP_resource);
		return;
	case PEAL_NL_FAULT_KIND_DUPLICATE:
		peal_hold_packet(&port->hold, rx, PEAL_DEMUX_OVERTAKE_NS, true);
		break;
	case PEAL_NL_FAULT_KIND_MARK:
		rx->marked = true;
		break;
	default:
		break;
	}
	peal_demux_carry(delivery, qp, rx);
	while (peal_rx_overtaken(port, qpn, &held))
		peal_demux_carry(delivery, peal_demux_find(delivery, qp, &held), &held);
}

void peal_demux_deliver(struct peal_delivery *delivery, struct peal_qp *qp,
			struct peal_rx_packet *rx)
{
	peal_epoch_assert_held();
	qp = peal_demux_find(delivery, qp, rx);
	if (peal_faults_exist(&delivery->port->table->faults))
		peal_demux_deliver_faulty(delivery, qp, rx);
	else
		peal_demux_carry(delivery, qp, rx);
}
