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
 *	struct sk_buff *skb = peal_send_prepare(path, &header, &payload);
 *	... write header.payload_bytes at payload ...
 *	peal_send(path, skb);
 */
#ifndef PEAL_SEND_H
#define PEAL_SEND_H

#include "../proto/packet.h"
#include "path.h"

struct peal_netns;

/*
 * May something be sent now? When not, @waiter.ready is called once, from any
 * context, when there is room again.
 */
struct peal_waiter {
	struct list_head node;
	void (*ready)(struct peal_waiter *waiter);
};

bool peal_send_has_room(struct peal_netns *ns);
/* False: there was room in the meantime, and the waiter was not queued. */
bool peal_send_wait(struct peal_netns *ns, struct peal_waiter *waiter);
/* After this returns ready() is not running and will not be called. */
void peal_send_cancel(struct peal_netns *ns, struct peal_waiter *waiter);

/* Return: NULL when there is no memory: as if the packet had been lost. */
struct sk_buff *peal_send_prepare(struct peal_netns *ns, const struct peal_path *path,
				  const struct peal_packet *header, void **payload);
/*
 * ICRC, route, out through the stack (netfilter included). Consumes @skb; what
 * the stack refuses is a lost packet. With softirqs off; never sleeps.
 * Return: 0, or the reason as a negative errno, for counters and traces.
 */
int peal_send(struct peal_netns *ns, struct peal_path *path, struct sk_buff *skb);

#endif
