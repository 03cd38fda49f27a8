// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See path.h.
 *
 * Packets leave through the netdev of the GID that they are sent from, as those of a hardware
 * adapter do. The routing table may choose another netdev (two netdevs in one subnet). Then the
 * lookup is repeated for the GID's netdev alone. Destinations on this host are the exception,
 * because their route is local whatever the netdev.
 */
#include <linux/capability.h>
#include <linux/if_vlan.h>
#include <linux/ipv6.h>
#include <net/inet_dscp.h>
#include <net/inet_ecn.h>
#include <net/ip6_route.h>
#include <net/ipv6.h>
#include <net/l3mdev.h>
#include <net/route.h>
#include <rdma/ib_addr.h>
#include <rdma/ib_cache.h>

#include "net/netns.h"
#include "net/path.h"
#include "net/port.h"
#include "proto/packet.h"

/* In bytes: UDP, and what a RoCE packet has besides its payload. */
#define PEAL_PATH_OVERHEAD	(8 + PEAL_PACKET_MOST_OVERHEAD)

static const struct in6_addr *peal_path_in6(const union ib_gid *gid)
{
	return (const struct in6_addr *)gid->raw;
}

static __be32 peal_path_in4(const union ib_gid *gid)
{
	return peal_path_in6(gid)->s6_addr32[3];
}

static struct dst_entry *peal_path_lookup4(const struct peal_path *path, struct net *net, int oif)
{
	struct flowi4 fl4;
	struct rtable *rt;

	flowi4_init_output(&fl4, oif, 0, path->tclass & INET_DSCP_MASK, RT_SCOPE_UNIVERSE,
			   IPPROTO_UDP, 0, peal_path_in4(&path->dgid), peal_path_in4(&path->sgid),
			   htons(PEAL_ROCE_PORT), htons(path->sport), sock_net_uid(net, NULL));
	rt = ip_route_output_flow(net, &fl4, NULL);
	return IS_ERR(rt) ? ERR_CAST(rt) : &rt->dst;
}

#if IS_ENABLED(CONFIG_IPV6)
static struct dst_entry *peal_path_lookup6(const struct peal_path *path, struct net *net, int oif)
{
	struct flowi6 fl6 = {
		.flowi6_oif = oif,
		.flowi6_proto = IPPROTO_UDP,
		.flowi6_uid = sock_net_uid(net, NULL),
		.daddr = *peal_path_in6(&path->dgid),
		.saddr = *peal_path_in6(&path->sgid),
		.flowlabel = ip6_make_flowinfo(path->tclass, htonl(path->flow_label)),
		.fl6_sport = htons(path->sport),
		.fl6_dport = htons(PEAL_ROCE_PORT),
	};

	if (!ipv6_mod_enabled())
		return ERR_PTR(-EAFNOSUPPORT);
	return ip6_dst_lookup_flow(net, NULL, &fl6, NULL);
}

static u32 peal_path_cookie(const struct peal_path *path, const struct dst_entry *dst)
{
	return path->ipv6 ? rt6_get_cookie(container_of(dst, struct rt6_info, dst)) : 0;
}
#else
static struct dst_entry *peal_path_lookup6(const struct peal_path *path, struct net *net, int oif)
{
	return ERR_PTR(-EAFNOSUPPORT);
}

static u32 peal_path_cookie(const struct peal_path *path, const struct dst_entry *dst)
{
	return 0;
}
#endif

/* A multicast route is marked local when this host is a member, so the mark does not count. */
bool peal_path_route_is_local(const struct peal_path *path, const struct dst_entry *dst)
{
	if (path->multicast)
		return false;
	if (path->ipv6)
		return container_of(dst, struct rt6_info, dst)->rt6i_flags & RTF_LOCAL;
	return container_of(dst, struct rtable, dst)->rt_flags & RTCF_LOCAL;
}

static struct dst_entry *peal_path_lookup_by(const struct peal_path *path, struct net *net, int oif)
{
	return path->ipv6 ? peal_path_lookup6(path, net, oif) : peal_path_lookup4(path, net, oif);
}

/* Under RCU. Return: the route with a reference for the caller, or an ERR_PTR. */
static struct dst_entry *peal_path_lookup(const struct peal_path *path, struct net *net)
{
	struct dst_entry *dst;

	RCU_LOCKDEP_WARN(!rcu_read_lock_held(), "a route is looked up outside RCU");
	if (path->bound)
		return peal_path_lookup_by(path, net, path->ifindex);
	dst = peal_path_lookup_by(path, net, 0);
	if (IS_ERR(dst) || peal_path_route_is_local(path, dst) ||
	    READ_ONCE(dst->dev)->ifindex == path->ifindex)
		return dst;
	dst_release(dst);
	return peal_path_lookup_by(path, net, path->ifindex);
}

/* @dst: the new cached route, whose reference the path takes over, or NULL. */
static void peal_path_cache_route(struct peal_path *path, struct dst_entry *dst)
{
	struct dst_entry *old;

	spin_lock_bh(&path->lock);
	old = path->dst;
	path->dst = dst;
	if (dst)
		path->cookie = peal_path_cookie(path, dst);
	spin_unlock_bh(&path->lock);
	dst_release(old);
}

/*
 * A multicast route is used for one packet only. The IPv4 route says whether the packet
 * comes back to members on this host, and memberships come and go.
 */
static struct dst_entry *peal_path_cached(struct peal_path *path)
{
	struct dst_entry *dst;

	if (path->multicast)
		return NULL;
	spin_lock_bh(&path->lock);
	dst = path->dst;
	if (dst)
		dst = dst_check(dst, path->cookie);
	spin_unlock_bh(&path->lock);
	return dst;
}

/*
 * The path keeps the reference. If another sender replaces the route before this packet has
 * left, the stack cannot take a reference any more and drops the packet.
 */
