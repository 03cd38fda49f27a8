// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include <linux/mutex.h>
#include <net/genetlink.h>
#include <rdma/peal-abi.h>
#include <rdma/ib_cache.h>
#include <rdma/peal-netlink.h>

#include "base/epoch.h"
#include "base/fault.h"
#include "base/options.h"
#include "proto/packet.h"
#include "object/cq.h"
#include "object/errors.h"
#include "object/qp.h"
#include "engine/engine.h"
#include "device/dev.h"

/*
 * Guards the device list, the options of the devices on it, and the host's options. Holders may
 * sleep. Of peal's other locks only errors.lock, faults.lock and quota.lock are taken inside.
 */
static DEFINE_MUTEX(peal_netlink_lock);
static LIST_HEAD(peal_netlink_devices);

/*
 * Two namespaces may belong to two owners, and each owner can build a path to the other. So
 * a path between them is no permission. The default therefore ends at the namespace, and an
 * administrator has to extend it.
 */
enum peal_nl_scope peal_options_host_scope = PEAL_NL_SCOPE_NETNS;

const struct peal_limits peal_limits_top = { .most = {
	[PEAL_LIMIT_NONE] = U32_MAX,
	[PEAL_LIMIT_RD_ATOMIC] = PEAL_MAX_RD_ATOMIC,
	/* Lower limits of a user and of a context hold, too (base/quota.h). */
	[PEAL_LIMIT_QP] = U32_MAX,
	[PEAL_LIMIT_CQ] = U32_MAX,
	[PEAL_LIMIT_MR] = U32_MAX,
	[PEAL_LIMIT_WR] = PEAL_MAX_QP_WR,
	[PEAL_LIMIT_CQE] = PEAL_MAX_CQE,
	[PEAL_LIMIT_SGE] = PEAL_MAX_SGE,
	[PEAL_LIMIT_INLINE] = PEAL_MAX_INLINE,
} };

static const struct {
	enum peal_nl_dev_attr attr;
	bool is_power_of_two;
} peal_netlink_limits[PEAL_LIMIT_COUNT] = {
	[PEAL_LIMIT_RD_ATOMIC] = { PEAL_NL_DEV_MAX_RD_ATOMIC },
	[PEAL_LIMIT_QP] = { PEAL_NL_DEV_MAX_QP },
	[PEAL_LIMIT_CQ] = { PEAL_NL_DEV_MAX_CQ },
	[PEAL_LIMIT_MR] = { PEAL_NL_DEV_MAX_MR },
	/* A ring has 2^n entries, and a program may use all that it is granted. */
	[PEAL_LIMIT_WR] = { PEAL_NL_DEV_MAX_WR, true },
	[PEAL_LIMIT_CQE] = { PEAL_NL_DEV_MAX_CQE, true },
	[PEAL_LIMIT_SGE] = { PEAL_NL_DEV_MAX_SGE },
	[PEAL_LIMIT_INLINE] = { PEAL_NL_DEV_MAX_INLINE },
};

static struct genl_family peal_netlink_family;

static const struct nla_policy peal_netlink_policy[] = {
	[PEAL_NL_DEV_INDEX] = { .type = NLA_U32 },
	[PEAL_NL_DEV_NAME] = { .type = NLA_NUL_STRING, .len = IB_DEVICE_NAME_MAX - 1 },
	[PEAL_NL_DEV_DIRECT] = NLA_POLICY_MAX(NLA_U8, 1),
	[PEAL_NL_DEV_MAX_RD_ATOMIC] = NLA_POLICY_RANGE(NLA_U32, 1, PEAL_MAX_RD_ATOMIC),
	[PEAL_NL_DEV_RATE] = { .type = NLA_U32 },
	[PEAL_NL_DEV_ECN] = NLA_POLICY_MAX(NLA_U32, PEAL_NL_ECN_COUNT_ - 1),
	[PEAL_NL_DEV_MAX_QP] = NLA_POLICY_MIN(NLA_U32, 1),
	[PEAL_NL_DEV_MAX_CQ] = NLA_POLICY_MIN(NLA_U32, 1),
	[PEAL_NL_DEV_MAX_MR] = NLA_POLICY_MIN(NLA_U32, 1),
	[PEAL_NL_DEV_MAX_WR] = NLA_POLICY_MIN(NLA_U32, 1),
	[PEAL_NL_DEV_MAX_CQE] = NLA_POLICY_MIN(NLA_U32, 1),
	[PEAL_NL_DEV_MAX_SGE] = NLA_POLICY_MIN(NLA_U32, 1),
	[PEAL_NL_DEV_MAX_INLINE] = { .type = NLA_U32 },
	[PEAL_NL_DEV_WITHOUT] = NLA_POLICY_MAX(NLA_U32, (1U << PEAL_NL_FEATURE_COUNT_) - 1),
	[PEAL_NL_DEV_FAULTS] = NLA_POLICY_MAX(NLA_U8, 1),
};

static const struct nla_policy peal_netlink_host_policy[] = {
	[PEAL_NL_HOST_DIRECT] = NLA_POLICY_MAX(NLA_U32, PEAL_NL_SCOPE_COUNT_ - 1),
};

