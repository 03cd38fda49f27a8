// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Packets out: from header values and payload to the stack.
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
#include "net/path.h"
#include "net/port.h"
#include "net/tx_quota.h"

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
 * Write the IP header of a packet of @bytes bytes. The ICRC covers length and identification, so
 * both must be final here. In IPv4 DF is set and the identification is 0, as RFC 6864 allows. The
 * stack adds the checksum.
 */
static void peal_tx_ip(const struct peal_path *path, void *to, u32 bytes, u8 tos,
		       struct dst_entry *dst)
{
	u8 hops = path->hop_limit;

	if (path->ipv6) {
		struct ipv6hdr *ip = to;

		if (!hops)
			hops = path->multicast ? IPV6_DEFAULT_MCASTHOPS : ip6_dst_hoplimit(dst);
		ip6_flow_hdr(ip, tos, htonl(path->flow_label));
		ip->payload_len = htons(bytes - sizeof(*ip));
		ip->nexthdr = IPPROTO_UDP;
		ip->hop_limit = hops;
		memcpy(&ip->saddr, path->sgid.raw, sizeof(ip->saddr));
		memcpy(&ip->daddr, path->dgid.raw, sizeof(ip->daddr));
		return;
	}
	if (!hops)
		hops = path->multicast ? 1 : ip4_dst_hoplimit(dst);
	*(struct iphdr *)to = (struct iphdr){
		.version = 4,
		.ihl = sizeof(struct iphdr) / 4,
		.tos = tos,
		.tot_len = htons(bytes),
		.frag_off = htons(IP_DF),
		.ttl = hops,
		.protocol = IPPROTO_UDP,
		.saddr = ((struct in6_addr *)path->sgid.raw)->s6_addr32[3],
		.daddr = ((struct in6_addr *)path->dgid.raw)->s6_addr32[3],
	};
}

/*
 * Packets for a neighbour that does not answer wait for seconds in a queue of that neighbour, which
 * the stack bounds. While they wait there, they must not take the transmit quota of all other
 * packets.
 */
static noinline bool peal_tx_neighbour_is_silent(const struct peal_path *path,
						 struct dst_entry *dst)
{
	const struct in6_addr *to = (const struct in6_addr *)path->dgid.raw;
	struct neighbour *neighbour;
	bool silent;

	if (path->multicast)
		return false;
	neighbour = dst_neigh_lookup(dst, path->ipv6 ? (const void *)to : &to->s6_addr32[3]);
	if (!neighbour)
		return false;
	silent = !(READ_ONCE(neighbour->nud_state) & NUD_VALID);
	neigh_release(neighbour);
	return silent;
}

int peal_tx_send(struct peal_path *path, struct sk_buff *skb, u8 tos)
{
	const u8 *bth = skb_transport_header(skb) + sizeof(struct udphdr);
	u8 *icrc = skb_tail_pointer(skb) - PEAL_ICRC_BYTES;
	u32 udp_bytes = skb->len - skb_transport_offset(skb), crc;
	struct peal_table *table = path->port->table;
	struct net *net = path->port->net;
	struct udphdr *udp = udp_hdr(skb);
	struct dst_entry *dst;
	__le32 value;
	int ret;

	rcu_read_lock();
	dst = peal_path_route(path);
	if (IS_ERR(dst)) {
		ret = PTR_ERR(dst);
		goto free;
	}
	peal_tx_ip(path, skb_network_header(skb), skb->len, tos, dst);
	/*
	 * Send no UDP checksum, not even in IPv6, because the ICRC covers more. RFC 6935 allows
	 * this for such encapsulations. RNICs and rdma_rxe send none either, and accept packets
	 * without one.
	 */
	udp->source = htons(path->sport);
	udp->dest = htons(PEAL_ROCE_PORT);
	udp->len = htons(udp_bytes);
	udp->check = 0;
	if (path->ipv6)
		crc = peal_icrc_begin_v6(ipv6_hdr(skb), udp, bth);
	else
		crc = peal_icrc_begin_v4(ip_hdr(skb), udp, bth);
	bth += PEAL_BTH_BYTES;
	value = cpu_to_le32(peal_icrc_end(peal_crc_add(crc, bth, icrc - bth)));
	memcpy(icrc, &value, sizeof(value));

	skb->protocol = htons(path->ipv6 ? ETH_P_IPV6 : ETH_P_IP);
	/*
	 * VLANs map the priority to that of the tag. Without a service level it follows from the
	 * traffic class, as for a socket with IP_TOS.
	 */
	skb->priority = path->sl ? path->sl : rt_tos2priority(tos);
	skb_dst_set_noref(skb, dst);
	if (likely(!peal_tx_quota_is_scarce(path->tx_quota)) ||
	    !peal_tx_neighbour_is_silent(path, dst)) {
		peal_tx_quota_charge(path->tx_quota, skb);
	} else if (!peal_tx_quota_charge_silent(path->tx_quota, skb)) {
		ret = -ENOBUFS;
		goto free;
	}
	ret = path->ipv6 ? ip6_local_out(net, skb->sk, skb) : ip_local_out(net, skb->sk, skb);
	if (ret > 0)
		ret = net_xmit_errno(ret);
	if (unlikely(ret))
		goto unsent;
	rcu_read_unlock();
	peal_count(table, packets_sent);
	peal_count_by(table, packet_bytes_sent, udp_bytes - sizeof(*udp));
	return 0;

free:
	kfree_skb(skb);
unsent:
	rcu_read_unlock();
	peal_count(table, packets_unsent);
	if (ret == -EMSGSIZE)
		peal_count(table, packets_too_long);
	return ret;
}

bool peal_tx_grh(struct peal_path *path, const struct peal_packet *packet, void *to)
{
	u32 ip_bytes = peal_tx_ip_bytes(path), front = sizeof(struct ib_grh) - ip_bytes;
	u32 bytes = ip_bytes + sizeof(struct udphdr) + peal_packet_opcode(packet)->header_bytes +
		    ALIGN(packet->payload_bytes, 4) + PEAL_ICRC_BYTES;
	struct dst_entry *dst;
	bool local;

	rcu_read_lock();
	dst = peal_path_route(path);
	local = !IS_ERR(dst) && peal_path_route_is_local(path, dst);
	if (likely(local)) {
		memset(to, 0, front);
		peal_tx_ip(path, to + front, bytes, path->tclass, dst);
		/* The stack never sees this header. */
		if (!path->ipv6)
			ip_send_check(to + front);
	}
	rcu_read_unlock();
	return local;
}
