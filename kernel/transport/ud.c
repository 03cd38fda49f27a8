// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See ud.h.
 */
#include <linux/jhash.h>
#include <linux/rculist.h>
#include <linux/slab.h>

#include "base/budget.h"
#include "base/compat.h"
#include "base/epoch.h"
#include "base/trace.h"
#include "engine/engine.h"
#include "object/cursor.h"
#include "net/rx_packet.h"
#include "net/path.h"
#include "net/port.h"
#include "net/sniff.h"
#include "proto/packet.h"
#include "transport/exec.h"
#include "transport/sender.h"
#include "transport/ud.h"

int peal_ah_init(struct peal_ah *ah, struct peal_account *account, struct peal_port *port,
		 struct peal_tx_quota *tx_quota, const struct rdma_ah_attr *attr, gfp_t gfp)
{
	struct peal_address *address;
	int ret;
	u32 hash;

	if (!(rdma_ah_get_ah_flags(attr) & IB_AH_GRH) || rdma_ah_get_port_num(attr) != 1)
		return -EINVAL;
	address = kzalloc(sizeof(*address), gfp);
	if (!address)
		return -ENOMEM;
	address->pd = ah->ib.pd;
	peal_proof_init(&address->proof);
	/*
	 * It chooses the UDP source port if the flow label is 0. All packets to one destination
	 * have the same one.
	 */
	hash = jhash(&rdma_ah_read_grh(attr)->dgid, sizeof(union ib_gid), 0);
	ret = peal_path_init(&address->path, port, tx_quota, attr, hash);
	if (ret)
		goto free;
	ret = peal_table_add_address(port->table, account, address, &address->index, gfp);
	if (ret)
		goto release;
	ah->table = port->table;
	ah->account = account;
	ah->address = address;
	ah->attr = *attr;
	ah->attr.grh.sgid_attr = NULL;
	return 0;

release:
	peal_path_release(&address->path);
free:
	kfree(address);
	return ret;
}

static void peal_ah_free(struct rcu_head *rcu)
{
	struct peal_address *address = container_of(rcu, struct peal_address, rcu);

	peal_path_release(&address->path);
	kfree(address);
}

void peal_ah_destroy(struct peal_ah *ah)
{
	peal_table_remove_address(ah->table, ah->account, ah->address->index);
	call_rcu(&ah->address->rcu, peal_ah_free);
}

void peal_ah_query(const struct peal_ah *ah, struct rdma_ah_attr *attr)
{
	*attr = ah->attr;
}

struct peal_group {
	union ib_gid gid;

	/* Guarded by groups.lock: */
	struct hlist_node node;
	u32 count;
	struct list_head members;	/* peal_member, oldest first; read inside the epoch */
};

struct peal_member {
	struct peal_qp *qp;

	/* Guarded by groups.lock: */
	struct list_head node;
};

void peal_groups_init(struct peal_groups *groups, struct peal_port *port)
{
	u32 i;

	groups->port = port;
	mutex_init(&groups->lock);
	for (i = 0; i < PEAL_GROUP_BUCKETS; i++)
		INIT_HLIST_HEAD(&groups->bucket[i]);
}

/* The core has detached all queue pairs, because it counts the attachments of each. */
void peal_groups_destroy(struct peal_groups *groups)
{
	u32 i;

	for (i = 0; i < PEAL_GROUP_BUCKETS; i++)
		WARN_ON(!hlist_empty(&groups->bucket[i]));
	mutex_destroy(&groups->lock);
}

static struct hlist_head *peal_group_bucket(struct peal_groups *groups, const union ib_gid *gid)
{
	return &groups->bucket[jhash(gid, sizeof(*gid), 0) % PEAL_GROUP_BUCKETS];
}

/* Inside the epoch or under groups->lock. */
static struct peal_group *peal_group_find(struct peal_groups *groups, const union ib_gid *gid)
{
	struct peal_group *group;

	hlist_for_each_entry_rcu(group, peal_group_bucket(groups, gid), node,
				 peal_epoch_held() || lockdep_is_held(&groups->lock))
		if (!memcmp(&group->gid, gid, sizeof(*gid)))
			return group;
	return NULL;
}

static struct peal_member *peal_group_member(const struct peal_group *group,
					     const struct peal_qp *qp)
{
	struct peal_member *member;

	list_for_each_entry(member, &group->members, node)
		if (member->qp == qp)
			return member;
	return NULL;
}