static const struct nla_policy peal_netlink_fault_policy[PEAL_NL_FAULT_COUNT_] = {
	[PEAL_NL_FAULT_DEV_INDEX] = { .type = NLA_U32 },
	[PEAL_NL_FAULT_DEV_NAME] = { .type = NLA_NUL_STRING, .len = IB_DEVICE_NAME_MAX - 1 },
	[PEAL_NL_FAULT_ID] = NLA_POLICY_MIN(NLA_U32, 1),
	[PEAL_NL_FAULT_KIND] = NLA_POLICY_MAX(NLA_U32, PEAL_NL_FAULT_KIND_COUNT_ - 1),
	[PEAL_NL_FAULT_STATUS] = NLA_POLICY_RANGE(NLA_U8, IB_WC_LOC_LEN_ERR, IB_WC_GENERAL_ERR),
	[PEAL_NL_FAULT_QPN] = NLA_POLICY_MIN(NLA_U32, 1),
	[PEAL_NL_FAULT_PEER_GID] = NLA_POLICY_EXACT_LEN(sizeof(union ib_gid)),
	[PEAL_NL_FAULT_OPCODES] = NLA_POLICY_MIN(NLA_U32, 1),
	[PEAL_NL_FAULT_COUNT] = NLA_POLICY_MIN(NLA_U64, 1),
	[PEAL_NL_FAULT_EVERY] = NLA_POLICY_MIN(NLA_U32, 1),
	[PEAL_NL_FAULT_CHANCE] = NLA_POLICY_MIN(NLA_U32, 1),
	[PEAL_NL_FAULT_SEED] = { .type = NLA_U64 },
	[PEAL_NL_FAULT_DELAY] = NLA_POLICY_MIN(NLA_U32, 1),
	[PEAL_NL_FAULT_EVENT] = NLA_POLICY_MAX(NLA_U32, PEAL_NL_FAULT_EVENT_COUNT_ - 1),
};

void peal_netlink_add(struct peal_dev *dev)
{
	mutex_lock(&peal_netlink_lock);
	list_add_tail(&dev->node, &peal_netlink_devices);
	mutex_unlock(&peal_netlink_lock);
}

void peal_netlink_remove(struct peal_dev *dev)
{
	mutex_lock(&peal_netlink_lock);
	list_del(&dev->node);
	mutex_unlock(&peal_netlink_lock);
}

/*
 * Find the device that @index or @name names. Either may be NULL. The caller holds
 * peal_netlink_lock.
 *
 * Return: the device, or an ERR_PTR (-EINVAL, -ENODEV) with an extack message.
 */
static struct peal_dev *peal_netlink_find(struct genl_info *info, const struct nlattr *index,
					  const struct nlattr *name)
{
	struct peal_dev *dev;

	lockdep_assert_held(&peal_netlink_lock);
	if (!index && !name) {
		NL_SET_ERR_MSG(info->extack, "name the device by index or name");
		return ERR_PTR(-EINVAL);
	}
	list_for_each_entry(dev, &peal_netlink_devices, node)
		if ((!index || nla_get_u32(index) == dev->ib.index) &&
		    (!name || !nla_strcmp(name, dev->ib.name)) &&
		    rdma_dev_access_netns(&dev->ib, genl_info_net(info)))
			return dev;
	NL_SET_ERR_MSG(info->extack, "no such peal device");
	return ERR_PTR(-ENODEV);
}

static int peal_netlink_put_limits(struct sk_buff *msg, const struct peal_limits *limits)
{
	enum peal_limit limit;

	for (limit = PEAL_LIMIT_NONE + 1; limit < PEAL_LIMIT_COUNT; limit++)
		if (nla_put_u32(msg, peal_netlink_limits[limit].attr,
				peal_limits_most(limits, limit)))
			return -EMSGSIZE;
	return nla_put_u32(msg, PEAL_NL_DEV_WITHOUT, limits->without);
}

static int peal_netlink_fill(struct sk_buff *msg, u32 portid, u32 seq, int flags,
			     const struct peal_dev *dev)
{
	const struct peal_options *options = &dev->nic.options;
	void *head = genlmsg_put(msg, portid, seq, &peal_netlink_family, flags,
				 PEAL_NL_CMD_DEV_GET);

	if (!head)
		return -EMSGSIZE;
	if (nla_put_u32(msg, PEAL_NL_DEV_INDEX, dev->ib.index) ||
	    nla_put_string(msg, PEAL_NL_DEV_NAME, dev->ib.name) ||
	    nla_put_u8(msg, PEAL_NL_DEV_DIRECT, peal_options_direct(options)) ||
	    peal_netlink_put_limits(msg, &options->limits) ||
	    nla_put_u32(msg, PEAL_NL_DEV_RATE, peal_options_rate(options)) ||
	    nla_put_u32(msg, PEAL_NL_DEV_ECN, peal_options_ecn(options)) ||
	    nla_put_u8(msg, PEAL_NL_DEV_FAULTS, dev->nic.table.faults.on)) {
		genlmsg_cancel(msg, head);
		return -EMSGSIZE;
	}
	genlmsg_end(msg, head);
	return 0;
}

