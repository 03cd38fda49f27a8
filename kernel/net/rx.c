// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Packets in: from the stack to checked headers and a verified ICRC, in one network namespace. And
 * the guard, which keeps programs from sending such packets.
 *
 * A netfilter hook takes the packets. It is the last one of LOCAL_IN, so it runs after
 * every rule of the administrator and before the UDP layer. The alternative is a socket
 * bound to port 4791. But rdma_rxe has such a socket, and only one socket in a namespace
 * can be bound to an address and port. That socket still gets the packets that are not for
 * us: those to addresses of other netdevs, and to QP numbers that we do not know. A program's
 * socket gets only those to addresses of other netdevs.
 *
 * A packet may arrive while this CPU is inside the epoch, because a redirection (tc mirred)
 * can lead from our own transmission straight back to this hook. The lock of a queue pair
 * may be held then, so such packets wait for a work item.
 */
#include <linux/file.h>
#include <linux/if_vlan.h>
#include <linux/inetdevice.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/netfilter_ipv4.h>
#include <linux/netfilter_ipv6.h>
#include <linux/percpu.h>
#include <linux/udp.h>
#include <net/addrconf.h>
#include <net/ip.h>
#include <net/ip6_fib.h>
#include <net/ip6_route.h>
#include <net/ipv6.h>
#include <net/l3mdev.h>
#include <net/route.h>
#include <net/sock.h>
#include <net/udp.h>
#include <net/xfrm.h>

#include "base/budget.h"
#include "base/compat.h"
#include "base/epoch.h"
#include "base/trace.h"
#include "net/rx_packet.h"
#include "net/port.h"
#include "net/sniff.h"

/* The most packets in the backlog: as many as the stack's own backlog of a CPU holds by default. */
#define PEAL_RX_BACKLOG	1000

/*
 * The budget for received pieces, and for what they cause at once, on one CPU in a jiffy. A piece
 * is a packet, or a train of packets in one skb, and one NAPI poll delivers up to 64 of them, which
 * may be 4 MiB. The bytes of a piece count, because the stack's own limits count a train as one
 * packet. A piece is always processed. The engine does the rest of what it causes, on this CPU,
 * because packets that another CPU sends meanwhile overtake those that this CPU has sent, on every
 * link with a queue per CPU.
 */
#define PEAL_RX_BUDGET	(1024 << 10)
/*
 * A piece may cause so much even if nothing is left, so that acknowledgments leave at once. It
 * suffices for the responses of a READ of 64 KiB with any path MTU. With less the engine would have
 * to finish each of them.
 */
#define PEAL_RX_LEAST	(96 << 10)

/* Only received packets use it. Timers have their own (engine.c). */
static DEFINE_PER_CPU(struct peal_allowance, peal_rx_allowance);

/* Throw away an skb before the headers of its packets are read. @qpn: if it is known, or 0. */
static void peal_rx_drop_skb(struct peal_port *port, struct sk_buff *skb, u32 qpn,
			     enum peal_drop why)
{
	const struct peal_packet packet = { .qpn = qpn };

	peal_count_drop(port->table, why);
	trace_peal_drop(&packet, why);
	kfree_skb(skb);
}

void peal_rx_drop(struct peal_port *port, const struct peal_rx_packet *rx, enum peal_drop why)
{
	peal_count_drop(port->table, why);
	trace_peal_drop(&rx->packet, why);
	if (!rx->train)
		kfree_skb(rx->skb);
}

/*
 * Return: the offset of the UDP header from skb->data, where the IP header is. Negative: the packet
 * is not UDP, or a fragment that is not the first.
 */
