// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See hold.h.
 */
#include <linux/ktime.h>

#include "base/budget.h"
#include "base/compat.h"
#include "base/epoch.h"
#include "net/hold.h"
#include "net/rx_packet.h"

/* In skb->cb of a packet that is held. */
struct peal_held {
	struct peal_arrival arrival;	/* the first member, because peal_arrival() finds it */
	u64 due;			/* when it is handed on, ns */
	u32 qpn;
	bool overtaken;			/* or when the next packet for qpn was delivered */
};

static struct peal_held *peal_held(struct sk_buff *skb)
{
	BUILD_BUG_ON(sizeof(struct peal_held) > sizeof(skb->cb));
	return (struct peal_held *)skb->cb;
}

/*
 * Return: an skb with only this packet and with memory of its own, because the sender may write to
 * that of @rx. NULL: there is no memory.
 */
static struct sk_buff *peal_hold_copy(const struct peal_rx_packet *rx)
{
	struct peal_rx_packet own = *rx;
	struct sk_buff *skb;

	if (rx->train)
		return peal_rx_own(&own) ? own.skb : NULL;
	skb = skb_copy(rx->skb, GFP_ATOMIC | __GFP_NOWARN);
	if (!skb)
		return NULL;
	/* As in peal_reorder_mem_add(). And no reference keeps the netdev. */
	skb_ext_reset(skb);
	skb->dev = NULL;
	return skb;
}

static void peal_hold_arm(struct peal_hold *hold)
{
	struct sk_buff *first = skb_peek(&hold->packets);

	lockdep_assert_held(&hold->packets.lock);
	if (first)
		hrtimer_start(&hold->timer, ns_to_ktime(peal_held(first)->due),
			      HRTIMER_MODE_ABS_SOFT);
}

bool peal_hold_packet(struct peal_hold *hold, const struct peal_rx_packet *rx, u64 ns,
		      bool overtaken)
{
	struct sk_buff *skb, *before;
	u64 due = ktime_get_ns() + ns;

	peal_epoch_assert_held();
	if (skb_queue_len_lockless(&hold->packets) >= PEAL_HOLD_PACKETS)
		return false;
	skb = peal_hold_copy(rx);
	if (!skb)
		return false;
	peal_arrival(skb)->held = true;
	peal_held(skb)->due = due;
	peal_held(skb)->qpn = rx->packet.qpn;
	peal_held(skb)->overtaken = overtaken;
	spin_lock(&hold->packets.lock);
	/* Packets with the same delay stay in their order. */
	skb_queue_reverse_walk(&hold->packets, before)
		if (peal_held(before)->due <= due)
			break;
	__skb_queue_after(&hold->packets, before, skb);
	if (skb_queue_is_first(&hold->packets, skb))
		peal_hold_arm(hold);
	spin_unlock(&hold->packets.lock);
	return true;
}

struct sk_buff *peal_hold_overtaken(struct peal_hold *hold, u32 qpn)
{
	struct sk_buff *skb, *found = NULL;

	peal_epoch_assert_held();
	spin_lock(&hold->packets.lock);
	skb_queue_walk(&hold->packets, skb) {
		if (peal_held(skb)->overtaken && peal_held(skb)->qpn == qpn) {
			found = skb;
			__skb_unlink(skb, &hold->packets);
			break;
		}
	}
	spin_unlock(&hold->packets.lock);
	return found;
}

struct sk_buff *peal_hold_due(struct peal_hold *hold)
{
	struct sk_buff *skb;

	spin_lock_bh(&hold->packets.lock);
	skb = skb_peek(&hold->packets);
	if (skb && peal_held(skb)->due <= ktime_get_ns()) {
		__skb_unlink(skb, &hold->packets);
	} else {
		peal_hold_arm(hold);
		skb = NULL;
	}
	spin_unlock_bh(&hold->packets.lock);
	return skb;
}

static enum hrtimer_restart peal_hold_expire(struct hrtimer *timer)
{
	peal_workers_queue(&container_of(timer, struct peal_hold, timer)->work);
	return HRTIMER_NORESTART;
}

void peal_hold_init(struct peal_hold *hold, work_func_t work)
{
	skb_queue_head_init(&hold->packets);
	peal_hrtimer_setup(&hold->timer, peal_hold_expire, CLOCK_MONOTONIC, HRTIMER_MODE_ABS_SOFT);
	INIT_WORK(&hold->work, work);
}

/* When the queue is empty, the work item does not arm the timer any more. */
void peal_hold_end(struct peal_hold *hold)
{
	struct sk_buff_head packets;
	struct sk_buff *skb;

	__skb_queue_head_init(&packets);
	spin_lock_bh(&hold->packets.lock);
	skb_queue_splice_init(&hold->packets, &packets);
	spin_unlock_bh(&hold->packets.lock);
	while ((skb = __skb_dequeue(&packets)))
		kfree_skb(skb);
	hrtimer_cancel(&hold->timer);
	flush_work(&hold->work);
}
