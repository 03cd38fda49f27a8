/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Probes: the packets that prove reach (../reach.h).
 *
 * Owns: their form: a manufacturer's opcode (IBTA 9.2.1 leaves 0xc0 and up to
 * them) and the probe as payload. They leave and come in like all others,
 * through routes, netfilter and the ICRC.
 * Does not know: what a proof is good for.
 */
#ifndef PEAL_PROBE_H
#define PEAL_PROBE_H

#include "line.h"
#include "receive.h"

struct peal_dev;

/* sq.lock: ask, if there is anybody to ask. */
void peal_probe_send(struct peal_qp *qp, struct peal_line *line);
/* Inside the guard, no lock held. The skb stays the caller's. */
void peal_probe_receive(struct peal_dev *dev, const struct peal_datagram *dg);

#endif
