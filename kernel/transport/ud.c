// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See ud.h.
 */
#include <linux/slab.h>

#include "base/compat.h"
#include "base/trace.h"
#include "engine/turn.h"
#include "mem/cursor.h"
#include "net/datagram.h"
#include "net/port.h"
#include "net/tx.h"
#include "proto/psn.h"
#include "transport/ah.h"
#include "transport/outcome.h"
#include "transport/packet_sender.h"
#include "transport/receive.h"
#include "transport/ud.h"

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
};

/* A datagram as its receiver sees it. Its payload is in an skb, or still with its sender. */
struct peal_ud_arrival {
	const struct peal_packet *packet;
	bool ipv6, multicast;
	u16 vlan_id;
	const struct peal_datagram *dg;	/* NULL: the payload is at *from */
	struct peal_cursor *from;
	u8 grh[PEAL_GRH_BYTES] __aligned(8);
};

static struct peal_ud *peal_ud(const struct peal_transport *transport)
{
	return container_of(transport, struct peal_ud, sender.base);
}

static struct peal_qp *peal_ud_qp(const struct peal_ud *ud)
{
	return ud->sender.base.qp;
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

static void peal_ud_scatter(struct peal_cursor *to, const struct peal_ud_arrival *arrival)
{
	struct peal_cursor grh PEAL_UNINITIALIZED;

	peal_cursor_inline(&grh, arrival->grh, sizeof(arrival->grh));
	peal_cursor_copy(to, &grh, sizeof(arrival->grh));
	if (arrival->dg)
		peal_datagram_scatter(arrival->dg, to, arrival->packet->payload_bytes);
	else
		peal_cursor_copy(to, arrival->from, arrival->packet->payload_bytes);
}

static void peal_ud_complete(struct peal_qp *qp, struct peal_notify *notify,
			     const struct peal_ud_arrival *arrival)
{
	const struct peal_packet *packet = arrival->packet;
	struct peal_cqe cqe = {
		.opcode = peal_packet_opcode(packet)->operation,
		.byte_len = PEAL_GRH_BYTES + packet->payload_bytes, .src_qp = packet->src_qpn,
		.imm_or_rkey = packet->imm,
		.flags = PEAL_CQE_GRH | (arrival->ipv6 ? 0 : PEAL_CQE_IPV4) |
			 (packet->solicited ? PEAL_CQE_SOLICITED : 0),
	};

	if (!(peal_packet_opcode(packet)->has & PEAL_HAS_IMM))
		cqe.imm_or_rkey = 0;
	if (arrival->vlan_id != PEAL_VLAN_NONE) {
		cqe.flags |= PEAL_CQE_VLAN;
		cqe.vlan_id = arrival->vlan_id;
	}
	peal_qp_complete_recv(qp, notify, &cqe);
}

/* Under rq.lock. */
static enum peal_drop peal_ud_receive(struct peal_qp *qp, struct peal_notify *notify,
				      const struct peal_ud_arrival *arrival)
{
	const struct peal_packet *packet = arrival->packet;
	struct peal_receive_fault fault PEAL_UNINITIALIZED;
	struct peal_cursor to PEAL_UNINITIALIZED;
	enum peal_drop drop = peal_ud_check(qp, arrival);

	lockdep_assert_held(&qp->rq.lock);
	if (!drop)
		drop = peal_receive_begin(qp, notify, PEAL_GRH_BYTES + packet->payload_bytes,
					  &to, &fault);
	if (unlikely(drop))
		return drop;
	if (unlikely(fault.reason)) {
		peal_receive_refuse(qp, notify, packet->src_qpn, packet->payload_bytes, &fault);
		return PEAL_DROP_none;
	}
	peal_ud_scatter(&to, arrival);
	peal_cursor_end(&to);
	peal_ud_complete(qp, notify, arrival);
	return PEAL_DROP_none;
}

/* Takes rq.lock of @qp. */
static void peal_ud_hand_over(struct peal_qp *qp, struct peal_notify *notify,
			      const struct peal_ud_arrival *arrival)
{
	enum peal_drop drop;

	peal_epoch_assert_held();
	spin_lock(&qp->rq.lock);
	drop = peal_ud_receive(qp, notify, arrival);
	spin_unlock(&qp->rq.lock);
	if (unlikely(drop)) {
		peal_count_drop(qp->table, drop);
		trace_peal_drop(arrival->packet, drop);
	}
}

/* ---- sending ---- */

/* IBTA 10.2.5: programs cannot use the Q_Keys of privileged services. */
static u32 peal_ud_qkey(const struct peal_qp *qp)
{
	u32 qkey = qp->sq.wqe.ud.qkey;

	return qkey & PEAL_QKEY_CONTROLLED ? qp->attr.qkey : qkey;
}

static void peal_ud_fill_header(const struct peal_ud *ud, struct peal_packet *packet)
{
	const struct peal_qp *qp = peal_ud_qp(ud);
	const struct peal_wqe *send = &qp->sq.wqe;

	*packet = (struct peal_packet){
		.opcode = peal_opcode_request(PEAL_UD, send->opcode, true, true),
		.solicited = send->flags & PEAL_WQE_SOLICITED,
		.migrated = true,
		.pkey = PEAL_DEFAULT_PKEY,
		.qpn = send->ud.qpn,
		.psn = ud->sender.psn,
		.qkey = peal_ud_qkey(qp),
		.src_qpn = qp->ib.qp_num,
		.imm = send->imm_or_rkey,
		.payload_bytes = send->length,
	};
}

/*
 * Send the datagram as a packet. Without memory, without a route, or with a full queue it is
 * lost, which UD allows.
 */
static void peal_ud_transmit(const struct peal_ud *ud, struct peal_path *path,
			     const struct peal_packet *packet, struct peal_cursor *local)
{
	struct peal_cursor payload PEAL_UNINITIALIZED;
	struct sk_buff *skb;
	void *bytes;

	skb = peal_tx_prepare(path, packet, &bytes);
	if (unlikely(!skb))
		return;
	peal_cursor_inline(&payload, bytes, packet->payload_bytes);
	peal_cursor_copy(&payload, local, packet->payload_bytes);
	peal_cursor_end(local);
	trace_peal_packet_sent(peal_ud_qp(ud)->ib.qp_num, packet, false);
	peal_tx_send(path, skb);
}

/*
 * Send a challenge in the sender's name to ask whether packets of the handle arrive at a device
 * (proof.h).
 */
static noinline void peal_ud_challenge(const struct peal_ud *ud, struct peal_address *address,
				       u32 qpn)
{
	struct peal_proof_challenge challenge;
	struct peal_packet header = {
		.opcode = PEAL_OPCODE_CHALLENGE, .pkey = PEAL_DEFAULT_PKEY, .qpn = qpn,
		.payload_bytes = sizeof(challenge),
	};
	struct sk_buff *skb;
	void *payload;

	if (!peal_proof_begin(&address->proof, ud->device, &address->path, qpn, &challenge))
		return;
	challenge.address = address->index;
	skb = peal_tx_prepare(&address->path, &header, &payload);
	if (!skb)
		return;
	memcpy(payload, &challenge, sizeof(challenge));
	trace_peal_packet_sent(peal_ud_qp(ud)->ib.qp_num, &header, false);
	peal_tx_send(&address->path, skb);
}

/*
 * Return: the receiver, or NULL when a packet may find one that is not a UD queue pair of peal's. A
 * look-up at another device is not remembered, because that device may be removed.
 */
static struct peal_qp *peal_ud_peer(struct peal_ud *ud, struct peal_table *table, u32 qpn)
{
	struct peal_qp *peer;

