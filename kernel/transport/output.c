// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See output.h.
 */
#include <linux/hash.h>
#include <net/inet_ecn.h>

#include "base/compat.h"
#include "base/trace.h"
#include "engine/engine.h"
#include "net/port.h"
#include "transport/output.h"
#include "transport/sender.h"

/* DSCP 48 (CS6), as RNICs send congestion notifications, so that these do not wait behind data. */
#define PEAL_OUTPUT_CNP_TOS	0xc0

static void peal_output_ready(struct peal_waiter *waiter)
{
	struct peal_output *output = container_of(waiter, struct peal_output, waiter);

	peal_defer(output->qp);
}

void peal_output_init(struct peal_output *output, struct peal_qp *qp,
		      const struct peal_options *options)
{
	output->options = options;
	output->qp = qp;
	INIT_LIST_HEAD(&output->waiter.node);
	output->waiter.ready = peal_output_ready;
}

static struct peal_path *peal_output_path(struct peal_output *output)
{
	return &output->path[output->now];
}

static struct peal_path *peal_output_other(struct peal_output *output)
{
	return &output->path[!output->now];
}

static void peal_output_unstage(struct peal_output *output)
{
	if (output->staged)
		peal_path_release(peal_output_other(output));
	output->staged = false;
}

/**
 * peal_output_stage() - prepare another path, while the present one stays in use
 * @tx_quota: the path's packets are charged to this transmit quota
 * @mtu: the path MTU that packets will have
 *
 * The caller holds `control`.
 *
 * Return: 0, -EINVAL (path MTU too large for the link, or no RoCEv2 GID), -ENETUNREACH or
 * another error of the route lookup.
 */
int peal_output_stage(struct peal_output *output, struct peal_port *port,
		      struct peal_tx_quota *tx_quota, const struct rdma_ah_attr *attr, u32 peer_qpn,
		      enum ib_mtu mtu)
{
	struct peal_path *path = peal_output_other(output);
	u32 qpn = output->qp->ib.qp_num;
	int ret;

	lockdep_assert_held(&output->qp->control);
	peal_output_unstage(output);
	ret = peal_path_resolve(path, port, tx_quota, attr, hash_64((u64)qpn << 32 | peer_qpn, 32));
	if (ret) {
		trace_peal_path(qpn, ret, PEAL_REASON_NO_ROUTE);
		return ret;
	}
	output->staged = true;
	if (peal_path_fits(path, mtu))
		return 0;
	trace_peal_path(qpn, -EINVAL, PEAL_REASON_PATH_MTU);
	peal_output_unstage(output);
	return -EINVAL;
}

/* Under qp->control, sq.lock and rq.lock. */
void peal_output_use_staged(struct peal_output *output)
{
	lockdep_assert_held(&output->qp->control);
	peal_qp_assert_both_held(output->qp);
	if (!output->staged)
		return;
	if (output->open)
		peal_path_release(peal_output_path(output));
	output->now = !output->now;
	output->open = true;
	output->staged = false;
}

/* Stop waiting for room. After this output->waiter.ready is not running and will not be called. */
void peal_output_stop(struct peal_output *output)
{
	if (output->open)
		peal_tx_quota_cancel(peal_output_path(output)->tx_quota, &output->waiter);
}

void peal_output_free(struct peal_output *output)
{
	peal_output_stop(output);
	peal_output_unstage(output);
	if (output->open)
		peal_path_release(peal_output_path(output));
	output->open = false;
}

/* Do packets to the peer leave through the netdev @ifindex? Under sq.lock or rq.lock. */
bool peal_output_leaves_by(struct peal_output *output, int ifindex)
{
	peal_qp_assert_either_held(output->qp);
	return output->open && peal_path_leaves_by(peal_output_path(output), ifindex);
}

/* Is there room to send? If not, the engine gives the queue pair a turn once there is. */
bool peal_output_has_quota(struct peal_output *output)
{
	struct peal_tx_quota *tx_quota = peal_output_path(output)->tx_quota;

	peal_qp_assert_either_held(output->qp);
	if (likely(peal_tx_quota_is_left(tx_quota)))
		return true;
	peal_count(output->qp, full_queues);
	return !peal_tx_quota_wait(tx_quota, &output->waiter);
}

/*
 * Time for which an out-of-order packet is kept. The requester retransmits a missing packet within
 * a round trip. If the retransmission is lost as well, the requester's timeout helps. The queue
 * pair's own timeout is the best guess of the peer's, and a second if it is not set. A packet that
 * has waited for several timeouts is dropped, because the requester does not know of the packet
 * before it any more.
 */
#define PEAL_REORDER_TIMEOUTS	2
#define PEAL_REORDER_LEAST_NS	(50 * NSEC_PER_MSEC)
#define PEAL_REORDER_MOST_NS	(30 * NSEC_PER_SEC)

