// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See gids.h.
 */
#include <linux/if_arp.h>
#include <linux/inetdevice.h>
#include <linux/netdevice.h>
#include <net/addrconf.h>
#include <net/if_inet6.h>

#include "base/workers.h"
#include "verbs/dev.h"
#include "verbs/gids.h"
#include "verbs/verbs.h"

/*
 * The core takes RTNL, so the scan is a work item. The reference keeps the device until the scan
 * has ended.
 */
static void peal_gids_work(struct work_struct *work)
{
	struct peal_dev *dev = container_of(work, struct peal_dev, rescan);

	rdma_roce_rescan_device(&dev->ib);
	ib_device_put(&dev->ib);
}

void peal_gids_init(struct peal_dev *dev)
{
	INIT_WORK(&dev->rescan, peal_gids_work);
}

/* A work that is queued already has not begun, so it will see the newest address, too. */
void peal_gids_refresh(struct net_device *ndev)
{
	struct ib_device *ib;

	if (ndev->type != ARPHRD_LOOPBACK)
		return;
	ib = ib_device_get_by_netdev(ndev, (enum rdma_driver_id)PEAL_DRIVER_ID);
	if (ib && !peal_workers_queue(&peal_dev(ib)->rescan))
		ib_device_put(ib);
}

static int peal_gids_notify4(struct notifier_block *nb, unsigned long what, void *info)
{
	const struct in_ifaddr *ifa = info;

	if (what == NETDEV_UP)
		peal_gids_refresh(ifa->ifa_dev->dev);
	return NOTIFY_DONE;
}

static struct notifier_block peal_gids_notifier4 = { .notifier_call = peal_gids_notify4 };

#if IS_ENABLED(CONFIG_IPV6)
static int peal_gids_notify6(struct notifier_block *nb, unsigned long what, void *info)
{
	const struct inet6_ifaddr *ifa = info;

	if (what == NETDEV_UP)
		peal_gids_refresh(ifa->idev->dev);
	return NOTIFY_DONE;
}

static struct notifier_block peal_gids_notifier6 = { .notifier_call = peal_gids_notify6 };

static int peal_gids_register6(void)
{
	return register_inet6addr_notifier(&peal_gids_notifier6);
}

static void peal_gids_unregister6(void)
{
	unregister_inet6addr_notifier(&peal_gids_notifier6);
}
#else
static int peal_gids_register6(void)
{
	return 0;
}

static void peal_gids_unregister6(void)
{
}
#endif

int peal_gids_register(void)
{
	int ret = register_inetaddr_notifier(&peal_gids_notifier4);

	if (ret)
		return ret;
	ret = peal_gids_register6();
	if (ret)
		unregister_inetaddr_notifier(&peal_gids_notifier4);
	return ret;
}

void peal_gids_unregister(void)
{
	peal_gids_unregister6();
	unregister_inetaddr_notifier(&peal_gids_notifier4);
}