/*
 * A group gets its first member, so the network stack joins it. The group is charged to @account as
 * long as a queue pair of @account is the oldest member.
 */
static struct peal_group *peal_group_new(struct peal_groups *groups, struct peal_account *account,
					 const union ib_gid *gid)
{
	struct peal_group *group;
	int ret = peal_quota_take(account, PEAL_QUOTA_GROUP);

	lockdep_assert_held(&groups->lock);
	if (ret)
		return ERR_PTR(ret);
	ret = -ENOMEM;
	group = kzalloc(sizeof(*group), GFP_KERNEL_ACCOUNT);
	if (!group)
		goto give;
	group->gid = *gid;
	INIT_LIST_HEAD(&group->members);
	ret = peal_mcast_join(groups->port->net, groups->port->ndev, &group->gid);
	if (ret)
		goto free;
	hlist_add_head_rcu(&group->node, peal_group_bucket(groups, &group->gid));
	return group;

free:
	kfree(group);
give:
	peal_quota_give(account, PEAL_QUOTA_GROUP);
	return ERR_PTR(ret);
}

static struct peal_account *peal_group_holder(const struct peal_group *group)
{
	return list_first_entry(&group->members, struct peal_member, node)->qp->account;
}

/*
 * One user never has more than half of a group, so that other users can join it, too. The
 * kernel's own queue pairs count as one user.
 */
static bool peal_group_has_room(const struct peal_group *group, const struct peal_account *account)
{
	const struct peal_member *member;
	u32 user = 0, context = 0;

	list_for_each_entry(member, &group->members, node) {
		user += member->qp->account->user == account->user;
		context += member->qp->account == account;
	}
	return context < PEAL_CONTEXT_GROUP_QPS &&
	       group->count + user + context < PEAL_MAX_GROUP_QPS;
}

int peal_group_attach(struct peal_groups *groups, struct peal_qp *qp, const union ib_gid *gid)
{
	struct peal_member *member = kzalloc(sizeof(*member), GFP_KERNEL_ACCOUNT);
	struct peal_group *group;
	int ret = 0;

	if (!member)
		return -ENOMEM;
	member->qp = qp;
	mutex_lock(&groups->lock);
	group = peal_group_find(groups, gid);
	if (!group)
		group = peal_group_new(groups, qp->account, gid);
	/* A new group always takes its first member. */
	if (IS_ERR(group)) {
		ret = PTR_ERR(group);
	} else if (peal_group_member(group, qp)) {
		ret = -EEXIST;
	} else if (!peal_group_has_room(group, qp->account)) {
		ret = -ENOSPC;
	} else {
		list_add_tail_rcu(&member->node, &group->members);
		group->count++;
	}
	mutex_unlock(&groups->lock);
	if (ret)
		kfree(member);
	return ret;
}

int peal_group_detach(struct peal_groups *groups, struct peal_qp *qp, const union ib_gid *gid)
{
	struct peal_account *holder;
	struct peal_member *member;
	struct peal_group *group;

	mutex_lock(&groups->lock);
	group = peal_group_find(groups, gid);
	member = group ? peal_group_member(group, qp) : NULL;
	if (!member) {
		mutex_unlock(&groups->lock);
		return -ENOENT;
	}
	/* When the oldest member leaves, the group is charged to the next oldest. */
	holder = peal_group_holder(group);
	list_del_rcu(&member->node);
	if (--group->count) {
		peal_quota_move(holder, peal_group_holder(group), PEAL_QUOTA_GROUP);
	} else {
		hlist_del_rcu(&group->node);
		peal_mcast_leave(groups->port->net, groups->port->ndev, &group->gid);
		peal_quota_give(holder, PEAL_QUOTA_GROUP);
	}
	/* The data path may still use the member and the group. */
	peal_epoch_wait();
	if (!group->count)
		kfree(group);
	kfree(member);
	mutex_unlock(&groups->lock);
	return 0;
}

void peal_group_deliver(struct peal_groups *groups, const struct peal_rx_packet *rx,
			struct peal_budget *budget)
{
	struct peal_group *group = peal_group_find(groups, &rx->dgid);
	struct peal_member *member;

