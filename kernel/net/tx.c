// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See tx.h.
 */
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/netdevice.h>
#include <linux/udp.h>
#include <net/dsfield.h>
#include <net/ip.h>
#include <net/ip6_route.h>
#include <net/ipv6.h>
#include <net/neighbour.h>
#include <net/route.h>
#include <net/sock.h>

#include "net/crc.h"
#include "net/netns.h"
#include "net/port.h"
#include "net/tx.h"
#include "net/tx_quota.h"
#include "proto/packet.h"

static u32 peal_tx_ip_bytes(const struct peal_path *path)
{
	return path->ipv6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr);
}

struct sk_buff *peal_tx_prepare(const struct peal_path *path, const struct peal_packet *packet,
				void **payload)
{
	struct peal_packet padded = *packet;
	u32 ip_bytes = peal_tx_ip_bytes(path), tail;
	struct sk_buff *skb;

	padded.pad = -packet->payload_bytes & 3;
	tail = packet->payload_bytes + padded.pad + PEAL_ICRC_BYTES;
	skb = alloc_skb(MAX_HEADER + ip_bytes + sizeof(struct udphdr) + PEAL_HEADERS_MAX + tail,
			GFP_ATOMIC | __GFP_NOWARN);
	if (!skb) {
		peal_count(path->port->table, packets_unsent);
		return NULL;
	}
	skb_reserve(skb, MAX_HEADER);
	skb_reset_network_header(skb);
	skb_put(skb, ip_bytes);
	skb_set_transport_header(skb, ip_bytes);
	skb_put(skb, sizeof(struct udphdr));
	skb_put(skb, peal_packet_build(&padded, skb_tail_pointer(skb)));
	*payload = skb_put(skb, tail);
	memset(*payload + packet->payload_bytes, 0, padded.pad);
	return skb;
}

/*
 * Send no UDP checksum, not even in IPv6, because the ICRC covers more. RFC 6935 allows
 * this for such encapsulations. RNICs and rdma_rxe send none either, and accept packets
 * without one.
 */
static void peal_tx_udp(const struct peal_path *path, struct sk_buff *skb)
{
	struct udphdr *udp = udp_hdr(skb);

	udp->source = htons(path->sport);
	udp->dest = htons(PEAL_ROCE_PORT);
	udp->len = htons(skb->len - skb_transport_offset(skb));
	udp->check = 0;
}

/*
 * The ICRC covers length and identification, so both must be final here. DF is set and the
 * identification is 0, as RFC 6864 allows.
 */
static void peal_tx_ipv4(const struct peal_path *path, struct iphdr *ip, u32 bytes,
			 const struct dst_entry *dst)
{
	u8 ttl = path->hop_limit;

	if (!ttl)
		ttl = path->multicast ? 1 : ip4_dst_hoplimit(dst);
	*ip = (struct iphdr){
		.version = 4,
		.ihl = sizeof(struct iphdr) / 4,
		.tos = path->tclass,
		.tot_len = htons(bytes),
		.frag_off = htons(IP_DF),
		.ttl = ttl,
		.protocol = IPPROTO_UDP,
		.saddr = ((struct in6_addr *)path->sgid.raw)->s6_addr32[3],
		.daddr = ((struct in6_addr *)path->dgid.raw)->s6_addr32[3],
	};
}

static void peal_tx_ipv6(const struct peal_path *path, struct ipv6hdr *ip, u32 bytes,
			 struct dst_entry *dst)
{
	u8 hops = path->hop_limit;

	if (!hops)
		hops = path->multicast ? IPV6_DEFAULT_MCASTHOPS : ip6_dst_hoplimit(dst);
	ip6_flow_hdr(ip, path->tclass, htonl(path->flow_label));
	ip->payload_len = htons(bytes - sizeof(*ip));
	ip->nexthdr = IPPROTO_UDP;
	ip->hop_limit = hops;
	memcpy(&ip->saddr, path->sgid.raw, sizeof(ip->saddr));
	memcpy(&ip->daddr, path->dgid.raw, sizeof(ip->daddr));
}

static void peal_tx_ip(const struct peal_path *path, struct sk_buff *skb, struct dst_entry *dst)
{
	if (path->ipv6)
		peal_tx_ipv6(path, ipv6_hdr(skb), skb->len, dst);
	else
		peal_tx_ipv4(path, ip_hdr(skb), skb->len, dst);
	skb->protocol = htons(path->ipv6 ? ETH_P_IPV6 : ETH_P_IP);
}

static void peal_tx_icrc(const struct peal_path *path, struct sk_buff *skb)
{
	const u8 *bth = skb_transport_header(skb) + sizeof(struct udphdr);
	u8 *icrc = skb_tail_pointer(skb) - PEAL_ICRC_BYTES;
	__le32 value;
	u32 crc;

	if (path->ipv6)
		crc = peal_icrc_begin_v6(ipv6_hdr(skb), udp_hdr(skb), bth);
	else
		crc = peal_icrc_begin_v4(ip_hdr(skb), udp_hdr(skb), bth);
	bth += PEAL_BTH_BYTES;
	crc = peal_crc_add(crc, bth, icrc - bth);
	value = cpu_to_le32(peal_icrc_end(crc));
	memcpy(icrc, &value, sizeof(value));
}