	if (likely(table == peal_ud_qp(ud)->table))
		peer = peal_table_qp_again(table, &ud->peer, qpn);
	else
		peer = peal_table_qp(table, qpn);
	return peer && peer->ib.qp_type == IB_QPT_UD ? peer : NULL;
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
	peer = peal_ud_peer(ud, target.table, packet->qpn);
	if (unlikely(!peer || !peal_tx_grh(&address->path, packet, arrival.grh)))
		return false;
	arrival.packet = packet;
	arrival.ipv6 = address->path.ipv6;
	arrival.multicast = false;
	arrival.vlan_id = target.vlan_id;
	arrival.dg = NULL;
	arrival.from = local;
	peal_ud_hand_over(peer, notify, &arrival);
	return true;
}

/*
 * Three kinds of datagrams are always packets. The network stack chooses the receivers of a group.
 * The connection manager's need no speed. Memory of a fast registration must not be in use while
 * this waits for the receiver's lock (see mr.h).
 */
static struct peal_outcome peal_ud_send(struct peal_ud *ud, struct peal_notify *notify,
					struct peal_address *address, struct peal_cursor *local)
{
	struct peal_outcome outcome = { .what = PEAL_CARRIED };
	struct peal_qp *qp = peal_ud_qp(ud);
	bool may = qp->ib.qp_type == IB_QPT_UD && !address->path.multicast && !local->counted;
	struct peal_packet packet;