	peal_epoch_assert_held();
	if (!group) {
		peal_count_drop(groups->port->table, PEAL_DROP_group);
		trace_peal_drop(&rx->packet, PEAL_DROP_group);
		return;
	}
	list_for_each_entry_rcu(member, &group->members, node, peal_epoch_held()) {
		peal_ud_deliver(member->qp, rx);
		peal_budget_spend(budget, PEAL_COST_PIECE + rx->packet.payload_bytes);
	}
}

/* Bytes before the payload in every receive buffer (IBTA 11.4.2.1). */
#define PEAL_GRH_BYTES		40

/* The least that a receiver in this kernel looks up or copies: its buffer, and the header there. */
#define PEAL_UD_PIECES		2

/* A Q_Key with this bit in a work request stands for the queue pair's own Q_Key. */
#define PEAL_QKEY_CONTROLLED	0x80000000U

struct peal_ud {
	struct peal_packet_sender sender;	/* its quota is also that of the address handles */
	struct peal_port *port;
	const struct peal_locality_device *device;	/* the queue pair's own device */

	/* Guarded by sq.lock: */
	struct peal_lookup peer;	/* look-up of the last receiver on this device */
	struct peal_mr_lookup local;	/* last look-up of an lkey by the fast path */
};

/* A datagram as its receiver sees it. Its payload is in an skb, or still with its sender. */
struct peal_ud_arrival {
	const struct peal_packet *packet;
	bool ipv6, multicast;
	u16 vlan_id;
	const union ib_gid *sgid;
	const struct peal_rx_packet *rx;	/* NULL: the payload is at *from */
	struct peal_cursor *from;
	u8 grh[PEAL_GRH_BYTES] __aligned(8);
};

static struct peal_ud *peal_ud(const struct peal_transport *transport)
{
	return container_of(transport, struct peal_ud, sender.base);
}

/* ---- receiving ---- */

/* IBTA 9.8.3.2: a datagram that is not for this queue pair is dropped without an answer. */
static enum peal_drop peal_ud_check(struct peal_qp *qp, const struct peal_ud_arrival *arrival)
{
	const struct peal_packet *packet = arrival->packet;
	bool names_group = packet->qpn == PEAL_QPN_MULTICAST;

	if (unlikely(!peal_qp_receives(qp)))
		return PEAL_DROP_state;
	/* IBTA 9.6.1.2: the IP address and the QP number must both be a group's, or neither. */
	if (unlikely(arrival->multicast != names_group))
		return PEAL_DROP_group;
	if (unlikely(!peal_packet_pkey_matches(packet)))
		return PEAL_DROP_pkey;
	if (unlikely(packet->qkey != qp->attr.qkey))
		return PEAL_DROP_qkey;
	return PEAL_DROP_none;
}

/* Takes rq.lock of @qp. */
static void peal_ud_receive(struct peal_qp *qp, struct peal_notify *notify,
			    const struct peal_ud_arrival *arrival)
{
	const struct peal_packet *packet = arrival->packet;
	const struct peal_wire_opcode *wire = peal_packet_opcode(packet);
	struct peal_cursor grh PEAL_UNINITIALIZED;
	struct peal_cursor to PEAL_UNINITIALIZED;
	struct peal_cqe cqe = {
		.opcode = wire->operation, .byte_len = PEAL_GRH_BYTES + packet->payload_bytes,
		.src_qp = packet->src_qpn,
		.imm_or_rkey = wire->has & PEAL_HAS_IMM ? packet->imm : 0,
		.flags = PEAL_CQE_GRH | (arrival->ipv6 ? 0 : PEAL_CQE_IPV4) |
			 (packet->solicited ? PEAL_CQE_SOLICITED : 0),
	};
	enum peal_reason reason;
	enum peal_drop drop;

	peal_epoch_assert_held();
	spin_lock(&qp->rq.lock);
	drop = peal_ud_check(qp, arrival);
	if (!drop)
		drop = peal_receive_begin(qp, notify, PEAL_GRH_BYTES + packet->payload_bytes,
					  &to, &reason);
	if (unlikely(drop))
		goto unlock;
	if (unlikely(reason)) {
		peal_receive_refuse(qp, notify, packet->src_qpn, packet->payload_bytes, reason);
		goto unlock;
	}
	if (peal_faults_exist(&qp->table->faults) &&
	    peal_receive_find_fault(qp, notify, packet, arrival->sgid->raw)) {
		peal_cursor_end(&to);
		goto unlock;
	}
	peal_cursor_inline(&grh, arrival->grh, sizeof(arrival->grh));
	peal_cursor_copy(&to, &grh, sizeof(arrival->grh));
	if (arrival->rx)
		peal_rx_scatter(arrival->rx, &to, packet->payload_bytes);
	else
		peal_cursor_copy(&to, arrival->from, packet->payload_bytes);
	peal_cursor_end(&to);
	if (arrival->vlan_id != PEAL_VLAN_NONE) {
		cqe.flags |= PEAL_CQE_VLAN;
		cqe.vlan_id = arrival->vlan_id;
	}
	peal_qp_complete_recv(qp, notify, &cqe);
unlock:
	spin_unlock(&qp->rq.lock);
	if (unlikely(drop)) {
		peal_count_drop(qp->table, drop);
		trace_peal_drop(packet, drop);
	}
}

