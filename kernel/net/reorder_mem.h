/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * How much a device keeps of packets that came before their turn.
 *
 * Owns: the sum over all queue pairs, and the rule of who may keep what. A kept skb
 * is charged to no socket and to no program: peers say how many come early, and
 * programs how many queue pairs there are.
 * Does not know: where they lie, and when their turn comes (../proto/early.h).
 *
 * No lock: the sum is looked at before a packet is kept and grows afterwards, so
 * that each CPU may be one packet beyond it.
 */
#ifndef PEAL_REORDER_MEM_H
#define PEAL_REORDER_MEM_H

#include <linux/atomic.h>
#include <rdma/ib_verbs.h>

struct peal_datagram;
struct peal_table;
struct sk_buff;

struct peal_reorder_mem {
	struct peal_table *table;	/* of the device, for its counters */
	atomic_long_t bytes;	/* truesize of what is kept */
};

void peal_reorder_mem_init(struct peal_reorder_mem *mem, struct peal_table *table);
/* All queue pairs are gone, and with them what they kept. */
void peal_reorder_mem_end(const struct peal_reorder_mem *mem);

/*
 * What a queue pair that keeps so many packets on this side may keep of @dg until its
 * turn comes: the skb, or NULL when it is larger than a packet of this path MTU has
 * reason to be, or would be more than the queue pair's share.
 */
struct sk_buff *peal_reorder_mem_may(struct peal_reorder_mem *mem, const struct peal_datagram *dg,
				     u32 mtu, u32 kept);
/*
 * It is kept, in memory of its own. Under the lock of that side of the queue pair, as the
 * other two.
 */
void peal_reorder_mem_add(struct peal_reorder_mem *mem, struct sk_buff *skb);
/* Its turn has come. */
void peal_reorder_mem_take(struct peal_reorder_mem *mem, const struct sk_buff *skb);
/* It will not have one. Frees @skb. */
void peal_reorder_mem_lose(struct peal_reorder_mem *mem, struct sk_buff *skb);

#endif
