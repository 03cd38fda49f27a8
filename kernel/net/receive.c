// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See receive.h.
 *
 * Packets are taken by a netfilter hook, the last of LOCAL_IN: after every rule
 * of the administrator, before the UDP layer. A socket bound to port 4791 would
 * be the other way; rdma_rxe has it, and one address in a namespace can be bound
 * once. Whoever has it keeps what is not for us: packets to addresses of other
 * netdevs, and to QP numbers that we do not know.
 *
 * The UDP checksum is not looked at: the ICRC covers all that it covers, but for
 * the BTH byte that routers may change and receivers ignore.
 *
 * A packet may arrive while this CPU is inside the guard: when a redirection
 * (tc mirred) leads from our own transmission straight back to us. The queue
 * pair's lock may be held then; such packets wait for a work item.
 */
#include <linux/if_vlan.h>
#include <linux/inetdevice.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/netfilter_ipv4.h>
#include <linux/netfilter_ipv6.h>
#include <linux/udp.h>
#include <net/addrconf.h>
#include <net/ip6_fib.h>
#include <net/ip6_route.h>
#include <net/ipv6.h>
#include <net/l3mdev.h>
#include <net/route.h>
#include <net/udp.h>
#include <net/xfrm.h>

#include "base/budget.h"
#include "base/guard.h"
#include "base/trace.h"
#include "base/workers.h"
#include "mem/copy.h"
#include "net/crc.h"
#include "net/netns.h"
#include "net/receive.h"
#include "proto/icrc.h"
#include "transport/deliver.h"
#include "verbs/dev.h"

/* As many as the stack's own backlog of a CPU holds by default. */
#define PEAL_RECEIVE_BACKLOG	1000

/*
 * What may be done at once for what arrived in one piece, a packet or a train of
 * them; the rest is the engine's. A window, or a piece of a READ: what another CPU
 * sends meanwhile overtakes what this one has sent, on every link that queues by
 * CPU. Packets of one NAPI poll that come one by one, 64 at most, have as much each:
 * the guard is left between them.
 */
#define PEAL_RECEIVE_BUDGET	(1024 << 10)

/* Payloads of two packets are compared so many bytes at a time. */
#define PEAL_RECEIVE_PIECE	64

#define PEAL_QPN_MULTICAST	0xffffff
#define PEAL_VLAN_NONE		0xffff

/* In skb->cb, from the moment that a packet is ours; survives segmentation. */
struct peal_arrival {
	struct peal_dev *dev;		/* valid where the guard, or peal_netns_has(), says so */
	u16 udp;			/* offset of the UDP header from the IP header */
	u16 vlan_id;
	bool ipv6;
};

static struct peal_arrival *peal_arrival(struct sk_buff *skb)
{
	BUILD_BUG_ON(sizeof(struct peal_arrival) > SKB_GSO_CB_OFFSET);
	return (struct peal_arrival *)skb->cb;
}

static void peal_receive_drop(struct peal_dev *dev, struct sk_buff *skb,
			      const struct peal_packet *packet, enum peal_drop why)
{
	peal_count_drop(&dev->table, why);
	trace_peal_drop(packet, why);
	kfree_skb(skb);
}

/* Which netdev has the destination address */

static bool peal_receive_multicast(const struct sk_buff *skb, bool ipv6)
{
	return ipv6 ? ipv6_addr_is_multicast(&ipv6_hdr(skb)->daddr) :
		      ipv4_is_multicast(ip_hdr(skb)->daddr);
}

/*
 * The netdev that the packet came in by. In a VRF, skb->dev is the VRF's own device
 * by now, and the control block says which slave it was. Under RCU.
 */
static struct net_device *peal_receive_arrival_netdev(struct net *net, const struct sk_buff *skb,
						      bool ipv6)
{
	int slave = ipv6 ? inet6_sdif(skb) : inet_sdif(skb);
	struct net_device *ndev = slave ? dev_get_by_index_rcu(net, slave) : NULL;

	return ndev ?: skb->dev;
}

