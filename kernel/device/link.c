// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Creation and removal of devices: `rdma link add`, changes of netdevs and their addresses, and the
 * RDMA client whose remove callback flushes the programs' queue pairs before the core destroys
 * their objects.
 */
#include <linux/etherdevice.h>
#include <linux/if_arp.h>
#include <linux/if_vlan.h>
#include <linux/inetdevice.h>
#include <linux/mutex.h>
#include <linux/netdevice.h>
#include <linux/rtnetlink.h>
#include <net/addrconf.h>
#include <net/if_inet6.h>
#include <rdma/rdma_netlink.h>

#include "base/budget.h"
#include "base/compat.h"
#include "engine/lifecycle.h"
#include "object/errors.h"
#include "net/port.h"
#include "device/dev.h"

/*
 * The GIDs of a device on the loopback interface. The RDMA core owns the GID table. It reads all
 * addresses of the netdev when a device is registered, and follows the addresses of Ethernet
 * netdevs afterwards, but not those of the loopback interface. A new network namespace has no
 * address until its loopback interface is up, so peal asks the core to read the addresses again.
 *
 * The core takes RTNL for that, so it is a work item. The reference keeps the device until the scan
 * has ended.
 */
static void peal_link_rescan(struct work_struct *work)
{
	struct peal_dev *dev = container_of(work, struct peal_dev, rescan);

	rdma_roce_rescan_device(&dev->ib);
	ib_device_put(&dev->ib);
}

/* Any context. A work that is queued already has not begun, so it will see the newest address. */
static void peal_link_refresh_gids(struct net_device *ndev)
{
	struct ib_device *ib;

	if (ndev->type != ARPHRD_LOOPBACK)
		return;
	ib = ib_device_get_by_netdev(ndev, (enum rdma_driver_id)PEAL_DRIVER_ID);
	if (ib && !peal_workers_queue(&peal_dev(ib)->rescan))
		ib_device_put(ib);
}

static int peal_link_address4(struct notifier_block *nb, unsigned long what, void *info)
{
	const struct in_ifaddr *ifa = info;

	if (what == NETDEV_UP)
		peal_link_refresh_gids(ifa->ifa_dev->dev);
	return NOTIFY_DONE;
}

static int peal_link_address6(struct notifier_block *nb, unsigned long what, void *info)
{
	const struct inet6_ifaddr *ifa = info;

	if (what == NETDEV_UP)
		peal_link_refresh_gids(ifa->idev->dev);
	return NOTIFY_DONE;
}

static struct notifier_block peal_link_notifier4 = { .notifier_call = peal_link_address4 };
static struct notifier_block peal_link_notifier6 = { .notifier_call = peal_link_address6 };

/* The namespace ends. The removal is queued, because RTNL must not be taken here. */
void peal_link_remove(struct peal_port *port)
{
	struct peal_dev *dev = container_of(port, struct peal_dev, nic.port);

	if (!ib_device_try_get(&dev->ib))
		return;
	ib_unregister_device_queued(&dev->ib);
	ib_device_put(&dev->ib);
}

/*
 * In exclusive mode the RDMA core shows a device only in the device's own namespace, and a new
 * device belongs to the initial one. So there the device is made in its netdev's namespace, on
 * kernels that can do that. In shared mode it is not, because the core makes no entry in the sysfs
 * of the initial namespace for a device that belongs elsewhere.
 */
static struct peal_dev *peal_link_alloc(const struct net_device *ndev)
{
	struct peal_dev *dev = ib_alloc_device(peal_dev, ib);
#ifdef PEAL_HAS_DEVICE_NET
	struct net *net = dev_net(ndev);

	if (dev && !rdma_dev_access_netns(&dev->ib, net)) {
		ib_dealloc_device(&dev->ib);
		dev = ib_alloc_device_with_net(peal_dev, ib, net);
	}
#endif
	if (dev)
		xa_init_flags(&dev->statistics, XA_FLAGS_ALLOC1);
	return dev;
}

/*
 * The operations are set last, because they include dealloc_driver. ib_dealloc_device() calls it,
 * and it undoes everything that is done here.
 */
