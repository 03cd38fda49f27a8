// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See rx.h.
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
#include "net/datagram.h"
#include "net/kernel_socket.h"
#include "net/port.h"
#include "net/rx.h"

/* The most packets in the backlog: as many as the stack's own backlog of a CPU holds by default. */
#define PEAL_RX_BACKLOG	1000

/*
 * The budget for what received pieces cause at once on one CPU in a jiffy. A piece is a packet, or
 * a train of packets in one skb, and one NAPI poll delivers up to 64 of them. The engine does the
 * rest, on this CPU, because packets that another CPU sends meanwhile overtake those that this CPU
 * has sent, on every link with a queue per CPU. The cost of the pieces themselves does not count,
 * because the stack has its own limits for it.
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

/* Wait until no hook uses the removed port and the work item has dropped its packets. */
void peal_rx_forget_port(struct peal_rx *rx)
{
	peal_epoch_wait();
	flush_work(&rx->work);
}

/* Several of our netdevs may be ports of one bridge. The first device gets the packet. */
static struct peal_port *peal_rx_find_below(struct peal_rx *rx, struct net_device *ndev)
{
	struct peal_port *port;

	peal_epoch_assert_held();
	list_for_each_entry_lockless(port, &rx->ports, node)
		if (netdev_has_upper_dev_all_rcu(port->ndev, ndev))
			return port;
	return NULL;
}

/*
 * Inside the epoch. Return: the port on @ndev, or on a netdev that lies below it (@ndev is
 * a VLAN, a bridge or a bond). NULL: no device is there, so the packet is not ours.
 */
static struct peal_port *peal_rx_find(struct peal_rx *rx, struct net_device *ndev)
{
	struct peal_port *port;

	peal_epoch_assert_held();
	list_for_each_entry_lockless(port, &rx->ports, node)
		if (port->ndev == ndev)
			return port;
	return peal_rx_find_below(rx, ndev);
}

/* Inside the epoch. Is the port still there? It may go while a packet waits in the backlog. */
static bool peal_rx_has(struct peal_rx *rx, const struct peal_port *port)
{
	const struct peal_port *other;

	peal_epoch_assert_held();
	list_for_each_entry_lockless(other, &rx->ports, node)
		if (other == port)
			return true;
	return false;
}

struct peal_port *peal_rx_first_port(struct peal_rx *rx)
{
	peal_epoch_assert_held();
	return list_first_or_null_rcu(&rx->ports, struct peal_port, node);
}

/* Which netdev has the destination address */

/*
 * The netdev that the packet came in by. In a VRF, skb->dev is the VRF's own device by now,
 * and the skb's control block names the slave. Under RCU.
 */
