// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See probe.h.
 */
#include "queue/qp.h"
#include "transport/probe.h"
#include "transport/reach.h"

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

void peal_probe_ask(struct peal_qp *qp, struct peal_line *line, u64 trip)
{
	struct peal_reach_probe probe;

	if (!peal_reach_ask(qp, &probe, trip))
		return;
	peal_count(qp->table, reach_asked);
	peal_probe_emit(line, &probe);
}

void peal_probe_answer(struct peal_qp *qp, struct peal_line *line,
		       const struct peal_reach_probe *answer)
{
	peal_count(qp->table, reach_answered);
	peal_probe_emit(line, answer);
}

bool peal_probe_read(const struct peal_datagram *dg, struct peal_reach_probe *probe)
{
	if (dg->packet.payload_bytes != sizeof(*probe))
		return false;
	peal_receive_copy(dg, 0, probe, sizeof(*probe));
	return true;
}
