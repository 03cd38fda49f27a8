// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See rx.h.
 *
 * Packets are taken by a netfilter hook, the last of LOCAL_IN: after every rule
 * of the administrator, before the UDP layer. A socket bound to port 4791 would
 * be the other way; rdma_rxe has it, and one address in a namespace can be bound
 * once. Whoever has it keeps what is not for us: packets to addresses of other
 * netdevs, and to QP numbers that we do not know.
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
#include "net/datagram.h"
#include "net/rx.h"
#include "net/port.h"

/* As many as the stack's own backlog of a CPU holds by default. */
#define PEAL_RX_BACKLOG	1000

/*
 * What may be done at once for what arrived in one piece, a packet or a train of
 * them; the rest is the engine's. A window, or a piece of a READ: what another CPU
 * sends meanwhile overtakes what this one has sent, on every link that queues by
 * CPU. Packets of one NAPI poll that come one by one, 64 at most, have as much each:
 * the guard is left between them.
 */
#define PEAL_RX_BUDGET	(1024 << 10)

static void peal_rx_drop(struct peal_port *port, struct sk_buff *skb,
			 const struct peal_packet *packet, enum peal_drop why)
{
	peal_count_drop(port->table, why);
	trace_peal_drop(packet, why);
	kfree_skb(skb);
}

/* ---- the ports of a namespace ---- */

void peal_rx_add_port(struct peal_rx *rx, struct peal_port *port)
{
	list_add_tail_rcu(&port->node, &rx->ports);
}

void peal_rx_remove_port(struct peal_rx *rx, struct peal_port *port)
{
	list_del_rcu(&port->node);
}

/* No hook finds it any more, and what waits for the worker is dropped. */
void peal_rx_forget_port(struct peal_rx *rx)
{
	peal_guard_wait();
	flush_work(&rx->work);
}

/* A bridge may have several of our netdevs as ports: the first device gets it. */
static struct peal_port *peal_rx_find_below(struct peal_rx *rx, struct net_device *ndev)
{
	struct peal_port *port;

	list_for_each_entry_lockless(port, &rx->ports, node)
		if (netdev_has_upper_dev_all_rcu(port->ndev, ndev))
			return port;
	return NULL;
}

/*
 * Inside the guard: the port that sits on @ndev, or on a netdev that lies below it
 * (@ndev is a VLAN, a bridge or a bond). NULL: not ours.
 */
static struct peal_port *peal_rx_find(struct peal_rx *rx, struct net_device *ndev)
{
	struct peal_port *port;

	list_for_each_entry_lockless(port, &rx->ports, node)
		if (port->ndev == ndev)
			return port;
	return peal_rx_find_below(rx, ndev);
}

/* Inside the guard: is the port still there? */
static bool peal_rx_has(struct peal_rx *rx, const struct peal_port *port)
{
	const struct peal_port *other;

	list_for_each_entry_lockless(other, &rx->ports, node)
		if (other == port)
			return true;
	return false;
}

/* Which netdev has the destination address */

/*
 * The netdev that the packet came in by. In a VRF, skb->dev is the VRF's own device
 * by now, and the control block says which slave it was. Under RCU.
 */
static struct net_device *peal_rx_arrival_netdev(struct net *net, const struct sk_buff *skb,
						 bool ipv6)
{
	int slave = ipv6 ? inet6_sdif(skb) : inet_sdif(skb);
	struct net_device *ndev = slave ? dev_get_by_index_rcu(net, slave) : NULL;

	return ndev ?: skb->dev;
}

static bool peal_rx_has_address4(const struct net_device *ndev, __be32 address)
{
	const struct in_device *in = __in_dev_get_rcu(ndev);
	const struct in_ifaddr *ifa;

	if (in)
		in_dev_for_each_ifa_rcu(ifa, in)
			if (ifa->ifa_local == address)
				return true;
	return false;
}

static bool peal_rx_has_address(struct net_device *ndev, const struct sk_buff *skb, bool ipv6)
{
	if (ipv6)
		return ipv6_chk_addr(dev_net(ndev), &ipv6_hdr(skb)->daddr, ndev, 1);
	return peal_rx_has_address4(ndev, ip_hdr(skb)->daddr);
}

/* Where several netdevs have it, the one that the packet came by. Under RCU. */
static struct net_device *peal_rx_owner4(struct net *net, const struct sk_buff *skb,
					 struct net_device *in)
{
	__be32 address = ip_hdr(skb)->daddr;

