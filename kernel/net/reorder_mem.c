// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See reorder_mem.h.
 */
#include <linux/skbuff.h>

#include "base/table.h"
#include "net/datagram.h"
#include "net/reorder_mem.h"
#include "proto/early.h"

/*
 * In bytes of skbs with their overhead (truesize): a hundred times the window of a
 * peer like us, at the largest path MTU.
 */
#define PEAL_REORDER_MEM_BYTES		(64L << 20)

/*
 * Who keeps n packets may keep another while n + 1 of these are left. That is no
 * limit to anybody before half of it all is in use; then who keeps much stops first,
 * and who keeps nothing yet finds something left.
 */
#define PEAL_REORDER_MEM_PART		(PEAL_REORDER_MEM_BYTES / 2 / PEAL_EARLY_SLOTS)

/*
 * What one packet may weigh, in payloads of the path MTU and bytes: drivers take a
 * buffer of a page or of a jumbo frame for each.
 */
#define PEAL_REORDER_MEM_PACKETS	4
#define PEAL_REORDER_MEM_OVERHEAD	(16 << 10)

/* What the network stack divides into fragments (SKB_FRAG_PAGE_ORDER). */
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
 * truesize knows a part of a page, but the skb holds the page: 32 KiB of a sender's
 * or a driver's fragments. What is kept gets memory of its own, and where there is
 * none it weighs as much as it holds.
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
 * What the stack attached on the way up has been looked at (the IPsec policy), and would stay
 * as long as the packet: a security path holds the states that it names, and their modules.
 */
void peal_reorder_mem_add(struct peal_reorder_mem *mem, struct sk_buff *skb)
{
	skb_ext_reset(skb);
	peal_reorder_mem_detach(skb);
	atomic_long_add(skb->truesize, &mem->bytes);
	peal_count(mem->table, early_kept);
}

void peal_reorder_mem_take(struct peal_reorder_mem *mem, const struct sk_buff *skb)
{
	atomic_long_sub(skb->truesize, &mem->bytes);
}

void peal_reorder_mem_lose(struct peal_reorder_mem *mem, struct sk_buff *skb)
{
	peal_reorder_mem_take(mem, skb);
	peal_count(mem->table, early_lost);
	kfree_skb(skb);
}
