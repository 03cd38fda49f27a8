/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Packets out: from header values and payload to the stack.
 *
 * Owns: the skb, the IP and UDP headers, padding, the ICRC, and the limit of
 * what may wait in transmit queues (the socket of the network namespace accounts
 * it).
 * Does not know: queue pairs, PSNs, what the payload means.
 *
 *	void *payload;
 *	struct sk_buff *skb = peal_send_prepare(path, &packet, &payload);
 *	... write packet.payload_bytes at payload ...
 *	peal_send(path, skb);
 *
 * A prepared skb that is not wanted any more goes to kfree_skb().
 */
#ifndef PEAL_SEND_H
#define PEAL_SEND_H

#include <linux/list.h>

#include "../proto/packet.h"
#include "path.h"

struct peal_netns;
struct sk_buff;

/*
 * May something be sent now? When not, @waiter.ready is called once when there
 * is room again: from any context, under ns->lock with interrupts off. It puts
 * its queue pair on a list; it must not call what is declared here.
 */
struct peal_waiter {
	struct list_head node;		/* initialised by the owner; under ns->lock */
	void (*ready)(struct peal_waiter *waiter);
};

bool peal_send_has_room(struct peal_netns *ns);
/*
 * False: there was room in the meantime, and the waiter was not queued. True
 * also when it waits already.
 */
bool peal_send_wait(struct peal_netns *ns, struct peal_waiter *waiter);
/* After this returns ready() is not running and will not be called. */
void peal_send_cancel(struct peal_netns *ns, struct peal_waiter *waiter);

/*
 * @packet's pad is not read: it follows from payload_bytes. Any context.
 * Return: NULL when there is no memory: as if the packet had been lost.
 */
struct sk_buff *peal_send_prepare(const struct peal_path *path, const struct peal_packet *packet,
				  void **payload);
/*
 * ICRC, route, out through the stack (netfilter included). Consumes @skb; what
 * the stack refuses is a lost packet. With softirqs off; never sleeps. The stack
 * may take a packet for this host through the whole of its receive side at once;
 * receive.c sees to it that peal_deliver() is not called inside this.
 * Return: 0, or the reason as a negative errno, for traces; it is counted here.
 */
int peal_send(struct peal_path *path, struct sk_buff *skb);

#endif
