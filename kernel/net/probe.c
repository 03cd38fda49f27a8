// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See probe.h.
 */
#include "../dev.h"
#include "../engine.h"
#include "../reach.h"
#include "../requester.h"
#include "probe.h"
#include "wire.h"

static void peal_probe_emit(struct peal_line *line, const struct peal_reach_probe *probe)
{
	struct peal_packet header = {
		.opcode = PEAL_OPCODE_PROBE,
		.payload_bytes = sizeof(*probe),
	};
	struct sk_buff *skb;
	void *payload;

	skb = peal_line_prepare(line, &header, &payload);
	if (!skb)
		return;
	memcpy(payload, probe, sizeof(*probe));
	peal_line_send(line, &header, skb, false);
}

void peal_probe_send(struct peal_qp *qp, struct peal_line *line)
{
	struct peal_reach_probe probe;

	if (!peal_reach_ask(qp, &probe))
		return;
	peal_count(qp->table, reach_asked);
	peal_probe_emit(line, &probe);
}

/* Back through the queue pair that it was addressed to, along its path. */
static void peal_probe_return(struct peal_qp *qp, struct peal_reach_probe *probe)
{
	probe->echo = 1;
	peal_count(qp->table, reach_answered);
	spin_lock(&qp->rq.lock);
	if (qp->ib.qp_type == IB_QPT_RC && qp->on_wire && qp->state >= IB_QPS_RTR &&
	    qp->state <= IB_QPS_SQD)
		peal_probe_emit(&qp->carrier->line, probe);
	spin_unlock(&qp->rq.lock);
}

/* What waits for the proof goes on. */
static void peal_probe_returned(struct peal_qp *qp, const struct peal_reach_probe *probe)
{
	bool waited;

	spin_lock(&qp->sq.lock);
	waited = peal_reach_prove(qp, probe) && peal_requester_reached(qp);
	spin_unlock(&qp->sq.lock);
	if (waited)
		peal_engine_defer(qp->run.engine, qp);
}

void peal_probe_receive(struct peal_dev *dev, const struct peal_datagram *dg)
{
	struct peal_qp *qp = peal_table_qp(&dev->table, dg->packet.qpn);
	struct peal_reach_probe probe;

	if (!qp || dg->packet.payload_bytes != sizeof(probe))
		return;
	peal_receive_copy(dg, 0, &probe, sizeof(probe));
	if (probe.echo)
		peal_probe_returned(qp, &probe);
	else if (peal_reach_see(&probe, &dev->home, dg->packet.qpn))
		peal_probe_return(qp, &probe);
}
