// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See demux.h. The checks are those of IBTA 9.6.1 that need the queue pair.
 */
#include "base/compat.h"
#include "base/trace.h"
#include "engine/engine.h"
#include "net/datagram.h"
#include "transport/demux.h"
#include "transport/local.h"
#include "transport/ud.h"
#include "transport/nic.h"
#include "transport/sender.h"
#include "transport/conn.h"

static void peal_demux_drop(struct peal_nic *nic, struct peal_datagram *dg, enum peal_drop drop)
{
	peal_count_drop(&nic->table, drop);
	trace_peal_drop(&dg->packet, drop);
	peal_datagram_drop(dg);
}

/* ---- connected queue pairs; the checks need sq.lock or rq.lock ---- */

static struct peal_output *peal_demux_output(const struct peal_qp *qp)
{
	return &peal_wire(qp->wire)->output;
}

/* IBTA 9.6.1.5: a connected queue pair accepts packets only from its peer. */
static enum peal_drop peal_demux_check_peer(const struct peal_qp *qp,
					    const struct peal_datagram *dg)
{
	peal_qp_assert_either_held(qp);
	if (unlikely(!peal_qp_is_on_wire(qp)))
		return PEAL_DROP_state;
	if (unlikely(!peal_output_leads_to(peal_demux_output(qp), &dg->dgid, &dg->sgid)))
		return PEAL_DROP_source;
	if (unlikely(!peal_packet_pkey_matches(&dg->packet)))
		return PEAL_DROP_pkey;
	return PEAL_DROP_none;
}

/* Under rq.lock. */
static enum peal_drop peal_demux_request_locked(struct peal_qp *qp, struct peal_datagram *dg,
						struct peal_notify *notify,
						struct peal_budget *budget, bool *more)
{
	enum peal_drop drop;

	peal_epoch_assert_held();
	lockdep_assert_held(&qp->rq.lock);
	if (unlikely(!peal_qp_receives(qp)))
		return PEAL_DROP_state;
	drop = peal_demux_check_peer(qp, dg);
	if (unlikely(drop))
		return drop;
	*more = peal_wire_request(peal_wire(qp->wire), dg, notify, budget);
	return PEAL_DROP_none;
}

static void peal_demux_request(struct peal_nic *nic, struct peal_qp *qp,
			       struct peal_datagram *dg, struct peal_budget *budget)
{
	struct peal_notify notify PEAL_UNINITIALIZED;
	enum peal_drop drop;
	bool more = false;

	peal_notify_begin(&notify);
	spin_lock(&qp->rq.lock);
	drop = peal_demux_request_locked(qp, dg, &notify, budget, &more);
	spin_unlock(&qp->rq.lock);
	if (unlikely(drop))
		peal_demux_drop(nic, dg, drop);
	peal_turn_end(&notify);
	if (unlikely(more))
		peal_defer_here(qp);
}

/* Under sq.lock. Run the queue at once, because the response may have opened the window. */
static enum peal_drop peal_demux_response_locked(struct peal_qp *qp, struct peal_datagram *dg,
						 struct peal_notify *notify,
						 struct peal_budget *budget, bool *more)
{
	enum peal_drop drop;

	peal_epoch_assert_held();
	lockdep_assert_held(&qp->sq.lock);
	if (unlikely(!peal_qp_requests(qp)))
		return PEAL_DROP_state;
	drop = peal_demux_check_peer(qp, dg);
	if (unlikely(drop))
		return drop;
	peal_wire_response(peal_wire(qp->wire), dg);
	*more = peal_turn_locked(qp, notify, budget);
	return PEAL_DROP_none;
}

static void peal_demux_response(struct peal_nic *nic, struct peal_qp *qp,
				struct peal_datagram *dg, struct peal_budget *budget)
{
	struct peal_notify notify PEAL_UNINITIALIZED;
	enum peal_drop drop;
	bool more = false;

	peal_notify_begin(&notify);
	spin_lock(&qp->sq.lock);
	drop = peal_demux_response_locked(qp, dg, &notify, budget, &more);
	spin_unlock(&qp->sq.lock);
	if (unlikely(drop))
		peal_demux_drop(nic, dg, drop);
	peal_turn_end(&notify);
	if (more)
		peal_defer_here(qp);
}

/* ---- challenges, which ask about the path of a queue pair ---- */

/*
 * An ordinary packet may arrive through any netdev. A challenge must arrive through the
 * netdev that leads to the peer.
 */
static enum peal_drop peal_demux_check_way(struct peal_qp *qp, const struct peal_datagram *dg)
{
	enum peal_drop drop = peal_demux_check_peer(qp, dg);

	peal_qp_assert_either_held(qp);
	if (!drop && !peal_output_leaves_by(peal_demux_output(qp), peal_datagram_iif(dg)))
		drop = PEAL_DROP_path;
	return drop;
}

/* Under rq.lock. A challenge is a request, so the state must allow requests. */
static enum peal_drop peal_demux_check_challenge(struct peal_qp *qp, const struct peal_datagram *dg)
{
	lockdep_assert_held(&qp->rq.lock);
	return peal_qp_receives(qp) ? peal_demux_check_way(qp, dg) : PEAL_DROP_state;
}

/*
 * The sq.lock of the queue pair that asks must not be taken inside rq.lock. So rq.lock is
 * dropped in between, and the checks are repeated before the response leaves.
 */
