// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See ingress.h.
 *
 * The hook is at the netdev's ingress, behind the administrator's own rules there. It can take a
 * frame of any protocol away from the stack, and unlike an rx_handler it leaves the netdev free for
 * a bridge or a bond. A tap alone could only copy.
 *
 * The tap sees a frame that leaves while the sender holds the netdev's transmit lock, and perhaps
 * the lock of a queue pair. No queue pair can be locked there, so all its frames wait for a work
 * item. So does a frame that comes in while this CPU is inside the epoch.
 */
#include <linux/etherdevice.h>
#include <linux/rtnetlink.h>

#include "base/epoch.h"
#include "base/workers.h"
#include "raw/ingress.h"
#include "net/netns.h"
#include "net/port.h"

/* The most frames in the backlog: as many as the stack's own backlog of a CPU holds by default. */
#define PEAL_INGRESS_BACKLOG	1000

/* In skb->cb while the skb is ours. Survives segmentation. */
struct peal_ingress_cb {
	bool tapped;
	bool known;	/* the stack knows that the transport's checksum is right */
};

static struct peal_ingress_cb *peal_ingress_cb(struct sk_buff *skb)
{
	return (struct peal_ingress_cb *)skb->cb;
}

/* Drop the references that the stack attached, because the skb may be kept for a while. */
static void peal_ingress_own(struct sk_buff *skb, bool tapped)
{
	skb_orphan(skb);
	skb_dst_drop(skb);
	nf_reset_ct(skb);
	peal_ingress_cb(skb)->tapped = tapped;
	peal_ingress_cb(skb)->known = skb->ip_summed == CHECKSUM_UNNECESSARY ||
				      skb->ip_summed == CHECKSUM_PARTIAL;
}

/* Inside the epoch. Consumes @skb. */
static void peal_ingress_deliver(struct peal_ingress *ingress, struct sk_buff *skb)
{
	struct peal_ingress_cb cb = *peal_ingress_cb(skb);
	struct peal_frame frame;
	struct sk_buff *next;

	peal_epoch_assert_held();
	skb = peal_frame_complete(skb);
	if (!skb)
		peal_count_drop(ingress->port->table, PEAL_DROP_resource);
	skb_list_walk_safe(skb, skb, next) {
		skb_mark_not_on_list(skb);
		skb_reset_mac_header(skb);
		peal_frame_parse(&frame, skb);
		peal_frame_check(&frame, cb.known);
		ingress->ops->deliver(ingress, &frame, cb.tapped);
		consume_skb(skb);
	}
}

static void peal_ingress_work(struct work_struct *work)
{
	struct peal_ingress *ingress = container_of(work, struct peal_ingress, work);
	struct sk_buff *skb;

	while ((skb = skb_dequeue(&ingress->backlog))) {
		peal_epoch_enter();
		peal_ingress_deliver(ingress, skb);
		peal_epoch_exit();
		cond_resched();
	}
}

static void peal_ingress_later(struct peal_ingress *ingress, struct sk_buff *skb)
{
	if (skb_queue_len_lockless(&ingress->backlog) >= PEAL_INGRESS_BACKLOG) {
		peal_count_drop(ingress->port->table, PEAL_DROP_resource);
		kfree_skb(skb);
		return;
	}
	skb_queue_tail(&ingress->backlog, skb);
	peal_workers_queue(&ingress->work);
}

/* Inside the epoch. Return: whether the frame is taken from the stack. */
static bool peal_ingress_receive(struct peal_ingress *ingress, struct sk_buff *skb, bool nested)
{
	enum peal_taking verdict;
	struct peal_frame frame;

	peal_epoch_assert_held();
	peal_frame_parse(&frame, skb);
	verdict = ingress->ops->decide(ingress, &frame);
	if (verdict == PEAL_FRAME_PASS)
		return false;
	skb = verdict == PEAL_FRAME_TAKE ? skb_share_check(skb, GFP_ATOMIC) :
					   skb_clone(skb, GFP_ATOMIC);
	if (!skb) {
		peal_count_drop(ingress->port->table, PEAL_DROP_resource);
		return verdict == PEAL_FRAME_TAKE;
	}
	peal_ingress_own(skb, false);
	if (nested)
		peal_ingress_later(ingress, skb);
	else
		peal_ingress_deliver(ingress, skb);
	return verdict == PEAL_FRAME_TAKE;
}