/* ---- sending ---- */

/*
 * Send the datagram as a packet. Without memory, without a route, or with a full queue it is
 * lost, which UD allows.
 */
static void peal_ud_transmit(const struct peal_ud *ud, struct peal_path *path,
			     const struct peal_packet *packet, struct peal_cursor *local)
{
	const struct peal_qp *qp = ud->sender.base.qp;
	struct peal_train train PEAL_UNINITIALIZED;

	trace_peal_packet_sent(qp->ib.qp_num, packet, false);
	if (peal_faults_exist(&qp->table->faults) &&
	    peal_sender_finds_no_memory(qp, path->dgid.raw)) {
		peal_cursor_end(local);
		return;
	}
	peal_tx_begin(&train, path);
	peal_tx_add(&train, packet, path->tclass, local);
	peal_cursor_end(local);
	peal_tx_flush(&train);
}

/*
 * Send a challenge in the sender's name to ask whether packets of the handle arrive at a device
 * (local.h).
 */
static noinline void peal_ud_challenge(const struct peal_ud *ud, struct peal_address *address,
				       u32 qpn)
{
	struct peal_proof_challenge challenge;
	struct peal_packet header = {
		.opcode = PEAL_OPCODE_CHALLENGE, .pkey = PEAL_DEFAULT_PKEY, .qpn = qpn,
		.payload_bytes = sizeof(challenge),
	};
	struct peal_train train PEAL_UNINITIALIZED;
	struct peal_cursor payload PEAL_UNINITIALIZED;

	BUILD_BUG_ON(sizeof(challenge) % 4);	/* it needs no padding */
	if (!peal_proof_begin(&address->proof, ud->device, &address->path, qpn, &challenge))
		return;
	challenge.address = address->index;
	trace_peal_packet_sent(ud->sender.base.qp->ib.qp_num, &header, false);
	peal_cursor_inline(&payload, &challenge, sizeof(challenge));
	peal_tx_begin(&train, &address->path);
	peal_tx_add(&train, &header, address->path.tclass, &payload);
	peal_tx_flush(&train);
}

/*
 * A device has a sniffer. Show it the datagram as the packet that it would be. The datagram itself
 * still needs its own cursor over the same bytes.
 */
static noinline void peal_ud_show(const struct peal_ud *ud, struct peal_address *address,
				  const struct peal_qp *peer, const struct peal_packet *packet)
{
	struct peal_cursor local PEAL_UNINITIALIZED;

	if (peal_packet_sender_begin(ud->sender.base.qp, &local).what != PEAL_DONE)
		return;
	peal_tx_show(&address->path, peer->table->port, packet, &local);
	peal_cursor_end(&local);
}

/*
 * Copy the datagram to its receiver, if packets of the handle are proven to arrive at a device of
 * this namespace. Takes the receiver's rq.lock. Return: false when it must leave as a packet.
 */
static bool peal_ud_direct(struct peal_ud *ud, struct peal_notify *notify,
			   struct peal_address *address, const struct peal_packet *packet,
			   struct peal_cursor *local)
{
	struct peal_ud_arrival arrival PEAL_UNINITIALIZED;
	struct peal_proof_target target;
	struct peal_qp *peer;

