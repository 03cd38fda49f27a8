/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Packets in: from the stack to checked headers and a proven ICRC.
 *
 * Owns: the choice of the device that a packet is for, every check that needs
 * no queue pair, and access to the payload of an skb of any shape.
 * Does not know: queue pairs; it hands over to peal_deliver() (deliver.h).
 */
#ifndef PEAL_RECEIVE_H
#define PEAL_RECEIVE_H

#include <linux/netfilter.h>
#include <linux/skbuff.h>
#include <rdma/ib_verbs.h>

#include "proto/packet.h"

struct peal_dev;
struct peal_netns;

/* One received packet. skb->data is at the BTH; the IP header is still in front. */
struct peal_datagram {
	struct sk_buff *skb;
	bool ipv6;
	bool multicast;			/* the destination address is a group's */
	u16 vlan_id;			/* the VLAN it came by; 0xffff: none */
	union ib_gid sgid, dgid;	/* the packet's source and destination */
	struct peal_packet packet;
	u32 payload;			/* offset from skb->data */
};

/*
 * Fill @dg from an skb that was received and checked before (a kept early
 * packet), from nothing but the skb.
 */
void peal_receive_again(struct sk_buff *skb, struct peal_datagram *dg);

/*
 * Does an skb that is kept say the same as @dg, which has its PSN? What a repetition may
 * change does not count.
 */
bool peal_receive_same(struct sk_buff *kept, const struct peal_datagram *dg);

/*
 * Copy payload to kernel memory, ascending, the last eight bytes last.
 * Inside [0, packet.payload_bytes).
 */
void peal_receive_copy(const struct peal_datagram *dg, u32 offset, void *to, u32 bytes);

/*
 * The index of the netdev that it came in by; 0: not known, or it never left this host.
 * Packets to an address of this host come in by the loopback.
 */
int peal_receive_iif(const struct peal_datagram *dg);

/*
 * The 40 bytes that stand before a datagram's payload: the IPv6 header, or the
 * IPv4 header in the last 20 of them (IBTA A17.4.5.1).
 */
void peal_receive_grh(const struct peal_datagram *dg, void *to);

/* For netns.c: the hooks, with @priv left to fill; and what the backlog holds. */
#define PEAL_RECEIVE_HOOKS	2
extern const struct nf_hook_ops peal_receive_hooks[PEAL_RECEIVE_HOOKS];
void peal_receive_backlog(struct peal_netns *ns);

#endif
