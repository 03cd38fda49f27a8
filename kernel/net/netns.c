// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The ports of a network namespace, and its end.
 *
 * A namespace that ends removes its devices and waits for them. Otherwise the routes that
 * paths hold would outlive the namespace, and its netdevs that move to another namespace
 * would have to wait for devices. The stack ends many namespaces at once, so their devices
 * are removed at the same time.
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
#include "net/port.h"

/* How often a namespace that ends tries again to remove a device that could not be removed. */
#define PEAL_NETNS_RETRY	(HZ / 10)

/* Never wait for packets, RCU or programs under this mutex, because all namespaces share it. */
static DEFINE_MUTEX(peal_netns_mutex);
static LIST_HEAD(peal_netns_all);

/* No socket joins the groups, because one may join only net.ipv4.igmp_max_memberships of them. */

static bool peal_mcast_is_ipv4(const struct in6_addr *group)
{
	return ipv6_addr_v4mapped(group) && ipv4_is_multicast(group->s6_addr32[3]);
}

int peal_mcast_join(const struct net *net, struct net_device *ndev, const union ib_gid *mgid)
{
	const struct in6_addr *group = (const struct in6_addr *)mgid->raw;
	struct in_device *in;
	int ret = -ENODEV;

	rtnl_lock();
	if (!net_eq(dev_net(ndev), net)) {
		;
	} else if (peal_mcast_is_ipv4(group)) {
		in = __in_dev_get_rtnl(ndev);
		if (in) {
			ip_mc_inc_group(in, group->s6_addr32[3]);
			ret = 0;
		}
	} else if (!ipv6_addr_is_multicast(group)) {
		ret = -EINVAL;
	} else if (IS_ENABLED(CONFIG_IPV6) && ipv6_mod_enabled()) {
		ret = ipv6_dev_mc_inc(ndev, group);
	}
	rtnl_unlock();
	return ret;
}

void peal_mcast_leave(const struct net *net, struct net_device *ndev, const union ib_gid *mgid)
{
	const struct in6_addr *group = (const struct in6_addr *)mgid->raw;
	struct in_device *in;

	rtnl_lock();
	if (!net_eq(dev_net(ndev), net)) {
		;	/* the stack has left the group already */
	} else if (peal_mcast_is_ipv4(group)) {
		/* A netdev that goes loses its IPv4 addresses first, and all memberships. */
		in = __in_dev_get_rtnl(ndev);
		if (in)
			ip_mc_dec_group(in, group->s6_addr32[3]);
	} else if (IS_ENABLED(CONFIG_IPV6)) {
		ipv6_dev_mc_dec(ndev, group);
	}
	rtnl_unlock();
}

void peal_port_init(struct peal_port *port, struct peal_table *table, struct net_device *ndev)
{
	port->table = table;
	table->port = port;
	port->ndev = ndev;
	port->reorder_mem.table = table;
	atomic_long_set(&port->reorder_mem.bytes, 0);
	peal_hold_init(&port->hold, peal_rx_held_work);
	netdev_hold(ndev, &port->tracker, GFP_KERNEL);
}

void peal_port_end(struct peal_port *port)
{
	WARN_ON(atomic_long_read(&port->reorder_mem.bytes));
	netdev_put(port->ndev, &port->tracker);
}

/* Return: the peal_netns of @net. One without users does not count, because it is being closed. */
static struct peal_netns *peal_netns_get(struct net *net)
{
	struct peal_netns *ns;
	int ret;

	lockdep_assert_held(&peal_netns_mutex);
	list_for_each_entry(ns, &peal_netns_all, node)
		if (ns->net == net && ns->users)
			return ns;
	ns = kzalloc(sizeof(*ns), GFP_KERNEL);
	if (!ns)
		return ERR_PTR(-ENOMEM);
	ns->net = net;
	INIT_LIST_HEAD(&ns->ports);
	ret = peal_rx_open(ns);
	if (ret) {
		kfree_rcu(ns, rcu);
		return ERR_PTR(ret);
	}
	list_add(&ns->node, &peal_netns_all);
	return ns;
}

