// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See port.h.
 */
#include "net/port.h"

void peal_port_init(struct peal_port *port, const struct peal_port_ops *ops,
		    struct peal_table *table, struct net_device *ndev)
{
	port->ops = ops;
	port->table = table;
	port->ndev = ndev;
	peal_reorder_mem_init(&port->reorder_mem, table);
	netdev_hold(ndev, &port->tracker, GFP_KERNEL);
}

void peal_port_end(struct peal_port *port)
{
	peal_reorder_mem_end(&port->reorder_mem);
	netdev_put(port->ndev, &port->tracker);
}

int peal_port_open(struct peal_port *port, struct net *net)
{
	return peal_tx_quotas_open(&port->tx_quotas, net);
}

void peal_port_join(struct peal_port *port, struct peal_netns *netns, struct net *net)
{
	port->netns = netns;
	port->net = net;
}

/* The sockets must not outlive the namespace, and no device may name a namespace that has gone. */
void peal_port_close(struct peal_port *port)
{
	port->netns = NULL;
	if (port->tx_quotas.kernel)
		peal_tx_quotas_close(&port->tx_quotas);
}