static int peal_netlink_get(struct sk_buff *skb, struct genl_info *info)
{
	struct sk_buff *msg = nlmsg_new(NLMSG_GOODSIZE, GFP_KERNEL);
	struct peal_dev *dev;
	int ret;

	if (!msg)
		return -ENOMEM;
	mutex_lock(&peal_netlink_lock);
	dev = peal_netlink_find(info, info->attrs[PEAL_NL_DEV_INDEX],
				info->attrs[PEAL_NL_DEV_NAME]);
	ret = PTR_ERR_OR_ZERO(dev);
	if (!ret)
		ret = peal_netlink_fill(msg, info->snd_portid, info->snd_seq, 0, dev);
	mutex_unlock(&peal_netlink_lock);
	if (!ret)
		return genlmsg_reply(msg, info);
	nlmsg_free(msg);
	return ret;
}

/* cb->args[0] is the position in the list where the next message of the dump continues. */
static int peal_netlink_dump(struct sk_buff *msg, struct netlink_callback *cb)
{
	struct peal_dev *dev;
	long next = cb->args[0];
	long at = 0;

	mutex_lock(&peal_netlink_lock);
	list_for_each_entry(dev, &peal_netlink_devices, node) {
		if (at++ < next || !rdma_dev_access_netns(&dev->ib, sock_net(cb->skb->sk)))
			continue;
		if (peal_netlink_fill(msg, NETLINK_CB(cb->skb).portid, cb->nlh->nlmsg_seq,
				      NLM_F_MULTI, dev)) {
			at--;
			break;
		}
	}
	mutex_unlock(&peal_netlink_lock);
	cb->args[0] = at;
	return msg->len;
}

static void peal_netlink_set_limits(struct peal_limits *limits, struct nlattr **attrs)
{
	enum peal_limit limit;

	lockdep_assert_held(&peal_netlink_lock);
	for (limit = PEAL_LIMIT_NONE + 1; limit < PEAL_LIMIT_COUNT; limit++) {
		const struct nlattr *attr = attrs[peal_netlink_limits[limit].attr];
		u32 most;

		if (!attr)
			continue;
		most = min(nla_get_u32(attr), peal_limits_top.most[limit]);
		if (peal_netlink_limits[limit].is_power_of_two)
			most = rounddown_pow_of_two(most);
		WRITE_ONCE(limits->most[limit], most);
	}
	if (attrs[PEAL_NL_DEV_WITHOUT])
		WRITE_ONCE(limits->without, nla_get_u32(attrs[PEAL_NL_DEV_WITHOUT]));
}

/*
 * Allow or forbid rules for faults. This fails while programs have queue pairs, because their users
 * have not chosen a device that makes errors. The caller holds peal_netlink_lock.
 */
static int peal_netlink_switch_faults(struct peal_dev *dev, bool on, struct genl_info *info)
{
	struct peal_faults *faults = &dev->nic.table.faults;

	lockdep_assert_held(&peal_netlink_lock);
	if (faults->on == on)
		return 0;
	if (peal_quota_programs(&dev->nic.quota, PEAL_QUOTA_QP)) {
		NL_SET_ERR_MSG(info->extack, "programs have queue pairs on the device");
		return -EBUSY;
	}
	peal_faults_switch(faults, on);
	return 0;
}

static int peal_netlink_set(struct sk_buff *skb, struct genl_info *info)
{
	const struct nlattr *faults = info->attrs[PEAL_NL_DEV_FAULTS];
	const struct nlattr *direct = info->attrs[PEAL_NL_DEV_DIRECT];
	const struct nlattr *rate = info->attrs[PEAL_NL_DEV_RATE];
	const struct nlattr *ecn = info->attrs[PEAL_NL_DEV_ECN];
	struct peal_options *options;
	struct peal_dev *dev;
	int ret;

	if (rate && nla_get_u32(rate) && !peal_query_has_rate(nla_get_u32(rate))) {
		NL_SET_ERR_MSG(info->extack, "a port cannot show this rate");
		return -EINVAL;
	}
	mutex_lock(&peal_netlink_lock);
	dev = peal_netlink_find(info, info->attrs[PEAL_NL_DEV_INDEX],
				info->attrs[PEAL_NL_DEV_NAME]);
	ret = PTR_ERR_OR_ZERO(dev);
	if (!ret && faults)
		ret = peal_netlink_switch_faults(dev, nla_get_u8(faults), info);
	if (!ret) {
		options = &dev->nic.options;
		if (direct)
			WRITE_ONCE(options->direct, nla_get_u8(direct));
		peal_netlink_set_limits(&options->limits, info->attrs);
		peal_query_tell_core(dev);
		if (rate)
			WRITE_ONCE(options->rate, nla_get_u32(rate));
		if (ecn)
			WRITE_ONCE(options->ecn, nla_get_u32(ecn));
	}
	mutex_unlock(&peal_netlink_lock);
	return ret;
}

static int peal_netlink_get_host(struct sk_buff *skb, struct genl_info *info)
{
	struct sk_buff *msg = nlmsg_new(NLMSG_GOODSIZE, GFP_KERNEL);
	void *head;

	if (!msg)
		return -ENOMEM;
	head = genlmsg_put_reply(msg, info, &peal_netlink_family, 0, PEAL_NL_CMD_HOST_GET);
	if (!head || nla_put_u32(msg, PEAL_NL_HOST_DIRECT, peal_options_scope())) {
		nlmsg_free(msg);
		return -EMSGSIZE;
	}
	genlmsg_end(msg, head);
	return genlmsg_reply(msg, info);
}

