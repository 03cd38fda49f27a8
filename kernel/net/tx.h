/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Packets out: from header values and payload to the stack.
 *
 * Owns: the skb, the IP and UDP headers, padding, the ICRC.
 * Does not know: queue pairs, PSNs, the meaning of the payload.
 *
 *	void *payload;
 *	struct sk_buff *skb = peal_tx_prepare(path, &packet, &payload);
 *	... write packet.payload_bytes at payload ...
 *	peal_tx_send(path, skb);
 *
 * A prepared skb that is not sent must be freed with kfree_skb().
 */
#ifndef PEAL_TX_H
#define PEAL_TX_H

#include "net/path.h"
#include "proto/packet.h"

struct sk_buff;

/*
 * @packet's pad is not read, because it follows from payload_bytes. Any context.
 * Return: the skb, or NULL when there is no memory. The caller then treats the packet as
 * lost.
 */
struct sk_buff *peal_tx_prepare(const struct peal_path *path, const struct peal_packet *packet,
				void **payload);
/*
 * Compute the ICRC, find the route, and send through the stack, netfilter included.
 * Consumes @skb. A packet that the stack refuses counts as lost. With softirqs off. Never
 * sleeps.
 * The stack may take a packet for this host through its whole receive side within this
 * call. rx.c ensures that deliver() of the port is not called inside it.
 * Return: 0, or the reason as a negative errno, -EMSGSIZE when the MTU of the netdev or the
 * route is too small. It is counted here.
 */
int peal_tx_send(struct peal_path *path, struct sk_buff *skb);
/*
 * Write the 40 bytes that a receiver on this host finds in front of the payload of @packet, as
 * peal_datagram_grh() does for a packet that has arrived. With softirqs off. Return: false when the
 * route does not end on this host.
 */
bool peal_tx_grh(struct peal_path *path, const struct peal_packet *packet, void *to);

#endif
