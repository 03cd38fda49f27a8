// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The hook is at the netdev's ingress, behind the administrator's own rules there. It can take a
 * frame of any protocol away from the stack, and unlike an rx_handler it leaves the netdev free for
 * a bridge or a bond. A tap alone could only copy.
 *
 * The tap sees a frame that leaves while the sender holds the netdev's transmit lock, and perhaps
 * the lock of a queue pair. No queue pair can be locked there, so all its frames wait for a work
 * item. So does a frame that comes in while this CPU is inside the epoch.
 */
#include <linux/capability.h>
#include <linux/etherdevice.h>
#include <linux/if_vlan.h>
#include <linux/rculist.h>
#include <linux/rtnetlink.h>
#include <linux/slab.h>
#include <net/net_namespace.h>

#include "base/compat.h"
#include "base/epoch.h"
#include "base/quota.h"
#include "base/budget.h"
#include "engine/engine.h"
#include "net/port.h"
#include "net/sniff.h"
#include "object/cursor.h"
#include "proto/packet.h"
#include "raw/frame.h"
#include "raw/raw.h"
#include "transport/exec.h"
#include "transport/sender.h"

/* The most frames in the backlog: as many as the stack's own backlog of a CPU holds by default. */
#define PEAL_RAW_BACKLOG	1000
/* With those of messages that travel without packets. None of these is longer than a packet. */
#define PEAL_RAW_BACKLOG_SHOWN	4096

/* The kinds of rules, in the order in which a frame is compared with them. */
enum peal_flow_kind {
	PEAL_FLOW_NORMAL,
	PEAL_FLOW_MULTICAST,	/* all multicast frames that no other rule matches */
	PEAL_FLOW_ALL,		/* multicast and foreign frames that no other rule matches */
	PEAL_FLOW_SNIFFER,
};

/* What the netdev must receive for a rule. It may otherwise filter that out in hardware. */
enum peal_flow_filter {
	PEAL_FILTER_NONE,
	PEAL_FILTER_MAC,	/* frames to the rule's address */
	PEAL_FILTER_GROUPS,	/* all multicast frames */
	PEAL_FILTER_ALL,
};

struct peal_flow {
	struct ib_flow ib;
	struct peal_flows *flows;
	struct peal_qp *qp;		/* gets the frames */
	enum peal_flow_kind kind;
	u32 rank;			/* rules of a lower rank are compared first */
	bool passes;			/* the frame goes on to other rules and to the stack */
	struct peal_frame_fields value, mask;	/* value has no bit that mask lacks */
	enum peal_flow_filter filter;

	/* Guarded by RTNL: */
	struct list_head node;		/* also read inside the epoch */
};

/* What happens to a frame that has come in. A higher value prevails. */
enum peal_taking {
	PEAL_FRAME_PASS,	/* the frame is the stack's */
	PEAL_FRAME_COPY,	/* the frame is the stack's, and a copy is delivered */
	PEAL_FRAME_TAKE,	/* the stack does not get it */
};

/* The transport of a raw packet queue pair. */
struct peal_raw {
	struct peal_packet_sender sender;
	struct peal_flows *flows;	/* of the device, for frames that come back */
};

/* In skb->cb while the skb is ours. Survives segmentation. */
struct peal_raw_cb {
	bool tapped;
	bool known;	/* the stack knows that the transport's checksum is right */
};

static struct peal_raw_cb *peal_raw_cb(struct sk_buff *skb)
{
	return (struct peal_raw_cb *)skb->cb;
}

/*
 * The core asks for CAP_NET_RAW, in newer kernels in the namespace of the RDMA device. peal checks
 * the namespace of the netdev, because its frames are sent and taken.
 */
static int peal_raw_permit(const struct peal_port *port)
{
	return ns_capable(port->net->user_ns, CAP_NET_RAW) ? 0 : -EPERM;
}

/* ---- receiving ---- */