/*
 * VLANs map the skb's priority to that of the tag. Without a service level the priority
 * follows from the traffic class, as for a socket with IP_TOS.
 */
static u32 peal_tx_priority(const struct peal_path *path)
{
	return path->sl ? path->sl : rt_tos2priority(path->tclass);
}

static int peal_tx_local_out(const struct peal_path *path, struct net *net, struct sk_buff *skb)
{
	int ret = path->ipv6 ? ip6_local_out(net, skb->sk, skb) : ip_local_out(net, skb->sk, skb);

	return ret > 0 ? net_xmit_errno(ret) : ret;
}

static struct neighbour *peal_tx_neighbour(const struct peal_path *path, struct dst_entry *dst)
{
	const struct in6_addr *to = (const struct in6_addr *)path->dgid.raw;

	return dst_neigh_lookup(dst, path->ipv6 ? (const void *)to : &to->s6_addr32[3]);
}

/*
 * Return: false when the packet must be charged to the account for silent neighbours. Packets for a
 * neighbour that does not answer wait for seconds in a queue of that neighbour, which the stack
 * bounds. While they wait there, they must not take the transmit quota of all other packets.
 */
static bool peal_tx_waits_for_room(const struct peal_path *path, struct dst_entry *dst)
{
	struct neighbour *neighbour;
	bool valid = true;

	if (likely(!peal_tx_quota_is_scarce(path->tx_quota)) || path->multicast)
		return true;
	neighbour = peal_tx_neighbour(path, dst);
	if (neighbour) {
		valid = READ_ONCE(neighbour->nud_state) & NUD_VALID;
		neigh_release(neighbour);
	}
	return valid;
}

/* Under RCU. Consumes @skb. */
static int peal_tx_out(struct peal_path *path, struct net *net, struct sk_buff *skb)
{
	struct dst_entry *dst = peal_path_route(path, net);

	RCU_LOCKDEP_WARN(!rcu_read_lock_held(), "a packet is sent outside RCU");
	if (IS_ERR(dst)) {
		kfree_skb(skb);
		return PTR_ERR(dst);
	}
	peal_tx_udp(path, skb);
	peal_tx_ip(path, skb, dst);
	peal_tx_icrc(path, skb);
	skb->priority = peal_tx_priority(path);
	skb_dst_set_noref(skb, dst);
	if (likely(peal_tx_waits_for_room(path, dst))) {
		peal_tx_quota_charge(path->tx_quota, skb);
	} else if (!peal_tx_quota_charge_silent(path->tx_quota, skb)) {
		kfree_skb(skb);
		return -ENOBUFS;
	}
	return peal_tx_local_out(path, net, skb);
}

int peal_tx_send(struct peal_path *path, struct sk_buff *skb)
{
	struct peal_table *table = path->port->table;
	u32 bytes = skb->len - skb_transport_offset(skb) - sizeof(struct udphdr);
	int ret;

	rcu_read_lock();
	ret = peal_tx_out(path, path->port->net, skb);
	rcu_read_unlock();
	if (ret) {
		peal_count(table, packets_unsent);
		if (ret == -EMSGSIZE)
			peal_count(table, packets_too_long);
	} else {
		peal_count(table, packets_sent);
		peal_count_by(table, packet_bytes_sent, bytes);
	}
	return ret;
}

/* From the IP header to the ICRC. */
static u32 peal_tx_bytes(const struct peal_path *path, const struct peal_packet *packet)
{
	return peal_tx_ip_bytes(path) + sizeof(struct udphdr) +
	       peal_packet_opcode(packet)->header_bytes + ALIGN(packet->payload_bytes, 4) +
	       PEAL_ICRC_BYTES;
}

/* The stack adds the checksum of a packet's IPv4 header, but it never sees this header. */
static void peal_tx_grh4(const struct peal_path *path, u32 bytes, const struct dst_entry *dst,
			 void *to)
{
	struct iphdr *ip = to + sizeof(struct ib_grh) - sizeof(*ip);

	memset(to, 0, sizeof(struct ib_grh) - sizeof(*ip));
	peal_tx_ipv4(path, ip, bytes, dst);
	ip_send_check(ip);
}

bool peal_tx_grh(struct peal_path *path, const struct peal_packet *packet, void *to)
{
	struct dst_entry *dst;
	bool local;

	rcu_read_lock();
	dst = peal_path_route(path, path->port->net);
	local = !IS_ERR(dst) && peal_path_route_is_local(path, dst);
	if (likely(local && path->ipv6))
		peal_tx_ipv6(path, to, peal_tx_bytes(path, packet), dst);
	else if (likely(local))
		peal_tx_grh4(path, peal_tx_bytes(path, packet), dst, to);
	rcu_read_unlock();
	return local;
}