static int peal_rx_udp_at(const struct sk_buff *skb, bool ipv6)
{
	const struct iphdr *ip = ip_hdr(skb);
	__be16 fragment = 0;
	u8 next;
	int at;

	if (!ipv6)
		return ip->protocol == IPPROTO_UDP && !(ip->frag_off & htons(IP_OFFSET)) ?
		       ip_hdrlen(skb) : -1;
	next = ipv6_hdr(skb)->nexthdr;
	if (likely(next == IPPROTO_UDP))
		return sizeof(struct ipv6hdr);
	if (!ipv6_ext_hdr(next))
		return -1;
	at = ipv6_skip_exthdr(skb, sizeof(struct ipv6hdr), &next, &fragment);
	return next == IPPROTO_UDP && !(fragment & htons(IP6_OFFSET)) ? at : -1;
}

/* Under RCU. */
static bool peal_rx_has_address(struct net_device *ndev, const void *address, bool ipv6)
{
	const struct in_ifaddr *ifa;
	const struct in_device *in;

	RCU_LOCKDEP_WARN(!rcu_read_lock_held(), "an address is looked up outside RCU");
	if (ipv6)
		return ipv6_chk_addr(dev_net(ndev), address, ndev, 1);
	in = __in_dev_get_rcu(ndev);
	if (in)
		in_dev_for_each_ifa_rcu(ifa, in)
			if (ifa->ifa_local == *(const __be32 *)address)
				return true;
	return false;
}

/*
 * Return: the netdev that has the destination address, or NULL. The netdev is in the VRF
 * that the packet came in by, or outside of all VRFs if the packet came in outside of them.
 * Under RCU.
 */
static struct net_device *peal_rx_owner(struct net *net, const struct sk_buff *skb, bool ipv6)
{
	const void *address = ipv6 ? (const void *)&ipv6_hdr(skb)->daddr : &ip_hdr(skb)->daddr;
	int slave = ipv6 ? inet6_sdif(skb) : inet_sdif(skb), vrf;
	struct net_device *in, *owner;

	RCU_LOCKDEP_WARN(!rcu_read_lock_held(), "a netdev is looked up outside RCU");
	/* In a VRF, skb->dev is the VRF's own device by now. The control block names the slave. */
	in = slave ? dev_get_by_index_rcu(net, slave) : NULL;
	if (!in)
		in = skb->dev;
	if (peal_rx_is_multicast(skb, ipv6))
		return in;
	if (ipv6) {
		/* The route of a packet to a local address names the netdev that has it. */
		const struct inet6_dev *idev = skb_dst(skb) ? ip6_dst_idev(skb_dst(skb)) : NULL;

		owner = idev ? idev->dev : NULL;
	} else {
		/* When several netdevs have the address, take the one the packet came in by. */
		owner = peal_rx_has_address(in, address, false) ? in :
			__ip_dev_find(net, ip_hdr(skb)->daddr, false);
	}
	if (!owner || owner == in)
		return owner;
	vrf = l3mdev_master_ifindex_rcu(in);
	if (likely(l3mdev_master_ifindex_rcu(owner) == vrf))
		return owner;
	/* These look-ups ignore VRFs, and this one has the same address as another. */
	for_each_netdev_rcu(net, owner)
		if (l3mdev_master_ifindex_rcu(owner) == vrf &&
		    peal_rx_has_address(owner, address, ipv6))
			return owner;
	return NULL;
}

/*
 * Inside the epoch. Return: the port on @ndev, or on a netdev that lies below it (@ndev is
 * a VLAN, a bridge or a bond). NULL: no device is there, so the packet is not ours.
 */
static struct peal_port *peal_rx_find(struct peal_netns *ns, struct net_device *ndev)
{
	struct peal_port *port;

	peal_epoch_assert_held();
	list_for_each_entry_lockless(port, &ns->ports, node)
		if (port->ndev == ndev)
			return port;
	/* Several of our netdevs may be ports of one bridge. The first device gets the packet. */
	list_for_each_entry_lockless(port, &ns->ports, node)
		if (netdev_has_upper_dev_all_rcu(port->ndev, ndev))
			return port;
	return NULL;
}

