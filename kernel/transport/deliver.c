// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See deliver.h. The checks are those of IBTA 9.6.1, as far as they need the
 * queue pair.
 */
#include "base/compat.h"
#include "base/trace.h"
#include "transport/deliver.h"
#include "transport/group.h"
#include "transport/probe.h"
#include "transport/requester.h"
#include "transport/ud.h"
#include "transport/wire.h"
#include "verbs/dev.h"

/* The destination of a datagram to a group (IBTA 9.2.3). */
#define PEAL_QPN_MULTICAST	0xffffff

#define PEAL_PKEY_NUMBER	0x7fff	/* the rest is membership */

bool peal_deliver_knows(struct peal_dev *dev, u32 qpn)
{
	return peal_table_receiver(&dev->table, qpn);
}

static void peal_deliver_drop(struct peal_dev *dev, struct peal_datagram *dg, enum peal_drop drop)
{
	peal_count_drop(&dev->table, drop);
	trace_peal_drop(&dg->packet, drop);
	kfree_skb(dg->skb);
}

/* ---- connected queue pairs; the checks want either lock ---- */

static u8 peal_deliver_transport(const struct peal_qp *qp)
{
	switch (qp->ib.qp_type) {
	case IB_QPT_RC:
		return PEAL_RC;
	case IB_QPT_UC:
		return PEAL_UC;
	default:
		return PEAL_UD;
	}
}

static bool peal_deliver_answers(const struct peal_qp *qp)
{
	switch (qp->state) {
	case IB_QPS_RTR:
	case IB_QPS_RTS:
	case IB_QPS_SQD:
	case IB_QPS_SQE:
		return !qp->rq.refusing;
	default:
		return false;
	}
}

static bool peal_deliver_asks(const struct peal_qp *qp)
{
	return qp->state == IB_QPS_RTS || qp->state == IB_QPS_SQD;
}

/* IBTA 9.6.1.5: a connected queue pair listens to its peer only. */
static enum peal_drop peal_deliver_check_peer(const struct peal_qp *qp,
					      const struct peal_datagram *dg)
{
	if (unlikely(!qp->on_wire))
		return PEAL_DROP_state;
	if (unlikely(!peal_line_leads_to(&qp->carrier->line, &dg->dgid, &dg->sgid)))
		return PEAL_DROP_source;
	/* Our key is the default one, with full membership (IBTA 10.9.3). */
	if (unlikely((dg->packet.pkey & PEAL_PKEY_NUMBER) !=
		     (PEAL_DEFAULT_PKEY & PEAL_PKEY_NUMBER)))
		return PEAL_DROP_pkey;
	return PEAL_DROP_none;
}

/* Under rq.lock. */
static enum peal_drop peal_deliver_request_locked(struct peal_qp *qp, struct peal_datagram *dg,
						  struct peal_burst *burst,
						  struct peal_budget *budget, bool *more)
{
	enum peal_drop drop;

	if (unlikely(!peal_deliver_answers(qp)))
		return PEAL_DROP_state;
	drop = peal_deliver_check_peer(qp, dg);
	if (unlikely(drop))
		return drop;
	peal_serve_request(&qp->carrier->serve, dg, burst, budget);
	*more = peal_serve_reply(&qp->carrier->serve, burst, budget);
	peal_engine_remind(qp, peal_serve_deadline(&qp->carrier->serve));
	return PEAL_DROP_none;
}

static void peal_deliver_request(struct peal_dev *dev, struct peal_qp *qp,
				 struct peal_datagram *dg, struct peal_budget *budget)
{
	struct peal_burst burst PEAL_UNINITIALIZED;
	enum peal_drop drop;
	bool more = false;

	peal_burst_begin(&burst);
	spin_lock(&qp->rq.lock);
	drop = peal_deliver_request_locked(qp, dg, &burst, budget, &more);
	spin_unlock(&qp->rq.lock);
	if (unlikely(drop))
		peal_deliver_drop(dev, dg, drop);
	peal_engine_settle(&dev->engine, &burst);
	if (unlikely(more))
		peal_engine_defer(&dev->engine, qp);
}

/* Under sq.lock. The response may have opened the window: go on at once. */
static enum peal_drop peal_deliver_response_locked(struct peal_qp *qp, struct peal_datagram *dg,
						   struct peal_burst *burst,
						   struct peal_budget *budget, bool *more)
{
	enum peal_drop drop;

	if (unlikely(!peal_deliver_asks(qp)))
		return PEAL_DROP_state;
	drop = peal_deliver_check_peer(qp, dg);
	if (unlikely(drop))
		return drop;
	peal_wire_response(qp->carrier, dg);
	*more = peal_requester_run(qp, burst, budget);
	peal_engine_remind(qp, peal_requester_deadline(qp));
	return PEAL_DROP_none;
}

static void peal_deliver_response(struct peal_dev *dev, struct peal_qp *qp,
				  struct peal_datagram *dg, struct peal_budget *budget)
{
	struct peal_burst burst PEAL_UNINITIALIZED;
	enum peal_drop drop;
	bool more = false;

	peal_burst_begin(&burst);
	spin_lock(&qp->sq.lock);
	drop = peal_deliver_response_locked(qp, dg, &burst, budget, &more);
	spin_unlock(&qp->sq.lock);
	if (unlikely(drop))
		peal_deliver_drop(dev, dg, drop);
	peal_engine_settle(&dev->engine, &burst);
	if (more)
		peal_engine_defer(&dev->engine, qp);
}

/* ---- probes: for no queue of the queue pair, but about its path ---- */

