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

#include "net/path.h"
#include "net/port.h"

/* In bytes: UDP, and what a RoCE packet has besides its payload. */
#define PEAL_PATH_OVERHEAD	(8 + PEAL_PACKET_MOST_OVERHEAD)

/* The highest service level for programs without capabilities, as with SO_PRIORITY. */
#define PEAL_PATH_FREE_SL	6

static const struct in6_addr *peal_path_in6(const union ib_gid *gid)
{
	return (const struct in6_addr *)gid->raw;
}

static struct dst_entry *peal_path_lookup4(const struct peal_path *path, int oif)
{
	struct net *net = path->port->net;
	struct flowi4 fl4;
	struct rtable *rt;

	flowi4_init_output(&fl4, oif, 0, path->tclass & INET_DSCP_MASK, RT_SCOPE_UNIVERSE,
			   IPPROTO_UDP, 0, peal_path_in6(&path->dgid)->s6_addr32[3],
			   peal_path_in6(&path->sgid)->s6_addr32[3], htons(PEAL_ROCE_PORT),
			   htons(path->sport), sock_net_uid(net, NULL));
	rt = ip_route_output_flow(net, &fl4, NULL);
	return IS_ERR(rt) ? ERR_CAST(rt) : &rt->dst;
}

static struct dst_entry *peal_path_lookup6(const struct peal_path *path, int oif)
{
#if IS_ENABLED(CONFIG_IPV6)
	struct net *net = path->port->net;
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

	if (ipv6_mod_enabled())
		return ip6_dst_lookup_flow(net, NULL, &fl6, NULL);
#endif
	return ERR_PTR(-EAFNOSUPPORT);
}

static struct dst_entry *peal_path_lookup(const struct peal_path *path, int oif)
{
	return path->ipv6 ? peal_path_lookup6(path, oif) : peal_path_lookup4(path, oif);
}

/* A multicast route is marked local when this host is a member, so the mark does not count. */
bool peal_path_route_is_local(const struct peal_path *path, const struct dst_entry *dst)
{
	if (path->multicast)
		return false;
	if (path->ipv6)
		return container_of(dst, struct rt6_info, dst)->rt6i_flags & RTF_LOCAL;
	return container_of(dst, struct rtable, dst)->rt_flags & RTCF_LOCAL;
}

/*
 * Under RCU. Look the route up and put it into the cache. The path keeps the reference. If another
 * sender replaces the route before this packet has left, the stack cannot take a reference any more
 * and drops the packet.
 */
static noinline struct dst_entry *peal_path_new_route(struct peal_path *path)
{
	struct dst_entry *dst = peal_path_lookup(path, path->bound ? path->ifindex : 0), *old;

	RCU_LOCKDEP_WARN(!rcu_read_lock_held(), "a route is looked up outside RCU");
	if (!path->bound && !IS_ERR(dst) && !peal_path_route_is_local(path, dst) &&
	    READ_ONCE(dst->dev)->ifindex != path->ifindex) {
		dst_release(dst);
		dst = peal_path_lookup(path, path->ifindex);
	}
	spin_lock_bh(&path->lock);
	old = path->dst;
	path->dst = IS_ERR(dst) ? NULL : dst;
	if (path->dst && path->ipv6)
		path->cookie = rt6_get_cookie(container_of(dst, struct rt6_info, dst));
	spin_unlock_bh(&path->lock);
	dst_release(old);
	return dst;
}

/*
 * A multicast route is used for one packet only. The IPv4 route says whether the packet
 * comes back to members on this host, and memberships come and go.
 */
struct dst_entry *peal_path_route(struct peal_path *path)
{
	struct dst_entry *dst = NULL;

	RCU_LOCKDEP_WARN(!rcu_read_lock_held(), "a route is used outside RCU");
	if (likely(!path->multicast)) {
		spin_lock_bh(&path->lock);
		dst = path->dst;
		if (dst)
			dst = dst_check(dst, path->cookie);
		spin_unlock_bh(&path->lock);
	}
	return dst ?: peal_path_new_route(path);
}

int peal_path_ifindex(const struct ib_gid_attr *gid)
{
	const struct net_device *ndev;
	int ifindex = 0;

	if (!gid)
		return 0;
	rcu_read_lock();
	ndev = rdma_read_gid_attr_ndev_rcu(gid);
	if (!IS_ERR(ndev))
		ifindex = ndev->ifindex;
	rcu_read_unlock();
	return ifindex;
}