static int peal_link_prepare(struct peal_dev *dev, struct net_device *ndev, const char *name)
{
	struct ib_device *ib = &dev->ib;
	u8 mac[ETH_ALEN];
	int ret;

	ret = peal_table_init(&dev->nic.table);
	if (ret)
		return ret;
	peal_faults_init(&dev->nic.table.faults);
	ret = -ENOMEM;
	dev->nic.table.errors = peal_errors_alloc();
	if (!dev->nic.table.errors)
		goto destroy_table;
	dev->nic.options = (struct peal_options){
		.direct = true, .limits = peal_limits_top, .ecn = PEAL_NL_ECN_ASKED,
	};
	dev->nic.options.limits.most[PEAL_LIMIT_RD_ATOMIC] = PEAL_DEFAULT_RD_ATOMIC;
	peal_quota_init(&dev->nic.quota, &dev->nic.options.limits, &dev->nic.table.faults);
	ret = peal_engine_start(&dev->nic.engine, &dev->nic.table, name);
	if (ret)
		goto free_errors;
	ret = peal_locality_add(&dev->nic.locality, &dev->nic.table, &dev->nic.options);
	if (ret)
		goto stop_engine;
	peal_port_init(&dev->nic.port, &dev->nic.table, ndev);
	peal_groups_init(&dev->nic.groups, &dev->nic.port);
	peal_flows_init(&dev->flows, &dev->nic.port);
	INIT_WORK(&dev->rescan, peal_link_rescan);

	ib->node_type = RDMA_NODE_IB_CA;
	ib->driver_def = peal_verbs_attributes;
	ib->phys_port_cnt = 1;
	ib->num_comp_vectors = num_possible_cpus();
	strscpy(ib->node_desc, "peal", sizeof(ib->node_desc));
	/* A GUID is unique, but all loopback interfaces have one MAC address: zero. */
	ether_addr_copy(mac, ndev->dev_addr);
	if (is_zero_ether_addr(mac))
		eth_random_addr(mac);
	addrconf_addr_eui48((u8 *)&ib->node_guid, mac);
	ib_set_device_ops(ib, &peal_verbs_ops);
	return 0;

stop_engine:
	peal_engine_stop(&dev->nic.engine);
free_errors:
	kvfree(dev->nic.table.errors);
destroy_table:
	peal_table_destroy(&dev->nic.table);
	return ret;
}

static int peal_link_register(struct peal_dev *dev, struct net_device *ndev, const char *name)
{
	int ret = peal_netns_attach(&dev->nic.port, ndev);

	if (ret)
		return ret;
#ifdef PEAL_HAS_DEVICE_NET
	/*
	 * The netdev may have moved since the device was allocated. The device must not name a
	 * namespace that it is not attached to, because that one would not wait for the device when
	 * it ends.
	 */
	if (!rdma_dev_access_netns(&dev->ib, dev->nic.port.net))
		return -ENODEV;
#endif
	peal_locality_set_net(&dev->nic.locality, dev->nic.port.net);
	/* The device becomes a child of what its netdev is a child of. */
	dev->ib.dev.parent = ndev->dev.parent;
	if (!dev->ib.dev.parent) {
		struct device *parent = peal_parent_new();

		if (IS_ERR(parent))
			return PTR_ERR(parent);
		dev->parent = parent;
		dev->ib.dev.parent = parent;
		rtnl_lock();
		if (!peal_netns_left(&dev->nic.port, ndev))
			peal_parent_show(parent, ndev);
		rtnl_unlock();
	}
	ret = ib_device_set_netdev(&dev->ib, ndev, 1);
	if (ret)
		return ret;
	return ib_register_device(&dev->ib, name, NULL);
}

/* The netdev leaves. Unregistering waits for the core, which may need RTNL, so it is queued. */
static void peal_link_leave(struct ib_device *ib)
{
	peal_parent_hide(peal_dev(ib)->parent);
	peal_flows_leave(&peal_dev(ib)->flows);
	ib_unregister_device_queued(ib);
}

/*
 * The netdev may have left, or got another name or address, before the notifiers could find the
 * device. Then they missed it, so check once more.
 */
static void peal_link_follow(struct net_device *ndev)
{
	struct ib_device *ib;

	rtnl_lock();
	ib = ib_device_get_by_netdev(ndev, (enum rdma_driver_id)PEAL_DRIVER_ID);
	if (ib && peal_netns_left(&peal_dev(ib)->nic.port, ndev))
		peal_link_leave(ib);
	else if (ib)
		peal_parent_show(peal_dev(ib)->parent, ndev);
	if (ib)
		ib_device_put(ib);
	peal_link_refresh_gids(ndev);
	rtnl_unlock();
}

/* The mutex makes sure that only one of two concurrent calls finds a netdev free. */
static int peal_link_new(const char *name, struct net_device *ndev)
{
	static DEFINE_MUTEX(peal_link_mutex);
	struct ib_device *other;
	struct peal_dev *dev;
	int ret;

	mutex_lock(&peal_link_mutex);
	other = ib_device_get_by_netdev(ndev, RDMA_DRIVER_UNKNOWN);
	if (other) {
		ib_device_put(other);
		ret = -EEXIST;
		goto unlock;
	}
	/*
	 * RoCE needs Ethernet, or the loopback interface, whose packets reach this host without a
	 * MAC address. A VLAN is an attribute of a GID, so a VLAN netdev gets no device.
	 */
	ret = -EOPNOTSUPP;
	if (ndev->type != ARPHRD_LOOPBACK && (ndev->type != ARPHRD_ETHER || is_vlan_dev(ndev)))
		goto unlock;
	ret = -ENOMEM;
	dev = peal_link_alloc(ndev);
	if (!dev)
		goto unlock;
	ret = peal_link_prepare(dev, ndev, name);
	if (!ret)
		ret = peal_link_register(dev, ndev, name);
	if (ret)
		ib_dealloc_device(&dev->ib);
	else
		peal_link_follow(ndev);
unlock:
	mutex_unlock(&peal_link_mutex);
	return ret;
}