static unsigned int peal_ingress_hook(void *priv, struct sk_buff *skb,
				      const struct nf_hook_state *state)
{
	bool nested = peal_epoch_held(), taken;

	peal_epoch_enter();
	taken = peal_ingress_receive(priv, skb, nested);
	peal_epoch_exit();
	return taken ? NF_STOLEN : NF_ACCEPT;
}

/* The loopback interface shows each frame twice, on its way out and on its way in. */
static int peal_ingress_tap(struct sk_buff *skb, struct net_device *ndev, struct packet_type *type,
			    struct net_device *original)
{
	struct peal_ingress *ingress = container_of(type, struct peal_ingress, tap);

	if (skb->pkt_type == PACKET_OUTGOING && ndev->flags & IFF_LOOPBACK) {
		kfree_skb(skb);
		return 0;
	}
	skb = skb_share_check(skb, GFP_ATOMIC);
	if (!skb) {
		peal_count_drop(ingress->port->table, PEAL_DROP_resource);
		return 0;
	}
	peal_ingress_own(skb, true);
	peal_ingress_later(ingress, skb);
	return 0;
}

bool peal_ingress_loop(struct peal_ingress *ingress, struct peal_frame *frame)
{
	const struct net_device *ndev = ingress->port->ndev;
	bool group = peal_frame_is_multicast(frame);
	struct sk_buff *skb = frame->skb;

	if (ndev->flags & IFF_LOOPBACK ||
	    (!group && !ether_addr_equal(frame->fields.dst_mac, ndev->dev_addr)))
		return false;
	if (!READ_ONCE(ingress->hooks) && !(READ_ONCE(ingress->taps) && !group)) {
		if (!group)
			kfree_skb(skb);
		return !group;
	}
	if (group)
		skb = skb_clone(skb, GFP_ATOMIC);
	if (skb) {
		skb->pkt_type = group ? PACKET_MULTICAST : PACKET_HOST;
		peal_ingress_own(skb, false);
		peal_ingress_later(ingress, skb);
	}
	return !group;
}

/* ---- uses ---- */

void peal_ingress_init(struct peal_ingress *ingress, const struct peal_ingress_ops *ops,
		       struct peal_port *port)
{
	ingress->ops = ops;
	ingress->port = port;
	ingress->hook = (struct nf_hook_ops){
		.hook = peal_ingress_hook,
		.dev = port->ndev,
		.priv = ingress,
		.pf = NFPROTO_NETDEV,
		.hooknum = NF_NETDEV_INGRESS,
		.priority = INT_MAX,
	};
	ingress->tap.type = htons(ETH_P_ALL);
	ingress->tap.dev = port->ndev;
	ingress->tap.func = peal_ingress_tap;
	skb_queue_head_init(&ingress->backlog);
	INIT_WORK(&ingress->work, peal_ingress_work);
}

void peal_ingress_end(struct peal_ingress *ingress)
{
	if (ingress->used)
		synchronize_net();	/* until no CPU runs the hook */
	flush_work(&ingress->work);
}

static int peal_ingress_add_filter(struct peal_ingress *ingress, const struct peal_ingress_use *use)
{
	struct net_device *ndev = ingress->port->ndev;
	int ret;

	ASSERT_RTNL();
	switch (use->filter) {
	case PEAL_FILTER_UNICAST:
		return dev_uc_add(ndev, use->mac);
	case PEAL_FILTER_MULTICAST:
		return dev_mc_add(ndev, use->mac);
	case PEAL_FILTER_GROUPS:
		ret = dev_set_allmulti(ndev, 1);
		ingress->groups += !ret;
		return ret;
	case PEAL_FILTER_ALL:
		ret = dev_set_promiscuity(ndev, 1);
		ingress->all += !ret;
		return ret;
	default:
		return 0;
	}
}