/* An ordinary packet may come by any netdev. This one must by that which leads to the peer. */
static enum peal_drop peal_deliver_check_way(struct peal_qp *qp, const struct peal_datagram *dg)
{
	enum peal_drop drop = peal_deliver_check_peer(qp, dg);

	if (!drop && !peal_line_leaves_by(&qp->carrier->line, peal_receive_iif(dg)))
		drop = PEAL_DROP_path;
	return drop;
}

/* Under rq.lock. A probe is a request, so what holds for requests holds for it. */
static enum peal_drop peal_deliver_check_probe(struct peal_qp *qp, const struct peal_datagram *dg)
{
	return peal_deliver_answers(qp) ? peal_deliver_check_way(qp, dg) : PEAL_DROP_state;
}

/*
 * The peer's sq.lock must not be taken inside rq.lock. So this one is left in between, and
 * everything is checked once more before the answer leaves.
 */
static enum peal_drop peal_deliver_asked(struct peal_dev *dev, struct peal_qp *qp,
					 const struct peal_datagram *dg,
					 struct peal_reach_probe *probe)
{
	enum peal_drop drop;

	spin_lock(&qp->rq.lock);
	drop = peal_deliver_check_probe(qp, dg);
	spin_unlock(&qp->rq.lock);
	if (drop)
		return drop;
	if (!peal_reach_see(probe, &dev->home, qp->ib.qp_num))
		return PEAL_DROP_stale;
	spin_lock(&qp->rq.lock);
	drop = peal_deliver_check_probe(qp, dg);
	if (!drop)
		peal_probe_answer(qp, &qp->carrier->line, probe);
	spin_unlock(&qp->rq.lock);
	return drop;
}

/* Under sq.lock. */
static enum peal_drop peal_deliver_prove(struct peal_qp *qp, const struct peal_datagram *dg,
					 const struct peal_reach_probe *probe)
{
	enum peal_drop drop;

	if (!peal_deliver_asks(qp))
		return PEAL_DROP_state;
	drop = peal_deliver_check_way(qp, dg);
	if (!drop && !peal_reach_prove(qp, probe))
		drop = PEAL_DROP_stale;
	return drop;
}

/* A message that waits for the proof goes on. */
static enum peal_drop peal_deliver_answered(struct peal_dev *dev, struct peal_qp *qp,
					    const struct peal_datagram *dg,
					    const struct peal_reach_probe *probe)
{
	enum peal_drop drop;
	bool waited;

	spin_lock(&qp->sq.lock);
	drop = peal_deliver_prove(qp, dg, probe);
	waited = !drop && peal_requester_reached(qp);
	spin_unlock(&qp->sq.lock);
	if (waited)
		peal_engine_defer(&dev->engine, qp);
	return drop;
}

static enum peal_drop peal_deliver_reach(struct peal_dev *dev, struct peal_qp *qp,
					 const struct peal_datagram *dg)
{
	struct peal_reach_probe probe;

	if (peal_deliver_transport(qp) != PEAL_RC)
		return PEAL_DROP_opcode;
	if (!peal_probe_read(dg, &probe))
		return PEAL_DROP_pad;
	return probe.answer ? peal_deliver_answered(dev, qp, dg, &probe) :
			    peal_deliver_asked(dev, qp, dg, &probe);
}

static void peal_deliver_probe(struct peal_dev *dev, struct peal_qp *qp, struct peal_datagram *dg)
{
	enum peal_drop drop = peal_deliver_reach(dev, qp, dg);

	if (drop)
		peal_deliver_drop(dev, dg, drop);
	else
		consume_skb(dg->skb);
}

/* ---- every packet ---- */

/* The rest of a train that many members have had the beginning of is lost: it may be. */
static void peal_deliver_group(struct peal_dev *dev, struct peal_datagram *dg,
			       struct peal_budget *budget)
{
	if (!dg->multicast || peal_opcode_transport(dg->packet.opcode) != PEAL_UD) {
		peal_deliver_drop(dev, dg, PEAL_DROP_group);
		return;
	}
	if (unlikely(!peal_budget_is_left(budget))) {
		peal_deliver_drop(dev, dg, PEAL_DROP_resource);
		return;
	}
	peal_group_deliver(dev, dg, budget);
	consume_skb(dg->skb);
}

static void peal_deliver_to(struct peal_dev *dev, struct peal_qp *qp, struct peal_datagram *dg,
			    struct peal_budget *budget)
{
	u8 transport = peal_opcode_transport(dg->packet.opcode);

	if (unlikely(transport != peal_deliver_transport(qp))) {
		peal_deliver_drop(dev, dg, PEAL_DROP_opcode);
	} else if (transport == PEAL_UD) {
		peal_ud_deliver(qp, dg);
		consume_skb(dg->skb);
	} else if (peal_packet_opcode(&dg->packet)->has & PEAL_HAS_REQUEST) {
		peal_deliver_request(dev, qp, dg, budget);
	} else {
		peal_deliver_response(dev, qp, dg, budget);
	}
}

void peal_deliver(struct peal_dev *dev, struct peal_datagram *dg, struct peal_budget *budget)
{
	struct peal_qp *qp;

	if (dg->packet.qpn == PEAL_QPN_MULTICAST) {
		peal_deliver_group(dev, dg, budget);
		return;
	}
	qp = peal_table_receiver(&dev->table, dg->packet.qpn);
	if (unlikely(!qp))
		peal_deliver_drop(dev, dg, PEAL_DROP_qpn);
	else if (unlikely(dg->packet.opcode == PEAL_OPCODE_PROBE))
		peal_deliver_probe(dev, qp, dg);
	else
		peal_deliver_to(dev, qp, dg, budget);
}