	if (!peal_proof_find(&address->proof, ud->device, &target))
		return false;
	/* A look-up at another device is not remembered, because that device may be removed. */
	if (likely(target.table == ud->sender.base.qp->table))
		peer = peal_table_qp_again(target.table, &ud->peer, packet->qpn);
	else
		peer = peal_table_qp(target.table, packet->qpn);
	/* A packet may find one that is not a UD queue pair of peal's. */
	if (unlikely(!peer || peer->ib.qp_type != IB_QPT_UD))
		return false;
	if (unlikely(!peal_tx_grh(&address->path, packet->opcode, packet->payload_bytes,
				  arrival.grh)))
		return false;
	if (peal_sniff_is_on())
		peal_ud_show(ud, address, peer, packet);
	arrival.packet = packet;
	arrival.ipv6 = address->path.ipv6;
	arrival.multicast = false;
	arrival.vlan_id = target.vlan_id;
	arrival.sgid = &address->path.sgid;
	arrival.rx = NULL;
	arrival.from = local;
	peal_ud_receive(peer, notify, &arrival);
	return true;
}

/* One message is one packet (IBTA 9.8.3.1). */
static struct peal_outcome peal_ud_carry(struct peal_packet_sender *sender,
					 struct peal_notify *notify)
{
	struct peal_ud *ud = container_of(sender, struct peal_ud, sender);
	struct peal_qp *qp = sender->base.qp;
	const struct peal_wqe *send = &qp->sq.wqe;
	struct peal_cursor local PEAL_UNINITIALIZED;
	struct peal_address *address = peal_table_address(qp->table, send->ah_index);
	struct peal_outcome outcome;
	struct peal_packet packet;
	bool may;

	lockdep_assert_held(&qp->sq.lock);
	if (unlikely(!address || address->pd != qp->ib.pd))
		return peal_failed(IB_WC_LOC_QP_OP_ERR, PEAL_REASON_WQE_AH);
	if (unlikely(send->length > ib_mtu_enum_to_int(peal_port_mtu(ud->port))))
		return peal_failed(IB_WC_LOC_LEN_ERR, PEAL_REASON_UD_LENGTH);
	outcome = peal_packet_sender_begin(qp, &local);
	if (unlikely(outcome.what != PEAL_DONE))
		return outcome;
	packet = (struct peal_packet){
		.opcode = peal_opcode_request(PEAL_UD, peal_op(send->opcode), true, true),
		.solicited = send->flags & PEAL_WQE_SOLICITED,
		.migrated = true,
		.pkey = PEAL_DEFAULT_PKEY,
		.qpn = send->ud.qpn,
		.psn = sender->psn,
		/* IBTA 10.2.5: programs cannot use the Q_Keys of privileged services. */
		.qkey = send->ud.qkey & PEAL_QKEY_CONTROLLED ? qp->attr.qkey : send->ud.qkey,
		.src_qpn = qp->ib.qp_num,
		.imm = send->imm_or_rkey,
		.pad = -send->length & 3,
		.payload_bytes = send->length,
	};
	/*
	 * Three kinds of datagrams are always packets. The network stack chooses the receivers of a
	 * group. The connection manager's need no speed. Memory of a fast registration must not be
	 * in use while this waits for the receiver's lock (see mr.h).
	 */
	may = qp->ib.qp_type == IB_QPT_UD && !address->path.multicast && !local.counted;
	if (may && peal_ud_direct(ud, notify, address, &packet, &local)) {
		peal_count(qp, direct_messages);
		outcome.pieces = local.num_sge + PEAL_UD_PIECES;
	} else {
		peal_ud_transmit(ud, &address->path, &packet, &local);
		peal_count(qp, wire_messages);
	}
	if (may && unlikely(peal_proof_is_due(&address->proof)))
		peal_ud_challenge(ud, address, packet.qpn);
	sender->psn = peal_psn_add(sender->psn, 1);
	peal_cursor_end(&local);
	return outcome;
}

/*
 * Take the next datagram from its WQE to its CQE, if it is plain and its receiver is on the same
 * device. The functions above define what a datagram does. At the first doubt this function leaves
 * the datagram to them, as peal_direct_fast() leaves its messages to its general path.
 */