	if (peal_rx_has_address4(in, address))
		return in;
	return __ip_dev_find(net, address, false);
}

/* The route of a packet to an address of ours belongs to the address's netdev. */
static struct net_device *peal_rx_owner6(const struct sk_buff *skb)
{
	const struct inet6_dev *idev = skb_dst(skb) ? ip6_dst_idev(skb_dst(skb)) : NULL;

	return idev ? idev->dev : NULL;
}

/*
 * The lookups above know nothing of VRFs, and another VRF may have the same address.
 * This scan runs only when they find a netdev of another VRF.
 */
static struct net_device *peal_rx_owner_in_vrf(struct net *net, const struct sk_buff *skb,
					       bool ipv6, int vrf)
{
	struct net_device *ndev;

	for_each_netdev_rcu(net, ndev)
		if (l3mdev_master_ifindex_rcu(ndev) == vrf &&
		    peal_rx_has_address(ndev, skb, ipv6))
			return ndev;
	return NULL;
}

/*
 * Return: the netdev that has the destination address, in the VRF that the packet came
 * in by, or outside of all VRFs as the packet did; or NULL. Under RCU.
 */
static struct net_device *peal_rx_owner(struct net *net, const struct sk_buff *skb, bool ipv6)
{
	struct net_device *in = peal_rx_arrival_netdev(net, skb, ipv6), *owner;
	int vrf;

	if (peal_datagram_is_multicast(skb, ipv6))
		return in;
	owner = ipv6 ? peal_rx_owner6(skb) : peal_rx_owner4(net, skb, in);
	if (!owner || owner == in)
		return owner;
	vrf = l3mdev_master_ifindex_rcu(in);
	if (likely(l3mdev_master_ifindex_rcu(owner) == vrf))
		return owner;
	return peal_rx_owner_in_vrf(net, skb, ipv6, vrf);
}

/*
 * skb->data is at the IP header. Afterwards the packet ends where UDP says, and
 * the headers are in the linear part, which is ours alone to read.
 */
static enum peal_drop peal_rx_shape(struct sk_buff *skb)
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

static enum peal_drop peal_rx_check(struct sk_buff *skb, struct peal_datagram *dg)
{
	enum peal_drop drop = peal_rx_shape(skb);

	dg->packet = (struct peal_packet){ };
	if (!drop)
		drop = peal_datagram_parse(skb, dg);
	if (!drop && !peal_datagram_icrc_is_right(skb, dg->ipv6))
		drop = PEAL_DROP_icrc;
	return drop;
}

/* Inside the guard. One packet of ours; skb->data is at the IP header. @qp: as in deliver(). */
static void peal_rx_take(struct peal_port *port, struct sk_buff *skb, struct peal_qp *qp,
			 struct peal_budget *budget)
{
	struct peal_datagram dg;
	enum peal_drop drop = peal_rx_check(skb, &dg);

	peal_budget_spend(budget, PEAL_COST_PACKET + skb->len);
	if (drop) {
		peal_rx_drop(port, skb, &dg.packet, drop);
		return;
	}
	peal_count(port->table, packets_received);
	peal_count_by(port->table, packet_bytes_received, skb->len);
	port->ops->deliver(port, qp, &dg, budget);
}

/*
 * Several packets in one, as a sender's segmentation offload makes them for a
 * virtual link, or a receiver's aggregation. The headers of the packets are those
 * that the stack makes: the sender computed its ICRCs for these.
 */
static void peal_rx_take_all(struct peal_port *port, struct sk_buff *skb, struct peal_qp *qp)
{
	struct peal_budget budget = { .left = PEAL_RX_BUDGET };
	struct sk_buff *next;

	if (!skb_is_gso(skb)) {
		peal_rx_take(port, skb, qp, &budget);
		return;
	}
	__skb_push(skb, -skb_mac_offset(skb));
	skb = udp_rcv_segment(peal_rooms_sock(&port->rooms), skb, !peal_arrival(skb)->ipv6);
	if (!skb)
		peal_count_drop(port->table, PEAL_DROP_resource);
	skb_list_walk_safe(skb, skb, next) {
		skb_mark_not_on_list(skb);
		__skb_pull(skb, skb_network_offset(skb));
		peal_rx_take(port, skb, NULL, &budget);
	}
}