/*
 * Is @sk a socket that the kernel has made for itself: rdma_rxe's, a tunnel's, or one of peal's
 * transmit quotas? The one of AF_RXRPC is not, because it carries the data of a program that chose
 * the port.
 */
static bool peal_rx_socket_is_kernels(const struct sock *sk)
{
	return sk_fullsock(sk) && sk->sk_kern_sock &&
	       !(sk->sk_protocol == IPPROTO_UDP && udp_sk(sk)->encap_type == UDP_ENCAP_RXRPC);
}

/*
 * Under RCU. The packet names no queue pair of the device. It is left to a socket of the kernel, as
 * rdma_rxe has one. No program gets the packet, because it may be one of a peer's to a queue pair
 * that has just been destroyed. The stack may have chosen the socket before (early
 * demultiplexing). In a VRF, a socket may be bound to the VRF's device or to the slave.
 */
static unsigned int peal_rx_stray(struct peal_port *port, struct sk_buff *skb, bool ipv6,
				  __be16 sport, u32 qpn)
{
	const struct sock *sk = skb->sk;

	RCU_LOCKDEP_WARN(!rcu_read_lock_held(), "a socket is looked up outside RCU");
	if (!sk && !ipv6)
		sk = __udp4_lib_lookup(port->net, ip_hdr(skb)->saddr, sport, ip_hdr(skb)->daddr,
				       htons(PEAL_ROCE_PORT), inet_iif(skb), inet_sdif(skb),
				       PEAL_UDP_TABLE(port->net));
#if IS_ENABLED(CONFIG_IPV6)
	if (!sk && ipv6)
		sk = __udp6_lib_lookup(port->net, &ipv6_hdr(skb)->saddr, sport,
				       &ipv6_hdr(skb)->daddr, htons(PEAL_ROCE_PORT),
				       inet6_iif(skb), inet6_sdif(skb), PEAL_UDP_TABLE(port->net));
#endif
	if (sk && peal_rx_socket_is_kernels(sk))
		return NF_ACCEPT;
	peal_rx_drop_skb(port, skb, qpn, sk ? PEAL_DROP_socket : PEAL_DROP_qpn);
	return NF_STOLEN;
}

/* If the last packet of the message follows the run @rx, let it join. */
static noinline void peal_rx_join_last(const struct peal_delivery *delivery,
				       struct peal_rx_packet *rx)
{
	struct peal_rx_packet last PEAL_UNINITIALIZED;

	if (peal_rx_parse_next(rx, &last) &&
	    peal_demux_takes_last(delivery, &rx->packet, &last.packet) &&
	    peal_rx_icrc_is_right(&last))
		peal_packet_join(&rx->packet, &last.packet);
}

/*
 * Inside the epoch. Check and deliver what @skb holds for @port: one packet, or a @train of them.
 * skb->data is at the IP header. @qp: as in peal_demux_takes().
 */
static void peal_rx_take(struct peal_port *port, struct sk_buff *skb, bool train,
			 struct peal_qp *qp, struct peal_budget *budget)
{
	struct peal_delivery delivery PEAL_UNINITIALIZED;
	u32 at = peal_arrival(skb)->udp, bytes, segment;
	struct peal_rx_packet rx PEAL_UNINITIALIZED;
	bool ipv6 = peal_arrival(skb)->ipv6, right;
	struct peal_rx_icrcs icrcs = { 0 };
	enum peal_drop drop = PEAL_DROP_short;
	const struct udphdr *udp;
	u32 number = 0, packets, most;