/* For both sets of attributes that have numbers of 64 bits. */
static int peal_netlink_put_u64(struct sk_buff *msg, int attribute, u64 value)
{
	BUILD_BUG_ON((int)PEAL_NL_ERROR_PAD != (int)PEAL_NL_FAULT_PAD);
	return nla_put_u64_64bit(msg, attribute, value, PEAL_NL_ERROR_PAD);
}

static int peal_netlink_put_error(struct sk_buff *msg, const struct peal_error *error)
{
	return nla_put_u32(msg, PEAL_NL_ERROR_QPN, error->qpn) ||
	       nla_put_u8(msg, PEAL_NL_ERROR_QP_TYPE, error->qp_type) ||
	       (error->peer_qpn && nla_put_u32(msg, PEAL_NL_ERROR_PEER_QPN, error->peer_qpn)) ||
	       (uid_valid(error->uid) &&
		nla_put_u32(msg, PEAL_NL_ERROR_UID,
			    from_kuid_munged(current_user_ns(), error->uid))) ||
	       peal_netlink_put_u64(msg, PEAL_NL_ERROR_AGE, ktime_get_ns() - error->at) ||
	       peal_netlink_put_u64(msg, PEAL_NL_ERROR_COUNT, error->count) ||
	       nla_put_u8(msg, PEAL_NL_ERROR_OPCODE, error->opcode) ||
	       nla_put_u8(msg, PEAL_NL_ERROR_STATUS, error->status) ||
	       nla_put_u32(msg, PEAL_NL_ERROR_REASON, error->reason) ||
	       (error->has_key &&
		(nla_put_u32(msg, PEAL_NL_ERROR_KEY, error->key) ||
		 peal_netlink_put_u64(msg, PEAL_NL_ERROR_ADDRESS, error->address))) ||
	       (!rdma_is_zero_gid(&error->peer_gid) &&
		nla_put(msg, PEAL_NL_ERROR_PEER_GID, sizeof(error->peer_gid),
			&error->peer_gid)) ||
	       peal_netlink_put_u64(msg, PEAL_NL_ERROR_LENGTH, error->length) ||
	       nla_put_u32(msg, PEAL_NL_ERROR_PDN, error->pdn) ||
	       nla_put_u32(msg, PEAL_NL_ERROR_WANTED, error->wanted) ||
	       nla_put_u32(msg, PEAL_NL_ERROR_ALLOWED, error->allowed) ||
	       (error->key_found &&
		(nla_put_u32(msg, PEAL_NL_ERROR_KEY_PDN, error->key_pdn) ||
		 nla_put_u32(msg, PEAL_NL_ERROR_KEY_ACCESS, error->key_access) ||
		 peal_netlink_put_u64(msg, PEAL_NL_ERROR_KEY_START, error->key_start) ||
		 peal_netlink_put_u64(msg, PEAL_NL_ERROR_KEY_LENGTH, error->key_length)));
}

/* What only one of the sides has. */
static int peal_netlink_put_side(struct sk_buff *msg, const struct peal_error *error)
{
	if (error->side == PEAL_ERROR_RESPONDER)
		return nla_put_flag(msg, PEAL_NL_ERROR_RESPONDER) ||
		       peal_netlink_put_u64(msg, PEAL_NL_ERROR_ROOM, error->room);
	return nla_put_u8(msg, PEAL_NL_ERROR_RETRIES, error->retries) ||
	       nla_put_u8(msg, PEAL_NL_ERROR_RNR_RETRIES, error->rnr_retries) ||
	       nla_put_u8(msg, PEAL_NL_ERROR_TIMEOUT, error->timeout);
}

/* Return: 0, or -EMSGSIZE if @msg is full. */
static int peal_netlink_fill_error(struct sk_buff *msg, struct netlink_callback *cb,
				   const struct peal_dev *dev, const struct peal_error *error)
{
	void *head = genlmsg_put(msg, NETLINK_CB(cb->skb).portid, cb->nlh->nlmsg_seq,
				 &peal_netlink_family, NLM_F_MULTI, PEAL_NL_CMD_ERROR_GET);

	if (!head)
		return -EMSGSIZE;
	if (nla_put_u32(msg, PEAL_NL_ERROR_DEV_INDEX, dev->ib.index) ||
	    nla_put_string(msg, PEAL_NL_ERROR_DEV_NAME, dev->ib.name) ||
	    peal_netlink_put_error(msg, error) || peal_netlink_put_side(msg, error)) {
		genlmsg_cancel(msg, head);
		return -EMSGSIZE;
	}
	genlmsg_end(msg, head);
	return 0;
}

/*
 * The numbers in an error are addresses and keys of a program, so only its user and the host's
 * administrator see them. cb->args[0] is the position in the list of devices where the next message
 * of the dump continues, and cb->args[1] the number of the error there.
 */
