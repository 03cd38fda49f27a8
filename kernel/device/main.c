// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Module init and exit: everything that exists without a device.
 */
#include <linux/module.h>
#include <linux/rcupdate.h>

#include "base/budget.h"
#include "object/odp.h"
#include "net/crc.h"
#include "net/path.h"
#include "net/port.h"
#include "device/dev.h"

#ifdef CONFIG_PREEMPT_RT
#error "the epoch and the engine need spinlocks that do not sleep"
#endif

struct workqueue_struct *peal_workers;

static int __init peal_main_init(void)
{
	int ret;

	peal_workers = alloc_workqueue("peal", WQ_UNBOUND | WQ_MEM_RECLAIM | WQ_SYSFS, 0);
	if (!peal_workers)
		return -ENOMEM;
	ret = peal_odp_init();
	if (ret)
		goto err_workers;
	peal_crc_init();
	ret = peal_netns_init();
	if (ret)
		goto err_odp;
	ret = peal_netlink_init();
	if (ret)
		goto err_netns;
	ret = peal_parent_init();
	if (ret)
		goto err_netlink;
	ret = peal_link_init();
	if (ret)
		goto err_parent;
	return 0;

err_parent:
	peal_parent_exit();
err_netlink:
	peal_netlink_exit();
err_netns:
	peal_netns_exit();
err_odp:
	peal_odp_exit();
err_workers:
	destroy_workqueue(peal_workers);
	return ret;
}

static void __exit peal_main_exit(void)
{
	peal_link_exit();
	peal_parent_exit();
	peal_netlink_exit();
	peal_netns_exit();
	rcu_barrier();	/* RCU callbacks free address handles; wait for them */
	peal_tx_exit();
	peal_odp_exit();
	destroy_workqueue(peal_workers);
}

module_init(peal_main_init);
module_exit(peal_main_exit);

MODULE_DESCRIPTION("Software RDMA device");
MODULE_AUTHOR("The peal developers");
MODULE_LICENSE("Dual BSD/GPL");
MODULE_VERSION("0.1.0");
MODULE_INFO(import_ns, "DMA_BUF");	/* MODULE_IMPORT_NS() differs between kernels */