u64 peal_output_reorder_ns(const struct peal_qp *qp)
{
	u64 timeout = peal_qp_timeout_ns(qp) ?: NSEC_PER_SEC;

	return clamp_t(u64, PEAL_REORDER_TIMEOUTS * timeout, PEAL_REORDER_LEAST_NS,
		       PEAL_REORDER_MOST_NS);
}

void peal_output_begin(struct peal_output *output, struct peal_train *train)
{
	peal_qp_assert_either_held(output->qp);
	peal_tx_begin(train, peal_output_path(output));
}

/*
 * The TOS of a packet, ECN bits included (RFC 3168). Requests and READ responses are data, so their
 * sender reacts when they are marked. ACKs, NAKs, challenges and congestion notifications are
 * Not-ECT, because no sender reacts for them.
 *
 * Retransmissions are data like all others, as those of RNICs are. RFC 3168 (6.1.5) forbids that
 * for TCP. An attacker could mark a forged retransmission, and the receiver would report it. Here
 * this changes nothing, because an attacker that can forge such a packet can also forge the report.
 */
static __always_inline u8 peal_output_tos(struct peal_output *output,
					  const struct peal_packet *header)
{
	const struct peal_path *path = peal_output_path(output);
	u32 has = peal_packet_opcode(header)->has;

	if (!(has & (PEAL_HAS_REQUEST | PEAL_HAS_READ)))
		return header->opcode == PEAL_OPCODE_CNP ? PEAL_OUTPUT_CNP_TOS : path->tclass;
	switch (peal_options_ecn(output->options)) {
	case PEAL_NL_ECN_ASKED:
		return path->tclass | path->ecn;
	case PEAL_NL_ECN_ON:
		return path->tclass | INET_ECN_ECT_0;
	default:
		return path->tclass;
	}
}

/* The device has rules, which see each packet of a run. Otherwise as peal_output_add(). */
static noinline bool peal_output_add_faulty(struct peal_output *output, struct peal_train *train,
					    const struct peal_packet *header,
					    struct peal_cursor *payload)
{
	const struct peal_qp *qp = output->qp;
	struct peal_packet packet;
	bool all = true;
	u32 i;

	for (i = 0; i < peal_packet_count(header); i++) {
		peal_packet_of_run(header, i, &packet);
		if (!peal_sender_finds_no_memory(qp, qp->attr.ah_attr.grh.dgid.raw) &&
		    peal_tx_add(train, &packet, peal_output_tos(output, header), payload))
			continue;
		/* The bytes of a packet that was not added are still there. */
		if (packet.payload_bytes)
			peal_cursor_skip(payload, packet.payload_bytes);
		all = false;
	}
	return all;
}

/*
 * Set the fields of @header that name the peer, and add the packet to the train as peal_tx_add()
 * does. @again: the packet is a retransmission.
 */
bool peal_output_add(struct peal_output *output, struct peal_train *train,
		     struct peal_packet *header, struct peal_cursor *payload, bool again)
{
	peal_qp_assert_either_held(output->qp);
	header->qpn = output->qp->attr.dest_qp_num;
	header->pkey = PEAL_DEFAULT_PKEY;
	trace_peal_packet_sent(output->qp->ib.qp_num, header, again);
	/* Without challenges no message would go direct. */
	if (peal_faults_exist(&output->qp->table->faults) &&
	    header->opcode != PEAL_OPCODE_CHALLENGE)
		return peal_output_add_faulty(output, train, header, payload);
	return peal_tx_add(train, header, peal_output_tos(output, header), payload);
}

/* Return: as peal_tx_flush(). */
int peal_output_flush(struct peal_output *output, struct peal_train *train)
{
	peal_qp_assert_either_held(output->qp);
	return peal_tx_flush(train);
}

/*
 * Send a new packet with header->payload_bytes bytes from @payload. Without memory the packet
 * counts as lost.
 */
void peal_output_send_bytes(struct peal_output *output, struct peal_packet *header,
			    const void *payload)
{
	struct peal_train train PEAL_UNINITIALIZED;
	struct peal_cursor from PEAL_UNINITIALIZED;

	header->pad = -header->payload_bytes & 3;
	peal_cursor_inline(&from, payload, header->payload_bytes);
	peal_output_begin(output, &train);
	peal_output_add(output, &train, header, &from, false);
	peal_output_flush(output, &train);
}

bool peal_output_send_cnp(struct peal_output *output)
{
	struct peal_packet header = { .opcode = PEAL_OPCODE_CNP, .becn = true };
	struct peal_train train PEAL_UNINITIALIZED;

	peal_qp_assert_either_held(output->qp);
	if (!peal_tx_quota_is_left(peal_output_path(output)->tx_quota))
		return false;
	peal_output_begin(output, &train);
	return peal_output_add(output, &train, &header, NULL, false) &&
	       !peal_output_flush(output, &train);
}
