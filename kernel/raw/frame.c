// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See frame.h.
 */
#include <linux/etherdevice.h>
#include <linux/if_vlan.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/netdevice.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <net/dsfield.h>
#include <net/ip.h>
#include <net/ip6_checksum.h>
#include <net/ipv6.h>
#include <rdma/ib_verbs.h>

#include "base/compat.h"
#include "object/cursor.h"
#include "raw/frame.h"
#include "net/port.h"
#include "net/tx_quota.h"

/* ---- reading headers; all offsets are from skb->data, which may be behind the MAC header ---- */

/* Both transports begin with the two ports. */
static void peal_frame_parse_transport(struct peal_frame *frame, int mac, int at)
{
	struct peal_frame_fields *fields = &frame->fields;
	__be16 buffer[2];
	const __be16 *ports;

	if (fields->protocol != IPPROTO_TCP && fields->protocol != IPPROTO_UDP)
		return;
	ports = skb_header_pointer(frame->skb, at, sizeof(buffer), buffer);
	if (!ports)
		return;
	fields->src_port = ports[0];
	fields->dst_port = ports[1];
	fields->kinds |= fields->protocol == IPPROTO_TCP ? PEAL_FRAME_TCP : PEAL_FRAME_UDP;
	frame->transport = at - mac;
}

static void peal_frame_parse_ipv4(struct peal_frame *frame, int mac, int at)
{
	struct peal_frame_fields *fields = &frame->fields;
	struct iphdr buffer;
	const struct iphdr *ip = skb_header_pointer(frame->skb, at, sizeof(buffer), &buffer);

	if (!ip || ip->version != 4 || ip->ihl < 5)
		return;
	fields->kinds |= PEAL_FRAME_IPV4;
	memcpy(fields->src_ip, &ip->saddr, sizeof(ip->saddr));
	memcpy(fields->dst_ip, &ip->daddr, sizeof(ip->daddr));
	fields->protocol = ip->protocol;
	fields->traffic_class = ip->tos;
	fields->hop_limit = ip->ttl;
	if (ip->frag_off & htons(IP_DF))
		fields->ip_flags |= IB_IPV4_DONT_FRAG;
	if (ip->frag_off & htons(IP_MF))
		fields->ip_flags |= IB_IPV4_MORE_FRAG;
	frame->ip = at - mac;
	frame->fragment = ip->frag_off & htons(IP_MF | IP_OFFSET);
	if (!(ip->frag_off & htons(IP_OFFSET)))
		peal_frame_parse_transport(frame, mac, at + 4 * ip->ihl);
}

static void peal_frame_parse_ipv6(struct peal_frame *frame, int mac, int at)
{
	struct peal_frame_fields *fields = &frame->fields;
	struct ipv6hdr buffer;
	const struct ipv6hdr *ip = skb_header_pointer(frame->skb, at, sizeof(buffer), &buffer);
	__be16 fragment = 0;

	if (!ip || ip->version != 6)
		return;
	fields->kinds |= PEAL_FRAME_IPV6;
	memcpy(fields->src_ip, &ip->saddr, sizeof(ip->saddr));
	memcpy(fields->dst_ip, &ip->daddr, sizeof(ip->daddr));
	fields->protocol = ip->nexthdr;
	fields->traffic_class = ipv6_get_dsfield(ip);
	fields->flow_label = ip6_flowlabel(ip);
	fields->hop_limit = ip->hop_limit;
	frame->ip = at - mac;
	at = ipv6_skip_exthdr(frame->skb, at + sizeof(*ip), &fields->protocol, &fragment);
	frame->fragment = fragment & htons(IP6_MF | IP6_OFFSET);
	if (at >= 0 && !(fragment & htons(IP6_OFFSET)))
		peal_frame_parse_transport(frame, mac, at);
}

/* A VLAN tag is in the skb's own field when hardware or the stack has taken it off the bytes. */
static __be16 peal_frame_parse_vlan(struct peal_frame *frame, __be16 type, int *at)
{
	struct vlan_hdr buffer;
	const struct vlan_hdr *vlan;

	if (skb_vlan_tag_present(frame->skb)) {
		frame->fields.vlan_tag = htons(skb_vlan_tag_get(frame->skb));
	} else {
		if (!eth_type_vlan(type))
			return type;
		vlan = skb_header_pointer(frame->skb, *at, sizeof(buffer), &buffer);
		if (!vlan)
			return type;
		frame->fields.vlan_tag = vlan->h_vlan_TCI;
		type = vlan->h_vlan_encapsulated_proto;
		*at += VLAN_HLEN;
	}
	frame->fields.kinds |= PEAL_FRAME_VLAN;
	return type;
}

