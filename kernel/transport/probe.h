/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Probes: the packets that prove reach (../reach.h).
 *
 * Owns: their form: a manufacturer's opcode (IBTA 9.2.1 leaves 0xc0 and up to
 * them) and the probe as payload. They leave and come in like all others,
 * through routes, netfilter and the ICRC.
 * Does not know: what a proof is good for, nor which packets a queue pair takes
 * (deliver.c).
 */
#ifndef PEAL_PROBE_H
#define PEAL_PROBE_H

#include "net/receive.h"
#include "transport/line.h"

/* sq.lock: ask, if the peer may be in this kernel. @trip as in peal_reach_ask(). */
void peal_probe_ask(struct peal_qp *qp, struct peal_line *line, u64 trip);
/* rq.lock */
void peal_probe_answer(struct peal_qp *qp, struct peal_line *line,
		       const struct peal_reach_probe *answer);
/* Return: false when the packet has no probe in it. */
bool peal_probe_read(const struct peal_datagram *dg, struct peal_reach_probe *probe);

#endif