int peal_netns_attach(struct peal_port *port, struct net_device *ndev)
{
	struct net *net = NULL;
	struct peal_netns *ns;
	int ret;

	/* The end of a namespace that is referenced is still to come, and will find the device. */
	rtnl_lock();
	if (ndev->reg_state == NETREG_REGISTERED)
		net = maybe_get_net(dev_net(ndev));
	rtnl_unlock();
	if (!net)
		return -ENODEV;
	ret = peal_tx_quotas_open(&port->tx_quotas, net);
	if (ret)
		goto put;
	mutex_lock(&peal_netns_mutex);
	ns = peal_netns_get(net);
	if (!IS_ERR(ns)) {
		ns->users++;
		port->netns = ns;
		port->net = net;
		list_add_tail_rcu(&port->node, &ns->ports);
	}
	mutex_unlock(&peal_netns_mutex);
	ret = PTR_ERR_OR_ZERO(ns);
	if (ret)
		peal_tx_quotas_close(&port->tx_quotas);
put:
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
	peal_rx_close(ns);
	synchronize_net();	/* until no CPU runs a hook */
	flush_work(&ns->work);
	rcu_barrier();		/* address handles release their routes by RCU */
	/* @ns was on the list until here, because the end of its namespace waits for this. */
	mutex_lock(&peal_netns_mutex);
	list_del(&ns->node);
	if (ns->gone)
		complete(ns->gone);
	mutex_unlock(&peal_netns_mutex);
	kfree(ns);
}

void peal_netns_detach(struct peal_port *port)
{
	struct peal_netns *ns = port->netns;
	bool close;

	if (!ns)
		return;
	mutex_lock(&peal_netns_mutex);
	list_del_rcu(&port->node);
	mutex_unlock(&peal_netns_mutex);
	/* Until no hook uses the port, and the work item has dropped its packets. */
	peal_epoch_wait();
	flush_work(&ns->work);
	peal_hold_end(&port->hold);
	/* No device may name a namespace that has gone, and its sockets must not outlive it. */
	port->netns = NULL;
	peal_tx_quotas_close(&port->tx_quotas);
	mutex_lock(&peal_netns_mutex);
	ns->users--;
	close = !ns->users && !ns->ending;
	if (!ns->users && ns->ending)
		complete(ns->gone);	/* @ns may be freed from here on */
	mutex_unlock(&peal_netns_mutex);
	if (close)
		peal_netns_close(ns);
}

static void peal_netns_remove_ports(struct list_head *ending)
{
	struct peal_netns *ns;
	struct peal_port *port;

	mutex_lock(&peal_netns_mutex);
	list_for_each_entry(ns, ending, node)
		list_for_each_entry(port, &ns->ports, node)
			peal_link_remove(port);
	mutex_unlock(&peal_netns_mutex);
}

/*
 * Runs before the namespaces' netdevs and routing tables are removed. The namespaces are
 * dead, so no device is attached to them any more. Begin to remove all devices before
 * waiting for the first, because the host ends no other namespace in the meantime.
 */
static void __net_exit peal_netns_ended(struct list_head *nets)
{
	DECLARE_COMPLETION_ONSTACK(gone);
	struct peal_netns *ns, *next;
	const struct net *net;
	LIST_HEAD(ending);
	u32 left = 0;	/* how many times `gone` will be completed */

	mutex_lock(&peal_netns_mutex);
	list_for_each_entry(net, nets, exit_list)
		list_for_each_entry_safe(ns, next, &peal_netns_all, node) {
			if (ns->net != net)
				continue;
			list_move_tail(&ns->node, &ending);
			ns->gone = &gone;
			ns->ending = ns->users != 0;
			left++;
		}
	mutex_unlock(&peal_netns_mutex);

	peal_netns_remove_ports(&ending);
	while (left)
		if (wait_for_completion_timeout(&gone, PEAL_NETNS_RETRY))
			left--;
		else
			peal_netns_remove_ports(&ending);

	/* As peal_netns_close(). Those that the last device closed are not on the list any more. */
	if (list_empty(&ending))
		return;
	list_for_each_entry(ns, &ending, node)
		peal_rx_close(ns);
	synchronize_net();
	list_for_each_entry(ns, &ending, node)
		flush_work(&ns->work);
	rcu_barrier();
	list_for_each_entry_safe(ns, next, &ending, node)
		kfree(ns);
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
