/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The transport of datagrams: UD queue pairs, and the GSI with them (IBTA 9.8.3).
 *
 * Owns: the way from a send WQE to one packet, from one packet to a receive, and
 * the wait for room in the transmit queue.
 * Does not know: IP (path.h, tx.h, rx.h), multicast groups (group.h).
 */
#ifndef PEAL_UD_H
#define PEAL_UD_H

#include "queue/qp.h"

struct peal_datagram;
struct peal_port;
struct peal_room;

/* Before anybody can find @qp; @room outlives it. Return: 0 or -ENOMEM. */
int peal_ud_attach(struct peal_qp *qp, struct peal_port *port, struct peal_room *room);

/*
 * A datagram for @qp, whose type and opcode's transport fit. Inside the guard,
 * no lock held. The skb stays the caller's: a multicast packet has several takers.
 */
void peal_ud_deliver(struct peal_qp *qp, const struct peal_datagram *dg);

#endif