static bool peal_receive_has_address4(const struct net_device *ndev, __be32 address)
{
	const struct in_device *in = __in_dev_get_rcu(ndev);
	const struct in_ifaddr *ifa;

	if (in)
		in_dev_for_each_ifa_rcu(ifa, in)
			if (ifa->ifa_local == address)
				return true;
	return false;
}

static bool peal_receive_has_address(struct net_device *ndev, const struct sk_buff *skb, bool ipv6)
{
	if (ipv6)
		return ipv6_chk_addr(dev_net(ndev), &ipv6_hdr(skb)->daddr, ndev, 1);
	return peal_receive_has_address4(ndev, ip_hdr(skb)->daddr);
}

/* Where several netdevs have it, the one that the packet came by. Under RCU. */
static struct net_device *peal_receive_owner4(struct net *net, const struct sk_buff *skb,
					      struct net_device *in)
{
	__be32 address = ip_hdr(skb)->daddr;

	if (peal_receive_has_address4(in, address))
		return in;
	return __ip_dev_find(net, address, false);
}

/* The route of a packet to an address of ours belongs to the address's netdev. */
static struct net_device *peal_receive_owner6(const struct sk_buff *skb)
{
	const struct inet6_dev *idev = skb_dst(skb) ? ip6_dst_idev(skb_dst(skb)) : NULL;

	return idev ? idev->dev : NULL;
}

/*
 * The lookups above know nothing of VRFs, and another VRF may have the same address.
 * This scan runs only when they find a netdev of another VRF.
 */
static struct net_device *peal_receive_owner_in_vrf(struct net *net, const struct sk_buff *skb,
						    bool ipv6, int vrf)
{
	struct net_device *ndev;

	for_each_netdev_rcu(net, ndev)
		if (l3mdev_master_ifindex_rcu(ndev) == vrf &&
		    peal_receive_has_address(ndev, skb, ipv6))
			return ndev;
	return NULL;
}

/*
 * Return: the netdev that has the destination address, in the VRF that the packet came
 * in by, or outside of all VRFs as the packet did; or NULL. Under RCU.
 */
static struct net_device *peal_receive_owner(struct net *net, const struct sk_buff *skb, bool ipv6)
{
	struct net_device *in = peal_receive_arrival_netdev(net, skb, ipv6), *owner;
	int vrf;

	if (peal_receive_multicast(skb, ipv6))
		return in;
	owner = ipv6 ? peal_receive_owner6(skb) : peal_receive_owner4(net, skb, in);
	if (!owner || owner == in)
		return owner;
	vrf = l3mdev_master_ifindex_rcu(in);
	if (likely(l3mdev_master_ifindex_rcu(owner) == vrf))
		return owner;
	return peal_receive_owner_in_vrf(net, skb, ipv6, vrf);
}

/* Headers to values */

static void peal_receive_addresses(struct peal_datagram *dg)
{
	const struct iphdr *ip4 = ip_hdr(dg->skb);
	const struct ipv6hdr *ip6 = ipv6_hdr(dg->skb);

	if (dg->ipv6) {
		memcpy(dg->sgid.raw, &ip6->saddr, sizeof(dg->sgid));
		memcpy(dg->dgid.raw, &ip6->daddr, sizeof(dg->dgid));
	} else {
		ipv6_addr_set_v4mapped(ip4->saddr, (struct in6_addr *)dg->sgid.raw);
		ipv6_addr_set_v4mapped(ip4->daddr, (struct in6_addr *)dg->dgid.raw);
	}
}

/* skb->data is at the BTH. */
static enum peal_drop peal_receive_parse(struct sk_buff *skb, struct peal_datagram *dg)
{
	enum peal_drop drop = peal_packet_parse(skb->data, skb_headlen(skb), skb->len, &dg->packet);
	const struct udphdr *udp = (struct udphdr *)(skb->data - sizeof(*udp));

	dg->skb = skb;
	dg->ipv6 = peal_arrival(skb)->ipv6;
	dg->vlan_id = peal_arrival(skb)->vlan_id;
	dg->multicast = peal_receive_multicast(skb, dg->ipv6);
	dg->payload = dg->packet.header_bytes;
	dg->packet.flow = (__force u16)udp->source;
	peal_receive_addresses(dg);
	return drop;
}