	peal_epoch_assert_held();
	if (!pskb_may_pull(skb, at + sizeof(*udp)))
		goto drop;
	udp = (struct udphdr *)(skb->data + at);
	bytes = ntohs(udp->len);
	if (bytes <= sizeof(*udp) || bytes > skb->len - at)
		goto drop;
	/* The packet ends where UDP says. The sender cannot change these headers any more. */
	drop = PEAL_DROP_resource;
	if (pskb_trim(skb, at + bytes))
		goto drop;
	drop = PEAL_DROP_options;
	if (at != (ipv6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr)) ||
	    (!ipv6 && ip_is_fragment(ip_hdr(skb))))
		goto drop;
	__skb_pull(skb, at + sizeof(*udp));	/* to the BTH */

	bytes = skb->len;
	segment = train ? skb_shinfo(skb)->gso_size : bytes;
	peal_demux_begin(&delivery, port, budget);
	rx.skb = NULL;
	for (at = 0; at < bytes; at += packets * segment, number += packets) {
		packets = 1;
		/* Delivery may have given the last packet an skb of its own. */
		if (rx.skb != skb)
			peal_rx_begin(skb, &rx);
		rx.marked = false;
		rx.train = train;
		rx.number = number;
		rx.at = at;
		rx.bytes = min(segment, bytes - at);
		drop = peal_rx_parse(&rx);
		if (!drop) {
			/* Those in the middle of a message become a run, which is checked then. */
			if (train && rx.here && !peal_rx_icrc_is_known(&icrcs, number) &&
			    !peal_packet_is_middle(&rx.packet))
				peal_rx_check_train(&rx, &icrcs);
			right = peal_rx_icrc_is_known(&icrcs, number) ?
				peal_rx_icrc_was_right(&icrcs, number) :
				peal_rx_icrc_is_right(&rx);
			drop = right ? PEAL_DROP_none : PEAL_DROP_icrc;
		}
		if (unlikely(drop)) {
			peal_rx_drop(port, &rx, drop);
			continue;
		}
		most = train ? peal_demux_takes(&delivery, qp, &rx) : 0;
		if (most > 1)
			peal_rx_extend(&rx, most);
		if (most)
			peal_rx_join_last(&delivery, &rx);
		packets = peal_packet_count(&rx.packet);
		peal_count_by(port->table, packets_received, packets);
		peal_count_by(port->table, packet_bytes_received,
			      min(packets * segment, bytes - at));
		peal_demux_deliver(&delivery, qp, &rx);
	}
	peal_demux_end(&delivery);
	if (train)
		consume_skb(skb);
	return;

drop:
	peal_rx_drop_skb(port, skb, 0, drop);
}

/*
 * Inside the epoch. One skb may hold several packets: those of a sender's segmentation offload on a
 * virtual link, or those of the receiver's aggregation. They are read where they lie. Only those
 * that the receiver aggregated as a list of skbs are divided by the stack.
 *
 * An skb of UDP fragmentation offload (SKB_GSO_UDP) is one packet, because only a wire needs it in
 * fragments. It must not be divided here: the sender could make a fragment look like a packet. Its
 * fields of the offload stay as they are, because a clone may share them, and no code reads them
 * any more.
 */
static void peal_rx_take_all(struct peal_port *port, struct sk_buff *skb, struct peal_qp *qp,
			     struct peal_budget *allowance)
{
	s64 granted = max_t(s64, allowance->left - skb->len, PEAL_RX_LEAST);
	struct peal_budget budget = { .left = granted };
	struct sk_buff *next;

	peal_epoch_assert_held();
	peal_budget_spend(allowance, skb->len);
	if (!skb_is_gso(skb) || skb_shinfo(skb)->gso_type & SKB_GSO_UDP) {
		peal_rx_take(port, skb, false, qp, &budget);
	} else if (skb_shinfo(skb)->gso_type & SKB_GSO_FRAGLIST) {
		__skb_push(skb, -skb_mac_offset(skb));
		skb = udp_rcv_segment(peal_tx_quotas_sock(&port->tx_quotas), skb,
				      !peal_arrival(skb)->ipv6);
		if (!skb)
			peal_count_drop(port->table, PEAL_DROP_resource);
		skb_list_walk_safe(skb, skb, next) {
			skb_mark_not_on_list(skb);
			__skb_pull(skb, skb_network_offset(skb));
			/* The packets may be for different queue pairs. */
			peal_rx_take(port, skb, false, NULL, &budget);
		}
	} else if (skb_shinfo(skb)->gso_type & SKB_GSO_UDP_L4) {
		peal_rx_take(port, skb, true, qp, &budget);
	} else {
		peal_rx_drop_skb(port, skb, 0, PEAL_DROP_resource);
	}
	peal_budget_spend(allowance, granted - budget.left);
}