static enum peal_drop peal_raw_receive(struct peal_qp *qp, struct peal_notify *notify,
				       const struct peal_frame *frame)
{
	struct peal_cursor to PEAL_UNINITIALIZED;
	u32 bytes = frame->skb->len;
	struct peal_cqe cqe = {
		.opcode = PEAL_OP_SEND, .byte_len = bytes,
		.flags = frame->checksums_ok ? PEAL_CQE_IP_CSUM_OK : 0,
	};
	enum peal_reason reason;
	enum peal_drop drop;
	u64 at, piece;
	void *here;

	lockdep_assert_held(&qp->rq.lock);
	if (unlikely(!peal_qp_receives(qp)))
		return PEAL_DROP_state;
	drop = peal_receive_begin(qp, notify, bytes, &to, &reason);
	if (unlikely(drop))
		return drop;
	if (unlikely(reason)) {
		peal_receive_refuse(qp, notify, 0, bytes, reason);
		return PEAL_DROP_none;
	}
	for (at = 0; at < bytes; at += piece) {
		piece = bytes - at;
		here = peal_cursor_take(&to, &piece);
		/* The range lies inside the skb. */
		WARN_ON_ONCE(skb_copy_bits(frame->skb, at, here, piece));
	}
	peal_cursor_end(&to);
	peal_qp_complete_recv(qp, notify, &cqe);
	return PEAL_DROP_none;
}

/* Inside the epoch, no lock held. The frame stays the caller's. */
static void peal_raw_deliver(struct peal_qp *qp, const struct peal_frame *frame, bool sniffed)
{
	struct peal_notify notify PEAL_UNINITIALIZED;
	enum peal_drop drop;

	peal_epoch_assert_held();
	peal_notify_begin(&notify);
	spin_lock(&qp->rq.lock);
	drop = peal_raw_receive(qp, &notify, frame);
	spin_unlock(&qp->rq.lock);
	if (likely(!drop))
		peal_count(qp, frames_received);
	else if (sniffed && drop == PEAL_DROP_receive)
		peal_count(qp->table, frames_missed);
	else
		peal_count_drop(qp->table, drop);
	peal_turn_end(&notify);
}

static bool peal_flow_matches(const struct peal_flow *flow, const struct peal_frame *frame)
{
	const u64 *fields = (const u64 *)&frame->fields;
	const u64 *value = (const u64 *)&flow->value, *mask = (const u64 *)&flow->mask;
	int i;

	BUILD_BUG_ON(sizeof(frame->fields) != 64);
	if (flow->kind != PEAL_FLOW_NORMAL)
		return is_multicast_ether_addr(frame->fields.dst_mac) ||
		       (flow->kind == PEAL_FLOW_ALL && frame->skb->pkt_type == PACKET_OTHERHOST);
	for (i = 0; i < sizeof(frame->fields) / sizeof(u64); i++)
		if ((fields[i] ^ value[i]) & mask[i])
			return false;
	return true;
}

static bool peal_flow_is_equal(const struct peal_flow *a, const struct peal_flow *b)
{
	return a->rank == b->rank && !memcmp(&a->value, &b->value, sizeof(a->value)) &&
	       !memcmp(&a->mask, &b->mask, sizeof(a->mask));
}

/*
 * Inside the epoch. Find the rules that get @frame, and deliver it to their queue pairs if
 * @deliver. Return: what happens to the frame.
 */
static enum peal_taking peal_flows_offer(struct peal_flows *flows, const struct peal_frame *frame,
					 bool deliver)
{
	const struct peal_frame_fields *fields = &frame->fields;
	const struct peal_flow *flow, *first = NULL;
	enum peal_taking verdict = PEAL_FRAME_PASS;

	peal_epoch_assert_held();
	if (fields->kinds & PEAL_FRAME_UDP && fields->dst_port == htons(PEAL_ROCE_PORT))
		return PEAL_FRAME_PASS;
	list_for_each_entry_rcu(flow, &flows->rules, node, peal_epoch_held()) {
		if (first && flow->rank > first->rank)
			break;
		if (first ? !peal_flow_is_equal(first, flow) : !peal_flow_matches(flow, frame))
			continue;
		if (deliver)
			peal_raw_deliver(flow->qp, frame, false);
		if (flow->passes || (flow->kind != PEAL_FLOW_NORMAL &&
				     is_multicast_ether_addr(fields->dst_mac)))
			verdict = max(verdict, PEAL_FRAME_COPY);
		else
			verdict = PEAL_FRAME_TAKE;
		if (!flow->passes && !first)
			first = flow;
	}
	return verdict;
}

