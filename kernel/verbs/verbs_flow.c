// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The verbs of flow rules, for raw packet queue pairs. See verbs.h.
 *
 * The core has checked the sizes of a program's specifications. They are checked again here,
 * because the core passes on types that peal does not have.
 */
#include <linux/capability.h>
#include <linux/slab.h>
#include <net/net_namespace.h>
#include <rdma/ib_verbs.h>

#include "transport/flow.h"
#include "verbs/dev.h"
#include "verbs/verbs.h"

struct peal_verbs_flow {
	struct ib_flow ib;
	struct peal_flow flow;
};

static void peal_verbs_eth_fields(struct peal_frame_fields *to,
				  const struct ib_flow_eth_filter *from)
{
	memcpy(to->dst_mac, from->dst_mac, sizeof(to->dst_mac));
	memcpy(to->src_mac, from->src_mac, sizeof(to->src_mac));
	to->ether_type = from->ether_type;
	to->vlan_tag = from->vlan_tag;
}

static void peal_verbs_ipv4_fields(struct peal_frame_fields *to,
				   const struct ib_flow_ipv4_filter *from)
{
	memcpy(to->src_ip, &from->src_ip, sizeof(from->src_ip));
	memcpy(to->dst_ip, &from->dst_ip, sizeof(from->dst_ip));
	to->protocol = from->proto;
	to->traffic_class = from->tos;
	to->hop_limit = from->ttl;
	to->ip_flags = from->flags;
}

static void peal_verbs_ipv6_fields(struct peal_frame_fields *to,
				   const struct ib_flow_ipv6_filter *from)
{
	memcpy(to->src_ip, from->src_ip, sizeof(to->src_ip));
	memcpy(to->dst_ip, from->dst_ip, sizeof(to->dst_ip));
	to->flow_label = from->flow_label;
	to->protocol = from->next_hdr;
	to->traffic_class = from->traffic_class;
	to->hop_limit = from->hop_limit;
}

static void peal_verbs_port_fields(struct peal_frame_fields *to,
				   const struct ib_flow_tcp_udp_filter *from)
{
	to->src_port = from->src_port;
	to->dst_port = from->dst_port;
}

/* The frame must have this header. A rule that asks for two of one layer matches nothing. */
static int peal_verbs_want_kind(struct peal_flow_rule *rule, u8 kind, u8 layer)
{
	if (rule->value.kinds & layer)
		return -EINVAL;
	rule->value.kinds |= kind;
	rule->mask.kinds |= kind;
	return 0;
}

static int peal_verbs_add_eth(struct peal_flow_rule *rule, const struct ib_flow_spec_eth *spec)
{
	peal_verbs_eth_fields(&rule->value, &spec->val);
	peal_verbs_eth_fields(&rule->mask, &spec->mask);
	return spec->mask.vlan_tag ?
	       peal_verbs_want_kind(rule, PEAL_FRAME_VLAN, PEAL_FRAME_VLAN) : 0;
}

static int peal_verbs_add_ipv4(struct peal_flow_rule *rule, const struct ib_flow_spec_ipv4 *spec)
{
	peal_verbs_ipv4_fields(&rule->value, &spec->val);
	peal_verbs_ipv4_fields(&rule->mask, &spec->mask);
	return peal_verbs_want_kind(rule, PEAL_FRAME_IPV4, PEAL_FRAME_IPV4 | PEAL_FRAME_IPV6);
}

static int peal_verbs_add_ipv6(struct peal_flow_rule *rule, const struct ib_flow_spec_ipv6 *spec)
{
	peal_verbs_ipv6_fields(&rule->value, &spec->val);
	peal_verbs_ipv6_fields(&rule->mask, &spec->mask);
	return peal_verbs_want_kind(rule, PEAL_FRAME_IPV6, PEAL_FRAME_IPV4 | PEAL_FRAME_IPV6);
}

static int peal_verbs_add_ports(struct peal_flow_rule *rule,
				const struct ib_flow_spec_tcp_udp *spec, u8 kind)
{
	peal_verbs_port_fields(&rule->value, &spec->val);
	peal_verbs_port_fields(&rule->mask, &spec->mask);
	return peal_verbs_want_kind(rule, kind, PEAL_FRAME_TCP | PEAL_FRAME_UDP);
}

static u32 peal_verbs_spec_bytes(u32 type)
{
	switch (type) {
	case IB_FLOW_SPEC_ETH:
		return sizeof(struct ib_flow_spec_eth);
	case IB_FLOW_SPEC_IPV4:
		return sizeof(struct ib_flow_spec_ipv4);
	case IB_FLOW_SPEC_IPV6:
		return sizeof(struct ib_flow_spec_ipv6);
	case IB_FLOW_SPEC_TCP:
	case IB_FLOW_SPEC_UDP:
		return sizeof(struct ib_flow_spec_tcp_udp);
	default:
		return 0;
	}
}

