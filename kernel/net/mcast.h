/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Membership in IP multicast groups, so that switches (IGMP, MLD) and the
 * receive filters of netdev and stack let their packets through.
 *
 * Owns: nothing: the stack counts the references on (netdev, group). Each join
 * that succeeded is followed by one leave.
 * Does not know: queue pairs, which of them want the packets.
 */
#ifndef PEAL_MCAST_H
#define PEAL_MCAST_H

#include <rdma/ib_verbs.h>

struct net;
struct net_device;

/*
 * @net: the netdev's namespace, as the device knows it. A netdev that moves loses all
 * memberships; those it has in another namespace are not ours.
 * @mgid: an IPv6 group, or an IPv4 group as mapped address; else -EINVAL. Sleep;
 * take RTNL. -ENODEV: the netdev has no addresses of that IP version, or has moved.
 */
int peal_mcast_join(const struct net *net, struct net_device *ndev, const union ib_gid *mgid);
void peal_mcast_leave(const struct net *net, struct net_device *ndev, const union ib_gid *mgid);

#endif