struct dst_entry *peal_path_route(struct peal_path *path, struct net *net)
{
	struct dst_entry *dst = peal_path_cached(path);

	RCU_LOCKDEP_WARN(!rcu_read_lock_held(), "a route is used outside RCU");
	if (dst)
		return dst;
	dst = peal_path_lookup(path, net);
	peal_path_cache_route(path, IS_ERR(dst) ? NULL : dst);
	return dst;
}

/*
 * Bind the path for addresses that mean nothing without an interface (multicast,
 * link-local), and for interfaces with routes of their own (VRFs).
 */
static bool peal_path_must_bind(const struct peal_path *path, const struct net_device *ndev)
{
	return path->multicast || netif_is_l3_slave(ndev) || netif_is_l3_master(ndev) ||
	       (path->ipv6 && ipv6_addr_type(peal_path_in6(&path->dgid)) & IPV6_ADDR_LINKLOCAL);
}

static int peal_path_set_netdev(struct peal_path *path, const struct ib_gid_attr *gid)
{
	struct net_device *ndev;
	int ret = 0;

	rcu_read_lock();
	ndev = rdma_read_gid_attr_ndev_rcu(gid);
	if (IS_ERR(ndev)) {
		ret = PTR_ERR(ndev);
	} else {
		path->ifindex = ndev->ifindex;
		path->bound = peal_path_must_bind(path, ndev);
	}
	rcu_read_unlock();
	return ret;
}

static u16 peal_path_sport(u32 flow_label, u32 hash)
{
	if (flow_label)
		return rdma_flow_label_to_udp_sport(flow_label);
	return IB_ROCE_UDP_ENCAP_VALID_PORT_MIN |
	       ((hash ^ hash >> 14) & (IB_ROCE_UDP_ENCAP_VALID_PORT_MAX -
				       IB_ROCE_UDP_ENCAP_VALID_PORT_MIN));
}

int peal_path_init(struct peal_path *path, struct peal_port *port, struct peal_tx_quota *tx_quota,
		   const struct rdma_ah_attr *attr, u32 hash)
{
	const struct ib_global_route *grh = rdma_ah_read_grh(attr);
	const struct ib_gid_attr *gid = grh->sgid_attr;

	if (!(rdma_ah_get_ah_flags(attr) & IB_AH_GRH) || !gid ||
	    gid->gid_type != IB_GID_TYPE_ROCE_UDP_ENCAP)
		return -EINVAL;
	*path = (struct peal_path){
		.port = port,
		.tx_quota = tx_quota,
		.ipv6 = rdma_gid_attr_network_type(gid) == RDMA_NETWORK_IPV6,
		.sgid = gid->gid,
		.dgid = grh->dgid,
		.sport = peal_path_sport(grh->flow_label, hash),
		.tclass = grh->traffic_class & ~INET_ECN_MASK,
		.hop_limit = grh->hop_limit,
		.sl = rdma_ah_get_sl(attr),
		.flow_label = grh->flow_label & 0xfffff,
	};
	spin_lock_init(&path->lock);
	if (path->ipv6 == ipv6_addr_v4mapped(peal_path_in6(&path->dgid)))
		return -EINVAL;
	path->multicast = rdma_is_multicast_addr((struct in6_addr *)path->dgid.raw);
	return peal_path_set_netdev(path, gid);
}

/* The highest service level for programs without capabilities, as with SO_PRIORITY. */
#define PEAL_PATH_FREE_SL	6

int peal_path_permit(const struct peal_port *port, const struct rdma_ah_attr *attr)
{
	struct user_namespace *owner = port->net->user_ns;

	if (rdma_ah_get_sl(attr) <= PEAL_PATH_FREE_SL ||
	    ns_capable(owner, CAP_NET_RAW) || ns_capable(owner, CAP_NET_ADMIN))
		return 0;
	return -EPERM;
}

static struct dst_entry *peal_path_route_now(struct peal_path *path)
{
	return peal_path_route(path, path->port->net);
}

int peal_path_resolve(struct peal_path *path, struct peal_port *port,
		      struct peal_tx_quota *tx_quota, const struct rdma_ah_attr *attr, u32 hash)
{
	int ret = peal_path_init(path, port, tx_quota, attr, hash);

	if (ret)
		return ret;
	rcu_read_lock();
	ret = PTR_ERR_OR_ZERO(peal_path_route_now(path));
	rcu_read_unlock();
	return ret;
}

void peal_path_release(struct peal_path *path)
{
	dst_release(path->dst);
	path->dst = NULL;
}

bool peal_path_fits(struct peal_path *path, enum ib_mtu mtu)
{
	u32 need = ib_mtu_enum_to_int(mtu) + PEAL_PATH_OVERHEAD +
		   (path->ipv6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr));
	struct dst_entry *dst;
	bool fits;

	rcu_read_lock();
	dst = peal_path_route_now(path);
	fits = !IS_ERR(dst) && dst_mtu(dst) >= need;
	rcu_read_unlock();
	return fits;
}

bool peal_path_leaves_by(struct peal_path *path, int ifindex)
{
	struct dst_entry *dst;
	bool same;

	rcu_read_lock();
	dst = peal_path_route_now(path);
	/* Index 0 stands for a netdev that is gone, so it never matches. */
	same = ifindex && !IS_ERR(dst) && READ_ONCE(dst->dev)->ifindex == ifindex;
	rcu_read_unlock();
	return same;
}

bool peal_path_is_local(struct peal_path *path)
{
	struct dst_entry *dst;
	bool local;

	rcu_read_lock();
	dst = peal_path_route_now(path);
	local = !IS_ERR(dst) && peal_path_route_is_local(path, dst);
	rcu_read_unlock();
	return local;
}