static bool peal_ud_fast(struct peal_packet_sender *sender, struct peal_notify *notify,
			 struct peal_budget *budget)
{
	struct peal_ud *ud = container_of(sender, struct peal_ud, sender);
	u32 opcodes = 1U << PEAL_OP_SEND | 1U << PEAL_OP_SEND_IMM;
	struct peal_qp *qp = sender->base.qp, *peer;
	struct peal_table *table = qp->table;
	const struct peal_wqe *wqe = &qp->sq.wqe;
	const struct peal_sge *sge = qp->sq.sge;
	const struct peal_recv *recv;
	u8 grh[PEAL_GRH_BYTES] __aligned(8);
	struct peal_proof_target target;
	struct peal_address *address;
	u64 length, near_bytes, far_bytes;
	const struct peal_op *op;
	enum peal_reason reason;
	void *near, *far;
	struct peal_cqe cqe;
	u32 qpn, qkey;

	lockdep_assert_held(&qp->sq.lock);
	if (unlikely(qp->sq.busy || qp->state != IB_QPS_RTS || qp->ib.qp_type != IB_QPT_UD ||
		     peal_faults_exist(&table->faults) || peal_sniff_is_on() ||
		     trace_peal_execute_enabled() || trace_peal_complete_enabled()))
		return false;
	op = peal_sq_peek(&qp->sq, opcodes & ~qp->sq.limits.refused);
	if (!op || unlikely(wqe->rkey))
		return false;
	length = wqe->length;
	qpn = wqe->ud.qpn & PEAL_NUMBER_MAX;
	qkey = wqe->ud.qkey & PEAL_QKEY_CONTROLLED ? qp->attr.qkey : wqe->ud.qkey;
	if (unlikely(!length || length > ib_mtu_enum_to_int(peal_port_mtu(ud->port))))
		return false;
	address = peal_table_address(table, wqe->ah_index);
	if (unlikely(!address || address->pd != qp->ib.pd || address->path.multicast ||
		     peal_proof_is_due(&address->proof)))
		return false;
	if (!peal_proof_find(&address->proof, ud->device, &target) || target.table != table ||
	    unlikely(target.vlan_id != PEAL_VLAN_NONE))
		return false;
	peer = peal_table_qp_again(table, &ud->peer, qpn);
	if (unlikely(!peer || peer->ib.qp_type != IB_QPT_UD))
		return false;
	near_bytes = length;
	near = (void *)wqe->inline_data;
	if (!near)
		near = peal_mr_present(table, &ud->local, qp->ib.pd, sge->lkey, sge->addr, length,
				       0, &near_bytes);
	if (unlikely(!near || near_bytes < length ||
		     !peal_tx_grh(&address->path,
				  peal_opcode_request(PEAL_UD, op, true, true), length,
				  grh)))
		return false;

	spin_lock(&peer->rq.lock);
	recv = &peer->rq.wqe;
	if (unlikely(!peal_qp_receives(peer) || qkey != peer->attr.qkey ||
		     peal_qp_take_recv(peer, notify, &reason) != PEAL_RQ_TAKEN ||
		     recv->num_sge != 1 || sizeof(grh) + length > recv->length))
		goto doubt;
	far_bytes = sizeof(grh) + length;
	far = peal_mr_present(table, &peer->received, peer->recv_pd, recv->sge->lkey,
			      recv->sge->addr, recv->length, IB_ACCESS_LOCAL_WRITE, &far_bytes);
	if (unlikely(!far || far_bytes < sizeof(grh) + length))
		goto doubt;
	peal_copy(far, grh, sizeof(grh));
	peal_copy(far + sizeof(grh), near, length);
	cqe = (struct peal_cqe){
		.opcode = wqe->opcode, .byte_len = sizeof(grh) + length, .src_qp = qp->ib.qp_num,
		.imm_or_rkey = op->immediate ? wqe->imm_or_rkey : 0,
		.flags = PEAL_CQE_GRH | (address->path.ipv6 ? 0 : PEAL_CQE_IPV4) |
			 (wqe->flags & PEAL_WQE_SOLICITED ? PEAL_CQE_SOLICITED : 0),
	};
	peal_qp_complete_recv(peer, notify, &cqe);
	spin_unlock(&peer->rq.lock);

	sender->psn = peal_psn_add(sender->psn, 1);
	peal_budget_spend(budget, PEAL_COST_WQE + PEAL_COST_PACKET + length +
				  (1 + PEAL_UD_PIECES) * PEAL_COST_PIECE);
	peal_sender_take_delivered(qp, notify);
	return true;

doubt:
	spin_unlock(&peer->rq.lock);
	return false;
}

