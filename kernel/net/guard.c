// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See guard.h.
 *
 * RoCEv2 has no authentication, so a program that knows the numbers of a queue pair could send to
 * its peer by an ordinary UDP socket from the same address. Any UDP source port would do. In IPv6
 * an ordinary socket may even have the address of the peer (IPV6_FREEBIND), and could send to the
 * queue pair of this host.
 *
 * The hooks are at POST_ROUTING and not at LOCAL_OUT, because there the source address is final. A
 * masquerade may give a device's address to packets of another namespace or of another address.
 * All packets of the namespace pass here, so packets that are not UDP to port 4791 leave after two
 * comparisons.
 *
 * The hooks run before connection tracking confirms a connection (NF_IP_PRI_LAST), so that the
 * connection of a refused packet never gets into a flow table, which would bypass these hooks.
 */
#include <linux/file.h>
#include <linux/inetdevice.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/netfilter_ipv4.h>
#include <linux/netfilter_ipv6.h>
#include <linux/udp.h>
#include <net/addrconf.h>
#include <net/ip.h>
#include <net/ipv6.h>
#include <net/sock.h>

#include "base/epoch.h"
#include "net/guard.h"
#include "net/kernel_socket.h"
#include "net/port.h"
#include "net/rx.h"

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
