/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Packets out: from header values and payload to the stack.
 *
 * Owns: the skb, the IP and UDP headers, padding, the ICRC.
 * Does not know: queue pairs, PSNs, what the payload means.
 *
 *	void *payload;
 *	struct sk_buff *skb = peal_tx_prepare(path, &packet, &payload);
 *	... write packet.payload_bytes at payload ...
 *	peal_tx_send(path, skb);
 *
 * A prepared skb that is not wanted any more goes to kfree_skb().
 */
#ifndef PEAL_TX_H
#define PEAL_TX_H

#include "net/path.h"
#include "proto/packet.h"

struct sk_buff;

/*
 * @packet's pad is not read: it follows from payload_bytes. Any context.
 * Return: NULL when there is no memory: as if the packet had been lost.
 */
struct sk_buff *peal_tx_prepare(const struct peal_path *path, const struct peal_packet *packet,
				void **payload);
/*
 * ICRC, route, out through the stack (netfilter included). Consumes @skb; what
 * the stack refuses is a lost packet. With softirqs off; never sleeps. The stack
 * may take a packet for this host through the whole of its receive side at once;
 * rx.c sees to it that deliver() of the port is not called inside this.
 * Return: 0, or the reason as a negative errno, for traces; it is counted here.
 */
int peal_tx_send(struct peal_path *path, struct sk_buff *skb);

#endif
