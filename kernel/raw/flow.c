// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See flow.h.
 */
#include <linux/etherdevice.h>
#include <linux/rculist.h>

#include "base/epoch.h"
#include "base/quota.h"
#include "net/port.h"
#include "proto/packet.h"
#include "object/qp.h"
#include "raw/flow.h"
#include "raw/raw.h"

static struct peal_flows *peal_flows(struct peal_ingress *ingress)
{
	return container_of(ingress, struct peal_flows, ingress);
}

/* Rules of a lower rank are compared first. */
static u32 peal_flow_rank(const struct peal_flow_rule *rule)
{
	return rule->kind << 16 | rule->priority;
}

static bool peal_flow_is_equal(const struct peal_flow_rule *a, const struct peal_flow_rule *b)
{
	return peal_flow_rank(a) == peal_flow_rank(b) &&
	       !memcmp(&a->value, &b->value, sizeof(a->value)) &&
	       !memcmp(&a->mask, &b->mask, sizeof(a->mask));
}

static bool peal_flow_matches(const struct peal_flow_rule *rule, const struct peal_frame *frame)
{
	switch (rule->kind) {
	case PEAL_FLOW_NORMAL:
		return peal_frame_matches(&frame->fields, &rule->value, &rule->mask);
	case PEAL_FLOW_MULTICAST:
		return peal_frame_is_multicast(frame);
	default:
		return peal_frame_is_multicast(frame) || peal_frame_is_foreign(frame);
	}
}

static enum peal_taking peal_flow_verdict(const struct peal_flow_rule *rule,
					  const struct peal_frame *frame)
{
	if (rule->passes || (rule->kind != PEAL_FLOW_NORMAL && peal_frame_is_multicast(frame)))
		return PEAL_FRAME_COPY;
	return PEAL_FRAME_TAKE;
}

static bool peal_flow_is_roce(const struct peal_frame *frame)
{
	return frame->fields.kinds & PEAL_FRAME_UDP &&
	       frame->fields.dst_port == htons(PEAL_ROCE_PORT);
}

/* Inside the epoch. Return: what happens to the frame. @deliver: give it to its queue pairs. */
static enum peal_taking peal_flow_walk(struct peal_flows *flows,
				       const struct peal_frame *frame, bool deliver)
{
	enum peal_taking verdict = PEAL_FRAME_PASS;
	const struct peal_flow *flow, *first = NULL;

	peal_epoch_assert_held();
	if (peal_flow_is_roce(frame))
		return PEAL_FRAME_PASS;
	list_for_each_entry_rcu(flow, &flows->rules, node, peal_epoch_held()) {
		if (first && peal_flow_rank(&flow->rule) > peal_flow_rank(&first->rule))
			break;
		if (first ? !peal_flow_is_equal(&first->rule, &flow->rule) :
			    !peal_flow_matches(&flow->rule, frame))
			continue;
		if (deliver)
			peal_raw_deliver(flow->qp, frame);
		verdict = max(verdict, peal_flow_verdict(&flow->rule, frame));
		if (!flow->rule.passes && !first)
			first = flow;
	}
	return verdict;
}

static enum peal_taking peal_flow_decide(struct peal_ingress *ingress,
					 const struct peal_frame *frame)
{
	peal_epoch_assert_held();
	return peal_flow_walk(peal_flows(ingress), frame, false);
}

static void peal_flow_deliver(struct peal_ingress *ingress, const struct peal_frame *frame,
			      bool tapped)
{
	struct peal_flows *flows = peal_flows(ingress);
	const struct peal_flow *flow;

	peal_epoch_assert_held();
	if (!tapped) {
		peal_flow_walk(flows, frame, true);
		return;
	}
	list_for_each_entry_rcu(flow, &flows->sniffers, node, peal_epoch_held())
		peal_raw_deliver(flow->qp, frame);
}

static const struct peal_ingress_ops peal_flow_ingress_ops = {
	.decide = peal_flow_decide,
	.deliver = peal_flow_deliver,
};

void peal_flows_init(struct peal_flows *flows, struct peal_port *port)
{
	peal_ingress_init(&flows->ingress, &peal_flow_ingress_ops, port);
	mutex_init(&flows->lock);
	INIT_LIST_HEAD(&flows->rules);
	INIT_LIST_HEAD(&flows->sniffers);
}

void peal_flows_destroy(struct peal_flows *flows)
{
	WARN_ON(!list_empty(&flows->rules) || !list_empty(&flows->sniffers));
	peal_ingress_end(&flows->ingress);
	mutex_destroy(&flows->lock);
}

/* What the netdev must receive, so that the frames of @rule come in at all. */
static void peal_flow_describe_use(const struct peal_flows *flows,
				   const struct peal_flow_rule *rule,
				   struct peal_ingress_use *use)
{
	const struct net_device *ndev = flows->ingress.port->ndev;

	*use = (struct peal_ingress_use){ .tap = rule->kind == PEAL_FLOW_SNIFFER };
	if (rule->kind == PEAL_FLOW_MULTICAST)
		use->filter = PEAL_FILTER_GROUPS;
	if (rule->kind == PEAL_FLOW_ALL || rule->kind == PEAL_FLOW_SNIFFER)
		use->filter = PEAL_FILTER_ALL;
	if (rule->kind != PEAL_FLOW_NORMAL || !is_broadcast_ether_addr(rule->mask.dst_mac) ||
	    ether_addr_equal(rule->value.dst_mac, ndev->dev_addr))
		return;
	ether_addr_copy(use->mac, rule->value.dst_mac);
	use->filter = is_multicast_ether_addr(use->mac) ? PEAL_FILTER_MULTICAST :
							  PEAL_FILTER_UNICAST;
}

static void peal_flow_insert(struct peal_flows *flows, struct peal_flow *flow)
{
	struct peal_flow *other;

	lockdep_assert_held(&flows->lock);
	if (flow->rule.kind == PEAL_FLOW_SNIFFER) {
		list_add_tail_rcu(&flow->node, &flows->sniffers);
		return;
	}
	list_for_each_entry(other, &flows->rules, node)
		if (peal_flow_rank(&other->rule) > peal_flow_rank(&flow->rule))
			break;
	/*
	 * If no rule has a higher rank, `other` is the head of the list, so the rule goes to the
	 * end.
	 */
	list_add_tail_rcu(&flow->node, &other->node);
}

int peal_flow_add(struct peal_flows *flows, struct peal_flow *flow, struct peal_qp *qp,
		  const struct peal_flow_rule *rule)
{
	int ret = peal_quota_take(qp->account, PEAL_QUOTA_FLOW);

	if (ret)
		return ret;
	flow->qp = qp;
	flow->rule = *rule;
	peal_flow_describe_use(flows, rule, &flow->use);
	ret = peal_ingress_begin_use(&flows->ingress, &flow->use);
	if (ret) {
		peal_quota_give(qp->account, PEAL_QUOTA_FLOW);
		return ret;
	}
	mutex_lock(&flows->lock);
	peal_flow_insert(flows, flow);
	mutex_unlock(&flows->lock);
	return 0;
}

void peal_flow_remove(struct peal_flows *flows, struct peal_flow *flow)
{
	mutex_lock(&flows->lock);
	list_del_rcu(&flow->node);
	mutex_unlock(&flows->lock);
	peal_ingress_end_use(&flows->ingress, &flow->use);
	peal_epoch_wait();	/* until the data path does not use it */
	peal_quota_give(flow->qp->account, PEAL_QUOTA_FLOW);
}