static struct net_device *peal_rx_arrival_netdev(struct net *net, const struct sk_buff *skb,
						 bool ipv6)
{
	int slave = ipv6 ? inet6_sdif(skb) : inet_sdif(skb);
	struct net_device *ndev = slave ? dev_get_by_index_rcu(net, slave) : NULL;

	RCU_LOCKDEP_WARN(!rcu_read_lock_held(), "a netdev is looked up outside RCU");
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

static bool peal_rx_has_address6(struct net_device *ndev, const struct in6_addr *address)
{
	return ipv6_chk_addr(dev_net(ndev), address, ndev, 1);
}

static bool peal_rx_has_destination(struct net_device *ndev, const struct sk_buff *skb, bool ipv6)
{
	return ipv6 ? peal_rx_has_address6(ndev, &ipv6_hdr(skb)->daddr) :
		      peal_rx_has_address4(ndev, ip_hdr(skb)->daddr);
}

static bool peal_rx_has_source(struct net_device *ndev, const struct sk_buff *skb, bool ipv6)
{
	return ipv6 ? peal_rx_has_address6(ndev, &ipv6_hdr(skb)->saddr) :
		      peal_rx_has_address4(ndev, ip_hdr(skb)->saddr);
}

/*
 * More than one netdev may have the address, in different VRFs, so look at all of them. Few packets
 * come here.
 */
struct peal_port *peal_rx_source_port(struct peal_rx *rx, const struct sk_buff *skb, bool ipv6)
{
	struct net_device *ndev;
	struct peal_port *port;

	peal_epoch_assert_held();
	RCU_LOCKDEP_WARN(!rcu_read_lock_held(), "a netdev is looked up outside RCU");
	for_each_netdev_rcu(rx->net, ndev) {
		if (!peal_rx_has_source(ndev, skb, ipv6))
			continue;
		port = peal_rx_find(rx, ndev);
		if (port)
			return port;
	}
	return NULL;
}

/* When several netdevs have the address, take the one that the packet came in by. Under RCU. */
static struct net_device *peal_rx_owner4(struct net *net, const struct sk_buff *skb,
					 struct net_device *in)
{
	__be32 address = ip_hdr(skb)->daddr;

	RCU_LOCKDEP_WARN(!rcu_read_lock_held(), "a netdev is looked up outside RCU");
	if (peal_rx_has_address4(in, address))
		return in;
	return __ip_dev_find(net, address, false);
}

/* The route of a packet to a local address names the netdev that has the address. */
static struct net_device *peal_rx_owner6(const struct sk_buff *skb)
{
	const struct inet6_dev *idev = skb_dst(skb) ? ip6_dst_idev(skb_dst(skb)) : NULL;

	return idev ? idev->dev : NULL;
}

/*
 * The lookups above ignore VRFs, and another VRF may have the same address. This scan runs
 * only when they find a netdev of another VRF.
 */
static struct net_device *peal_rx_owner_in_vrf(struct net *net, const struct sk_buff *skb,
					       bool ipv6, int vrf)
{
	struct net_device *ndev;

	for_each_netdev_rcu(net, ndev)
		if (l3mdev_master_ifindex_rcu(ndev) == vrf &&
		    peal_rx_has_destination(ndev, skb, ipv6))
			return ndev;
	return NULL;
}

/*
 * Return: the netdev that has the destination address, or NULL. The netdev is in the VRF
 * that the packet came in by, or outside of all VRFs if the packet came in outside of them.
 * Under RCU.
 */
static struct net_device *peal_rx_owner(struct net *net, const struct sk_buff *skb, bool ipv6)
{
	struct net_device *in = peal_rx_arrival_netdev(net, skb, ipv6), *owner;
	int vrf;

	RCU_LOCKDEP_WARN(!rcu_read_lock_held(), "a netdev is looked up outside RCU");
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
 * On entry, skb->data is at the IP header. On success it is at the BTH, the packet ends
 * where UDP says, and the headers are in the linear part, where the sender cannot change
 * them any more.
 */
static enum peal_drop peal_rx_shape(struct sk_buff *skb)
{
	u32 at = peal_arrival(skb)->udp, bytes;
	bool ipv6 = peal_arrival(skb)->ipv6;
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
	if (at != (ipv6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr)) ||
	    (!ipv6 && ip_is_fragment(ip_hdr(skb))))
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

/*
 * Inside the epoch. Takes one packet for @port. skb->data is at the IP header. @qp: as in
 * deliver().
 */
static void peal_rx_take(struct peal_port *port, struct sk_buff *skb, struct peal_qp *qp,
			 struct peal_budget *budget)
{
	struct peal_datagram dg;
	enum peal_drop drop = peal_rx_check(skb, &dg);

	peal_epoch_assert_held();
	if (drop) {
		peal_rx_drop(port, skb, &dg.packet, drop);
		return;
	}
	peal_count(port->table, packets_received);
	peal_count_by(port->table, packet_bytes_received, skb->len);
	port->ops->deliver(port, qp, &dg, budget);
}

/*
 * The stack divides the skb and makes the headers, because the sender computed the ICRCs for the
 * headers that the stack makes. The packets may be for different queue pairs, so deliver() looks
 * each queue pair up.
 */
static void peal_rx_take_train(struct peal_port *port, struct sk_buff *skb,
			       struct peal_budget *budget)
{
	struct sk_buff *next;

	peal_epoch_assert_held();
	__skb_push(skb, -skb_mac_offset(skb));
	skb = udp_rcv_segment(peal_tx_quotas_sock(&port->tx_quotas), skb, !peal_arrival(skb)->ipv6);
	if (!skb)
		peal_count_drop(port->table, PEAL_DROP_resource);
	skb_list_walk_safe(skb, skb, next) {
		skb_mark_not_on_list(skb);
		__skb_pull(skb, skb_network_offset(skb));
		peal_rx_take(port, skb, NULL, budget);
	}
}

/*
 * One skb may hold several packets: those of a sender's segmentation offload on a virtual link, or
 * those of the receiver's aggregation. An skb of UDP fragmentation offload (SKB_GSO_UDP) is one
 * packet, because only a wire needs it in fragments. It must not be divided here: the sender could
 * make a fragment look like a packet. Its fields of the offload stay as they are, because a clone
 * may share them, and no code reads them any more.
 */
static void peal_rx_take_all(struct peal_port *port, struct sk_buff *skb, struct peal_qp *qp,
			     struct peal_budget *allowance)
{
	s64 granted = max_t(s64, allowance->left, PEAL_RX_LEAST);
	struct peal_budget budget = { .left = granted };
	static const struct peal_packet unread;

	peal_epoch_assert_held();
	if (!skb_is_gso(skb) || skb_shinfo(skb)->gso_type & SKB_GSO_UDP)
		peal_rx_take(port, skb, qp, &budget);
	else if (skb_shinfo(skb)->gso_type & (SKB_GSO_UDP_L4 | SKB_GSO_FRAGLIST))
		peal_rx_take_train(port, skb, &budget);
	else
		peal_rx_drop(port, skb, &unread, PEAL_DROP_resource);
	peal_budget_spend(allowance, granted - budget.left);
}

/* Each piece has the whole budget, because this thread competes with others. */
static void peal_rx_work(struct work_struct *work)
{
	struct peal_rx *rx = container_of(work, struct peal_rx, work);
	struct sk_buff *skb;

	while ((skb = skb_dequeue(&rx->backlog))) {
		struct peal_budget budget = { .left = PEAL_RX_BUDGET };
		struct peal_port *port = peal_arrival(skb)->port;

		peal_epoch_enter();
		if (peal_rx_has(rx, port))
			peal_rx_take_all(port, skb, NULL, &budget);
		else
			kfree_skb(skb);
		peal_epoch_exit();
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

/* The owner of a packet */

/*
 * Under RCU. Return: the socket that gets the packet if we leave it to the stack. The stack may
 * have chosen one before (early demultiplexing). In a VRF, a socket may be bound to the VRF's
 * device or to the slave.
 */
static const struct sock *peal_rx_socket(struct net *net, const struct sk_buff *skb, bool ipv6,
					 __be16 sport)
{
	RCU_LOCKDEP_WARN(!rcu_read_lock_held(), "a socket is looked up outside RCU");
	if (skb->sk)
		return skb->sk;
	if (!ipv6)
		return __udp4_lib_lookup(net, ip_hdr(skb)->saddr, sport, ip_hdr(skb)->daddr,
					 htons(PEAL_ROCE_PORT), inet_iif(skb), inet_sdif(skb),
					 PEAL_UDP_TABLE(net));
#if IS_ENABLED(CONFIG_IPV6)
	return __udp6_lib_lookup(net, &ipv6_hdr(skb)->saddr, sport, &ipv6_hdr(skb)->daddr,
				 htons(PEAL_ROCE_PORT), inet6_iif(skb), inet6_sdif(skb),
				 PEAL_UDP_TABLE(net));
#else
	return NULL;
#endif
}

/*
 * The packet names no queue pair of the device. Return: PEAL_DROP_none if it is left to a socket of
 * the kernel, as rdma_rxe has one. No program gets the packet, because it may be one of a peer's to
 * a queue pair that has just been destroyed.
 */
static enum peal_drop peal_rx_stray(struct net *net, const struct sk_buff *skb, bool ipv6,
				    __be16 sport)
{
	const struct sock *sk = peal_rx_socket(net, skb, ipv6, sport);

	if (!sk)
		return PEAL_DROP_qpn;
	return peal_socket_is_kernels(sk) ? PEAL_DROP_none : PEAL_DROP_socket;
}

/*
 * Is the packet for this port? @at: as in peal_rx_packet(). @qpn: set to the QP number in
 * the BTH, or 0. @qp: set to the queue pair of that number, or NULL.
 */
static bool peal_rx_known(struct peal_port *port, const struct sk_buff *skb, u32 at, u32 *qpn,
			  struct peal_qp **qp)
{
	u8 buffer[PEAL_BTH_BYTES];
	const u8 *bth = skb_header_pointer(skb, at + sizeof(struct udphdr), sizeof(buffer), buffer);

	*qpn = 0;
	*qp = NULL;
	if (!bth)
		return true;	/* too short for a BTH, so no other user of the port can know it */
	*qpn = bth[5] << 16 | bth[6] << 8 | bth[7];
	if (*qpn == PEAL_QPN_MULTICAST)
		return true;
	*qp = port->ops->find(port, *qpn);
	return *qp;
}

/* Check the IPsec policies, as the stack does for a socket's packets. */
static bool peal_rx_permitted(struct sk_buff *skb, bool ipv6)
{
	return ipv6 ? xfrm6_policy_check(NULL, XFRM_POLICY_IN, skb) :
		      xfrm4_policy_check(NULL, XFRM_POLICY_IN, skb);
}

/*
 * The netdev that the packet came in by in a VRF, or 0 when it is not known. skb->dev and
 * skb_iif are the VRF's own by now. The control block names the slave. For IPv6 it also
 * names one when the packet never left this host, so it proves nothing there.
 */
static int peal_rx_slave(const struct sk_buff *skb, bool ipv6)
{
	return ipv6 ? 0 : inet_sdif(skb);
}

/*
 * Take the skb from the stack. Drop the references that the stack attached on the way up
 * (socket, route, conntrack), because the skb may be kept for a long time.
 */
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

/*
 * Inside the epoch and RCU. skb->data is at the IP header. @at: offset of the UDP header
 * from there. @nested: the epoch was held already.
 */
static unsigned int peal_rx_packet(struct peal_rx *rx, struct sk_buff *skb, u32 at, bool ipv6,
				   __be16 sport, bool nested)
{
	struct net_device *owner;
	struct peal_packet packet = { };
	struct peal_port *port;
	enum peal_drop drop;
	struct peal_qp *qp;

	peal_epoch_assert_held();
	RCU_LOCKDEP_WARN(!rcu_read_lock_held(), "a packet arrives outside RCU");
	owner = peal_rx_owner(rx->net, skb, ipv6);
	port = owner ? peal_rx_find(rx, owner) : NULL;
	if (!port)
		return NF_ACCEPT;
	if (!peal_rx_known(port, skb, at, &packet.qpn, &qp)) {
		drop = peal_rx_stray(rx->net, skb, ipv6, sport);
		if (!drop)
			return NF_ACCEPT;
		peal_rx_drop(port, skb, &packet, drop);
		return NF_STOLEN;
	}
	if (!peal_rx_permitted(skb, ipv6))
		return NF_DROP;
	peal_rx_own(skb, port, at, ipv6, owner);
	if (nested)
		peal_rx_later(rx, port, skb);
	else
		peal_rx_take_all(port, skb, qp,
				 peal_allowance_at(this_cpu_ptr(&peal_rx_allowance),
						   get_jiffies_64(), PEAL_RX_BUDGET));
	return NF_STOLEN;
}

static unsigned int peal_rx_udp(struct peal_rx *rx, struct sk_buff *skb, u32 at, bool ipv6)
{
	struct udphdr buffer;
	const struct udphdr *udp = skb_header_pointer(skb, at, sizeof(buffer), &buffer);
	bool nested = peal_epoch_held();
	unsigned int verdict;

	if (!udp || udp->dest != htons(PEAL_ROCE_PORT))
		return NF_ACCEPT;
	peal_epoch_enter();
	verdict = peal_rx_packet(rx, skb, at, ipv6, udp->source, nested);
	peal_epoch_exit();
	return verdict;
}

/* At LOCAL_IN the stack has already reassembled IPv4 fragments. */
static unsigned int peal_rx_hook4(void *priv, struct sk_buff *skb,
				  const struct nf_hook_state *state)
{
	if (ip_hdr(skb)->protocol != IPPROTO_UDP)
		return NF_ACCEPT;
	return peal_rx_udp(priv, skb, ip_hdrlen(skb), false);
}

int peal_rx_behind_headers6(const struct sk_buff *skb)
{
	u8 next = ipv6_hdr(skb)->nexthdr;
	__be16 fragment = 0;
	int at;

	if (!ipv6_ext_hdr(next))
		return -1;
	at = ipv6_skip_exthdr(skb, sizeof(struct ipv6hdr), &next, &fragment);
	return next == IPPROTO_UDP && !(fragment & htons(IP6_OFFSET)) ? at : -1;
}

/*
 * At LOCAL_IN the packet still has its IPv6 extension headers, also that of a fragment,
 * unless connection tracking has reassembled it. A packet for us with such headers is
 * counted and refused. A fragment that is not the first has no UDP header, so it cannot be
 * recognised and the stack gets it. If it belongs to a packet for us, the stack cannot
 * reassemble that packet, because the first fragment was refused here.
 */
static unsigned int peal_rx_hook6(void *priv, struct sk_buff *skb,
				  const struct nf_hook_state *state)
{
	int at = sizeof(struct ipv6hdr);

	if (ipv6_hdr(skb)->nexthdr != IPPROTO_UDP) {
		at = peal_rx_behind_headers6(skb);
		if (at < 0)
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

/*
 * The guard. RoCEv2 has no authentication, so a program that knows the numbers of a queue pair
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

/* Does any netdev of this namespace have the packet's source address? Under RCU. */
static bool peal_guard_source_is_local(struct net *net, const struct sk_buff *skb, bool ipv6)
{
	RCU_LOCKDEP_WARN(!rcu_read_lock_held(), "an address is looked up outside RCU");
	if (ipv6)
		return ipv6_chk_addr(net, &ipv6_hdr(skb)->saddr, NULL, 0);
	return __ip_dev_find(net, ip_hdr(skb)->saddr, false);
}

static bool peal_guard_was_forwarded(const struct sk_buff *skb, bool ipv6)
{
	return ipv6 ? IP6CB(skb)->flags & IP6SKB_FORWARDED : IPCB(skb)->flags & IPSKB_FORWARDED;
}

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

/*
 * May the sender use the address? A packet without a socket that was not forwarded is one that the
 * stack itself has made, such as a copy for another receiver, or one that a bridge passes on.
 */
static bool peal_guard_sender_may(struct net *net, const struct sk_buff *skb, struct sock *sk,
				  bool ipv6)
{
	if (!sk)
		return !peal_guard_was_forwarded(skb, ipv6);
	return peal_guard_opener_may(sk, net->user_ns);
}

/* A UDP packet to port 4791 that the kernel itself does not send. Under RCU. */
static noinline unsigned int peal_guard_judge(struct peal_guard *guard, struct sk_buff *skb,
					      struct sock *sk, bool ipv6)
{
	struct net *net = guard->rx->net;
	bool local = peal_guard_source_is_local(net, skb, ipv6);
	struct peal_port *port;

	RCU_LOCKDEP_WARN(!rcu_read_lock_held(), "a packet is judged outside RCU");
	/* A packet of another host or namespace passes through. */
	if (!sk && !local)
		return NF_ACCEPT;
	if (peal_guard_sender_may(net, skb, sk, ipv6))
		return NF_ACCEPT;
	peal_epoch_enter();
	if (local)
		port = peal_rx_source_port(guard->rx, skb, ipv6);
	else
		port = peal_rx_first_port(guard->rx);	/* any of them counts the packet */
	if (port)
		peal_count(port->table, packets_refused);
	peal_epoch_exit();
	return port ? NF_DROP : NF_ACCEPT;
}

/*
 * @at: offset of the UDP header from the IP header, at which skb->data is. The socket is looked at
 * first, because peal's own packets are the most, and need no look at the header then.
 */
static unsigned int peal_guard_udp(struct peal_guard *guard, struct sk_buff *skb,
				   const struct nf_hook_state *state, u32 at, bool ipv6)
{
	struct sock *sk = state->sk ?: skb->sk;
	struct udphdr buffer;
	const struct udphdr *udp;

	if (sk && peal_socket_is_kernels(sk))
		return NF_ACCEPT;
	udp = skb_header_pointer(skb, at, sizeof(buffer), &buffer);
	if (!udp || udp->dest != htons(PEAL_ROCE_PORT))
		return NF_ACCEPT;
	return peal_guard_judge(guard, skb, sk, ipv6);
}

/* A fragment that is not the first has no UDP header. Without the first it is worth nothing. */
static unsigned int peal_guard_hook4(void *priv, struct sk_buff *skb,
				     const struct nf_hook_state *state)
{
	const struct iphdr *ip = ip_hdr(skb);

	if (ip->protocol != IPPROTO_UDP || ip->frag_off & htons(IP_OFFSET))
		return NF_ACCEPT;
	return peal_guard_udp(priv, skb, state, ip_hdrlen(skb), false);
}

static unsigned int peal_guard_hook6(void *priv, struct sk_buff *skb,
				     const struct nf_hook_state *state)
{
	int at = sizeof(struct ipv6hdr);

	if (ipv6_hdr(skb)->nexthdr != IPPROTO_UDP) {
		at = peal_rx_behind_headers6(skb);
		if (at < 0)
			return NF_ACCEPT;
	}
	return peal_guard_udp(priv, skb, state, at, true);
}

static const struct nf_hook_ops peal_guard_hooks[PEAL_GUARD_HOOKS] = {
	{
		.hook = peal_guard_hook4,
		.pf = NFPROTO_IPV4,
		.hooknum = NF_INET_POST_ROUTING,
		.priority = NF_IP_PRI_LAST - 1,
	}, {
		.hook = peal_guard_hook6,
		.pf = NFPROTO_IPV6,
		.hooknum = NF_INET_POST_ROUTING,
		.priority = NF_IP6_PRI_LAST - 1,
	},
};

int peal_guard_open(struct peal_guard *guard, struct peal_rx *rx)
{
	int i;

	guard->rx = rx;
	for (i = 0; i < PEAL_GUARD_HOOKS; i++) {
		guard->hooks[i] = peal_guard_hooks[i];
		guard->hooks[i].priv = guard;
	}
	return nf_register_net_hooks(rx->net, guard->hooks, PEAL_GUARD_HOOKS);
}

void peal_guard_stop(struct peal_guard *guard)
{
	nf_unregister_net_hooks(guard->rx->net, guard->hooks, PEAL_GUARD_HOOKS);
}
