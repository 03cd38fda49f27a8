/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A received packet: checked headers, and a payload that lies in an skb of any shape. And the
 * memory of packets that are kept because they came before their turn.
 */
#ifndef PEAL_RX_PACKET_H
#define PEAL_RX_PACKET_H

#include <linux/atomic.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/skbuff.h>
#include <net/dsfield.h>
#include <net/inet_ecn.h>
#include <net/ipv6.h>
#include <rdma/ib_verbs.h>

#include "object/cursor.h"
#include "proto/packet.h"

struct peal_port;
struct peal_table;

#define PEAL_VLAN_NONE		0xffff

/*
 * In skb->cb, from the moment that rx.c takes the packet for a device. Survives
 * segmentation. Only rx.c, hold.c and peal_rx_own() write it.
 */
struct peal_arrival {
	struct peal_port *port;		/* valid in its epoch section; later, ask peal_rx_has() */
	u16 udp;			/* offset of the UDP header from the IP header */
	u16 vlan_id;
	bool ipv6;
	bool held;			/* handed on later, see hold.h */
};

static inline struct peal_arrival *peal_arrival(struct sk_buff *skb)
{
	return (struct peal_arrival *)skb->cb;
}

/* A contiguous part of an skb: its linear part or a fragment. */
struct peal_rx_part {
	u32 begin, end;			/* offsets from skb->data */
	const u8 *bytes;		/* NULL: not addressable */
	u32 next;			/* index of the fragment behind it */
};

/*
 * One received packet, or a run of packets (packet.h). An skb may be a train: it holds several
 * packets, one behind the other, with the IP and UDP headers of the first, as the sender's
 * segmentation offload left them. skb->data is at the BTH of the first packet, and the headers are
 * still in front of it.
 */
struct peal_rx_packet {
	struct sk_buff *skb;
	u32 at;				/* offset of the BTH from skb->data */
	u32 bytes;			/* of each packet, from the BTH to the end of the ICRC */
	u16 number;			/* in the train, from 0 */
	bool train;			/* the skb belongs to the code that takes the train apart */
	bool ipv6;
	bool multicast;			/* the destination is a multicast address */
	bool marked;			/* it counts as marked with CE, also without */
	u16 vlan_id;			/* of the netdev with the address, or PEAL_VLAN_NONE */
	union ib_gid sgid, dgid;	/* the packet's source and destination */
	u16 flow;			/* UDP source port, in network order */
	struct peal_packet packet;
	u32 payload;			/* offset from skb->data */
	struct peal_rx_part part;	/* has the first byte of the first packet */
	const u8 *here;			/* the first packet, if it lies in one place; or NULL */
	u32 head_crc;			/* up to the end of the BTH, by peal_rx_icrc_is_right() */
	const u8 *bth;			/* the headers that were read, in the skb or in `headers` */
	u8 headers[PEAL_HEADERS_MAX];
};

static inline bool peal_rx_is_multicast(const struct sk_buff *skb, bool ipv6)
{
	return ipv6 ? ipv6_addr_is_multicast(&ipv6_hdr(skb)->daddr) :
		      ipv4_is_multicast(ip_hdr(skb)->daddr);
}

/* Has a router marked the packet with CE, because it met a queue (RFC 3168)? */
static inline bool peal_rx_is_marked(const struct peal_rx_packet *rx)
{
	return rx->marked ||
	       INET_ECN_is_ce(rx->ipv6 ? ipv6_get_dsfield(ipv6_hdr(rx->skb)) :
			      ip_hdr(rx->skb)->tos);
}

/* Begin to read @skb as one packet, with its data at the BTH. Its headers are not read yet. */
void peal_rx_begin(struct sk_buff *skb, struct peal_rx_packet *rx);
/*
 * Read the headers of the packet at rx->at, of rx->bytes bytes. The ICRC is not checked. Return:
 * why the headers are not valid, or PEAL_DROP_none.
 */
enum peal_drop peal_rx_parse(struct peal_rx_packet *rx);
/* Is the ICRC right? Call this after peal_rx_parse() has returned PEAL_DROP_none. */
bool peal_rx_icrc_is_right(struct peal_rx_packet *rx);

/* What is known of the ICRCs of a train, for the packets with the numbers from @begin on. */
struct peal_rx_icrcs {
	u32 begin, end;		/* @end: number of the first of which nothing is known */
	u64 right;		/* bit n: that of packet @begin + n is right */
};

/*
 * Check the packet @rx and those with the same first word of the BTH that follow it in the train,
 * up to 64, in one section for vector registers. It ends in front of a packet that is shorter or
 * does not lie in one place.
 */