static int peal_netlink_dump_errors(struct sk_buff *msg, struct netlink_callback *cb)
{
	const struct net *net = sock_net(cb->skb->sk);
	const struct peal_error_reader reader = {
		.netns = net->net_cookie, .uid = NETLINK_CB(cb->skb).creds.uid,
		.admin = netlink_capable(cb->skb, CAP_NET_ADMIN),
	};
	struct peal_error error;
	struct peal_dev *dev;
	long at = 0, n = 0;

	mutex_lock(&peal_netlink_lock);
	list_for_each_entry(dev, &peal_netlink_devices, node) {
		if (at++ < cb->args[0] || !rdma_dev_access_netns(&dev->ib, net))
			continue;
		for (n = at - 1 == cb->args[0] ? cb->args[1] : 0; n < PEAL_ERRORS; n++) {
			if (!peal_errors_get(dev->nic.table.errors, n, &reader, &error))
				continue;
			if (peal_netlink_fill_error(msg, cb, dev, &error)) {
				at--;
				goto full;
			}
		}
	}
	n = 0;
full:
	mutex_unlock(&peal_netlink_lock);
	cb->args[0] = at;
	cb->args[1] = n;
	return msg->len;
}

static bool peal_netlink_fault_has_status(enum peal_nl_fault_kind kind)
{
	return kind == PEAL_NL_FAULT_KIND_STATUS || kind == PEAL_NL_FAULT_KIND_NAK ||
	       kind == PEAL_NL_FAULT_KIND_RECEIVE;
}

static bool peal_netlink_fault_has_delay(enum peal_nl_fault_kind kind)
{
	return kind == PEAL_NL_FAULT_KIND_DELAY || kind == PEAL_NL_FAULT_KIND_SLOW;
}

static bool peal_netlink_fault_has_opcodes(enum peal_nl_fault_kind kind)
{
	return kind <= PEAL_NL_FAULT_KIND_RNR || kind == PEAL_NL_FAULT_KIND_RECEIVE;
}

/* Return: the operations that a fault can hit, which are those that travel. A packet has none. */
static u32 peal_netlink_fault_opcodes(enum peal_nl_fault_kind kind)
{
	u32 opcode, opcodes = 0;

	if (!peal_netlink_fault_has_opcodes(kind))
		return U32_MAX;
	for (opcode = PEAL_OP_INVALID + 1; opcode < PEAL_OP_COUNT; opcode++)
		if (peal_op(opcode)->transports && !peal_op(opcode)->local)
			opcodes |= 1U << opcode;
	return opcodes;
}

/* Return: 0, or -EINVAL with an extack message. */
static int peal_netlink_read_fault(struct genl_info *info, struct peal_fault *fault)
{
	struct nlattr **attrs = info->attrs;
	enum peal_nl_fault_kind kind;

	if (!attrs[PEAL_NL_FAULT_KIND]) {
		NL_SET_ERR_MSG(info->extack, "say what happens");
		return -EINVAL;
	}
	kind = nla_get_u32(attrs[PEAL_NL_FAULT_KIND]);
	if (!attrs[PEAL_NL_FAULT_STATUS] == peal_netlink_fault_has_status(kind)) {
		NL_SET_ERR_MSG(info->extack, "give a status if the fault has one, and only then");
		return -EINVAL;
	}
	if (!attrs[PEAL_NL_FAULT_DELAY] == peal_netlink_fault_has_delay(kind)) {
		NL_SET_ERR_MSG(info->extack, "give a time if the fault has one, and only then");
		return -EINVAL;
	}
	if (attrs[PEAL_NL_FAULT_OPCODES] && !peal_netlink_fault_has_opcodes(kind)) {
		NL_SET_ERR_MSG(info->extack, "only messages are chosen by their operations");
		return -EINVAL;
	}
	if (kind == PEAL_NL_FAULT_KIND_NO_MEMORY &&
	    (attrs[PEAL_NL_FAULT_QPN] || attrs[PEAL_NL_FAULT_PEER_GID])) {
		NL_SET_ERR_MSG(info->extack, "the fault is not one of a queue pair");
		return -EINVAL;
	}
	if (kind == PEAL_NL_FAULT_KIND_SLOW && attrs[PEAL_NL_FAULT_PEER_GID]) {
		NL_SET_ERR_MSG(info->extack, "completions are not chosen by the peer");
		return -EINVAL;
	}
	if (attrs[PEAL_NL_FAULT_EVERY] && attrs[PEAL_NL_FAULT_CHANCE]) {
		NL_SET_ERR_MSG(info->extack, "give \"every\" or \"chance\", not both");
		return -EINVAL;
	}
	*fault = (struct peal_fault){
		.kind = kind, .has_peer = attrs[PEAL_NL_FAULT_PEER_GID],
		.opcodes = peal_netlink_fault_opcodes(kind), .count = U64_MAX, .every = 1,
	};
	if (attrs[PEAL_NL_FAULT_STATUS])
		fault->status = nla_get_u8(attrs[PEAL_NL_FAULT_STATUS]);
	if (attrs[PEAL_NL_FAULT_DELAY])
		fault->delay_us = nla_get_u32(attrs[PEAL_NL_FAULT_DELAY]);
	if (fault->delay_us > PEAL_NL_FAULT_DELAY_MAX) {
		NL_SET_ERR_MSG(info->extack, "the longest delay is 10 s");
		return -EINVAL;
	}
	if (kind == PEAL_NL_FAULT_KIND_NAK && fault->status != IB_WC_REM_INV_REQ_ERR &&
	    fault->status != IB_WC_REM_ACCESS_ERR && fault->status != IB_WC_REM_OP_ERR) {
		NL_SET_ERR_MSG(info->extack, "no NAK has this status");
		return -EINVAL;
	}
	if (attrs[PEAL_NL_FAULT_QPN])
		fault->qpn = nla_get_u32(attrs[PEAL_NL_FAULT_QPN]);
	if (fault->has_peer)
		memcpy(fault->peer, nla_data(attrs[PEAL_NL_FAULT_PEER_GID]), sizeof(fault->peer));
	if (attrs[PEAL_NL_FAULT_OPCODES])
		fault->opcodes = nla_get_u32(attrs[PEAL_NL_FAULT_OPCODES]);
	if (attrs[PEAL_NL_FAULT_COUNT])
		fault->count = nla_get_u64(attrs[PEAL_NL_FAULT_COUNT]);
	if (attrs[PEAL_NL_FAULT_EVERY])
		fault->every = nla_get_u32(attrs[PEAL_NL_FAULT_EVERY]);
	if (attrs[PEAL_NL_FAULT_CHANCE])
		fault->chance = nla_get_u32(attrs[PEAL_NL_FAULT_CHANCE]);
	if (attrs[PEAL_NL_FAULT_SEED])
		fault->seed = nla_get_u64(attrs[PEAL_NL_FAULT_SEED]);
	if (fault->opcodes & ~peal_netlink_fault_opcodes(kind)) {
		NL_SET_ERR_MSG(info->extack, "only operations that travel to the peer can fail");
		return -EINVAL;
	}
	return 0;
}