/* Drop the references that the stack attached, because the skb may be kept for a while. */
static void peal_flows_own(struct sk_buff *skb, bool tapped)
{
	skb_orphan(skb);
	skb_dst_drop(skb);
	nf_reset_ct(skb);
	peal_raw_cb(skb)->tapped = tapped;
	peal_raw_cb(skb)->known = skb->ip_summed == CHECKSUM_UNNECESSARY ||
				  skb->ip_summed == CHECKSUM_PARTIAL;
}

/* Inside the epoch. Consumes @skb. */
static void peal_flows_deliver(struct peal_flows *flows, struct sk_buff *skb)
{
	struct peal_raw_cb cb = *peal_raw_cb(skb);
	const struct peal_flow *flow;
	struct peal_frame frame;
	struct sk_buff *next;

	peal_epoch_assert_held();
	skb = peal_frame_complete(skb);
	if (!skb)
		peal_count_drop(flows->port->table, PEAL_DROP_resource);
	skb_list_walk_safe(skb, skb, next) {
		skb_mark_not_on_list(skb);
		skb_reset_mac_header(skb);
		peal_frame_parse(&frame, skb);
		frame.checksums_ok = peal_frame_verify(&frame, cb.known);
		if (!cb.tapped)
			peal_flows_offer(flows, &frame, true);
		else
			list_for_each_entry_rcu(flow, &flows->sniffers, node, peal_epoch_held())
				peal_raw_deliver(flow->qp, &frame, true);
		consume_skb(skb);
	}
}

static void peal_flows_work(struct work_struct *work)
{
	struct peal_flows *flows = container_of(work, struct peal_flows, work);
	struct sk_buff *skb;

	while ((skb = skb_dequeue(&flows->backlog))) {
		peal_epoch_enter();
		peal_flows_deliver(flows, skb);
		peal_epoch_exit();
		cond_resched();
	}
}

/* Deliver @skb later, unless @most frames wait already. Consumes it. */
static void peal_flows_queue(struct peal_flows *flows, struct sk_buff *skb, u32 most)
{
	if (skb_queue_len_lockless(&flows->backlog) >= most) {
		if (peal_raw_cb(skb)->tapped)
			peal_count(flows->port->table, frames_missed);
		else
			peal_count_drop(flows->port->table, PEAL_DROP_resource);
		kfree_skb(skb);
		return;
	}
	skb_queue_tail(&flows->backlog, skb);
	peal_workers_queue(&flows->work);
}

static unsigned int peal_flows_hook(void *priv, struct sk_buff *skb,
				    const struct nf_hook_state *state)
{
	struct peal_flows *flows = priv;
	bool nested = peal_epoch_held();
	enum peal_taking verdict;
	struct peal_frame frame;

	peal_epoch_enter();
	peal_frame_parse(&frame, skb);
	verdict = peal_flows_offer(flows, &frame, false);
	if (verdict == PEAL_FRAME_PASS)
		goto out;
	skb = verdict == PEAL_FRAME_TAKE ? skb_share_check(skb, GFP_ATOMIC) :
					   skb_clone(skb, GFP_ATOMIC);
	if (!skb) {
		peal_count_drop(flows->port->table, PEAL_DROP_resource);
		goto out;
	}
	peal_flows_own(skb, false);
	if (nested)
		peal_flows_queue(flows, skb, PEAL_RAW_BACKLOG);
	else
		peal_flows_deliver(flows, skb);
out:
	peal_epoch_exit();
	return verdict == PEAL_FRAME_TAKE ? NF_STOLEN : NF_ACCEPT;
}

/* The loopback interface shows each frame twice, on its way out and on its way in. */
static int peal_flows_tap(struct sk_buff *skb, struct net_device *ndev, struct packet_type *type,
			  struct net_device *original)
{
	struct peal_flows *flows = container_of(type, struct peal_flows, tap);

	if (skb->pkt_type == PACKET_OUTGOING && ndev->flags & IFF_LOOPBACK) {
		kfree_skb(skb);
		return 0;
	}
	skb = skb_share_check(skb, GFP_ATOMIC);
	if (!skb) {
		peal_count_drop(flows->port->table, PEAL_DROP_resource);
		return 0;
	}
	peal_flows_own(skb, true);
	peal_flows_queue(flows, skb, PEAL_RAW_BACKLOG);
	return 0;
}

/* A queue pair's lock may be held, so the frame waits for the work item, too. */
void peal_sniff_frame(struct peal_port *port, struct sk_buff *skb)
{
	bool train = skb_is_gso(skb);

	peal_flows_own(skb, true);
	peal_flows_queue(port->flows, skb, train ? PEAL_RAW_BACKLOG : PEAL_RAW_BACKLOG_SHOWN);
}