void peal_frame_parse(struct peal_frame *frame, struct sk_buff *skb)
{
	int mac = skb_mac_offset(skb), at = mac + ETH_HLEN;
	struct ethhdr buffer;
	const struct ethhdr *eth = skb_header_pointer(skb, mac, sizeof(buffer), &buffer);

	*frame = (struct peal_frame){ .skb = skb };
	if (!eth)
		return;
	ether_addr_copy(frame->fields.dst_mac, eth->h_dest);
	ether_addr_copy(frame->fields.src_mac, eth->h_source);
	frame->fields.ether_type = peal_frame_parse_vlan(frame, eth->h_proto, &at);
	if (frame->fields.ether_type == htons(ETH_P_IP))
		peal_frame_parse_ipv4(frame, mac, at);
	else if (frame->fields.ether_type == htons(ETH_P_IPV6))
		peal_frame_parse_ipv6(frame, mac, at);
}

/* ---- received frames ---- */

/* Return: NULL without memory. */
static struct sk_buff *peal_frame_complete_one(struct sk_buff *skb)
{
	if (skb_vlan_tag_present(skb))
		skb = __vlan_hwaccel_push_inside(skb);
	if (skb && skb->ip_summed == CHECKSUM_PARTIAL && skb_csum_hwoffload_help(skb, 0)) {
		kfree_skb(skb);
		return NULL;
	}
	return skb;
}

struct sk_buff *peal_frame_complete(struct sk_buff *skb)
{
	struct sk_buff *segments, *next, *list = NULL, **tail = &list;

	__skb_push(skb, -skb_mac_offset(skb));
	if (skb_is_gso(skb)) {
		segments = __skb_gso_segment(skb, 0, false);
		if (IS_ERR(segments)) {
			kfree_skb(skb);
			return NULL;
		}
		if (segments) {
			consume_skb(skb);
			skb = segments;
		}
	}
	skb_list_walk_safe(skb, skb, next) {
		skb_mark_not_on_list(skb);
		skb = peal_frame_complete_one(skb);
		if (!skb)
			continue;
		*tail = skb;
		tail = &skb->next;
	}
	return list;
}

/* Is the transport's checksum right? The headers are in the bytes now. */
static bool peal_frame_transport_is_right(const struct peal_frame *frame, const struct iphdr *ip)
{
	int bytes = ntohs(ip->tot_len) - 4 * ip->ihl;
	struct udphdr buffer;
	const struct udphdr *udp;
	__wsum sum;

	if (bytes < 0 || frame->transport + bytes > frame->skb->len)
		return false;
	if (ip->protocol == IPPROTO_UDP) {
		udp = skb_header_pointer(frame->skb, frame->transport, sizeof(buffer), &buffer);
		if (!udp)
			return false;
		if (!udp->check)
			return true;	/* the sender has added none */
	}
	sum = skb_checksum(frame->skb, frame->transport, bytes, 0);
	return !csum_tcpudp_magic(ip->saddr, ip->daddr, bytes, ip->protocol, sum);
}

void peal_frame_check(struct peal_frame *frame, bool known)
{
	u8 buffer[15 * 4];
	const struct iphdr *ip;

	frame->checksums_ok = false;
	if (!(frame->fields.kinds & PEAL_FRAME_IPV4) || !frame->transport ||
	    frame->fields.ip_flags & IB_IPV4_MORE_FRAG)
		return;
	ip = skb_header_pointer(frame->skb, frame->ip, frame->transport - frame->ip, buffer);
	if (!ip || ip_fast_csum(ip, ip->ihl))
		return;
	frame->checksums_ok = known || peal_frame_transport_is_right(frame, ip);
}

u32 peal_frame_bytes(const struct peal_frame *frame)
{
	return frame->skb->len;
}

bool peal_frame_is_foreign(const struct peal_frame *frame)
{
	return frame->skb->pkt_type == PACKET_OTHERHOST;
}

bool peal_frame_is_multicast(const struct peal_frame *frame)
{
	return is_multicast_ether_addr(frame->fields.dst_mac);
}

void peal_frame_scatter(const struct peal_frame *frame, struct peal_cursor *to)
{
	u64 at, piece;
	void *here;

	peal_cursor_skip(to, 0);	/* to an entry with room */
	for (at = 0; at < frame->skb->len; at += piece) {
		piece = frame->skb->len - at;
		here = peal_cursor_here(to, &piece);
		/* The range lies inside the skb. */
		WARN_ON_ONCE(skb_copy_bits(frame->skb, at, here, piece));
		peal_cursor_skip(to, piece);
	}
}

/* ---- sent frames ---- */

u32 peal_frame_most(const struct peal_port *port)
{
	return READ_ONCE(port->ndev->mtu) + ETH_HLEN + VLAN_HLEN;
}

bool peal_frame_begin(struct peal_frame *frame, struct peal_port *port, u32 length, void **bytes)
{
	struct net_device *ndev = port->ndev;
	struct sk_buff *skb = alloc_skb(LL_RESERVED_SPACE(ndev) + length +
					READ_ONCE(ndev->needed_tailroom),
					GFP_ATOMIC | __GFP_NOWARN);

	if (!skb) {
		peal_count(port->table, packets_unsent);
		return false;
	}
	/* As much room as a header of its own would leave, so that the IP header is aligned. */
	skb_reserve(skb, LL_RESERVED_SPACE(ndev) - ETH_HLEN);
	skb_reset_mac_header(skb);
	*bytes = skb_put(skb, length);
	*frame = (struct peal_frame){ .skb = skb };
	return true;
}