void peal_path_draw(struct peal_path *path, struct peal_port *port, const union ib_gid *sgid,
		    const struct ib_global_route *grh, u32 hash)
{
	*path = (struct peal_path){
		.port = port,
		.ipv6 = !ipv6_addr_v4mapped((const struct in6_addr *)sgid->raw),
		.sgid = *sgid,
		.dgid = grh->dgid,
		.tclass = grh->traffic_class & ~INET_ECN_MASK,
		.hop_limit = grh->hop_limit,
		.flow_label = grh->flow_label & 0xfffff,
	};
	if (grh->flow_label)
		path->sport = rdma_flow_label_to_udp_sport(grh->flow_label);
	else
		path->sport = IB_ROCE_UDP_ENCAP_VALID_PORT_MIN |
			      ((hash ^ hash >> 14) & (IB_ROCE_UDP_ENCAP_VALID_PORT_MAX -
						      IB_ROCE_UDP_ENCAP_VALID_PORT_MIN));
}

int peal_path_init(struct peal_path *path, struct peal_port *port, struct peal_tx_quota *tx_quota,
		   const struct rdma_ah_attr *attr, u32 hash)
{
	const struct ib_global_route *grh = rdma_ah_read_grh(attr);
	const struct ib_gid_attr *gid = grh->sgid_attr;
	const struct net_device *ndev;
	int ret = 0;
	u8 ecn;

	if (!(rdma_ah_get_ah_flags(attr) & IB_AH_GRH) || !gid ||
	    gid->gid_type != IB_GID_TYPE_ROCE_UDP_ENCAP)
		return -EINVAL;
	ecn = grh->traffic_class & INET_ECN_MASK;
	peal_path_draw(path, port, &gid->gid, grh, hash);
	path->tx_quota = tx_quota;
	path->ecn = ecn == INET_ECN_CE ? INET_ECN_NOT_ECT : ecn;
	path->sl = rdma_ah_get_sl(attr);
	spin_lock_init(&path->lock);
	if (path->ipv6 == ipv6_addr_v4mapped(peal_path_in6(&path->dgid)))
		return -EINVAL;
	path->multicast = rdma_is_multicast_addr((struct in6_addr *)path->dgid.raw);
	rcu_read_lock();
	ndev = rdma_read_gid_attr_ndev_rcu(gid);
	if (IS_ERR(ndev)) {
		ret = PTR_ERR(ndev);
	} else {
		path->ifindex = ndev->ifindex;
		/*
		 * Addresses that mean nothing without an interface (multicast, link-local), and
		 * interfaces with routes of their own (VRFs).
		 */
		path->bound = path->multicast || netif_is_l3_slave(ndev) ||
			      netif_is_l3_master(ndev) ||
			      (path->ipv6 && ipv6_addr_type(peal_path_in6(&path->dgid)) &
					     IPV6_ADDR_LINKLOCAL);
	}
	rcu_read_unlock();
	return ret;
}

int peal_path_permit(const struct peal_port *port, const struct rdma_ah_attr *attr)
{
	struct user_namespace *owner = port->net->user_ns;

	if (rdma_ah_get_sl(attr) <= PEAL_PATH_FREE_SL ||
	    ns_capable(owner, CAP_NET_RAW) || ns_capable(owner, CAP_NET_ADMIN))
		return 0;
	return -EPERM;
}

int peal_path_resolve(struct peal_path *path, struct peal_port *port,
		      struct peal_tx_quota *tx_quota, const struct rdma_ah_attr *attr, u32 hash)
{
	int ret = peal_path_init(path, port, tx_quota, attr, hash);
	struct dst_entry *dst;

	if (ret)
		return ret;
	rcu_read_lock();
	dst = peal_path_route(path);
	ret = PTR_ERR_OR_ZERO(dst);
	if (!ret)
		path->route_mtu = dst_mtu(dst);
	rcu_read_unlock();
	return ret;
}

void peal_path_release(struct peal_path *path)
{
	dst_release(path->dst);
	path->dst = NULL;
}

bool peal_path_fits(const struct peal_path *path, enum ib_mtu mtu)
{
	return path->route_mtu >= ib_mtu_enum_to_int(mtu) + PEAL_PATH_OVERHEAD +
				  (path->ipv6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr));
}

bool peal_path_leaves_by(struct peal_path *path, int ifindex)
{
	struct dst_entry *dst;
	bool same;

	rcu_read_lock();
	dst = peal_path_route(path);
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
	dst = peal_path_route(path);
	local = !IS_ERR(dst) && peal_path_route_is_local(path, dst);
	rcu_read_unlock();
	return local;
}