static void peal_rx_work(struct work_struct *work)
{
	struct peal_rx *rx = container_of(work, struct peal_rx, work);
	struct sk_buff *skb;

	while ((skb = skb_dequeue(&rx->backlog))) {
		struct peal_port *port = peal_arrival(skb)->port;

		peal_guard_enter();
		if (peal_rx_has(rx, port))
			peal_rx_take_all(port, skb, NULL);
		else
			kfree_skb(skb);
		peal_guard_exit();
		cond_resched();
	}
}

static void peal_rx_later(struct peal_rx *rx, struct peal_port *port, struct sk_buff *skb)
{
	static const struct peal_packet unread;

	if (skb_queue_len_lockless(&rx->backlog) >= PEAL_RX_BACKLOG) {
		peal_rx_drop(port, skb, &unread, PEAL_DROP_resource);
		return;
	}
	skb_queue_tail(&rx->backlog, skb);
	peal_workers_queue(&rx->work);
}

/* Whose packet it is */

/*
 * @sk was found without regard to VRFs. Does the stack give it a packet that came in
 * by @slave (0: outside of all VRFs)? Releases @sk.
 */
static bool peal_rx_socket_found(struct net *net, struct sock *sk, int iif, int slave)
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
static bool peal_rx_socket4(struct net *net, const struct sk_buff *skb, __be16 sport, int iif)
{
#if IS_ENABLED(CONFIG_NF_TPROXY_IPV4) || IS_ENABLED(CONFIG_NF_SOCKET_IPV4)
	struct sock *sk = udp4_lib_lookup(net, ip_hdr(skb)->saddr, sport, ip_hdr(skb)->daddr,
					  htons(PEAL_ROCE_PORT), iif);

	return peal_rx_socket_found(net, sk, iif, inet_sdif(skb));
#else
	return true;
#endif
}

static bool peal_rx_socket6(struct net *net, const struct sk_buff *skb, __be16 sport, int iif)
{
#if IS_ENABLED(CONFIG_NF_TPROXY_IPV6) || IS_ENABLED(CONFIG_NF_SOCKET_IPV6)
	struct sock *sk = udp6_lib_lookup(net, &ipv6_hdr(skb)->saddr, sport,
					  &ipv6_hdr(skb)->daddr, htons(PEAL_ROCE_PORT), iif);

	return peal_rx_socket_found(net, sk, iif, inet6_sdif(skb));
#else
	return true;
#endif
}

/* In a VRF, sockets are bound to the VRF's device or to the slave. */
static bool peal_rx_socket(struct net *net, const struct sk_buff *skb, bool ipv6, __be16 sport)
{
	int slave = ipv6 ? inet6_sdif(skb) : inet_sdif(skb);

	if (ipv6)
		return peal_rx_socket6(net, skb, sport, inet6_iif(skb)) ||
		       (slave && peal_rx_socket6(net, skb, sport, slave));
	return peal_rx_socket4(net, skb, sport, inet_iif(skb)) ||
	       (slave && peal_rx_socket4(net, skb, sport, slave));
}

/* @qp: set to the queue pair that it names, if there is one. */
static bool peal_rx_known(struct peal_port *port, const struct sk_buff *skb, u32 at, u32 *qpn,
			  struct peal_qp **qp)
{
	u8 buffer[PEAL_BTH_BYTES];
	const u8 *bth = skb_header_pointer(skb, at + sizeof(struct udphdr), sizeof(buffer), buffer);

	*qpn = 0;
	*qp = NULL;
	if (!bth)
		return true;	/* short: nobody else would know it either */
	*qpn = bth[5] << 16 | bth[6] << 8 | bth[7];
	if (*qpn == PEAL_QPN_MULTICAST)
		return true;
	*qp = port->ops->find(port, *qpn);
	return *qp;
}

/* The caller's IPsec policies, as a socket's packets meet them. */
static bool peal_rx_permitted(struct sk_buff *skb, bool ipv6)
{
	return ipv6 ? xfrm6_policy_check(NULL, XFRM_POLICY_IN, skb) :
		      xfrm4_policy_check(NULL, XFRM_POLICY_IN, skb);
}

/*
 * In a VRF, skb->dev and skb_iif are the VRF's own by now. The control block has the slave,
 * but for IPv6 it also names one for packets that never left this host: so it proves nothing.
 */
static int peal_rx_slave(const struct sk_buff *skb, bool ipv6)
{
	return ipv6 ? 0 : inet_sdif(skb);
}

