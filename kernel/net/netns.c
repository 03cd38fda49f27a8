// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See netns.h.
 */
#include <linux/igmp.h>
#include <linux/inetdevice.h>
#include <linux/mutex.h>
#include <linux/netdevice.h>
#include <linux/rculist.h>
#include <linux/rtnetlink.h>
#include <linux/slab.h>
#include <net/addrconf.h>
#include <net/net_namespace.h>
#include <net/sock.h>

#include "base/epoch.h"
#include "net/netns.h"
#include "net/port.h"

/*
 * Multicast memberships. No socket joins the groups, because one socket may join only
 * net.ipv4.igmp_max_memberships groups.
 */

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

/* How often a namespace that ends tries again to remove a device that could not be removed. */
#define PEAL_NETNS_RETRY	(HZ / 10)

/* Never wait for packets, RCU or programs under this mutex, because all namespaces share it. */
static DEFINE_MUTEX(peal_netns_mutex);
static LIST_HEAD(peal_netns_all);

/* Return: the peal_netns of @net. One without users is not returned, because it is being closed. */
static struct peal_netns *peal_netns_of(const struct net *net)
{
	struct peal_netns *ns;

	lockdep_assert_held(&peal_netns_mutex);
	list_for_each_entry(ns, &peal_netns_all, node)
		if (ns->net == net && ns->users)
			return ns;
	return NULL;
}

static struct peal_netns *peal_netns_new(struct net *net)
{
	struct peal_netns *ns = kzalloc(sizeof(*ns), GFP_KERNEL);
	int ret;

	lockdep_assert_held(&peal_netns_mutex);
	if (!ns)
		return ERR_PTR(-ENOMEM);
	ns->net = net;
	ret = peal_rx_open(&ns->rx, net);
	if (ret)
		goto free;
	ret = peal_guard_open(&ns->guard, &ns->rx);
	if (ret)
		goto stop;
	list_add(&ns->node, &peal_netns_all);
	return ns;

stop:
	peal_rx_stop(&ns->rx);
free:
	kfree_rcu(ns, rcu);
	return ERR_PTR(ret);
}

/*
 * Return: @ndev's namespace with a reference. NULL: the namespace is dead, or the netdev is
 * not registered any more.
 */
static struct net *peal_netns_hold(const struct net_device *ndev)
{
	struct net *net = NULL;

	rtnl_lock();
	if (ndev->reg_state == NETREG_REGISTERED)
		net = maybe_get_net(dev_net(ndev));
	rtnl_unlock();
	return net;
}

/*
 * The caller holds a reference on @net. So the end of @net is still to come, and will find
 * the device.
 */
static int peal_netns_join(struct peal_port *port, struct net *net)
{
	struct peal_netns *ns;

	mutex_lock(&peal_netns_mutex);
	ns = peal_netns_of(net) ?: peal_netns_new(net);
	if (!IS_ERR(ns)) {
		ns->users++;
		peal_port_join(port, ns, net);
		peal_rx_add_port(&ns->rx, port);
	}
	mutex_unlock(&peal_netns_mutex);
	return PTR_ERR_OR_ZERO(ns);
}

int peal_netns_attach(struct peal_port *port, struct net_device *ndev)
{
	struct net *net = peal_netns_hold(ndev);
	int ret;

	if (!net)
		return -ENODEV;
	ret = peal_port_open(port, net);
	if (!ret)
		ret = peal_netns_join(port, net);
	if (ret)
		peal_port_close(port);
	put_net(net);
	return ret;
}

bool peal_netns_left(const struct peal_port *port, const struct net_device *ndev)
{
	ASSERT_RTNL();
	return ndev->reg_state != NETREG_REGISTERED || dev_net(ndev) != port->net;
}

/*
 * Call after the last device has left. A new device in this namespace may have made another
 * peal_netns by now, with hooks of its own.
 */
static void peal_netns_close(struct peal_netns *ns)
{
	peal_rx_stop(&ns->rx);
	peal_guard_stop(&ns->guard);
	synchronize_net();	/* until no CPU runs a hook */
	peal_rx_drain(&ns->rx);
	rcu_barrier();		/* address handles release their routes by RCU */
	/* @ns was on the list until here, because the end of its namespace waits for this. */
	mutex_lock(&peal_netns_mutex);
	list_del(&ns->node);
	if (ns->gone)
		complete(ns->gone);
	mutex_unlock(&peal_netns_mutex);
	kfree(ns);
}

