// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
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
#include "net/port.h"
#include "net/tx_quota.h"
#include "raw/frame.h"

/*
 * Offsets in the functions that parse are from skb->data, which may be behind the MAC header.
 * Return: the offset of the transport's header, or -1 if this frame has none.
 */
static int peal_frame_parse_ipv4(struct peal_frame *frame, int at)
{
	struct peal_frame_fields *fields = &frame->fields;
	struct iphdr buffer;
	const struct iphdr *ip = skb_header_pointer(frame->skb, at, sizeof(buffer), &buffer);

	if (!ip || ip->version != 4 || ip->ihl < 5)
		return -1;
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
	frame->ip = at - skb_mac_offset(frame->skb);
	frame->fragment = ip->frag_off & htons(IP_MF | IP_OFFSET);
	return ip->frag_off & htons(IP_OFFSET) ? -1 : at + 4 * ip->ihl;
}

static int peal_frame_parse_ipv6(struct peal_frame *frame, int at)
{
	struct peal_frame_fields *fields = &frame->fields;
	struct ipv6hdr buffer;
	const struct ipv6hdr *ip = skb_header_pointer(frame->skb, at, sizeof(buffer), &buffer);
	__be16 fragment = 0;

	if (!ip || ip->version != 6)
		return -1;
	fields->kinds |= PEAL_FRAME_IPV6;
	memcpy(fields->src_ip, &ip->saddr, sizeof(ip->saddr));
	memcpy(fields->dst_ip, &ip->daddr, sizeof(ip->daddr));
	fields->protocol = ip->nexthdr;
	fields->traffic_class = ipv6_get_dsfield(ip);
	fields->flow_label = ip6_flowlabel(ip);
	fields->hop_limit = ip->hop_limit;
	frame->ip = at - skb_mac_offset(frame->skb);
	at = ipv6_skip_exthdr(frame->skb, at + sizeof(*ip), &fields->protocol, &fragment);
	frame->fragment = fragment & htons(IP6_MF | IP6_OFFSET);
	return fragment & htons(IP6_OFFSET) ? -1 : at;
}

void peal_frame_parse(struct peal_frame *frame, struct sk_buff *skb)
{
	struct peal_frame_fields *fields = &frame->fields;
	int mac = skb_mac_offset(skb), at = mac + ETH_HLEN;
	union {
		struct ethhdr eth;
		struct vlan_hdr vlan;
		__be16 ports[2];
	} buffer;
	const struct vlan_hdr *vlan;
	const struct ethhdr *eth;
	const __be16 *ports;

	*frame = (struct peal_frame){ .skb = skb };
	eth = skb_header_pointer(skb, mac, sizeof(buffer.eth), &buffer.eth);
	if (!eth)
		return;
	ether_addr_copy(fields->dst_mac, eth->h_dest);
	ether_addr_copy(fields->src_mac, eth->h_source);
	fields->ether_type = eth->h_proto;
	/* A VLAN tag is in the skb's own field when hardware or the stack took it off the bytes. */
	if (skb_vlan_tag_present(skb)) {
		fields->kinds |= PEAL_FRAME_VLAN;
		fields->vlan_tag = htons(skb_vlan_tag_get(skb));
	} else if (eth_type_vlan(fields->ether_type)) {
		vlan = skb_header_pointer(skb, at, sizeof(buffer.vlan), &buffer.vlan);
		if (!vlan)
			return;
		fields->kinds |= PEAL_FRAME_VLAN;
		fields->vlan_tag = vlan->h_vlan_TCI;
		fields->ether_type = vlan->h_vlan_encapsulated_proto;
		at += VLAN_HLEN;
	}
	if (fields->ether_type == htons(ETH_P_IP))
		at = peal_frame_parse_ipv4(frame, at);
	else if (fields->ether_type == htons(ETH_P_IPV6))
		at = peal_frame_parse_ipv6(frame, at);
	else
		return;
	if (at < 0 || (fields->protocol != IPPROTO_TCP && fields->protocol != IPPROTO_UDP))
		return;
	ports = skb_header_pointer(skb, at, sizeof(buffer.ports), buffer.ports);
	if (!ports)
		return;
	/* Both transports begin with the two ports. */
	fields->kinds |= fields->protocol == IPPROTO_TCP ? PEAL_FRAME_TCP : PEAL_FRAME_UDP;
	fields->src_port = ports[0];
	fields->dst_port = ports[1];
	frame->transport = at - mac;
}

/* ---- received frames ---- */

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
		if (skb_vlan_tag_present(skb))
			skb = __vlan_hwaccel_push_inside(skb);
		if (!skb)
			continue;
		if (skb->ip_summed == CHECKSUM_PARTIAL && skb_csum_hwoffload_help(skb, 0)) {
			kfree_skb(skb);
			continue;
		}
		*tail = skb;
		tail = &skb->next;
	}
	return list;
}