/* ---- flow rules ---- */

/* Copy a field of a specification, its value and its mask, into a rule. */
#define PEAL_FLOW_COPY(flow, to, spec, from)							\
	do {											\
		memcpy(&(flow)->value.to, &(spec)->val.from, sizeof((spec)->val.from));		\
		memcpy(&(flow)->mask.to, &(spec)->mask.from, sizeof((spec)->mask.from));	\
	} while (0)

/*
 * The core has checked the sizes of a program's specifications. They are checked again here,
 * because the core passes on types that peal does not have.
 */
static int peal_flow_read_specs(struct peal_flow *flow, const struct ib_flow_attr *attr)
{
	enum { LINK = 1, NETWORK = 2, TRANSPORT = 4 };
	const union ib_flow_spec *spec = (const void *)attr->flows;
	u8 *value = (u8 *)&flow->value, *mask = (u8 *)&flow->mask;
	u8 kind, layer, layers = 0;
	u32 i;

	for (i = 0; i < attr->num_of_specs; i++) {
		switch (spec->type) {
		case IB_FLOW_SPEC_ETH:
			if (spec->size < sizeof(spec->eth))
				return -EINVAL;
			PEAL_FLOW_COPY(flow, dst_mac, &spec->eth, dst_mac);
			PEAL_FLOW_COPY(flow, src_mac, &spec->eth, src_mac);
			PEAL_FLOW_COPY(flow, ether_type, &spec->eth, ether_type);
			PEAL_FLOW_COPY(flow, vlan_tag, &spec->eth, vlan_tag);
			kind = spec->eth.mask.vlan_tag ? PEAL_FRAME_VLAN : 0;
			layer = LINK;
			break;
		case IB_FLOW_SPEC_IPV4:
			if (spec->size < sizeof(spec->ipv4))
				return -EINVAL;
			PEAL_FLOW_COPY(flow, src_ip, &spec->ipv4, src_ip);
			PEAL_FLOW_COPY(flow, dst_ip, &spec->ipv4, dst_ip);
			PEAL_FLOW_COPY(flow, protocol, &spec->ipv4, proto);
			PEAL_FLOW_COPY(flow, traffic_class, &spec->ipv4, tos);
			PEAL_FLOW_COPY(flow, hop_limit, &spec->ipv4, ttl);
			PEAL_FLOW_COPY(flow, ip_flags, &spec->ipv4, flags);
			kind = PEAL_FRAME_IPV4;
			layer = NETWORK;
			break;
		case IB_FLOW_SPEC_IPV6:
			if (spec->size < sizeof(spec->ipv6))
				return -EINVAL;
			PEAL_FLOW_COPY(flow, src_ip, &spec->ipv6, src_ip);
			PEAL_FLOW_COPY(flow, dst_ip, &spec->ipv6, dst_ip);
			PEAL_FLOW_COPY(flow, flow_label, &spec->ipv6, flow_label);
			PEAL_FLOW_COPY(flow, protocol, &spec->ipv6, next_hdr);
			PEAL_FLOW_COPY(flow, traffic_class, &spec->ipv6, traffic_class);
			PEAL_FLOW_COPY(flow, hop_limit, &spec->ipv6, hop_limit);
			kind = PEAL_FRAME_IPV6;
			layer = NETWORK;
			break;
		case IB_FLOW_SPEC_TCP:
		case IB_FLOW_SPEC_UDP:
			if (spec->size < sizeof(spec->tcp_udp))
				return -EINVAL;
			PEAL_FLOW_COPY(flow, src_port, &spec->tcp_udp, src_port);
			PEAL_FLOW_COPY(flow, dst_port, &spec->tcp_udp, dst_port);
			kind = spec->type == IB_FLOW_SPEC_TCP ? PEAL_FRAME_TCP : PEAL_FRAME_UDP;
			layer = TRANSPORT;
			break;
		default:
			return -EOPNOTSUPP;
		}
		/* A rule that asks for two headers of one layer matches nothing. */
		if (layers & layer)
			return -EINVAL;
		layers |= layer;
		flow->value.kinds |= kind;
		flow->mask.kinds |= kind;
		spec = (const void *)spec + spec->size;
	}
	/* Bits of the value that the mask lacks do not count, and equal rules must look equal. */
	for (i = 0; i < sizeof(flow->value); i++)
		value[i] &= mask[i];
	return 0;
}