/* The answer is the number of the new rule. */
static int peal_netlink_add_fault(struct sk_buff *skb, struct genl_info *info)
{
	struct peal_fault fault;
	struct sk_buff *msg;
	struct peal_dev *dev;
	void *head;
	u32 id;
	int ret;

	ret = peal_netlink_read_fault(info, &fault);
	if (ret)
		return ret;
	msg = nlmsg_new(NLMSG_DEFAULT_SIZE, GFP_KERNEL);
	if (!msg)
		return -ENOMEM;
	mutex_lock(&peal_netlink_lock);
	dev = peal_netlink_find(info, info->attrs[PEAL_NL_FAULT_DEV_INDEX],
				info->attrs[PEAL_NL_FAULT_DEV_NAME]);
	ret = PTR_ERR_OR_ZERO(dev);
	if (!ret)
		ret = peal_faults_add(&dev->nic.table.faults, &fault, &id);
	mutex_unlock(&peal_netlink_lock);
	if (ret == -EOPNOTSUPP)
		NL_SET_ERR_MSG(info->extack, "the device was added without faults");
	if (ret == -ENOSPC)
		NL_SET_ERR_MSG(info->extack, "the device has 64 rules already");
	if (ret)
		goto free;
	head = genlmsg_put_reply(msg, info, &peal_netlink_family, 0, PEAL_NL_CMD_FAULT_ADD);
	ret = -EMSGSIZE;
	if (!head || nla_put_u32(msg, PEAL_NL_FAULT_ID, id))
		goto free;
	genlmsg_end(msg, head);
	return genlmsg_reply(msg, info);
free:
	nlmsg_free(msg);
	return ret;
}

static int peal_netlink_del_fault(struct sk_buff *skb, struct genl_info *info)
{
	const struct nlattr *id = info->attrs[PEAL_NL_FAULT_ID];
	struct peal_dev *dev;
	int ret;

	mutex_lock(&peal_netlink_lock);
	dev = peal_netlink_find(info, info->attrs[PEAL_NL_FAULT_DEV_INDEX],
				info->attrs[PEAL_NL_FAULT_DEV_NAME]);
	ret = PTR_ERR_OR_ZERO(dev);
	if (!ret)
		ret = peal_faults_remove(&dev->nic.table.faults, id ? nla_get_u32(id) : 0);
	mutex_unlock(&peal_netlink_lock);
	if (ret == -ENOENT)
		NL_SET_ERR_MSG(info->extack, "the device has no such rule");
	return ret;
}

/*
 * Rules spare the connection manager, because no program could connect without it, and so do these
 * events. Return: 0, -ENXIO (the device has no such queue pair) or -EBUSY (it is the connection
 * manager's).
 */
static int peal_netlink_fail_qp(struct peal_dev *dev, u32 qpn, enum peal_nl_fault_event event)
{
	struct peal_notify notify PEAL_UNINITIALIZED;
	struct peal_qp *qp;
	int ret = 0;

	peal_notify_begin(&notify);
	peal_epoch_enter();
	qp = peal_table_qp(&dev->nic.table, qpn);
	if (!qp) {
		ret = -ENXIO;
	} else if (qp->ib.qp_type == IB_QPT_GSI) {
		ret = -EBUSY;
	} else if (event == PEAL_NL_FAULT_EVENT_QP_FATAL) {
		peal_notify_fail(&notify, qp, READ_ONCE(qp->generation));
		peal_notify_event(&notify, &qp->ib, IB_EVENT_QP_FATAL);
	} else {
		struct ib_cq *cqs[] = { qp->ib.send_cq, qp->ib.recv_cq };
		int i;

		for (i = 0; i < ARRAY_SIZE(cqs); i++) {
			if (!cqs[i])
				continue;
			peal_cq_overflow(peal_cq(cqs[i]));
			peal_notify_cq(&notify, peal_cq(cqs[i]));
		}
	}
	peal_turn_end(&notify);
	peal_epoch_exit();
	return ret;
}