/* Inside the epoch. Is the port still there? It may go while a packet waits in the backlog. */
static bool peal_rx_has(struct peal_netns *ns, const struct peal_port *port)
{
	const struct peal_port *other;

	peal_epoch_assert_held();
	list_for_each_entry_lockless(other, &ns->ports, node)
		if (other == port)
			return true;
	return false;
}

/* Each piece has the whole budget, because this thread competes with others. */
static void peal_rx_work(struct work_struct *work)
{
	struct peal_netns *ns = container_of(work, struct peal_netns, work);
	struct sk_buff *skb;

	while ((skb = skb_dequeue(&ns->backlog))) {
		struct peal_budget budget = { .left = PEAL_RX_BUDGET };
		struct peal_port *port = peal_arrival(skb)->port;

		peal_epoch_enter();
		if (peal_rx_has(ns, port))
			peal_rx_take_all(port, skb, NULL, &budget);
		else
			kfree_skb(skb);
		peal_epoch_exit();
		cond_resched();
	}
}

/*
 * Begin to read a packet that was held. It is checked again, because the sender may have written to
 * it after the ICRC was checked and before it was copied. Return: false if it was dropped.
 */
static bool peal_rx_read_held(struct peal_port *port, struct sk_buff *skb,
			      struct peal_rx_packet *rx)
{
	enum peal_drop drop;

	peal_epoch_assert_held();
	peal_rx_begin(skb, rx);
	drop = peal_rx_parse(rx);
	if (!drop && !peal_rx_icrc_is_right(rx))
		drop = PEAL_DROP_icrc;
	if (drop)
		peal_rx_drop(port, rx, drop);
	return !drop;
}

bool peal_rx_overtaken(struct peal_port *port, u32 qpn, struct peal_rx_packet *rx)
{
	struct sk_buff *skb;

	peal_epoch_assert_held();
	while ((skb = peal_hold_overtaken(&port->hold, qpn)))
		if (peal_rx_read_held(port, skb, rx))
			return true;
	return false;
}

/* As in peal_rx_work(), each packet has the whole budget. */
void peal_rx_held_work(struct work_struct *work)
{
	struct peal_port *port = container_of(work, struct peal_port, hold.work);
	struct peal_delivery delivery PEAL_UNINITIALIZED;
	struct peal_rx_packet rx PEAL_UNINITIALIZED;
	struct sk_buff *skb;

	while ((skb = peal_hold_due(&port->hold))) {
		struct peal_budget budget = { .left = PEAL_RX_BUDGET };

		peal_epoch_enter();
		if (peal_rx_read_held(port, skb, &rx)) {
			peal_demux_begin(&delivery, port, &budget);
			peal_demux_deliver(&delivery, NULL, &rx);
			peal_demux_end(&delivery);
		}
		peal_epoch_exit();
		cond_resched();
	}
}

/*
 * Inside the epoch and RCU. Show the sniffers of @port a packet that has come from another device
 * of this host, without the netdev. A packet from an address of @owner was shown to them already,
 * when it was sent.
 */