static enum peal_drop peal_demux_challenged(struct peal_nic *nic, struct peal_qp *qp,
					    const struct peal_datagram *dg,
					    struct peal_locality_challenge *challenge)
{
	enum peal_drop drop;

	spin_lock(&qp->rq.lock);
	drop = peal_demux_check_challenge(qp, dg);
	spin_unlock(&qp->rq.lock);
	if (drop)
		return drop;
	if (!peal_locality_see(challenge, &nic->locality, qp->ib.qp_num))
		return PEAL_DROP_stale;
	spin_lock(&qp->rq.lock);
	drop = peal_demux_check_challenge(qp, dg);
	if (!drop)
		peal_locality_respond(qp, peal_demux_output(qp), challenge);
	spin_unlock(&qp->rq.lock);
	return drop;
}

/* Under sq.lock. */
static enum peal_drop peal_demux_prove(struct peal_qp *qp, const struct peal_datagram *dg,
				       const struct peal_locality_challenge *challenge)
{
	enum peal_drop drop;

	lockdep_assert_held(&qp->sq.lock);
	if (!peal_qp_requests(qp))
		return PEAL_DROP_state;
	drop = peal_demux_check_way(qp, dg);
	if (!drop && !peal_locality_prove(qp, challenge))
		drop = PEAL_DROP_stale;
	return drop;
}

static enum peal_drop peal_demux_responded(struct peal_qp *qp, const struct peal_datagram *dg,
					   const struct peal_locality_challenge *challenge)
{
	enum peal_drop drop;

	spin_lock(&qp->sq.lock);
	drop = peal_demux_prove(qp, dg, challenge);
	spin_unlock(&qp->sq.lock);
	return drop;
}

static enum peal_drop peal_demux_check_locality(struct peal_nic *nic, struct peal_qp *qp,
						const struct peal_datagram *dg)
{
	struct peal_locality_challenge challenge;

	if (qp->ib.qp_type == IB_QPT_UD)
		return peal_ud_challenged(&nic->locality, dg);
	if (!peal_transport_is_reliable(peal_qp_bth_transport(qp)))
		return PEAL_DROP_opcode;
	if (!peal_locality_read(dg, &challenge))
		return PEAL_DROP_pad;
	return challenge.is_response ? peal_demux_responded(qp, dg, &challenge) :
			    peal_demux_challenged(nic, qp, dg, &challenge);
}

static void peal_demux_locality(struct peal_nic *nic, struct peal_qp *qp, struct peal_datagram *dg)
{
	enum peal_drop drop = peal_demux_check_locality(nic, qp, dg);

	if (drop)
		peal_demux_drop(nic, dg, drop);
	else
		peal_datagram_consume(dg);
}

/* ---- every packet ---- */

/*
 * Deliver a multicast datagram. If many members have used up the budget for a train of packets,
 * the rest of the train is lost, which UD allows.
 */
static void peal_demux_group(struct peal_nic *nic, struct peal_datagram *dg,
			     struct peal_budget *budget)
{
	if (!dg->multicast || peal_opcode_transport(dg->packet.opcode) != PEAL_UD) {
		peal_demux_drop(nic, dg, PEAL_DROP_group);
		return;
	}
	if (unlikely(!peal_budget_is_left(budget))) {
		peal_demux_drop(nic, dg, PEAL_DROP_resource);
		return;
	}
	peal_group_deliver(&nic->groups, dg, budget);
	peal_datagram_consume(dg);
}

static void peal_demux_to(struct peal_nic *nic, struct peal_qp *qp, struct peal_datagram *dg,
			  struct peal_budget *budget)
{
	u8 transport = peal_opcode_transport(dg->packet.opcode);

	if (unlikely(transport != peal_qp_bth_transport(qp))) {
		peal_demux_drop(nic, dg, PEAL_DROP_opcode);
	} else if (transport == PEAL_UD) {
		peal_ud_deliver(qp, dg);
		peal_datagram_consume(dg);
	} else if (peal_packet_opcode(&dg->packet)->has & PEAL_HAS_REQUEST) {
		peal_demux_request(nic, qp, dg, budget);
	} else {
		peal_demux_response(nic, qp, dg, budget);
	}
}

struct peal_qp *peal_demux_find(struct peal_port *port, u32 qpn)
{
	peal_epoch_assert_held();
	return peal_table_receiver(port->table, qpn);
}

/*
 * The sender may still write the memory from which the QP number for find() was read, so look
 * the number up again if it differs in the checked packet.
 */
void peal_demux_deliver(struct peal_port *port, struct peal_qp *qp, struct peal_datagram *dg,
			struct peal_budget *budget)
{
	struct peal_nic *nic = peal_nic_of_port(port);

	peal_epoch_assert_held();
	if (dg->packet.qpn == PEAL_QPN_MULTICAST) {
		peal_demux_group(nic, dg, budget);
		return;
	}
	if (unlikely(!qp || qp->ib.qp_num != dg->packet.qpn))
		qp = peal_demux_find(port, dg->packet.qpn);
	if (unlikely(!qp))
		peal_demux_drop(nic, dg, PEAL_DROP_qpn);
	else if (unlikely(dg->packet.opcode == PEAL_OPCODE_CHALLENGE))
		peal_demux_locality(nic, qp, dg);
	else
		peal_demux_to(nic, qp, dg, budget);
}
