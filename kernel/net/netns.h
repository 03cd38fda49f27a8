/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What peal keeps per network namespace, from its first device there to its
 * last: the receive hooks, the list of devices.
 *
 * Owns: struct peal_netns and its life. No port is opened and no hook exists
 * before a device does.
 * Does not know: what is received and sent.
 *
 * A namespace that ends takes its devices with it, and waits for them: routes,
 * which paths hold, must not outlive it, and netdevs that move elsewhere then do
 * not wait for anybody. The stack ends many namespaces at once; their devices are
 * removed at the same time.
 */
#ifndef PEAL_NETNS_H
#define PEAL_NETNS_H

#include <linux/completion.h>
#include <linux/list.h>
#include <linux/netfilter.h>
#include <linux/skbuff.h>
#include <linux/workqueue.h>

#include "net/rx.h"

struct net_device;
struct peal_port;

struct peal_netns {
	struct list_head node;		/* of all, or of those that end together */
	struct net *net;		/* outlives all devices in it */
	u32 users;			/* devices; under the module's mutex, as the others here */
	bool ending;			/* the namespace's end closes it, not the last device */
	struct completion *gone;	/* of the namespace's end, which waits for the last */
	struct peal_rx rx;		/* its hooks, and the list of its ports */
};

/*
 * A device appears in @ndev's namespace: sets port->netns and port->net. Sleeps. Return: 0 or a
 * negative errno.
 */
int peal_netns_attach(struct peal_port *port, struct net_device *ndev);
/* Under RTNL: is @ndev, its netdev, somewhere else by now, or on its way out? */
bool peal_netns_left(const struct peal_port *port, const struct net_device *ndev);
/*
 * It goes: no packet is delivered to it when this returns. Sleeps. Nothing
 * happens to a device that is not attached.
 */
void peal_netns_detach(struct peal_port *port);

int peal_netns_init(void);
void peal_netns_exit(void);

#endif