void peal_receive_again(struct sk_buff *skb, struct peal_datagram *dg)
{
	peal_receive_parse(skb, dg);
}

static bool peal_receive_same_payload(const struct peal_datagram *a, const struct peal_datagram *b)
{
	u8 one[PEAL_RECEIVE_PIECE], other[PEAL_RECEIVE_PIECE];
	u32 at, n;

	for (at = 0; at < a->packet.payload_bytes; at += n) {
		const void *x, *y;

		n = min_t(u32, a->packet.payload_bytes - at, PEAL_RECEIVE_PIECE);
		x = skb_header_pointer(a->skb, a->payload + at, n, one);
		y = skb_header_pointer(b->skb, b->payload + at, n, other);
		if (!x || !y || memcmp(x, y, n))
			return false;
	}
	return true;
}

bool peal_receive_same(struct sk_buff *kept, const struct peal_datagram *dg)
{
	struct peal_datagram other;

	peal_receive_again(kept, &other);
	return peal_packet_same(&other.packet, &dg->packet) &&
	       peal_receive_same_payload(&other, dg);
}

/* The pieces of @bytes bytes from @from on, wherever the skb has them. */
struct peal_pieces {
	struct skb_seq_state state;
	u32 bytes;
	u32 done;
};

static void peal_receive_pieces(struct peal_pieces *pieces, struct sk_buff *skb, u32 from,
				u32 bytes)
{
	skb_prepare_seq_read(skb, from, from + bytes, &pieces->state);
	pieces->bytes = bytes;
	pieces->done = 0;
}

/* Return: the length of the next piece; 0 after the last. The stack's are longer than asked for. */
static u32 peal_receive_next(struct peal_pieces *pieces, const u8 **data)
{
	u32 n = skb_seq_read(pieces->done, data, &pieces->state);

	n = min(n, pieces->bytes - pieces->done);
	pieces->done += n;
	return n;
}

static u32 peal_receive_crc(struct sk_buff *skb, u32 crc, u32 from, u32 bytes)
{
	struct peal_pieces pieces;
	const u8 *data;
	u32 n;

	if (from + bytes <= skb_headlen(skb))
		return peal_crc_add(crc, skb->data + from, bytes);
	peal_receive_pieces(&pieces, skb, from, bytes);
	while ((n = peal_receive_next(&pieces, &data)))
		crc = peal_crc_add(crc, data, n);
	return crc;
}

/* The packet is not short: it has a BTH and an ICRC. */
static bool peal_receive_icrc_right(struct sk_buff *skb, bool ipv6)
{
	u32 end = skb->len - PEAL_ICRC_BYTES, crc;
	const u8 *udp = skb->data - sizeof(struct udphdr);
	__le32 icrc;

	if (ipv6)
		crc = peal_icrc_begin_v6(ipv6_hdr(skb), udp, skb->data);
	else
		crc = peal_icrc_begin_v4(ip_hdr(skb), udp, skb->data);
	crc = peal_receive_crc(skb, crc, PEAL_BTH_BYTES, end - PEAL_BTH_BYTES);
	if (skb_copy_bits(skb, end, &icrc, sizeof(icrc)))
		return false;
	return le32_to_cpu(icrc) == peal_icrc_end(crc);
}

/*
 * skb->data is at the IP header. Afterwards the packet ends where UDP says, and
 * the headers are in the linear part, which is ours alone to read.
 */
static enum peal_drop peal_receive_shape(struct sk_buff *skb)
{
	u32 at = peal_arrival(skb)->udp, bytes;
	const struct udphdr *udp;

	if (!pskb_may_pull(skb, at + sizeof(*udp)))
		return PEAL_DROP_short;
	udp = (struct udphdr *)(skb->data + at);
	bytes = ntohs(udp->len);
	if (bytes < sizeof(*udp) || bytes > skb->len - at)
		return PEAL_DROP_short;
	if (pskb_trim(skb, at + bytes) ||
	    !pskb_may_pull(skb, min_t(u32, at + sizeof(*udp) + PEAL_HEADERS_MAX, skb->len)))
		return PEAL_DROP_resource;
	if (at != (peal_arrival(skb)->ipv6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr)))
		return PEAL_DROP_options;
	__skb_pull(skb, at + sizeof(*udp));
	return PEAL_DROP_none;
}