static void peal_netlink_raise(struct peal_dev *dev, enum peal_nl_fault_event event)
{
	static const enum ib_event_type types[] = {
		[PEAL_NL_FAULT_EVENT_DEVICE_FATAL] = IB_EVENT_DEVICE_FATAL,
		[PEAL_NL_FAULT_EVENT_PORT_ERR] = IB_EVENT_PORT_ERR,
		[PEAL_NL_FAULT_EVENT_PORT_ACTIVE] = IB_EVENT_PORT_ACTIVE,
	};
	const struct ib_event raised = {
		.device = &dev->ib, .element.port_num = 1, .event = types[event],
	};

	ib_dispatch_event(&raised);
}

static int peal_netlink_fault_now(struct sk_buff *skb, struct genl_info *info)
{
	const struct nlattr *attr = info->attrs[PEAL_NL_FAULT_EVENT];
	const struct nlattr *qpn = info->attrs[PEAL_NL_FAULT_QPN];
	enum peal_nl_fault_event event;
	struct peal_dev *dev;
	bool of_qp;
	int ret;

	if (!attr) {
		NL_SET_ERR_MSG(info->extack, "say what happens");
		return -EINVAL;
	}
	event = nla_get_u32(attr);
	of_qp = event >= PEAL_NL_FAULT_EVENT_QP_FATAL;
	if (of_qp != !!qpn) {
		NL_SET_ERR_MSG(info->extack, "name a queue pair if the event is of one, or not");
		return -EINVAL;
	}
	mutex_lock(&peal_netlink_lock);
	dev = peal_netlink_find(info, info->attrs[PEAL_NL_FAULT_DEV_INDEX],
				info->attrs[PEAL_NL_FAULT_DEV_NAME]);
	ret = PTR_ERR_OR_ZERO(dev);
	if (!ret && !dev->nic.table.faults.on) {
		NL_SET_ERR_MSG(info->extack, "the device was added without faults");
		ret = -EOPNOTSUPP;
	} else if (!ret && !qpn) {
		peal_netlink_raise(dev, event);
	} else if (!ret) {
		ret = peal_netlink_fail_qp(dev, nla_get_u32(qpn), event);
		if (ret == -ENXIO)
			NL_SET_ERR_MSG(info->extack, "the device has no such queue pair");
		else if (ret == -EBUSY)
			NL_SET_ERR_MSG(info->extack,
				       "this queue pair is the connection manager's");
	}
	mutex_unlock(&peal_netlink_lock);
	return ret;
}

static int peal_netlink_fill_fault(struct sk_buff *msg, const struct netlink_callback *cb,
				   const struct peal_dev *dev, const struct peal_fault_rule *rule)
{
	const struct peal_fault *fault = &rule->fault;
	void *head = genlmsg_put(msg, NETLINK_CB(cb->skb).portid, cb->nlh->nlmsg_seq,
				 &peal_netlink_family, NLM_F_MULTI, PEAL_NL_CMD_FAULT_GET);

	if (!head)
		return -EMSGSIZE;
	if (nla_put_u32(msg, PEAL_NL_FAULT_DEV_INDEX, dev->ib.index) ||
	    nla_put_string(msg, PEAL_NL_FAULT_DEV_NAME, dev->ib.name) ||
	    nla_put_u32(msg, PEAL_NL_FAULT_ID, rule->id) ||
	    nla_put_u32(msg, PEAL_NL_FAULT_KIND, fault->kind) ||
	    (peal_netlink_fault_has_status(fault->kind) &&
	     nla_put_u8(msg, PEAL_NL_FAULT_STATUS, fault->status)) ||
	    (peal_netlink_fault_has_delay(fault->kind) &&
	     nla_put_u32(msg, PEAL_NL_FAULT_DELAY, fault->delay_us)) ||
	    (fault->qpn && nla_put_u32(msg, PEAL_NL_FAULT_QPN, fault->qpn)) ||
	    (fault->has_peer && nla_put(msg, PEAL_NL_FAULT_PEER_GID, sizeof(fault->peer),
					fault->peer)) ||
	    (fault->opcodes != peal_netlink_fault_opcodes(fault->kind) &&
	     nla_put_u32(msg, PEAL_NL_FAULT_OPCODES, fault->opcodes)) ||
	    (fault->count != U64_MAX &&
	     peal_netlink_put_u64(msg, PEAL_NL_FAULT_COUNT, fault->count)) ||
	    (fault->chance ?
	     nla_put_u32(msg, PEAL_NL_FAULT_CHANCE, fault->chance) ||
	     peal_netlink_put_u64(msg, PEAL_NL_FAULT_SEED, fault->seed) :
	     nla_put_u32(msg, PEAL_NL_FAULT_EVERY, fault->every)) ||
	    peal_netlink_put_u64(msg, PEAL_NL_FAULT_SEEN, rule->seen) ||
	    peal_netlink_put_u64(msg, PEAL_NL_FAULT_FIRED, rule->fired)) {
		genlmsg_cancel(msg, head);
		return -EMSGSIZE;
	}
	genlmsg_end(msg, head);
	return 0;
}