bool peal_frame_finish(struct peal_frame *frame, const struct peal_port *port)
{
	struct sk_buff *skb = frame->skb;
	bool tagged = eth_type_vlan(eth_hdr(skb)->h_proto);

	skb->dev = port->ndev;
	skb->protocol = eth_hdr(skb)->h_proto;
	skb_set_network_header(skb, ETH_HLEN);
	peal_frame_parse(frame, skb);
	if (frame->ip)
		skb_set_network_header(skb, frame->ip);
	if (frame->transport)
		skb_set_transport_header(skb, frame->transport);
	return tagged || skb->len <= peal_frame_most(port) - VLAN_HLEN;
}

void peal_frame_drop(struct peal_frame *frame)
{
	kfree_skb(frame->skb);
}

/* The sum over the pseudo header, to which the stack adds that over the bytes. */
static __sum16 peal_frame_pseudo_sum(const struct peal_frame *frame, u32 bytes)
{
	const struct sk_buff *skb = frame->skb;
	u8 protocol = frame->fields.protocol;

	if (frame->fields.kinds & PEAL_FRAME_IPV6)
		return ~csum_ipv6_magic(&ipv6_hdr(skb)->saddr, &ipv6_hdr(skb)->daddr, bytes,
					protocol, 0);
	return ~csum_tcpudp_magic(ip_hdr(skb)->saddr, ip_hdr(skb)->daddr, bytes, protocol, 0);
}

/*
 * Return: the bytes of the TCP or UDP header and its payload, as the IP header says. Padding may
 * follow them. The program may have written any length into the header, so the frame is the limit.
 */
static u32 peal_frame_transport_bytes(const struct peal_frame *frame)
{
	const struct sk_buff *skb = frame->skb;
	u32 headers = frame->transport - frame->ip, bytes = ntohs(ip_hdr(skb)->tot_len);

	if (frame->fields.kinds & PEAL_FRAME_IPV6)
		bytes = sizeof(struct ipv6hdr) + ntohs(ipv6_hdr(skb)->payload_len);
	return min_t(u32, bytes > headers ? bytes - headers : 0, skb->len - frame->transport);
}

/*
 * The field at @offset of the transport header has the sum over the pseudo header. Add that over
 * @bytes. The stack and hardware would add all bytes up to the frame's end, also padding.
 */
static void peal_frame_sum(struct sk_buff *skb, u32 offset, u32 bytes)
{
	u32 at = skb_transport_offset(skb);

	if (at + bytes < skb->len) {
		__sum16 sum = csum_fold(skb_checksum(skb, at, bytes, 0));

		*(__sum16 *)(skb_transport_header(skb) + offset) = sum ?: CSUM_MANGLED_0;
		return;
	}
	skb->ip_summed = CHECKSUM_PARTIAL;
	skb->csum_start = skb_transport_header(skb) - skb->head;
	skb->csum_offset = offset;
}

/* The frame is in one piece, so its headers can be written in place. */
void peal_frame_add_checksums(struct peal_frame *frame)
{
	struct sk_buff *skb = frame->skb;
	bool tcp = frame->fields.kinds & PEAL_FRAME_TCP;
	u32 offset = tcp ? offsetof(struct tcphdr, check) : offsetof(struct udphdr, check);
	u32 bytes;

	if (frame->fields.kinds & PEAL_FRAME_IPV4 && frame->ip + 4 * ip_hdr(skb)->ihl <= skb->len)
		ip_send_check(ip_hdr(skb));
	/* A fragment does not have all bytes that the checksum of its datagram covers. */
	if (!frame->transport || frame->fragment)
		return;
	bytes = peal_frame_transport_bytes(frame);
	if (bytes < (tcp ? sizeof(struct tcphdr) : sizeof(struct udphdr)))
		return;
	*(__sum16 *)(skb_transport_header(skb) + offset) = peal_frame_pseudo_sum(frame, bytes);
	peal_frame_sum(skb, offset, bytes);
}

/*
 * The netdev may be on its way to another namespace, where none of this namespace's frames may
 * leave. It is down until it is there, and then has another namespace than the port.
 */
static bool peal_frame_may_leave(const struct peal_port *port)
{
	return port->ndev->flags & IFF_UP && net_eq(dev_net(port->ndev), port->net);
}

void peal_frame_send(struct peal_frame *frame, struct peal_port *port,
		     struct peal_tx_quota *tx_quota)
{
	int ret = -ENETDOWN;

	rcu_read_lock();
	if (peal_frame_may_leave(port)) {
		peal_tx_quota_charge(tx_quota, frame->skb);
		ret = dev_queue_xmit(frame->skb);
	} else {
		kfree_skb(frame->skb);
	}
	rcu_read_unlock();
	if (net_xmit_eval(ret))
		peal_count(port->table, packets_unsent);
	else
		peal_count(port->table, frames_sent);
}
