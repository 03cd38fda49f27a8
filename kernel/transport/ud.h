/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The transport of datagrams, for UD queue pairs and the GSI queue pair (IBTA 9.8.3).
 *
 * Owns: the way from a send WQE to one packet, the way from one packet to a receive, and the way
 * from the one to the other without a packet.
 * Does not know: when the WQEs are executed (packet_sender.h), IP (path.h, tx.h, rx.h), multicast
 * groups (group.h), when packets may be left out (proof.h).
 */
#ifndef PEAL_UD_H
#define PEAL_UD_H

#include "proto/drop.h"
#include "queue/qp.h"

struct peal_datagram;
struct peal_locality_device;
struct peal_port;
struct peal_tx_quota;

/* Called before @qp is published. @tx_quota outlives @qp. Return: 0 or -ENOMEM. */
int peal_ud_attach(struct peal_qp *qp, struct peal_port *port,
		   const struct peal_locality_device *device, struct peal_tx_quota *tx_quota);

/*
 * Deliver a datagram to @qp. The caller has checked that the type of @qp fits the opcode's
 * transport. Inside the epoch, no lock held. The skb stays the caller's, because a multicast
 * packet has several receivers.
 */
void peal_ud_deliver(struct peal_qp *qp, const struct peal_datagram *dg);

/*
 * A challenge has arrived at the device @at, for a UD queue pair. Inside the epoch, no lock held.
 * Return: why it proves nothing, or PEAL_DROP_none.
 */
enum peal_drop peal_ud_challenged(const struct peal_locality_device *at,
				  const struct peal_datagram *dg);

#endif
