// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The module: what exists before the first device does.
 */
#include <linux/module.h>

#include "link.h"

static int __init peal_main_init(void)
{
	return peal_link_init();
}

static void __exit peal_main_exit(void)
{
	peal_link_exit();
}

module_init(peal_main_init);
module_exit(peal_main_exit);

MODULE_DESCRIPTION("Software RDMA device");
MODULE_AUTHOR("The peal developers");
MODULE_LICENSE("Dual BSD/GPL");
