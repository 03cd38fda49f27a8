// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The devices have no bus and no class, so that they cause no uevents and no driver is looked for.
 */
#include <linux/device.h>
#include <linux/idr.h>
#include <linux/netdevice.h>
#include <linux/pci.h>
#include <linux/rtnetlink.h>
#include <linux/slab.h>
#include <linux/sysfs.h>
#include <linux/topology.h>

#include "device/dev.h"

struct peal_parent {
	/*
	 * net/smc takes every parent of an RDMA device for a PCI device and reports the vendor
	 * and device ids that it finds in front of `dev`. Here it finds zeros.
	 */
	u8 pci[offsetof(struct pci_dev, dev)];
	struct device dev;
	int number;

	/* Guarded by RTNL: */
	struct kobject *net;		/* the directory, or NULL while no netdev is shown */
	char name[IFNAMSIZ];		/* of the link in it */
};

static struct peal_parent *peal_parent(struct device *dev)
{
	return container_of(dev, struct peal_parent, dev);
}

static struct device *peal_parent_root;
static DEFINE_IDA(peal_parent_numbers);

int peal_parent_init(void)
{
	peal_parent_root = root_device_register("peal");
	return PTR_ERR_OR_ZERO(peal_parent_root);
}

void peal_parent_exit(void)
{
	root_device_unregister(peal_parent_root);
	ida_destroy(&peal_parent_numbers);
}

static void peal_parent_release(struct device *dev)
{
	kfree(peal_parent(dev));
}

static ssize_t numa_node_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%d\n", dev_to_node(dev));
}
static DEVICE_ATTR_RO(numa_node);

/* A device that belongs to no node is near to every CPU. */
static const struct cpumask *peal_parent_cpus(struct device *dev)
{
	int node = dev_to_node(dev);

	return node == NUMA_NO_NODE ? cpu_online_mask : cpumask_of_node(node);
}

static ssize_t local_cpus_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%*pb\n", cpumask_pr_args(peal_parent_cpus(dev)));
}
static DEVICE_ATTR_RO(local_cpus);

static ssize_t local_cpulist_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%*pbl\n", cpumask_pr_args(peal_parent_cpus(dev)));
}
static DEVICE_ATTR_RO(local_cpulist);

static struct attribute *peal_parent_attrs[] = {
	&dev_attr_numa_node.attr,
	&dev_attr_local_cpus.attr,
	&dev_attr_local_cpulist.attr,
	NULL
};
ATTRIBUTE_GROUPS(peal_parent);

struct device *peal_parent_new(void)
{
	struct peal_parent *parent = kzalloc(sizeof(*parent), GFP_KERNEL);
	int ret;

	if (!parent)
		return ERR_PTR(-ENOMEM);
	parent->number = ida_alloc(&peal_parent_numbers, GFP_KERNEL);
	if (parent->number < 0) {
		ret = parent->number;
		kfree(parent);
		return ERR_PTR(ret);
	}
	device_initialize(&parent->dev);
	parent->dev.parent = peal_parent_root;
	parent->dev.groups = peal_parent_groups;
	parent->dev.release = peal_parent_release;
	/*
	 * NCCL takes devices whose paths differ in the last four characters only for ports of one
	 * card, and joins them. So the number comes before those.
	 */
	ret = dev_set_name(&parent->dev, "link%d.rdma", parent->number);
	if (!ret)
		ret = device_add(&parent->dev);
	if (ret) {
		ida_free(&peal_parent_numbers, parent->number);
		put_device(&parent->dev);
		return ERR_PTR(ret);
	}
	return &parent->dev;
}

void peal_parent_free(struct device *dev)
{
	int number;

	if (!dev)
		return;
	rtnl_lock();
	peal_parent_hide(dev);
	rtnl_unlock();
	number = peal_parent(dev)->number;
	device_unregister(dev);
	ida_free(&peal_parent_numbers, number);
}

/*
 * A link in a directory with namespaces belongs to the namespace of its target. Failures are
 * ignored, since the link only informs.
 */
void peal_parent_show(struct device *dev, struct net_device *ndev)
{
	struct peal_parent *parent = peal_parent(dev);

	ASSERT_RTNL();
	if (!dev || (parent->net && !strcmp(parent->name, ndev->name)))
		return;
	peal_parent_hide(dev);
	parent->net = kobject_create_and_add("net", &dev->kobj);
	if (!parent->net)
		return;
	sysfs_enable_ns(parent->net->sd);
	strscpy(parent->name, ndev->name, sizeof(parent->name));
	if (sysfs_create_link(parent->net, &ndev->dev.kobj, parent->name))
		peal_parent_hide(dev);
}

/* The netdev may be gone and its name with it, so the directory goes as a whole. */
void peal_parent_hide(struct device *dev)
{
	ASSERT_RTNL();
	if (!dev)
		return;
	kobject_put(peal_parent(dev)->net);
	peal_parent(dev)->net = NULL;
}