static enum peal_drop peal_receive_check(struct sk_buff *skb, struct peal_datagram *dg)
{
	enum peal_drop drop = peal_receive_shape(skb);

	dg->packet = (struct peal_packet){ };
	if (!drop)
		drop = peal_receive_parse(skb, dg);
	if (!drop && !peal_receive_icrc_right(skb, dg->ipv6))
		drop = PEAL_DROP_icrc;
	return drop;
}

/* Inside the guard. One packet of ours; skb->data is at the IP header. */
static void peal_receive_take(struct peal_dev *dev, struct sk_buff *skb,
			      struct peal_budget *budget)
{
	struct peal_datagram dg;
	enum peal_drop drop = peal_receive_check(skb, &dg);

	peal_budget_spend(budget, PEAL_COST_PACKET + skb->len);
	if (drop) {
		peal_receive_drop(dev, skb, &dg.packet, drop);
		return;
	}
	peal_count(&dev->table, packets_received);
	peal_count_by(&dev->table, packet_bytes_received, skb->len);
	peal_deliver(dev, &dg, budget);
}

/*
 * Several packets in one, as a sender's segmentation offload makes them for a
 * virtual link, or a receiver's aggregation. The headers of the packets are those
 * that the stack makes: the sender computed its ICRCs for these.
 */
static void peal_receive_take_all(struct peal_dev *dev, struct sk_buff *skb)
{
	struct peal_budget budget = { .left = PEAL_RECEIVE_BUDGET };
	struct sk_buff *next;

	if (!skb_is_gso(skb)) {
		peal_receive_take(dev, skb, &budget);
		return;
	}
	__skb_push(skb, -skb_mac_offset(skb));
	skb = udp_rcv_segment(peal_rooms_sock(&dev->rooms), skb, !peal_arrival(skb)->ipv6);
	if (!skb)
		peal_count_drop(&dev->table, PEAL_DROP_resource);
	skb_list_walk_safe(skb, skb, next) {
		skb_mark_not_on_list(skb);
		__skb_pull(skb, skb_network_offset(skb));
		peal_receive_take(dev, skb, &budget);
	}
}

void peal_receive_backlog(struct peal_netns *ns)
{
	struct sk_buff *skb;

	while ((skb = skb_dequeue(&ns->backlog))) {
		struct peal_dev *dev = peal_arrival(skb)->dev;

		peal_guard_enter();
		if (peal_netns_has(ns, dev))
			peal_receive_take_all(dev, skb);
		else
			kfree_skb(skb);
		peal_guard_exit();
		cond_resched();
	}
}

static void peal_receive_later(struct peal_netns *ns, struct peal_dev *dev, struct sk_buff *skb)
{
	static const struct peal_packet unread;

	if (skb_queue_len_lockless(&ns->backlog) >= PEAL_RECEIVE_BACKLOG) {
		peal_receive_drop(dev, skb, &unread, PEAL_DROP_resource);
		return;
	}
	skb_queue_tail(&ns->backlog, skb);
	peal_workers_queue(&ns->work);
}

/* Whose packet it is */

/*
 * @sk was found without regard to VRFs. Does the stack give it a packet that came in
 * by @slave (0: outside of all VRFs)? Releases @sk.
 */
static bool peal_receive_socket_found(struct net *net, struct sock *sk, int iif, int slave)
{
	bool hears;

	if (!sk)
		return false;
	hears = udp_sk_bound_dev_eq(net, READ_ONCE(sk->sk_bound_dev_if), iif, slave);
	sock_put(sk);
	return hears;
}

/*
 * Where the kernel does not offer the lookup, the stack gets the packet and
 * answers for it. @iif: a netdev that the socket may be bound to.
 */
static bool peal_receive_socket4(struct net *net, const struct sk_buff *skb, __be16 sport, int iif)
{
#if IS_ENABLED(CONFIG_NF_TPROXY_IPV4) || IS_ENABLED(CONFIG_NF_SOCKET_IPV4)
	struct sock *sk = udp4_lib_lookup(net, ip_hdr(skb)->saddr, sport, ip_hdr(skb)->daddr,
					  htons(PEAL_ROCE_PORT), iif);

	return peal_receive_socket_found(net, sk, iif, inet_sdif(skb));
#else
	return true;
#endif
}