/* Read @attr into the parts of @flow that do not change later. */
static int peal_flow_read(struct peal_flow *flow, const struct ib_flow_attr *attr)
{
	switch (attr->type) {
	case IB_FLOW_ATTR_NORMAL:
		flow->kind = PEAL_FLOW_NORMAL;
		break;
	case IB_FLOW_ATTR_MC_DEFAULT:
		flow->kind = PEAL_FLOW_MULTICAST;
		flow->filter = PEAL_FILTER_GROUPS;
		break;
	case IB_FLOW_ATTR_ALL_DEFAULT:
		flow->kind = PEAL_FLOW_ALL;
		flow->filter = PEAL_FILTER_ALL;
		break;
	case IB_FLOW_ATTR_SNIFFER:
		flow->kind = PEAL_FLOW_SNIFFER;
		flow->filter = PEAL_FILTER_ALL;
		break;
	default:
		return -EOPNOTSUPP;
	}
	if (attr->flags & ~IB_FLOW_ATTR_FLAGS_DONT_TRAP)
		return -EOPNOTSUPP;
	/* A default rule and a sniffer match by their kind alone. */
	if (attr->port != 1 || (attr->num_of_specs && flow->kind != PEAL_FLOW_NORMAL))
		return -EINVAL;
	flow->passes = attr->flags & IB_FLOW_ATTR_FLAGS_DONT_TRAP;
	flow->rank = flow->kind << 16 | attr->priority;
	return peal_flow_read_specs(flow, attr);
}

/* Under RTNL. Add what the netdev must receive for @flow (@by 1), or remove it (@by -1). */
static int peal_flow_filter(const struct peal_flow *flow, int by)
{
	struct net_device *ndev = flow->flows->port->ndev;
	const u8 *mac = flow->value.dst_mac;

	ASSERT_RTNL();
	switch (flow->filter) {
	case PEAL_FILTER_MAC:
		if (is_multicast_ether_addr(mac))
			return by > 0 ? dev_mc_add(ndev, mac) : dev_mc_del(ndev, mac);
		return by > 0 ? dev_uc_add(ndev, mac) : dev_uc_del(ndev, mac);
	case PEAL_FILTER_GROUPS:
		return dev_set_allmulti(ndev, by);
	case PEAL_FILTER_ALL:
		return dev_set_promiscuity(ndev, by);
	default:
		return 0;
	}
}

/* Under RTNL. Begin to deliver. Return: 0, -ENODEV (the netdev has left), or the stack's error. */
static int peal_flow_insert(struct peal_flow *flow)
{
	struct peal_flows *flows = flow->flows;
	struct list_head *list = &flows->rules;
	struct peal_flow *other;
	int ret;

	ASSERT_RTNL();
	if (flows->left || peal_netns_left(flows->port, flows->port->ndev))
		return -ENODEV;
	flows->used = true;
	ret = peal_flow_filter(flow, 1);
	if (ret)
		return ret;
	if (flow->kind == PEAL_FLOW_SNIFFER) {
		list = &flows->sniffers;
		if (list_empty(list)) {
			dev_add_pack(&flows->tap);
			WRITE_ONCE(flows->port->sniffed, true);
			static_branch_inc(&peal_sniff_key);
		}
	} else if (list_empty(list)) {
		ret = nf_register_net_hook(flows->port->net, &flows->hook);
		if (ret) {
			peal_flow_filter(flow, -1);
			return ret;
		}
	}
	/* If no rule has a higher rank, `other` is the list's head, so the rule goes to its end. */
	list_for_each_entry(other, list, node)
		if (other->rank > flow->rank)
			break;
	list_add_tail_rcu(&flow->node, &other->node);
	return 0;
}