static noinline void peal_rx_sniff(struct peal_port *port, struct net_device *owner,
				   const struct sk_buff *skb, bool ipv6)
{
	const void *source = ipv6 ? (const void *)&ipv6_hdr(skb)->saddr : &ip_hdr(skb)->saddr;

	peal_epoch_assert_held();
	if (skb->dev->flags & IFF_LOOPBACK && !(port->ndev->flags & IFF_LOOPBACK) &&
	    !peal_rx_has_address(owner, source, ipv6))
		peal_sniff_packet(port, skb);
}

/*
 * Return: the BTH at offset @at from skb->data, for which @buffer has room, or NULL. In a train of
 * peal it begins the first fragment. The sender may still write to it there.
 */
static const u8 *peal_rx_bth(const struct sk_buff *skb, u32 at, u8 *buffer)
{
	const struct skb_shared_info *shared = skb_shinfo(skb);
	const u8 *bth = NULL;

	if (at == skb_headlen(skb) && shared->nr_frags &&
	    skb_frag_size(&shared->frags[0]) >= PEAL_BTH_BYTES)
		bth = skb_frag_address_safe(&shared->frags[0]);
	return bth ?: skb_header_pointer(skb, at, PEAL_BTH_BYTES, buffer);
}

/*
 * Inside the epoch and RCU. skb->data is at the IP header. @at: offset of the UDP header
 * from there. @nested: the epoch was held already.
 */
static unsigned int peal_rx_receive(struct peal_netns *ns, struct sk_buff *skb, u32 at, bool ipv6,
				    __be16 sport, bool nested)
{
	struct net_device *owner = peal_rx_owner(ns->net, skb, ipv6);
	struct peal_port *port = owner ? peal_rx_find(ns, owner) : NULL;
	struct peal_qp *qp = NULL;
	u8 buffer[PEAL_BTH_BYTES];
	const u8 *bth;
	u32 qpn;

	BUILD_BUG_ON(sizeof(struct peal_arrival) > SKB_GSO_CB_OFFSET);
	peal_epoch_assert_held();
	RCU_LOCKDEP_WARN(!rcu_read_lock_held(), "a packet arrives outside RCU");
	if (!port)
		return NF_ACCEPT;
	/* No other user of the port can know a packet that is too short for a BTH. */
	bth = peal_rx_bth(skb, at + sizeof(struct udphdr), buffer);
	qpn = bth ? bth[5] << 16 | bth[6] << 8 | bth[7] : PEAL_QPN_MULTICAST;
	if (qpn != PEAL_QPN_MULTICAST) {
		qp = peal_table_receiver(port->table, qpn);
		if (!qp)
			return peal_rx_stray(port, skb, ipv6, sport, qpn);
	}
	/* The IPsec policies, as the stack checks them for a socket's packets. */
	if (!(ipv6 ? xfrm6_policy_check(NULL, XFRM_POLICY_IN, skb) :
	      xfrm4_policy_check(NULL, XFRM_POLICY_IN, skb)))
		return NF_DROP;

	/*
	 * The packet is ours. skb_iif is the VRF's own device by now, so write the slave into it.
	 * The control block names one for IPv6 also when the packet never left this host, so
	 * there it proves nothing, and 0 stands for "not known".
	 */
	if (unlikely(netif_is_l3_master(skb->dev)))
		skb->skb_iif = ipv6 ? 0 : inet_sdif(skb);
	/*
	 * Drop the references that the stack attached on the way up (socket, route, conntrack),
	 * because the skb may be kept for a long time.
	 */
	skb_orphan(skb);
	skb_dst_drop(skb);
	nf_reset_ct(skb);
	if (unlikely(peal_sniff_wants(port)))
		peal_rx_sniff(port, owner, skb, ipv6);
	*peal_arrival(skb) = (struct peal_arrival){
		.port = port,
		.udp = at,
		.ipv6 = ipv6,
		.vlan_id = is_vlan_dev(owner) ? vlan_dev_vlan_id(owner) : PEAL_VLAN_NONE,
	};
	if (!nested) {
		peal_rx_take_all(port, skb, qp,
				 peal_allowance_at(this_cpu_ptr(&peal_rx_allowance),
						   get_jiffies_64(), PEAL_RX_BUDGET));
	} else if (skb_queue_len_lockless(&ns->backlog) < PEAL_RX_BACKLOG) {
		skb_queue_tail(&ns->backlog, skb);
		peal_workers_queue(&ns->work);
	} else {
		peal_rx_drop_skb(port, skb, qpn, PEAL_DROP_resource);
	}
	return NF_STOLEN;
}

