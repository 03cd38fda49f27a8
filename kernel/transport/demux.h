/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Delivery of checked packets to their queue pairs.
 *
 * Owns: the lookup by QP number or multicast group, and the checks of the transport and
 * the state of the queue pair.
 * Does not know: IP, what the transports do.
 */
#ifndef PEAL_DEMUX_H
#define PEAL_DEMUX_H

#include "base/budget.h"
#include "net/port.h"

/* The find and deliver functions of struct peal_port_ops. */
struct peal_qp *peal_demux_find(struct peal_port *port, u32 qpn);
void peal_demux_deliver(struct peal_port *port, struct peal_qp *qp, struct peal_datagram *dg,
			struct peal_budget *budget);

#endif
