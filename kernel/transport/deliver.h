/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * From a checked packet to the queue pair it is for.
 *
 * Owns: the lookup by QP number or multicast group, and the checks of the
 * transport and the state of the queue pair.
 * Does not know: IP, what the transports do.
 */
#ifndef PEAL_DELIVER_H
#define PEAL_DELIVER_H

#include "base/budget.h"
#include "net/receive.h"

/* Does a queue pair of this number exist? If not, somebody else may own the packet. */
bool peal_deliver_knows(struct peal_dev *dev, u32 qpn);

/*
 * Inside the guard, softirqs off, never called from inside a send of ours (the
 * receive side queues those). Consumes dg->skb. When @budget is used up, what there is
 * to do because of the packet is left to the engine.
 */
void peal_deliver(struct peal_dev *dev, struct peal_datagram *dg, struct peal_budget *budget);

#endif