struct ib_flow *peal_flow_create(struct peal_flows *flows, struct ib_qp *ib,
				 const struct ib_flow_attr *attr)
{
	struct peal_qp *qp = peal_qp(ib);
	struct peal_flow *flow;
	int ret = peal_raw_permit(flows->port);

	if (!ret && ib->qp_type != IB_QPT_RAW_PACKET)
		ret = -EOPNOTSUPP;
	if (ret)
		return ERR_PTR(ret);
	flow = kzalloc(sizeof(*flow), GFP_KERNEL_ACCOUNT);
	if (!flow)
		return ERR_PTR(-ENOMEM);
	flow->flows = flows;
	flow->qp = qp;
	ret = peal_flow_read(flow, attr);
	if (!ret)
		ret = peal_quota_take(qp->account, PEAL_QUOTA_FLOW);
	if (ret)
		goto err_flow;
	/* The netdev receives frames to its own address in any case. */
	if (flow->kind == PEAL_FLOW_NORMAL && is_broadcast_ether_addr(flow->mask.dst_mac) &&
	    !ether_addr_equal(flow->value.dst_mac, flows->port->ndev->dev_addr))
		flow->filter = PEAL_FILTER_MAC;
	rtnl_lock();
	ret = peal_flow_insert(flow);
	rtnl_unlock();
	if (ret)
		goto err_quota;
	return &flow->ib;

err_quota:
	peal_quota_give(qp->account, PEAL_QUOTA_FLOW);
err_flow:
	kfree(flow);
	return ERR_PTR(ret);
}

int peal_flow_destroy(struct ib_flow *ib)
{
	struct peal_flow *flow = container_of(ib, struct peal_flow, ib);
	struct peal_flows *flows = flow->flows;

	rtnl_lock();
	list_del_rcu(&flow->node);
	if (flow->kind == PEAL_FLOW_SNIFFER && list_empty(&flows->sniffers)) {
		WRITE_ONCE(flows->port->sniffed, false);
		static_branch_dec(&peal_sniff_key);
	}
	if (!flows->left) {
		peal_flow_filter(flow, -1);
		if (flow->kind != PEAL_FLOW_SNIFFER && list_empty(&flows->rules))
			nf_unregister_net_hook(flows->port->net, &flows->hook);
		if (flow->kind == PEAL_FLOW_SNIFFER && list_empty(&flows->sniffers))
			dev_remove_pack(&flows->tap);
	}
	rtnl_unlock();
	peal_epoch_wait();	/* until the data path does not use it */
	peal_quota_give(flow->qp->account, PEAL_QUOTA_FLOW);
	kfree(flow);
	return 0;
}

void peal_flows_init(struct peal_flows *flows, struct peal_port *port)
{
	flows->port = port;
	port->flows = flows;
	flows->hook = (struct nf_hook_ops){
		.hook = peal_flows_hook,
		.dev = port->ndev,
		.priv = flows,
		.pf = NFPROTO_NETDEV,
		.hooknum = NF_NETDEV_INGRESS,
		.priority = INT_MAX,
	};
	flows->tap.type = htons(ETH_P_ALL);
	flows->tap.dev = port->ndev;
	flows->tap.func = peal_flows_tap;
	skb_queue_head_init(&flows->backlog);
	INIT_WORK(&flows->work, peal_flows_work);
	INIT_LIST_HEAD(&flows->rules);
	INIT_LIST_HEAD(&flows->sniffers);
}

/* The stack itself forgets the addresses that a netdev has when it leaves. */
void peal_flows_leave(struct peal_flows *flows)
{
	struct peal_flow *flow;

	ASSERT_RTNL();
	if (flows->left)
		return;
	WRITE_ONCE(flows->left, true);
	WRITE_ONCE(flows->port->sniffed, false);
	if (!list_empty(&flows->rules))
		nf_unregister_net_hook(flows->port->net, &flows->hook);
	if (!list_empty(&flows->sniffers))
		dev_remove_pack(&flows->tap);
	list_for_each_entry(flow, &flows->rules, node)
		if (flow->filter != PEAL_FILTER_MAC)
			peal_flow_filter(flow, -1);
	list_for_each_entry(flow, &flows->sniffers, node)
		peal_flow_filter(flow, -1);
}

void peal_flows_destroy(struct peal_flows *flows)
{
	WARN_ON(!list_empty(&flows->rules) || !list_empty(&flows->sniffers));
	if (flows->used)
		synchronize_net();	/* until no CPU runs the hook */
	flush_work(&flows->work);
}

/* ---- sending ---- */

/*
 * A queue pair of this device sends @frame. Deliver it here, too, if it is for this station or for
 * a group, as the switch inside an RNIC does. With softirqs off. Return: true when the frame has
 * been consumed, because it must not leave.
 */