static struct rdma_link_ops peal_link_ops = {
	.type = "peal",
	.newlink = peal_link_new,
};

#ifndef PEAL_HAS_CORE_PORT_EVENTS
/*
 * Later kernels raise the port events themselves, for every RoCE device. A netdev has many other
 * changes, so an event is raised only if it differs from the last one.
 */
static void peal_link_port_event(struct ib_device *ib, struct net_device *ndev)
{
	struct peal_dev *dev = peal_dev(ib);
	bool up = netif_running(ndev) && netif_carrier_ok(ndev);
	enum ib_port_state state = up ? IB_PORT_ACTIVE : IB_PORT_DOWN;
	struct ib_event event = {
		.device = ib, .element.port_num = 1,
		.event = up ? IB_EVENT_PORT_ACTIVE : IB_EVENT_PORT_ERR,
	};

	ASSERT_RTNL();
	if (dev->told_state == state)
		return;
	dev->told_state = state;
	ib_dispatch_event(&event);
}
#endif

/* Called under RTNL. */
static int peal_link_notify(struct notifier_block *nb, unsigned long what, void *info)
{
	struct net_device *ndev = netdev_notifier_info_to_dev(info);
	struct ib_device *ib = ib_device_get_by_netdev(ndev, (enum rdma_driver_id)PEAL_DRIVER_ID);

	ASSERT_RTNL();
	if (!ib)
		return NOTIFY_DONE;
	switch (what) {
	case NETDEV_UNREGISTER:
		peal_link_leave(ib);
		break;
	case NETDEV_CHANGENAME:
		peal_parent_show(peal_dev(ib)->parent, ndev);
		break;
#ifndef PEAL_HAS_CORE_PORT_EVENTS
	case NETDEV_UP:
	case NETDEV_DOWN:
	case NETDEV_CHANGE:
		peal_link_port_event(ib, ndev);
		break;
#endif
	}
	ib_device_put(ib);
	return NOTIFY_DONE;
}

static struct notifier_block peal_link_notifier = { .notifier_call = peal_link_notify };

/*
 * The core calls clients in the reverse order of their registration. ib_uverbs, which serves the
 * programs, registered before us because we use its symbols. So this callback runs while the
 * programs' queue pairs still exist. It flushes them, and the programs see completions in error
 * before their objects are destroyed.
 */
static void peal_link_removed(struct ib_device *ib, void *data)
{
	if (ib->ops.driver_id != peal_verbs_ops.driver_id)
		return;
	peal_netlink_remove(peal_dev(ib));
	peal_engine_abandon(&peal_dev(ib)->nic.engine);
}

/* The error for devices of other drivers keeps the core from calling `remove` for them. */
static int peal_link_added(struct ib_device *ib)
{
	if (ib->ops.driver_id != peal_verbs_ops.driver_id)
		return -EOPNOTSUPP;
	peal_engine_return(&peal_dev(ib)->nic.engine);
	peal_netlink_add(peal_dev(ib));
	return 0;
}

static struct ib_client peal_link_client = {
	.name = "peal",
	.add = peal_link_added,
	.remove = peal_link_removed,
	.no_kverbs_req = true,
};

int peal_link_init(void)
{
	int ret = ib_register_client(&peal_link_client);

	if (ret)
		return ret;
	ret = register_netdevice_notifier(&peal_link_notifier);
	if (ret)
		goto err_client;
	ret = register_inetaddr_notifier(&peal_link_notifier4);
	if (ret)
		goto err_netdev;
	if (IS_ENABLED(CONFIG_IPV6))
		ret = register_inet6addr_notifier(&peal_link_notifier6);
	if (ret)
		goto err_address4;
	rdma_link_register(&peal_link_ops);
	return 0;

err_address4:
	unregister_inetaddr_notifier(&peal_link_notifier4);
err_netdev:
	unregister_netdevice_notifier(&peal_link_notifier);
err_client:
	ib_unregister_client(&peal_link_client);
	return ret;
}

void peal_link_exit(void)
{
	rdma_link_unregister(&peal_link_ops);
	if (IS_ENABLED(CONFIG_IPV6))
		unregister_inet6addr_notifier(&peal_link_notifier6);
	unregister_inetaddr_notifier(&peal_link_notifier4);
	unregister_netdevice_notifier(&peal_link_notifier);
	ib_unregister_driver((enum rdma_driver_id)PEAL_DRIVER_ID);
	ib_unregister_client(&peal_link_client);
}

MODULE_ALIAS_RDMA_LINK("peal");