/* From here on it lives without the things that it has from its way up. */
static void peal_rx_own(struct sk_buff *skb, struct peal_port *port, u32 at, bool ipv6,
			const struct net_device *owner)
{
	BUILD_BUG_ON(sizeof(struct peal_arrival) > SKB_GSO_CB_OFFSET);
	if (unlikely(netif_is_l3_master(skb->dev)))
		skb->skb_iif = peal_rx_slave(skb, ipv6);
	skb_orphan(skb);
	skb_dst_drop(skb);
	nf_reset_ct(skb);
	*peal_arrival(skb) = (struct peal_arrival){
		.port = port,
		.udp = at,
		.ipv6 = ipv6,
		.vlan_id = is_vlan_dev(owner) ? vlan_dev_vlan_id(owner) : PEAL_VLAN_NONE,
	};
}

/* Inside the guard and RCU; @at: of the UDP header from the IP header, at skb->data. */
static unsigned int peal_rx_packet(struct peal_rx *rx, struct sk_buff *skb, u32 at, bool ipv6,
				   __be16 sport, bool nested)
{
	struct net_device *owner;
	struct peal_packet packet = { };
	struct peal_port *port;
	struct peal_qp *qp;

	owner = peal_rx_owner(rx->net, skb, ipv6);
	port = owner ? peal_rx_find(rx, owner) : NULL;
	if (!port)
		return NF_ACCEPT;
	if (!peal_rx_known(port, skb, at, &packet.qpn, &qp)) {
		if (peal_rx_socket(rx->net, skb, ipv6, sport))
			return NF_ACCEPT;
		peal_rx_drop(port, skb, &packet, PEAL_DROP_qpn);
		return NF_STOLEN;
	}
	if (!peal_rx_permitted(skb, ipv6))
		return NF_DROP;
	peal_rx_own(skb, port, at, ipv6, owner);
	if (nested)
		peal_rx_later(rx, port, skb);
	else
		peal_rx_take_all(port, skb, qp);
	return NF_STOLEN;
}

static unsigned int peal_rx_udp(struct peal_rx *rx, struct sk_buff *skb, u32 at, bool ipv6)
{
	struct udphdr buffer;
	const struct udphdr *udp = skb_header_pointer(skb, at, sizeof(buffer), &buffer);
	bool nested = peal_guard_held();
	unsigned int verdict;

	if (!udp || udp->dest != htons(PEAL_ROCE_PORT))
		return NF_ACCEPT;
	peal_guard_enter();
	verdict = peal_rx_packet(rx, skb, at, ipv6, udp->source, nested);
	peal_guard_exit();
	return verdict;
}

/* The stack has put fragments together. */
static unsigned int peal_rx_hook4(void *priv, struct sk_buff *skb,
				  const struct nf_hook_state *state)
{
	if (ip_hdr(skb)->protocol != IPPROTO_UDP)
		return NF_ACCEPT;
	return peal_rx_udp(priv, skb, ip_hdrlen(skb), false);
}

/*
 * Extension headers, fragments too, are still there: what has them and is for us
 * is counted and refused. Of a fragment that is not the first nothing can be
 * said; the others of its packet are not coming.
 */
static unsigned int peal_rx_hook6(void *priv, struct sk_buff *skb,
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
	return peal_rx_udp(priv, skb, at, true);
}

static const struct nf_hook_ops peal_rx_hooks[PEAL_RX_HOOKS] = {
	{
		.hook = peal_rx_hook4,
		.pf = NFPROTO_IPV4,
		.hooknum = NF_INET_LOCAL_IN,
		.priority = NF_IP_PRI_LAST,
	}, {
		.hook = peal_rx_hook6,
		.pf = NFPROTO_IPV6,
		.hooknum = NF_INET_LOCAL_IN,
		.priority = NF_IP6_PRI_LAST,
	},
};

int peal_rx_open(struct peal_rx *rx, struct net *net)
{
	int i;

	rx->net = net;
	INIT_LIST_HEAD(&rx->ports);
	skb_queue_head_init(&rx->backlog);
	INIT_WORK(&rx->work, peal_rx_work);
	for (i = 0; i < PEAL_RX_HOOKS; i++) {
		rx->hooks[i] = peal_rx_hooks[i];
		rx->hooks[i].priv = rx;
	}
	return nf_register_net_hooks(net, rx->hooks, PEAL_RX_HOOKS);
}

void peal_rx_stop(struct peal_rx *rx)
{
	nf_unregister_net_hooks(rx->net, rx->hooks, PEAL_RX_HOOKS);
}

void peal_rx_drain(struct peal_rx *rx)
{
	flush_work(&rx->work);
}
