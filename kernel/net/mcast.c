// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See mcast.h. No socket joins the groups, because one socket may join only
 * net.ipv4.igmp_max_memberships groups.
 */
#include <linux/igmp.h>
#include <linux/inetdevice.h>
#include <linux/rtnetlink.h>
#include <net/addrconf.h>

#include "net/mcast.h"

static int peal_mcast_join4(struct net_device *ndev, __be32 group)
{
	struct in_device *in = __in_dev_get_rtnl(ndev);

	if (!in)
		return -ENODEV;
	ip_mc_inc_group(in, group);
	return 0;
}

/*
 * The IPv4 addresses of a netdev are removed before the netdev is, and all memberships with
 * them.
 */
static void peal_mcast_leave4(struct net_device *ndev, __be32 group)
{
	struct in_device *in = __in_dev_get_rtnl(ndev);

	if (in)
		ip_mc_dec_group(in, group);
}

#if IS_ENABLED(CONFIG_IPV6)
static int peal_mcast_join6(struct net_device *ndev, const struct in6_addr *group)
{
	return ipv6_mod_enabled() ? ipv6_dev_mc_inc(ndev, group) : -ENODEV;
}

static void peal_mcast_leave6(struct net_device *ndev, const struct in6_addr *group)
{
	ipv6_dev_mc_dec(ndev, group);
}
#else
static int peal_mcast_join6(struct net_device *ndev, const struct in6_addr *group)
{
	return -ENODEV;
}

static void peal_mcast_leave6(struct net_device *ndev, const struct in6_addr *group)
{
}
#endif

static bool peal_mcast_is_ipv4(const struct in6_addr *group)
{
	return ipv6_addr_v4mapped(group) && ipv4_is_multicast(group->s6_addr32[3]);
}

int peal_mcast_join(const struct net *net, struct net_device *ndev, const union ib_gid *mgid)
{
	const struct in6_addr *group = (const struct in6_addr *)mgid->raw;
	int ret;

	rtnl_lock();
	if (!net_eq(dev_net(ndev), net))
		ret = -ENODEV;
	else if (peal_mcast_is_ipv4(group))
		ret = peal_mcast_join4(ndev, group->s6_addr32[3]);
	else if (ipv6_addr_is_multicast(group))
		ret = peal_mcast_join6(ndev, group);
	else
		ret = -EINVAL;
	rtnl_unlock();
	return ret;
}

void peal_mcast_leave(const struct net *net, struct net_device *ndev, const union ib_gid *mgid)
{
	const struct in6_addr *group = (const struct in6_addr *)mgid->raw;

	rtnl_lock();
	if (!net_eq(dev_net(ndev), net))
		;	/* the stack has left the group already */
	else if (peal_mcast_is_ipv4(group))
		peal_mcast_leave4(ndev, group->s6_addr32[3]);
	else
		peal_mcast_leave6(ndev, group);
	rtnl_unlock();
}