/*
 * At LOCAL_IN the stack has already reassembled IPv4 fragments. But an IPv6 packet still has its
 * extension headers, also that of a fragment, unless connection tracking has reassembled it. A
 * packet for us with such headers is counted and refused. A fragment that is not the first has no
 * UDP header, so it cannot be recognised and the stack gets it. If it belongs to a packet for us,
 * the stack cannot reassemble that packet, because the first fragment was refused here.
 */
static unsigned int peal_rx_hook(void *priv, struct sk_buff *skb, const struct nf_hook_state *state)
{
	bool ipv6 = state->pf == NFPROTO_IPV6, nested;
	int at = peal_rx_udp_at(skb, ipv6);
	const struct udphdr *udp;
	unsigned int verdict;
	struct udphdr buffer;

	if (at < 0)
		return NF_ACCEPT;
	udp = skb_header_pointer(skb, at, sizeof(buffer), &buffer);
	if (!udp || udp->dest != htons(PEAL_ROCE_PORT))
		return NF_ACCEPT;
	nested = peal_epoch_held();
	peal_epoch_enter();
	verdict = peal_rx_receive(priv, skb, at, ipv6, udp->source, nested);
	peal_epoch_exit();
	return verdict;
}

/*
 * The guard of the devices' addresses and of their peers': what a network namespace with a device
 * sends to port 4791 from an address of a device, or from one that this host does not have, comes
 * from the kernel, or from a socket that was opened with CAP_NET_RAW.
 *
 * RoCEv2 has no authentication, so a program that knows the numbers of a queue pair
 * could send to its peer by an ordinary UDP socket from the same address. Any UDP source port
 * would do. In IPv6 an ordinary socket may even have the address of the peer (IPV6_FREEBIND), and
 * could send to the queue pair of this host.
 *
 * The hooks are at POST_ROUTING and not at LOCAL_OUT, because there the source address is final. A
 * masquerade may give a device's address to packets of another namespace or of another address.
 * All packets of the namespace pass here, so packets that are not UDP to port 4791 leave after two
 * comparisons.
 *
 * The hooks run before connection tracking confirms a connection (NF_IP_PRI_LAST), so that the
 * connection of a refused packet never gets into a flow table, which would bypass these hooks.
 */

/*
 * Was the socket opened with CAP_NET_RAW? The credentials are those of its file. A socket that is
 * being closed has none any more, and may not send.
 */
static bool peal_guard_opener_may(struct sock *sk, struct user_namespace *user_ns)
{
	const struct file *file = NULL;
	bool may;

	if (!sk_fullsock(sk))
		return false;
	read_lock_bh(&sk->sk_callback_lock);
	if (sk->sk_socket)
		file = sk->sk_socket->file;
	may = file && file_ns_capable(file, user_ns, CAP_NET_RAW);
	read_unlock_bh(&sk->sk_callback_lock);
	return may;
}

/* A UDP packet to port 4791 that the kernel itself does not send. Under RCU. */
static noinline unsigned int peal_guard_judge(struct peal_netns *ns, const struct sk_buff *skb,
					      struct sock *sk, bool ipv6)
{
	const void *source = ipv6 ? (const void *)&ipv6_hdr(skb)->saddr : &ip_hdr(skb)->saddr;
	struct peal_port *port = NULL;
	struct net_device *ndev;
	bool local, forwarded;