	peal_ud_fill_header(ud, &packet);
	if (may && peal_ud_direct(ud, notify, address, &packet, local)) {
		peal_count(qp, direct_messages);
		outcome.pieces = local->num_sge + PEAL_UD_PIECES;
	} else {
		peal_ud_transmit(ud, &address->path, &packet, local);
		peal_count(qp, wire_messages);
	}
	if (may && unlikely(peal_proof_is_due(&address->proof)))
		peal_ud_challenge(ud, address, packet.qpn);
	ud->sender.psn = peal_psn_add(ud->sender.psn, 1);
	return outcome;
}

/* One message is one packet (IBTA 9.8.3.1). */
static struct peal_outcome peal_ud_carry(struct peal_packet_sender *sender,
					 struct peal_notify *notify)
{
	struct peal_ud *ud = container_of(sender, struct peal_ud, sender);
	struct peal_qp *qp = peal_ud_qp(ud);
	const struct peal_wqe *send = &qp->sq.wqe;
	struct peal_cursor local PEAL_UNINITIALIZED;
	struct peal_address *address = peal_table_address(qp->table, send->ah_index);
	struct peal_outcome outcome;

	lockdep_assert_held(&qp->sq.lock);
	if (unlikely(!address || address->pd != qp->ib.pd))
		return peal_failed(IB_WC_LOC_QP_OP_ERR, PEAL_REASON_WQE_AH);
	if (unlikely(send->length > ib_mtu_enum_to_int(peal_port_mtu(ud->port))))
		return peal_failed(IB_WC_LOC_LEN_ERR, PEAL_REASON_UD_LENGTH);
	outcome = peal_packet_sender_begin(qp, &local);
	if (unlikely(outcome.what != PEAL_CARRIED))
		return outcome;
	outcome = peal_ud_send(ud, notify, address, &local);
	peal_cursor_end(&local);
	return outcome;
}

static bool peal_ud_run(struct peal_transport *transport, struct peal_notify *notify,
			struct peal_budget *budget)
{
	peal_epoch_assert_held();
	lockdep_assert_held(&transport->qp->sq.lock);
	return peal_packet_sender_run(transport, notify, budget, peal_ud_carry);
}

/* ---- packets ---- */

void peal_ud_deliver(struct peal_qp *qp, const struct peal_datagram *dg)
{
	struct peal_ud_arrival arrival PEAL_UNINITIALIZED;
	struct peal_notify notify PEAL_UNINITIALIZED;

	peal_epoch_assert_held();
	trace_peal_packet_received(qp->ib.qp_num, &dg->packet, false);
	arrival.packet = &dg->packet;
	arrival.ipv6 = dg->ipv6;
	arrival.multicast = dg->multicast;
	arrival.vlan_id = dg->vlan_id;
	arrival.dg = dg;
	peal_datagram_grh(dg, arrival.grh);
	peal_notify_begin(&notify);
	peal_ud_hand_over(qp, &notify, &arrival);
	peal_turn_end(&notify);
}

/* ---- challenges, which ask where the packets of an address handle arrive ---- */

/* An ordinary packet may arrive through any netdev. A challenge must come the handle's own way. */
static enum peal_drop peal_ud_check_way(struct peal_address *address,
					const struct peal_datagram *dg)
{
	struct peal_path *path = &address->path;

	if (memcmp(&path->sgid, &dg->sgid, sizeof(path->sgid)) ||
	    memcmp(&path->dgid, &dg->dgid, sizeof(path->dgid)))
		return PEAL_DROP_source;
	if (!peal_packet_pkey_matches(&dg->packet))
		return PEAL_DROP_pkey;
	if (!peal_path_is_local(path) || !peal_path_leaves_by(path, peal_datagram_iif(dg)))
		return PEAL_DROP_path;
	return PEAL_DROP_none;
}

enum peal_drop peal_ud_challenged(const struct peal_locality_device *at,
				  const struct peal_datagram *dg)
{
	struct peal_proof_challenge challenge;
	const struct peal_locality_device *device;
	struct peal_address *address;
	enum peal_drop drop;

	peal_epoch_assert_held();
	if (dg->packet.payload_bytes != sizeof(challenge))
		return PEAL_DROP_pad;
	peal_datagram_copy(dg, 0, &challenge, sizeof(challenge));
	device = peal_locality_find(challenge.device);
	if (!device || peal_locality_scope(device, at) > PEAL_NL_SCOPE_NETNS)
		return PEAL_DROP_stale;
	address = peal_table_address(device->table, challenge.address);
	if (!address)
		return PEAL_DROP_stale;
	drop = peal_ud_check_way(address, dg);
	if (!drop && !peal_proof_end(&address->proof, &challenge, at, dg->vlan_id))
		drop = PEAL_DROP_stale;
	return drop;
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
