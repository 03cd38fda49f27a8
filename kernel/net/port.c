// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See port.h.
 */
#include <linux/skbuff.h>

#include "base/table.h"
#include "net/datagram.h"
#include "net/port.h"
#include "proto/reorder.h"

/*
 * The limit of a device, in bytes of skbs with their overhead (truesize): a hundred times
 * the window of a peal peer at the largest path MTU.
 */
#define PEAL_REORDER_MEM_BYTES		(64L << 20)

/*
 * A queue pair that keeps n packets may keep one more while (n + 1) parts are free. Nothing
 * is limited until half of the memory is in use. After that the heaviest users stop first,
 * and a newcomer still finds space.
 */
#define PEAL_REORDER_MEM_PART		(PEAL_REORDER_MEM_BYTES / 2 / PEAL_REORDER_SLOTS)

/*
 * The largest truesize of one packet: payloads of the path MTU, plus bytes of overhead. It
 * is generous because drivers take a buffer of a page or of a jumbo frame for each packet.
 */
#define PEAL_REORDER_MEM_PACKETS	4
#define PEAL_REORDER_MEM_OVERHEAD	(16 << 10)

/* In bytes: the pages that the network stack divides into fragments (SKB_FRAG_PAGE_ORDER). */
#define PEAL_REORDER_MEM_PAGES		(32 << 10)

void peal_reorder_mem_init(struct peal_reorder_mem *mem, struct peal_table *table)
{
	mem->table = table;
	atomic_long_set(&mem->bytes, 0);
}

void peal_reorder_mem_end(const struct peal_reorder_mem *mem)
{
	WARN_ON(atomic_long_read(&mem->bytes));
}

static bool peal_reorder_mem_shares(const struct peal_reorder_mem *mem, u32 kept)
{
	return PEAL_REORDER_MEM_BYTES - atomic_long_read(&mem->bytes) >=
	       (long)(kept + 1) * PEAL_REORDER_MEM_PART;
}

struct sk_buff *peal_reorder_mem_may(struct peal_reorder_mem *mem, const struct peal_datagram *dg,
				     u32 mtu, u32 kept)
{
	if (dg->packet.payload_bytes > mtu ||
	    dg->skb->truesize > PEAL_REORDER_MEM_PACKETS * mtu + PEAL_REORDER_MEM_OVERHEAD)
		return NULL;
	return peal_reorder_mem_shares(mem, kept) ? dg->skb : NULL;
}

/*
 * Copy a kept packet to memory of its own. Its truesize counts only a part of a page, but
 * the skb holds the whole page: 32 KiB of a sender's or a driver's fragments. When there is
 * no memory for the copy, truesize becomes what the skb really holds.
 */
static void peal_reorder_mem_detach(struct sk_buff *skb)
{
	u32 pages = skb_shinfo(skb)->nr_frags + skb->head_frag;

	if (!pages && !skb_has_frag_list(skb))
		return;
	if (skb_linearize(skb) || (skb->head_frag && pskb_expand_head(skb, 0, 0, GFP_ATOMIC)))
		skb->truesize += pages * PEAL_REORDER_MEM_PAGES;
	else
		skb->truesize = SKB_TRUESIZE(skb_end_offset(skb));
}

/*
 * Drop the skb extensions that the stack attached on the way up. They have done their work,
 * because the IPsec policy was checked. If they stayed, the security path would hold its
 * xfrm states and their modules for as long as the packet is kept.
 */
void peal_reorder_mem_add(struct peal_reorder_mem *mem, struct sk_buff *skb)
{
	skb_ext_reset(skb);
	peal_reorder_mem_detach(skb);
	atomic_long_add(skb->truesize, &mem->bytes);
	peal_count(mem->table, reorder_kept);
}

void peal_reorder_mem_take(struct peal_reorder_mem *mem, const struct sk_buff *skb)
{
	atomic_long_sub(skb->truesize, &mem->bytes);
}

void peal_reorder_mem_lose(struct peal_reorder_mem *mem, struct sk_buff *skb)
{
	peal_reorder_mem_take(mem, skb);
	peal_count(mem->table, reorder_lost);
	kfree_skb(skb);
}

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