/* cb->args as in peal_netlink_dump_errors(), but args[1] is the number of the last rule. */
static int peal_netlink_dump_faults(struct sk_buff *msg, struct netlink_callback *cb)
{
	const struct net *net = sock_net(cb->skb->sk);
	struct peal_fault_rule rule;
	struct peal_dev *dev;
	long at = 0;
	u32 id = 0;

	mutex_lock(&peal_netlink_lock);
	list_for_each_entry(dev, &peal_netlink_devices, node) {
		if (at++ < cb->args[0] || !rdma_dev_access_netns(&dev->ib, net))
			continue;
		id = at - 1 == cb->args[0] ? cb->args[1] : 0;
		while (peal_faults_next(&dev->nic.table.faults, id, &rule)) {
			if (peal_netlink_fill_fault(msg, cb, dev, &rule)) {
				at--;
				goto full;
			}
			id = rule.id;
		}
	}
	id = 0;
full:
	mutex_unlock(&peal_netlink_lock);
	cb->args[0] = at;
	cb->args[1] = id;
	return msg->len;
}

/*
 * A container may have CAP_NET_ADMIN in the initial user namespace, but must not change options
 * of other containers. So the caller must also be in the initial network namespace.
 */
static int peal_netlink_set_host(struct sk_buff *skb, struct genl_info *info)
{
	const struct nlattr *direct = info->attrs[PEAL_NL_HOST_DIRECT];

	if (!net_eq(genl_info_net(info), &init_net)) {
		NL_SET_ERR_MSG(info->extack, "only from the initial network namespace");
		return -EPERM;
	}
	mutex_lock(&peal_netlink_lock);
	if (direct)
		WRITE_ONCE(peal_options_host_scope, nla_get_u32(direct));
	mutex_unlock(&peal_netlink_lock);
	return 0;
}

static const struct genl_ops peal_netlink_ops[] = {
	{ .cmd = PEAL_NL_CMD_DEV_GET, .doit = peal_netlink_get, .dumpit = peal_netlink_dump },
	{ .cmd = PEAL_NL_CMD_DEV_SET, .doit = peal_netlink_set, .flags = GENL_ADMIN_PERM },
	{
		.cmd = PEAL_NL_CMD_HOST_GET,
		.doit = peal_netlink_get_host,
		.policy = peal_netlink_host_policy,
		.maxattr = PEAL_NL_HOST_COUNT_ - 1,
	}, {
		.cmd = PEAL_NL_CMD_HOST_SET,
		.doit = peal_netlink_set_host,
		.policy = peal_netlink_host_policy,
		.maxattr = PEAL_NL_HOST_COUNT_ - 1,
		.flags = GENL_ADMIN_PERM,
	},
	{ .cmd = PEAL_NL_CMD_ERROR_GET, .dumpit = peal_netlink_dump_errors },
	{
		.cmd = PEAL_NL_CMD_FAULT_GET,
		.dumpit = peal_netlink_dump_faults,
		.policy = peal_netlink_fault_policy,
		.maxattr = PEAL_NL_FAULT_COUNT_ - 1,
	}, {
		.cmd = PEAL_NL_CMD_FAULT_ADD,
		.doit = peal_netlink_add_fault,
		.policy = peal_netlink_fault_policy,
		.maxattr = PEAL_NL_FAULT_COUNT_ - 1,
		.flags = GENL_ADMIN_PERM,
	}, {
		.cmd = PEAL_NL_CMD_FAULT_DEL,
		.doit = peal_netlink_del_fault,
		.policy = peal_netlink_fault_policy,
		.maxattr = PEAL_NL_FAULT_COUNT_ - 1,
		.flags = GENL_ADMIN_PERM,
	}, {
		.cmd = PEAL_NL_CMD_FAULT_NOW,
		.doit = peal_netlink_fault_now,
		.policy = peal_netlink_fault_policy,
		.maxattr = PEAL_NL_FAULT_COUNT_ - 1,
		.flags = GENL_ADMIN_PERM,
	},
};

static struct genl_family peal_netlink_family __ro_after_init = {
	.name = PEAL_NL_FAMILY,
	.version = PEAL_NL_VERSION,
	.maxattr = PEAL_NL_DEV_COUNT_ - 1,
	.policy = peal_netlink_policy,
	.module = THIS_MODULE,
	.netnsok = true,
	.ops = peal_netlink_ops,
	.n_ops = ARRAY_SIZE(peal_netlink_ops),
	.resv_start_op = PEAL_NL_CMD_COUNT_,
};

int peal_netlink_init(void)
{
	return genl_register_family(&peal_netlink_family);
}

void peal_netlink_exit(void)
{
	genl_unregister_family(&peal_netlink_family);
}
