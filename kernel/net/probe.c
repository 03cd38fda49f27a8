// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See probe.h.
 */
#include "../dev.h"
#include "../reach.h"
#include "probe.h"

void peal_probe_send(struct peal_qp *qp, struct peal_line *line)
{
	struct peal_packet header = {
		.opcode = PEAL_OPCODE_PROBE,
		.payload_bytes = sizeof(struct peal_reach_probe),
	};
	struct peal_reach_probe probe;
	struct sk_buff *skb;
	void *payload;

	if (!peal_reach_ask(qp, &probe))
		return;
	skb = peal_line_prepare(line, &header, &payload);
	if (!skb)
		return;
	memcpy(payload, &probe, sizeof(probe));
	peal_count(qp->table, reach_asked);
	peal_line_send(line, &header, skb, false);
}

void peal_probe_receive(struct peal_dev *dev, const struct peal_datagram *dg)
{
	struct peal_reach_probe probe;

	if (dg->packet.payload_bytes != sizeof(probe))
		return;
	peal_count(&dev->table, reach_answered);
	peal_receive_copy(dg, 0, &probe, sizeof(probe));
	peal_reach_answer(&probe, &dev->home, dg->packet.qpn);
}