/* @ns may be freed when this returns. */
static void peal_netns_leave(struct peal_netns *ns)
{
	bool close;

	mutex_lock(&peal_netns_mutex);
	ns->users--;
	close = !ns->users && !ns->ending;
	if (!ns->users && ns->ending)
		complete(ns->gone);
	mutex_unlock(&peal_netns_mutex);
	if (close)
		peal_netns_close(ns);
}

void peal_netns_detach(struct peal_port *port)
{
	struct peal_netns *ns = port->netns;

	if (!ns)
		return;
	mutex_lock(&peal_netns_mutex);
	peal_rx_remove_port(&ns->rx, port);
	mutex_unlock(&peal_netns_mutex);
	peal_rx_forget_port(&ns->rx);
	peal_port_close(port);
	peal_netns_leave(ns);
}

/*
 * remove() does nothing for a device that is being removed already, is not registered yet,
 * or is just changing its namespace in the RDMA core. So the caller calls this again while
 * it waits.
 */
static void peal_netns_remove_ports(struct peal_netns *ns)
{
	struct peal_port *port;

	lockdep_assert_held(&peal_netns_mutex);
	list_for_each_entry(port, &ns->rx.ports, node)
		port->ops->remove(port);
}

static void peal_netns_remove_all(struct list_head *ending)
{
	struct peal_netns *ns;

	mutex_lock(&peal_netns_mutex);
	list_for_each_entry(ns, ending, node)
		peal_netns_remove_ports(ns);
	mutex_unlock(&peal_netns_mutex);
}

static bool peal_netns_is_among(const struct peal_netns *ns, const struct list_head *nets)
{
	const struct net *net;

	list_for_each_entry(net, nets, exit_list)
		if (net == ns->net)
			return true;
	return false;
}

/* Move what @nets have to @ending. Return: how many times @gone will be completed. */
static u32 peal_netns_collect(const struct list_head *nets, struct list_head *ending,
			      struct completion *gone)
{
	struct peal_netns *ns, *next;
	u32 count = 0;

	mutex_lock(&peal_netns_mutex);
	list_for_each_entry_safe(ns, next, &peal_netns_all, node) {
		if (!peal_netns_is_among(ns, nets))
			continue;
		list_move_tail(&ns->node, ending);
		ns->gone = gone;
		ns->ending = ns->users != 0;
		count++;
	}
	mutex_unlock(&peal_netns_mutex);
	return count;
}

/*
 * As peal_netns_close(), for several namespaces without devices. Waits only once for all of
 * them.
 */
static void peal_netns_close_all(struct list_head *ending)
{
	struct peal_netns *ns, *next;

	if (list_empty(ending))
		return;
	list_for_each_entry(ns, ending, node) {
		peal_rx_stop(&ns->rx);
		peal_guard_stop(&ns->guard);
	}
	synchronize_net();
	list_for_each_entry(ns, ending, node)
		peal_rx_drain(&ns->rx);
	rcu_barrier();
	list_for_each_entry_safe(ns, next, ending, node)
		kfree(ns);
}

/*
 * Runs before the namespaces' netdevs and routing tables are removed. The namespaces are
 * dead, so no device is attached to them any more. Begin to remove all devices before
 * waiting for the first, because the host ends no other namespace in the meantime.
 */
static void __net_exit peal_netns_ended(struct list_head *nets)
{
	DECLARE_COMPLETION_ONSTACK(gone);
	LIST_HEAD(ending);
	u32 left = peal_netns_collect(nets, &ending, &gone);

	peal_netns_remove_all(&ending);
	while (left)
		if (wait_for_completion_timeout(&gone, PEAL_NETNS_RETRY))
			left--;
		else
			peal_netns_remove_all(&ending);
	peal_netns_close_all(&ending);
}

static struct pernet_operations peal_netns_operations = { .exit_batch = peal_netns_ended };

int peal_netns_init(void)
{
	return register_pernet_device(&peal_netns_operations);
}

void peal_netns_exit(void)
{
	unregister_pernet_device(&peal_netns_operations);
}
