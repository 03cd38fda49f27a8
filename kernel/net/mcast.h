/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Membership in IP multicast groups. It makes switches (IGMP, MLD) and the receive filters
 * of the netdev and the stack let the groups' packets through.
 *
 * Owns: nothing, because the stack counts the references on (netdev, group). Each
 * successful join must be followed by one leave.
 * Does not know: queue pairs, and which of them want the packets.
 */
#ifndef PEAL_MCAST_H
#define PEAL_MCAST_H

#include <rdma/ib_verbs.h>

struct net;
struct net_device;

/*
 * @net: the netdev's namespace, as the device knows it. A netdev that moves to another
 * namespace loses all memberships. Those that it has there are not ours.
 * @mgid: an IPv6 group, or an IPv4 group as a mapped address.
 * Both sleep, because they take RTNL. Return: 0; -EINVAL: @mgid is no group; -ENODEV: the
 * netdev has no addresses of that IP version, or has moved; or what the stack says.
 */
int peal_mcast_join(const struct net *net, struct net_device *ndev, const union ib_gid *mgid);
void peal_mcast_leave(const struct net *net, struct net_device *ndev, const union ib_gid *mgid);

#endif