bool peal_frame_verify(const struct peal_frame *frame, bool known)
{
	const struct sk_buff *skb = frame->skb;
	struct udphdr udp_buffer;
	const struct udphdr *udp;
	const struct iphdr *ip;
	u8 ip_buffer[15 * 4];
	__wsum sum;
	int bytes;

	if (!(frame->fields.kinds & PEAL_FRAME_IPV4) || !frame->transport ||
	    frame->fields.ip_flags & IB_IPV4_MORE_FRAG)
		return false;
	ip = skb_header_pointer(skb, frame->ip, frame->transport - frame->ip, ip_buffer);
	if (!ip || ip_fast_csum(ip, ip->ihl))
		return false;
	if (known)
		return true;
	bytes = ntohs(ip->tot_len) - 4 * ip->ihl;
	if (bytes < 0 || frame->transport + bytes > skb->len)
		return false;
	if (ip->protocol == IPPROTO_UDP) {
		udp = skb_header_pointer(skb, frame->transport, sizeof(udp_buffer), &udp_buffer);
		if (!udp)
			return false;
		if (!udp->check)
			return true;	/* the sender has added none */
	}
	sum = skb_checksum(skb, frame->transport, bytes, 0);
	return !csum_tcpudp_magic(ip->saddr, ip->daddr, bytes, ip->protocol, sum);
}

/* ---- sent frames ---- */

struct sk_buff *peal_frame_alloc(const struct peal_port *port, u32 length)
{
	struct net_device *ndev = port->ndev;
	struct sk_buff *skb = alloc_skb(LL_RESERVED_SPACE(ndev) + length +
					READ_ONCE(ndev->needed_tailroom),
					GFP_ATOMIC | __GFP_NOWARN);

	if (!skb)
		return NULL;
	/* As much room as a header of its own would leave, so that the IP header is aligned. */
	skb_reserve(skb, LL_RESERVED_SPACE(ndev) - ETH_HLEN);
	skb_reset_mac_header(skb);
	skb_put(skb, length);
	return skb;
}

void peal_frame_finish(struct peal_frame *frame, struct sk_buff *skb, const struct peal_port *port)
{
	skb->dev = port->ndev;
	skb->protocol = eth_hdr(skb)->h_proto;
	peal_frame_parse(frame, skb);
	skb_set_network_header(skb, frame->ip ?: ETH_HLEN);
	if (frame->transport)
		skb_set_transport_header(skb, frame->transport);
}

/* The frame is in one piece, so its headers can be written in place. */
void peal_frame_add_checksums(struct peal_frame *frame)
{
	u32 headers = frame->transport - frame->ip, at = frame->transport, bytes, offset;
	bool ipv6 = frame->fields.kinds & PEAL_FRAME_IPV6;
	bool tcp = frame->fields.kinds & PEAL_FRAME_TCP;
	u8 protocol = frame->fields.protocol;
	struct sk_buff *skb = frame->skb;
	__sum16 *check;

	if (frame->fields.kinds & PEAL_FRAME_IPV4 && frame->ip + 4 * ip_hdr(skb)->ihl <= skb->len)
		ip_send_check(ip_hdr(skb));
	/* A fragment does not have all bytes that the checksum of its datagram covers. */
	if (!frame->transport || frame->fragment)
		return;
	/*
	 * The checksum covers as many bytes as the IP header says. Padding may follow them. The
	 * program may have written any length into the header, so the frame is the limit.
	 */
	if (ipv6)
		bytes = sizeof(struct ipv6hdr) + ntohs(ipv6_hdr(skb)->payload_len);
	else
		bytes = ntohs(ip_hdr(skb)->tot_len);
	bytes = min_t(u32, bytes > headers ? bytes - headers : 0, skb->len - at);
	if (bytes < (tcp ? sizeof(struct tcphdr) : sizeof(struct udphdr)))
		return;
	offset = tcp ? offsetof(struct tcphdr, check) : offsetof(struct udphdr, check);
	check = (__sum16 *)(skb_transport_header(skb) + offset);
	if (ipv6)
		*check = ~csum_ipv6_magic(&ipv6_hdr(skb)->saddr, &ipv6_hdr(skb)->daddr, bytes,
					  protocol, 0);
	else
		*check = ~csum_tcpudp_magic(ip_hdr(skb)->saddr, ip_hdr(skb)->daddr, bytes,
					    protocol, 0);
	/*
	 * Now the field has the sum over the pseudo header. The stack and hardware would add all
	 * bytes up to the frame's end, also padding.
	 */
	if (at + bytes < skb->len) {
		*check = csum_fold(skb_checksum(skb, at, bytes, 0)) ?: CSUM_MANGLED_0;
		return;
	}
	skb->ip_summed = CHECKSUM_PARTIAL;
	skb->csum_start = skb_transport_header(skb) - skb->head;
	skb->csum_offset = offset;
}

void peal_frame_send(struct sk_buff *skb, struct peal_port *port, struct peal_tx_quota *tx_quota)
{
	struct net_device *ndev = port->ndev;
	int ret = -ENETDOWN;

	rcu_read_lock();
	/*
	 * The netdev may be on its way to another namespace, where none of this namespace's frames
	 * may leave. It is down until it is there, and then has another namespace than the port.
	 */
	if (ndev->flags & IFF_UP && net_eq(dev_net(ndev), port->net)) {
		peal_tx_quota_charge(tx_quota, skb);
		ret = dev_queue_xmit(skb);
	} else {
		kfree_skb(skb);
	}
	rcu_read_unlock();
	if (net_xmit_eval(ret))
		peal_count(port->table, packets_unsent);
	else
		peal_count(port->table, frames_sent);
}