static bool peal_receive_socket6(struct net *net, const struct sk_buff *skb, __be16 sport, int iif)
{
#if IS_ENABLED(CONFIG_NF_TPROXY_IPV6) || IS_ENABLED(CONFIG_NF_SOCKET_IPV6)
	struct sock *sk = udp6_lib_lookup(net, &ipv6_hdr(skb)->saddr, sport,
					  &ipv6_hdr(skb)->daddr, htons(PEAL_ROCE_PORT), iif);

	return peal_receive_socket_found(net, sk, iif, inet6_sdif(skb));
#else
	return true;
#endif
}

/* In a VRF, sockets are bound to the VRF's device or to the slave. */
static bool peal_receive_socket(struct net *net, const struct sk_buff *skb, bool ipv6, __be16 sport)
{
	int slave = ipv6 ? inet6_sdif(skb) : inet_sdif(skb);

	if (ipv6)
		return peal_receive_socket6(net, skb, sport, inet6_iif(skb)) ||
		       (slave && peal_receive_socket6(net, skb, sport, slave));
	return peal_receive_socket4(net, skb, sport, inet_iif(skb)) ||
	       (slave && peal_receive_socket4(net, skb, sport, slave));
}

static bool peal_receive_known(struct peal_dev *dev, const struct sk_buff *skb, u32 at, u32 *qpn)
{
	u8 buffer[PEAL_BTH_BYTES];
	const u8 *bth = skb_header_pointer(skb, at + sizeof(struct udphdr), sizeof(buffer), buffer);

	*qpn = 0;
	if (!bth)
		return true;	/* short: nobody else would know it either */
	*qpn = bth[5] << 16 | bth[6] << 8 | bth[7];
	return *qpn == PEAL_QPN_MULTICAST || peal_deliver_knows(dev, *qpn);
}

/* The caller's IPsec policies, as a socket's packets meet them. */
static bool peal_receive_permitted(struct sk_buff *skb, bool ipv6)
{
	return ipv6 ? xfrm6_policy_check(NULL, XFRM_POLICY_IN, skb) :
		      xfrm4_policy_check(NULL, XFRM_POLICY_IN, skb);
}

/*
 * In a VRF, skb->dev and skb_iif are the VRF's own by now. The control block has the slave,
 * but for IPv6 it also names one for packets that never left this host: so it proves nothing.
 */
static int peal_receive_slave(const struct sk_buff *skb, bool ipv6)
{
	return ipv6 ? 0 : inet_sdif(skb);
}

/* From here on it lives without the things that it has from its way up. */
static void peal_receive_own(struct sk_buff *skb, struct peal_dev *dev, u32 at, bool ipv6,
			     const struct net_device *owner)
{
	if (unlikely(netif_is_l3_master(skb->dev)))
		skb->skb_iif = peal_receive_slave(skb, ipv6);
	skb_orphan(skb);
	skb_dst_drop(skb);
	nf_reset_ct(skb);
	*peal_arrival(skb) = (struct peal_arrival){
		.dev = dev,
		.udp = at,
		.ipv6 = ipv6,
		.vlan_id = is_vlan_dev(owner) ? vlan_dev_vlan_id(owner) : PEAL_VLAN_NONE,
	};
}

/* Inside the guard and RCU; @at: of the UDP header from the IP header, at skb->data. */
static unsigned int peal_receive(struct peal_netns *ns, struct sk_buff *skb, u32 at, bool ipv6,
				 __be16 sport, bool nested)
{
	struct net_device *owner;
	struct peal_packet packet = { };
	struct peal_dev *dev;

	owner = peal_receive_owner(ns->net, skb, ipv6);
	dev = owner ? peal_netns_find(ns, owner) : NULL;
	if (!dev)
		return NF_ACCEPT;
	if (!peal_receive_known(dev, skb, at, &packet.qpn)) {
		if (peal_receive_socket(ns->net, skb, ipv6, sport))
			return NF_ACCEPT;
		peal_receive_drop(dev, skb, &packet, PEAL_DROP_qpn);
		return NF_STOLEN;
	}
	if (!peal_receive_permitted(skb, ipv6))
		return NF_DROP;
	peal_receive_own(skb, dev, at, ipv6, owner);
	if (nested)
		peal_receive_later(ns, dev, skb);
	else
		peal_receive_take_all(dev, skb);
	return NF_STOLEN;
}