void peal_rx_check_train(const struct peal_rx_packet *rx, struct peal_rx_icrcs *icrcs);

static inline bool peal_rx_icrc_is_known(const struct peal_rx_icrcs *icrcs, u32 number)
{
	return number >= icrcs->begin && number < icrcs->end;
}

static inline bool peal_rx_icrc_was_right(const struct peal_rx_icrcs *icrcs, u32 number)
{
	return icrcs->right >> (number - icrcs->begin) & 1;
}

/*
 * Make a run of the MIDDLE packet and of those that follow it in the train with the same headers,
 * the next PSNs and right ICRCs. @most: the most packets of the run. Call this after
 * peal_rx_icrc_is_right() has returned true.
 */
void peal_rx_extend(struct peal_rx_packet *rx, u32 most);
/*
 * Set @next to the packet behind @rx, which is a packet or a run of packets of a train. Return:
 * false if there is none, or it is not valid. Its ICRC is not checked.
 */
bool peal_rx_parse_next(const struct peal_rx_packet *rx, struct peal_rx_packet *next);
/* Fill @rx from @skb, which holds one packet that was checked before. */
void peal_rx_read_again(struct sk_buff *skb, struct peal_rx_packet *rx);
/*
 * Give the packet an skb of its own, so that it can be kept without the rest of its train. Return:
 * false when there is no memory.
 */
bool peal_rx_own(struct peal_rx_packet *rx);

/*
 * Does @kept, an skb that is kept, say the same as @rx, which has the same PSN? Fields that
 * may differ in a retransmit do not count.
 */
bool peal_rx_same(struct sk_buff *kept, const struct peal_rx_packet *rx);

/*
 * Copy payload to kernel memory in ascending order, the last eight bytes last. The range
 * must lie inside [0, packet.payload_bytes).
 */
void peal_rx_copy(const struct peal_rx_packet *rx, u32 offset, void *to, u32 bytes);
/*
 * Copy the first @bytes of the payload, or those of a run's payloads, to the position of @to, which
 * must have room for them.
 */
void peal_rx_scatter(const struct peal_rx_packet *rx, struct peal_cursor *to, u32 bytes);

/*
 * The index of the netdev that the packet came in by. 0: not known, or the packet never
 * left this host. A packet from this host to an address of this host comes in by the
 * loopback device.
 */
int peal_rx_iif(const struct peal_rx_packet *rx);

/*
 * The 40 bytes in front of a datagram's payload: the IPv6 header, or the IPv4 header in the
 * last 20 of them (IBTA A17.4.5.1).
 */
void peal_rx_grh(const struct peal_rx_packet *rx, void *to);

/* The packet was accepted. Free its skb, unless that is a train. */
static inline void peal_rx_consume(const struct peal_rx_packet *rx)
{
	if (!rx->train)
		consume_skb(rx->skb);
}

/*
 * How much memory a device spends on packets that are kept until their turn. A kept skb is charged
 * to no socket and to no program. A limit is necessary, because peers decide how many packets
 * arrive out of order, and programs decide how many queue pairs there are.
 *
 * No lock: the sum is read before a packet is kept and grows afterwards, so each CPU may
 * exceed the limit by one packet.
 */
struct peal_reorder_mem {
	struct peal_table *table;	/* the device's, for its counters */
	atomic_long_t bytes;		/* truesize of all kept packets */
};

/*
 * May a queue pair that keeps @kept packets on this side (requester or responder) also keep
 * @rx until its turn comes? Return: an skb that holds nothing else, or NULL. NULL means that it is
 * larger than a packet of this path MTU has reason to be, or that the queue pair's share is used
 * up.
 */
struct sk_buff *peal_reorder_mem_may(struct peal_reorder_mem *mem, struct peal_rx_packet *rx,
				     u32 mtu, u32 kept);
/*
 * Count @skb as kept, and give it memory of its own. The caller of peal_reorder_mem_add(),
 * peal_reorder_mem_take() and peal_reorder_mem_lose() holds the lock of that side of the
 * queue pair, or frees the queue pair. The callers assert it, because the queue pair is not
 * known here.
 */
void peal_reorder_mem_add(struct peal_reorder_mem *mem, struct sk_buff *skb);
/* The turn of @skb has come, so it is not kept any more. It is the caller's. */
void peal_reorder_mem_take(struct peal_reorder_mem *mem, const struct sk_buff *skb);
/* The turn of @skb will not come. Frees @skb. */
void peal_reorder_mem_lose(struct peal_reorder_mem *mem, struct sk_buff *skb);

#endif
