// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See show.h.
 */
#include <linux/hash.h>

#include "base/compat.h"
#include "base/epoch.h"
#include "net/path.h"
#include "proto/requester.h"
#include "transport/show.h"

/* What the packets of both directions have in common. */
struct peal_show_scene {
	const struct peal_show *show;
	struct peal_message message;
	struct peal_path out, back;	/* of the requests, and of the responses */
	struct peal_port *from;
	u32 qpn, peer_qpn;
};

/*
 * The requests of the chunk. Each message asks for an acknowledgment. A chunk has whole packets,
 * because its size is a multiple of every path MTU.
 */
static void peal_show_requests(struct peal_show_scene *scene)
{
	const struct peal_message *message = &scene->message;
	const struct peal_show *show = scene->show;
	bool many = message->op->sends && !message->op->atomic;
	u32 at = show->done >> message->mtu_shift, end = at + 1;
	struct peal_packet header;

	if (many)
		end = at + max_t(u64, 1, DIV_ROUND_UP(show->bytes, 1U << message->mtu_shift));
	else if (at)
		return;		/* a READ has one request, which was shown before the first chunk */
	for (; at < end; at++) {
		peal_message_build(message, at, many ? 1 : message->packets, &header);
		header.qpn = scene->peer_qpn;
		header.pkey = PEAL_DEFAULT_PKEY;
		header.ack_request = message->transport != PEAL_UC &&
				     (!many || at + 1 == message->packets);
		peal_tx_show(&scene->out, show->to, &header, show->local);
	}
}

static void peal_show_response(struct peal_show_scene *scene, struct peal_packet header, u32 at)
{
	header.qpn = scene->qpn;
	header.pkey = PEAL_DEFAULT_PKEY;
	header.psn = peal_psn_add(scene->message.psn, at);
	header.msn = scene->show->msn;
	header.pad = -header.payload_bytes & 3;
	header.migrated = true;
	peal_tx_show(&scene->back, scene->from, &header, scene->show->local);
}

/* The data that a READ has fetched lie in the requester's memory by now. */
static void peal_show_read_responses(struct peal_show_scene *scene)
{
	const struct peal_message *message = &scene->message;
	u32 at = scene->show->done >> message->mtu_shift;
	u64 left = scene->show->bytes;
	u32 payload;

	do {
		payload = min_t(u64, left, 1U << message->mtu_shift);
		peal_show_response(scene, (struct peal_packet){
			.opcode = peal_opcode_read_response(message->transport, !at,
							    at + 1 == message->packets),
			.syndrome = PEAL_SYNDROME_ACK | PEAL_CREDITS_UNLIMITED,
			.payload_bytes = payload,
		}, at);
		left -= payload;
		at++;
	} while (left);
}

/* What the peer answers, if it answers: data, an acknowledgment, or a NAK. */
static void peal_show_responses(struct peal_show_scene *scene)
{
	const struct peal_outcome *outcome = scene->show->outcome;
	const struct peal_message *message = &scene->message;
	struct peal_packet header = {
		.opcode = peal_opcode_of(message->transport, PEAL_WIRE_ACK),
		.syndrome = PEAL_SYNDROME_ACK | PEAL_CREDITS_UNLIMITED,
	};
	u32 at = scene->show->done >> message->mtu_shift;
	struct peal_cursor word PEAL_UNINITIALIZED;

	if (message->transport == PEAL_UC || outcome->what == PEAL_SILENT)
		return;
	if (outcome->what > PEAL_PROGRESS) {
		header.syndrome = outcome->syndrome;
	} else if (message->wqe.opcode == PEAL_OP_READ) {
		peal_show_read_responses(scene);
		return;
	} else if (outcome->what == PEAL_PROGRESS) {
		return;
	} else if (message->op->placement) {
		header.opcode = peal_opcode_read_response(message->transport, true, true);
	} else if (message->op->atomic) {
		header.opcode = peal_opcode_of(message->transport, PEAL_WIRE_ATOMIC_ACK);
		peal_cursor_inline(&word, &header.original, sizeof(header.original));
		peal_cursor_copy(&word, scene->show->local, sizeof(header.original));
	} else {
		at = message->packets - 1;
	}
	peal_show_response(scene, header, at);
}

/*
 * The peer of a connection on the direct path may have no path for packets, so both paths are drawn
 * from the address vector of the requester. The UDP source ports are those of the queue pairs'
 * packets.
 */
void peal_show_message(struct peal_qp *qp, const struct peal_show *show)
{
	struct ib_global_route grh = qp->attr.ah_attr.grh;
	const struct peal_wqe *wqe = &qp->sq.wqe;
	const union ib_gid peer_gid = grh.dgid;
	struct peal_show_scene scene = {
		.show = show,
		.message = {
			.wqe = *wqe, .op = peal_op(wqe->opcode), .psn = show->psn,
			.transport = peal_qp_bth_transport(qp),
			.mtu_shift = peal_qp_mtu_shift(qp),
			.packets = peal_qp_packets(qp, wqe->length),
		},
		.from = qp->table->port,
		.qpn = qp->ib.qp_num,
		.peer_qpn = qp->attr.dest_qp_num,
	};

	peal_epoch_assert_held();
	lockdep_assert_held(&qp->sq.lock);
	peal_path_draw(&scene.out, scene.from, &qp->sgid, &grh,
		       hash_64((u64)scene.qpn << 32 | scene.peer_qpn, 32));
	scene.out.ifindex = READ_ONCE(qp->sgid_ifindex);
	scene.out.sl = qp->attr.ah_attr.sl;
	grh.dgid = qp->sgid;
	peal_path_draw(&scene.back, show->to, &peer_gid, &grh,
		       hash_64((u64)scene.peer_qpn << 32 | scene.qpn, 32));
	scene.back.ifindex = show->to_ifindex;
	scene.back.sl = scene.out.sl;
	peal_show_requests(&scene);
	peal_show_responses(&scene);
}