static unsigned int peal_receive_udp(struct peal_netns *ns, struct sk_buff *skb, u32 at, bool ipv6)
{
	struct udphdr buffer;
	const struct udphdr *udp = skb_header_pointer(skb, at, sizeof(buffer), &buffer);
	bool nested = peal_guard_held();
	unsigned int verdict;

	if (!udp || udp->dest != htons(PEAL_ROCE_PORT))
		return NF_ACCEPT;
	peal_guard_enter();
	verdict = peal_receive(ns, skb, at, ipv6, udp->source, nested);
	peal_guard_exit();
	return verdict;
}

/* The stack has put fragments together. */
static unsigned int peal_receive_hook4(void *priv, struct sk_buff *skb,
				       const struct nf_hook_state *state)
{
	if (ip_hdr(skb)->protocol != IPPROTO_UDP)
		return NF_ACCEPT;
	return peal_receive_udp(priv, skb, ip_hdrlen(skb), false);
}

/*
 * Extension headers, fragments too, are still there: what has them and is for us
 * is counted and refused. Of a fragment that is not the first nothing can be
 * said; the others of its packet are not coming.
 */
static unsigned int peal_receive_hook6(void *priv, struct sk_buff *skb,
				       const struct nf_hook_state *state)
{
	u8 next = ipv6_hdr(skb)->nexthdr;
	int at = sizeof(struct ipv6hdr);
	__be16 fragment = 0;

	if (next != IPPROTO_UDP) {
		if (!ipv6_ext_hdr(next))
			return NF_ACCEPT;
		at = ipv6_skip_exthdr(skb, at, &next, &fragment);
		if (at < 0 || next != IPPROTO_UDP || fragment & htons(IP6_OFFSET))
			return NF_ACCEPT;
	}
	return peal_receive_udp(priv, skb, at, true);
}

const struct nf_hook_ops peal_receive_hooks[PEAL_RECEIVE_HOOKS] = {
	{
		.hook = peal_receive_hook4,
		.pf = NFPROTO_IPV4,
		.hooknum = NF_INET_LOCAL_IN,
		.priority = NF_IP_PRI_LAST,
	}, {
		.hook = peal_receive_hook6,
		.pf = NFPROTO_IPV6,
		.hooknum = NF_INET_LOCAL_IN,
		.priority = NF_IP6_PRI_LAST,
	},
};

/* Access to the payload */

static void peal_receive_copy_pieces(struct sk_buff *skb, u32 from, void *to, u32 bytes)
{
	struct peal_pieces pieces;
	const u8 *data;
	u32 n;

	peal_receive_pieces(&pieces, skb, from, bytes);
	for (; (n = peal_receive_next(&pieces, &data)); to += n)
		peal_copy(to, data, n);
}

void peal_receive_copy(const struct peal_datagram *dg, u32 offset, void *to, u32 bytes)
{
	u32 from = dg->payload + offset;

	if (from + bytes <= skb_headlen(dg->skb))
		peal_copy(to, dg->skb->data + from, bytes);
	else
		peal_receive_copy_pieces(dg->skb, from, to, bytes);
}

/*
 * The stack gives a copy of broadcasts back to this host as if it came in by the netdev
 * through which they leave. A raw socket may write any destination into such a packet.
 */
int peal_receive_iif(const struct peal_datagram *dg)
{
	return dg->skb->pkt_type == PACKET_HOST ? dg->skb->skb_iif : 0;
}

void peal_receive_grh(const struct peal_datagram *dg, void *to)
{
	u32 bytes = dg->ipv6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr);
	u32 front = sizeof(struct ib_grh) - bytes;

	memset(to, 0, front);
	memcpy(to + front, skb_network_header(dg->skb), bytes);
}