static void peal_ingress_remove_filter(struct peal_ingress *ingress,
				       const struct peal_ingress_use *use)
{
	struct net_device *ndev = ingress->port->ndev;

	ASSERT_RTNL();
	switch (use->filter) {
	case PEAL_FILTER_UNICAST:
		dev_uc_del(ndev, use->mac);
		break;
	case PEAL_FILTER_MULTICAST:
		dev_mc_del(ndev, use->mac);
		break;
	case PEAL_FILTER_GROUPS:
		ingress->groups--;
		dev_set_allmulti(ndev, -1);
		break;
	case PEAL_FILTER_ALL:
		ingress->all--;
		dev_set_promiscuity(ndev, -1);
		break;
	default:
		break;
	}
}

static int peal_ingress_add_hook(struct peal_ingress *ingress, const struct peal_ingress_use *use)
{
	int ret = 0;

	ASSERT_RTNL();
	if (use->tap) {
		if (!ingress->taps)
			dev_add_pack(&ingress->tap);
		WRITE_ONCE(ingress->taps, ingress->taps + 1);
		return 0;
	}
	if (!ingress->hooks)
		ret = nf_register_net_hook(ingress->port->net, &ingress->hook);
	if (!ret)
		WRITE_ONCE(ingress->hooks, ingress->hooks + 1);
	return ret;
}

static void peal_ingress_remove_hook(struct peal_ingress *ingress,
				     const struct peal_ingress_use *use)
{
	ASSERT_RTNL();
	if (use->tap) {
		WRITE_ONCE(ingress->taps, ingress->taps - 1);
		if (!ingress->taps)
			dev_remove_pack(&ingress->tap);
		return;
	}
	WRITE_ONCE(ingress->hooks, ingress->hooks - 1);
	if (!ingress->hooks)
		nf_unregister_net_hook(ingress->port->net, &ingress->hook);
}

static int peal_ingress_begin_locked(struct peal_ingress *ingress,
				     const struct peal_ingress_use *use)
{
	int ret;

	ASSERT_RTNL();
	if (ingress->left || peal_netns_left(ingress->port, ingress->port->ndev))
		return -ENODEV;
	ingress->used = true;
	ret = peal_ingress_add_hook(ingress, use);
	if (ret)
		return ret;
	ret = peal_ingress_add_filter(ingress, use);
	if (ret)
		peal_ingress_remove_hook(ingress, use);
	return ret;
}

int peal_ingress_begin_use(struct peal_ingress *ingress, const struct peal_ingress_use *use)
{
	int ret;

	rtnl_lock();
	ret = peal_ingress_begin_locked(ingress, use);
	rtnl_unlock();
	return ret;
}

void peal_ingress_end_use(struct peal_ingress *ingress, const struct peal_ingress_use *use)
{
	rtnl_lock();
	if (!ingress->left) {
		peal_ingress_remove_filter(ingress, use);
		peal_ingress_remove_hook(ingress, use);
	}
	rtnl_unlock();
}

/* The stack itself forgets the addresses that a netdev has when it leaves. */
void peal_ingress_leave(struct peal_ingress *ingress)
{
	struct net_device *ndev = ingress->port->ndev;

	ASSERT_RTNL();
	if (ingress->left)
		return;
	ingress->left = true;
	if (ingress->hooks)
		nf_unregister_net_hook(ingress->port->net, &ingress->hook);
	if (ingress->taps)
		dev_remove_pack(&ingress->tap);
	if (ingress->groups)
		dev_set_allmulti(ndev, -ingress->groups);
	if (ingress->all)
		dev_set_promiscuity(ndev, -ingress->all);
	WRITE_ONCE(ingress->hooks, 0);
	WRITE_ONCE(ingress->taps, 0);
}
