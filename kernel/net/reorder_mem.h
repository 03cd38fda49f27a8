/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * How much memory a device spends on out-of-order packets: packets that came before their turn and
 * are kept until then.
 *
 * Owns: the sum over all queue pairs, and the rule that decides which queue pair may keep a
 * packet. A kept skb is charged to no socket and to no program. A limit is necessary,
 * because peers decide how many packets arrive out of order, and programs decide how many queue
 * pairs there are.
 * Does not know: where the packets are kept, and when their turn comes (../proto/reorder.h).
 *
 * No lock: the sum is read before a packet is kept and grows afterwards, so each CPU may
 * exceed the limit by one packet.
 */
#ifndef PEAL_REORDER_MEM_H
#define PEAL_REORDER_MEM_H

#include <linux/atomic.h>
#include <rdma/ib_verbs.h>

struct peal_datagram;
struct peal_table;
struct sk_buff;

struct peal_reorder_mem {
	struct peal_table *table;	/* the device's, for its counters */
	atomic_long_t bytes;	/* truesize of all kept packets */
};

void peal_reorder_mem_init(struct peal_reorder_mem *mem, struct peal_table *table);
/* Call when all queue pairs and the packets that they kept are gone. */
void peal_reorder_mem_end(const struct peal_reorder_mem *mem);

/*
 * May a queue pair that keeps @kept packets on this side (requester or responder) also keep
 * @dg until its turn comes? Return: the skb, or NULL. NULL means that it is larger than a
 * packet of this path MTU has reason to be, or that the queue pair's share is used up.
 */
struct sk_buff *peal_reorder_mem_may(struct peal_reorder_mem *mem, const struct peal_datagram *dg,
				     u32 mtu, u32 kept);
/*
 * Count @skb as kept, and give it memory of its own. The caller of peal_reorder_mem_add(),
 * peal_reorder_mem_take() and peal_reorder_mem_lose() holds the lock of that side of the
 * queue pair, or frees the queue pair. The callers assert it, because the queue pair is not
 * known here.
 */
void peal_reorder_mem_add(struct peal_reorder_mem *mem, struct sk_buff *skb);
/* The turn of @skb has come, so it is not kept any more. It is the caller's. */
void peal_reorder_mem_take(struct peal_reorder_mem *mem, const struct sk_buff *skb);
/* The turn of @skb will not come. Frees @skb. */
void peal_reorder_mem_lose(struct peal_reorder_mem *mem, struct sk_buff *skb);

#endif