static int peal_verbs_add_spec(struct peal_flow_rule *rule, const union ib_flow_spec *spec)
{
	u32 bytes = peal_verbs_spec_bytes(spec->type);

	if (!bytes)
		return -EOPNOTSUPP;
	if (spec->size < bytes)
		return -EINVAL;
	switch (spec->type) {
	case IB_FLOW_SPEC_ETH:
		return peal_verbs_add_eth(rule, &spec->eth);
	case IB_FLOW_SPEC_IPV4:
		return peal_verbs_add_ipv4(rule, &spec->ipv4);
	case IB_FLOW_SPEC_IPV6:
		return peal_verbs_add_ipv6(rule, &spec->ipv6);
	default:
		return peal_verbs_add_ports(rule, &spec->tcp_udp, spec->type == IB_FLOW_SPEC_TCP ?
					    PEAL_FRAME_TCP : PEAL_FRAME_UDP);
	}
}

/* Bits of the value that the mask lacks do not count, and equal rules must look equal. */
static void peal_verbs_mask_value(struct peal_flow_rule *rule)
{
	const u8 *mask = (const u8 *)&rule->mask;
	u8 *value = (u8 *)&rule->value;
	u32 i;

	for (i = 0; i < sizeof(rule->value); i++)
		value[i] &= mask[i];
}

static int peal_verbs_add_specs(struct peal_flow_rule *rule, const struct ib_flow_attr *attr)
{
	const union ib_flow_spec *spec = (const void *)attr->flows;
	bool has_eth = false;
	u32 i;
	int ret;

	/* A default rule and a sniffer match by their kind alone. */
	if (attr->num_of_specs && rule->kind != PEAL_FLOW_NORMAL)
		return -EINVAL;
	for (i = 0; i < attr->num_of_specs; i++) {
		/* Other layers have a bit in `kinds`; see peal_verbs_want_kind(). */
		if (spec->type == IB_FLOW_SPEC_ETH && has_eth)
			return -EINVAL;
		has_eth |= spec->type == IB_FLOW_SPEC_ETH;
		ret = peal_verbs_add_spec(rule, spec);
		if (ret)
			return ret;
		spec = (const void *)spec + spec->size;
	}
	peal_verbs_mask_value(rule);
	return 0;
}

static int peal_verbs_flow_kind(enum ib_flow_attr_type type, enum peal_flow_kind *kind)
{
	switch (type) {
	case IB_FLOW_ATTR_NORMAL:
		*kind = PEAL_FLOW_NORMAL;
		return 0;
	case IB_FLOW_ATTR_ALL_DEFAULT:
		*kind = PEAL_FLOW_ALL;
		return 0;
	case IB_FLOW_ATTR_MC_DEFAULT:
		*kind = PEAL_FLOW_MULTICAST;
		return 0;
	case IB_FLOW_ATTR_SNIFFER:
		*kind = PEAL_FLOW_SNIFFER;
		return 0;
	default:
		return -EOPNOTSUPP;
	}
}

static int peal_verbs_read_rule(struct peal_flow_rule *rule, const struct ib_flow_attr *attr)
{
	int ret;

	memset(rule, 0, sizeof(*rule));
	ret = peal_verbs_flow_kind(attr->type, &rule->kind);
	if (ret)
		return ret;
	if (attr->flags & ~IB_FLOW_ATTR_FLAGS_DONT_TRAP)
		return -EOPNOTSUPP;
	if (attr->port != 1)
		return -EINVAL;
	rule->passes = attr->flags & IB_FLOW_ATTR_FLAGS_DONT_TRAP;
	rule->priority = attr->priority;
	return peal_verbs_add_specs(rule, attr);
}

/*
 * The core asks for CAP_NET_RAW, in newer kernels in the namespace of the RDMA device. peal checks
 * the namespace of the netdev, because its frames are sent and taken.
 */
int peal_verbs_permit_raw(const struct peal_dev *dev)
{
	return ns_capable(dev->nic.port.net->user_ns, CAP_NET_RAW) ? 0 : -EPERM;
}

struct ib_flow *peal_verbs_create_flow(struct ib_qp *qp, struct ib_flow_attr *attr,
				       struct ib_udata *udata)
{
	struct peal_dev *dev = peal_dev(qp->device);
	struct peal_verbs_flow *flow;
	struct peal_flow_rule rule;
	int ret = peal_verbs_permit_raw(dev);

	if (!ret && qp->qp_type != IB_QPT_RAW_PACKET)
		ret = -EOPNOTSUPP;
	if (!ret && udata)
		ret = peal_verbs_check_request(udata);
	if (!ret)
		ret = peal_verbs_read_rule(&rule, attr);
	if (ret)
		return ERR_PTR(ret);
	flow = kzalloc(sizeof(*flow), GFP_KERNEL_ACCOUNT);
	if (!flow)
		return ERR_PTR(-ENOMEM);
	ret = peal_flow_add(&dev->nic.flows, &flow->flow, peal_qp(qp), &rule);
	if (!ret)
		return &flow->ib;
	kfree(flow);
	return ERR_PTR(ret);
}

int peal_verbs_destroy_flow(struct ib_flow *ib)
{
	struct peal_verbs_flow *flow = container_of(ib, struct peal_verbs_flow, ib);

	peal_flow_remove(&peal_dev(ib->device)->nic.flows, &flow->flow);
	kfree(flow);
	return 0;
}