static bool peal_ud_run(struct peal_transport *transport, struct peal_notify *notify,
			struct peal_budget *budget)
{
	peal_epoch_assert_held();
	lockdep_assert_held(&transport->qp->sq.lock);
	return peal_packet_sender_run(transport, notify, budget, peal_ud_fast, peal_ud_carry);
}

/* ---- packets ---- */

void peal_ud_deliver(struct peal_qp *qp, const struct peal_rx_packet *rx)
{
	struct peal_ud_arrival arrival PEAL_UNINITIALIZED;
	struct peal_notify notify PEAL_UNINITIALIZED;

	peal_epoch_assert_held();
	trace_peal_packet_received(qp->ib.qp_num, &rx->packet, false);
	arrival.packet = &rx->packet;
	arrival.ipv6 = rx->ipv6;
	arrival.multicast = rx->multicast;
	arrival.vlan_id = rx->vlan_id;
	arrival.sgid = &rx->sgid;
	arrival.rx = rx;
	peal_rx_grh(rx, arrival.grh);
	peal_notify_begin(&notify);
	peal_ud_receive(qp, &notify, &arrival);
	peal_turn_end(&notify);
}

/* ---- challenges, which ask where the packets of an address handle arrive ---- */

enum peal_drop peal_ud_challenged(const struct peal_locality_device *at,
				  const struct peal_rx_packet *rx)
{
	struct peal_proof_challenge challenge;
	const struct peal_locality_device *device;
	struct peal_address *address;
	struct peal_path *path;

	peal_epoch_assert_held();
	if (rx->packet.payload_bytes != sizeof(challenge))
		return PEAL_DROP_pad;
	peal_rx_copy(rx, 0, &challenge, sizeof(challenge));
	device = peal_locality_find(challenge.device);
	if (!device || peal_locality_scope(device, at) > PEAL_NL_SCOPE_NETNS)
		return PEAL_DROP_stale;
	address = peal_table_address(device->table, challenge.address);
	if (!address)
		return PEAL_DROP_stale;
	path = &address->path;
	if (memcmp(&path->sgid, &rx->sgid, sizeof(path->sgid)) ||
	    memcmp(&path->dgid, &rx->dgid, sizeof(path->dgid)))
		return PEAL_DROP_source;
	if (!peal_packet_pkey_matches(&rx->packet))
		return PEAL_DROP_pkey;
	/*
	 * An ordinary packet may arrive through any netdev. A challenge must come the handle's own
	 * way.
	 */
	if (!peal_path_is_local(path) || !peal_path_leaves_by(path, peal_rx_iif(rx)))
		return PEAL_DROP_path;
	if (!peal_proof_end(&address->proof, &challenge, at, rx->vlan_id))
		return PEAL_DROP_stale;
	return PEAL_DROP_none;
}

/* ---- the transport ---- */

/* Under sq.lock and rq.lock. */
static void peal_ud_apply(struct peal_transport *transport, int mask)
{
	peal_qp_assert_both_held(transport->qp);
	if (mask & IB_QP_SQ_PSN)
		peal_ud(transport)->sender.psn = transport->qp->attr.sq_psn;
}

static u32 peal_ud_send_psn(const struct peal_transport *transport)
{
	lockdep_assert_held(&transport->qp->sq.lock);
	return peal_ud(transport)->sender.psn;
}

static void peal_ud_free(struct peal_transport *transport)
{
	kfree(peal_ud(transport));
}

static const struct peal_transport_ops peal_ud_ops = {
	.packets = true,
	.apply = peal_ud_apply,
	.reset = peal_packet_sender_reset,
	.free = peal_ud_free,
	.run = peal_ud_run,
	.send_psn = peal_ud_send_psn,
};

int peal_ud_attach(struct peal_qp *qp, struct peal_port *port,
		   const struct peal_locality_device *device, struct peal_tx_quota *tx_quota)
{
	struct peal_ud *ud = kzalloc(sizeof(*ud), GFP_KERNEL_ACCOUNT);

	if (!ud)
		return -ENOMEM;
	peal_packet_sender_init(&ud->sender, qp, &peal_ud_ops, tx_quota);
	ud->port = port;
	ud->device = device;
	peal_qp_set_wire(qp, &ud->sender.base);
	return 0;
}