	RCU_LOCKDEP_WARN(!rcu_read_lock_held(), "a packet is judged outside RCU");
	if (ipv6) {
		local = ipv6_chk_addr(ns->net, source, NULL, 0);
		forwarded = IP6CB(skb)->flags & IP6SKB_FORWARDED;
	} else {
		local = __ip_dev_find(ns->net, ip_hdr(skb)->saddr, false);
		forwarded = IPCB(skb)->flags & IPSKB_FORWARDED;
	}
	/*
	 * Without a socket a packet of another host or namespace passes through, and one that was
	 * not forwarded is one that the stack itself has made, such as a copy for another receiver,
	 * or one that a bridge passes on.
	 */
	if (sk ? peal_guard_opener_may(sk, ns->net->user_ns) : !local || !forwarded)
		return NF_ACCEPT;
	peal_epoch_enter();
	if (local) {
		/* More than one netdev may have the address, in different VRFs. */
		for_each_netdev_rcu(ns->net, ndev) {
			if (peal_rx_has_address(ndev, source, ipv6))
				port = peal_rx_find(ns, ndev);
			if (port)
				break;
		}
	} else {
		/* Any of them counts the packet. */
		port = list_first_or_null_rcu(&ns->ports, struct peal_port, node);
	}
	if (port)
		peal_count(port->table, packets_refused);
	peal_epoch_exit();
	return port ? NF_DROP : NF_ACCEPT;
}

/*
 * A fragment that is not the first has no UDP header. Without the first it is worth nothing. The
 * socket is looked at before the UDP header, because peal's own packets are the most.
 */
static unsigned int peal_guard_hook(void *priv, struct sk_buff *skb,
				    const struct nf_hook_state *state)
{
	bool ipv6 = state->pf == NFPROTO_IPV6;
	struct sock *sk = state->sk ?: skb->sk;
	int at = peal_rx_udp_at(skb, ipv6);
	const struct udphdr *udp;
	struct udphdr buffer;

	if (at < 0 || (sk && peal_rx_socket_is_kernels(sk)))
		return NF_ACCEPT;
	udp = skb_header_pointer(skb, at, sizeof(buffer), &buffer);
	if (!udp || udp->dest != htons(PEAL_ROCE_PORT))
		return NF_ACCEPT;
	return peal_guard_judge(priv, skb, sk, ipv6);
}

static const struct nf_hook_ops peal_rx_hooks[PEAL_NETNS_HOOKS] = {
	{
		.hook = peal_rx_hook,
		.pf = NFPROTO_IPV4,
		.hooknum = NF_INET_LOCAL_IN,
		.priority = NF_IP_PRI_LAST,
	}, {
		.hook = peal_rx_hook,
		.pf = NFPROTO_IPV6,
		.hooknum = NF_INET_LOCAL_IN,
		.priority = NF_IP6_PRI_LAST,
	}, {
		.hook = peal_guard_hook,
		.pf = NFPROTO_IPV4,
		.hooknum = NF_INET_POST_ROUTING,
		.priority = NF_IP_PRI_LAST - 1,
	}, {
		.hook = peal_guard_hook,
		.pf = NFPROTO_IPV6,
		.hooknum = NF_INET_POST_ROUTING,
		.priority = NF_IP6_PRI_LAST - 1,
	},
};

int peal_rx_open(struct peal_netns *ns)
{
	int i;

	skb_queue_head_init(&ns->backlog);
	INIT_WORK(&ns->work, peal_rx_work);
	for (i = 0; i < PEAL_NETNS_HOOKS; i++) {
		ns->hooks[i] = peal_rx_hooks[i];
		ns->hooks[i].priv = ns;
	}
	return nf_register_net_hooks(ns->net, ns->hooks, PEAL_NETNS_HOOKS);
}

void peal_rx_close(struct peal_netns *ns)
{
	nf_unregister_net_hooks(ns->net, ns->hooks, PEAL_NETNS_HOOKS);
}