static bool peal_raw_loop(struct peal_flows *flows, const struct peal_frame *frame)
{
	bool group = is_multicast_ether_addr(frame->fields.dst_mac);
	const struct net_device *ndev = flows->port->ndev;
	struct sk_buff *skb = frame->skb;

	if (ndev->flags & IFF_LOOPBACK ||
	    (!group && !ether_addr_equal(frame->fields.dst_mac, ndev->dev_addr)))
		return false;
	/* The tap sees a frame to a group when it leaves. */
	if (READ_ONCE(flows->left) ||
	    (list_empty(&flows->rules) && (group || list_empty(&flows->sniffers)))) {
		if (!group)
			kfree_skb(skb);
		return !group;
	}
	if (group)
		skb = skb_clone(skb, GFP_ATOMIC);
	if (skb) {
		skb->pkt_type = group ? PACKET_MULTICAST : PACKET_HOST;
		peal_flows_own(skb, false);
		peal_flows_queue(flows, skb, PEAL_RAW_BACKLOG);
	}
	return !group;
}

/* A frame for which there is no memory is lost, as any other frame may be. */
static struct peal_outcome peal_raw_carry(struct peal_packet_sender *sender,
					  struct peal_notify *notify)
{
	struct peal_flows *flows = container_of(sender, struct peal_raw, sender)->flows;
	u32 most = READ_ONCE(flows->port->ndev->mtu) + ETH_HLEN;
	struct peal_cursor local PEAL_UNINITIALIZED;
	struct peal_cursor to PEAL_UNINITIALIZED;
	struct peal_qp *qp = sender->base.qp;
	const struct peal_wqe *send = &qp->sq.wqe;
	struct peal_outcome outcome;
	struct peal_frame frame;
	struct sk_buff *skb;

	lockdep_assert_held(&qp->sq.lock);
	if (unlikely(send->length < ETH_HLEN || send->length > most + VLAN_HLEN))
		return peal_failed(IB_WC_LOC_LEN_ERR, PEAL_REASON_FRAME_LENGTH);
	outcome = peal_packet_sender_begin(qp, &local);
	if (unlikely(outcome.what != PEAL_DONE))
		return outcome;
	skb = peal_frame_alloc(flows->port, send->length);
	if (likely(skb)) {
		peal_cursor_inline(&to, skb->data, send->length);
		peal_cursor_copy(&to, &local, send->length);
	}
	peal_cursor_end(&local);
	if (unlikely(!skb)) {
		peal_count(flows->port->table, packets_unsent);
		goto carried;
	}
	/* The bytes of the frame are in private memory now. */
	peal_frame_finish(&frame, skb, flows->port);
	if (unlikely(send->length > most && !eth_type_vlan(skb->protocol))) {
		kfree_skb(skb);
		return peal_failed(IB_WC_LOC_LEN_ERR, PEAL_REASON_FRAME_LENGTH);
	}
	if (send->flags & PEAL_WQE_IP_CSUM)
		peal_frame_add_checksums(&frame);
	if (!peal_raw_loop(flows, &frame))
		peal_frame_send(skb, flows->port, sender->tx_quota);
carried:
	peal_count(qp, wire_messages);
	return outcome;
}

static bool peal_raw_run(struct peal_transport *transport, struct peal_notify *notify,
			 struct peal_budget *budget)
{
	peal_epoch_assert_held();
	lockdep_assert_held(&transport->qp->sq.lock);
	return peal_packet_sender_run(transport, notify, budget, NULL, peal_raw_carry);
}

static void peal_raw_free(struct peal_transport *transport)
{
	kfree(container_of(transport, struct peal_raw, sender.base));
}

static const struct peal_transport_ops peal_raw_ops = {
	.packets = true,
	.reset = peal_packet_sender_reset,
	.free = peal_raw_free,
	.run = peal_raw_run,
};

int peal_raw_attach(struct peal_qp *qp, struct peal_flows *flows, struct peal_tx_quota *tx_quota)
{
	int ret = peal_raw_permit(flows->port);
	struct peal_raw *raw;

	if (ret)
		return ret;
	raw = kzalloc(sizeof(*raw), GFP_KERNEL_ACCOUNT);
	if (!raw)
		return -ENOMEM;
	peal_packet_sender_init(&raw->sender, qp, &peal_raw_ops, tx_quota);
	raw->flows = flows;
	peal_qp_set_wire(qp, &raw->sender.base);
	return 0;
}
