// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See outbound.h. Clauses are those of the IBTA specification, volume 1.
 */
#include <linux/limits.h>
#include <linux/minmax.h>
#include <linux/string.h>
#include <rdma/ib_verbs.h>

#include "outbound.h"
#include "psn.h"
#include "rnr.h"

/* 9.7.5.2.8: this RNR retry count means "for ever". */
#define RNR_FOREVER		7
/* The estimate never waits longer than this, also when the transport never gives up. */
#define LONGEST_RTO_NS		1000000000ULL
/* After a fatal NAK the peer may be gone: what came before does not wait for ever. */
#define LAST_TIMEOUT_NS		1000000000ULL
/* So many lone retransmissions in a row may fill nothing but their own gap ... */
#define LONE_ANSWERS		2
/* ... and each is of twice as many packets, up to two to the power of this. */
#define LONE_SHIFT		5

/* ---- messages and their places ---- */

static struct peal_flight *peal_outbound_flight(const struct peal_outbound *o, u32 index)
{
	return &o->flight[index & o->mask];
}

static bool peal_outbound_reliable(const struct peal_outbound *o)
{
	return o->config.transport == PEAL_RC;
}

static bool peal_index_before(u32 a, u32 b)
{
	return (s32)(a - b) < 0;
}

static bool peal_psn_before(u32 a, u32 b)
{
	return peal_psn_distance(a, b) > 0;
}

/* From @a on to @b, which is not before it. */
static u32 peal_psn_ahead(u32 a, u32 b)
{
	return (b - a) & PEAL_PSN_MASK;
}

static void peal_psn_raise(u32 *psn, u32 to)
{
	if (peal_psn_before(*psn, to))
		*psn = to;
}

static bool peal_op_is_atomic(u8 opcode)
{
	return opcode == PEAL_OP_CMP_SWAP || opcode == PEAL_OP_FETCH_ADD;
}

/* Its acknowledgement is data: no other packet's will do (9.7.5.1). */
static bool peal_op_wants_data(u8 opcode)
{
	return opcode == PEAL_OP_READ || peal_op_is_atomic(opcode);
}

static bool peal_op_takes_receive(u8 opcode)
{
	return opcode == PEAL_OP_SEND || opcode == PEAL_OP_SEND_IMM ||
	       opcode == PEAL_OP_SEND_INV || opcode == PEAL_OP_WRITE_IMM;
}

static bool peal_op_is_local(u8 opcode)
{
	return opcode == PEAL_OP_INVALID || opcode == PEAL_OP_BIND_MW ||
	       opcode >= PEAL_OP_LOCAL_INV;
}

/* 9.8, 9.8.3: UC has no operations with answers, UD none but SEND; neither invalidates. */
static bool peal_outbound_carries(const struct peal_outbound *o, u8 opcode)
{
	switch (opcode) {
	case PEAL_OP_SEND:
	case PEAL_OP_SEND_IMM:
		return true;
	case PEAL_OP_WRITE:
	case PEAL_OP_WRITE_IMM:
		return o->config.transport != PEAL_UD;
	default:
		return peal_outbound_reliable(o);
	}
}

/* PSNs: one for each request packet; of a READ, one for each response (9.7.2). */
static u32 peal_outbound_packets(const struct peal_outbound *o, const struct peal_message *message)
{
	u32 mtu = 1U << o->config.mtu_shift;

	if (peal_op_is_local(message->opcode))
		return 0;
	if (peal_op_is_atomic(message->opcode) || !message->length ||
	    o->config.transport == PEAL_UD)
		return 1;
	return (message->length + mtu - 1) >> o->config.mtu_shift;
}

/* The message that has @psn, una <= @psn < top. */
static u32 peal_outbound_find(const struct peal_outbound *o, u32 psn)
{
	u32 index = o->acking;

	while (index != o->sending) {
		const struct peal_flight *f = peal_outbound_flight(o, index);

		if (peal_psn_ahead(f->psn, psn) < f->packets)
			break;
		index++;
	}
	return index;
}

/* PSNs from @at to the end of the piece of a READ that has it. */
static u32 peal_flight_piece(const struct peal_flight *f, u32 at)
{
	return min_t(u32, PEAL_READ_PIECE - at % PEAL_READ_PIECE, f->packets - at);
}

/* Bytes in @packets PSNs of the message from @at on. */
static u32 peal_outbound_bytes(const struct peal_outbound *o, const struct peal_flight *f, u32 at,
			       u32 packets)
{
	u64 offset = (u64)at << o->config.mtu_shift;

	return min_t(u64, (u64)packets << o->config.mtu_shift, f->message.length - offset);
}

static u32 peal_outbound_outstanding(const struct peal_outbound *o)
{
	return peal_psn_ahead(o->una, o->top);
}

/* Something is to be acknowledged that still matters. */
static bool peal_outbound_waits(const struct peal_outbound *o)
{
	if (o->una == o->top)
		return false;
	return !o->failed || peal_index_before(o->acking, o->bad);
}

/* ---- set-up ---- */

void peal_outbound_init(struct peal_outbound *o, struct peal_flight *flight, u32 entries)
{
	memset(o, 0, sizeof(*o));
	o->flight = flight;
	o->mask = entries - 1;
	peal_outbound_reset(o);
}

void peal_outbound_reset(struct peal_outbound *o)
{
	struct peal_outbound_config config = o->config;
	struct peal_flight *flight = o->flight;
	u32 mask = o->mask;

	memset(o, 0, sizeof(*o));
	o->flight = flight;
	o->mask = mask;
	peal_outbound_configure(o, &config);
	peal_window_reset(&o->window);
	peal_rto_reset(&o->rto);
	peal_outbound_set_psn(o, 0);
}

/* Messages under way were cut for the path MTU they were posted with. */
void peal_outbound_configure(struct peal_outbound *o, const struct peal_outbound_config *config)
{
	u8 mtu_shift = o->config.mtu_shift;

	o->config = *config;
	if (!peal_outbound_idle(o))
		o->config.mtu_shift = mtu_shift;
	peal_window_limit(&o->window, config->window);
	peal_rto_limit(&o->rto, min_t(u64, config->timeout_ns ? config->timeout_ns : U64_MAX,
				      LONGEST_RTO_NS));
}

static void peal_outbound_all_acked(struct peal_outbound *o)
{
	o->una = o->top;
	o->seen = o->top;
	o->reached = o->top;
	o->again = o->top;
	o->again_end = o->top;
}

void peal_outbound_set_psn(struct peal_outbound *o, u32 psn)
{
	o->top = psn & PEAL_PSN_MASK;
	o->posted = o->top;
	o->gap_psn = peal_psn_add(o->top, PEAL_PSN_MASK);
	peal_outbound_all_acked(o);
}

void peal_outbound_post(struct peal_outbound *o, const struct peal_message *message)
{
	struct peal_flight *f = peal_outbound_flight(o, o->head);

	*f = (struct peal_flight) {
		.message = *message,
		.psn = o->posted,
		.packets = peal_outbound_packets(o, message),
		.local = peal_op_is_local(message->opcode),
	};
	o->posted = peal_psn_add(o->posted, f->packets);
	o->head++;
}

/* ---- failure ---- */

/* The first failure in the order of messages is the one that counts (9.9.2). */
static void peal_outbound_fail(struct peal_outbound *o, u32 index, u8 status, u32 reason)
{
	struct peal_flight *f = peal_outbound_flight(o, index);

	if (o->failed && !peal_index_before(index, o->bad))
		return;
	o->failed = true;
	o->bad = index;
	f->status = status;
	f->reason = reason;
}

void peal_outbound_spoil(struct peal_outbound *o, u32 flight, u8 status, u32 reason)
{
	if (!peal_index_before(flight, o->tail) && peal_index_before(flight, o->head))
		peal_outbound_fail(o, flight, status, reason);
}

void peal_outbound_local_done(struct peal_outbound *o, u32 flight, u8 status, u32 reason)
{
	peal_outbound_flight(o, flight)->done = true;
	if (status)
		peal_outbound_spoil(o, flight, status, reason);
}

/* ---- timers ---- */

static u64 peal_outbound_timeout(const struct peal_outbound *o)
{
	if (o->config.timeout_ns)
		return o->config.timeout_ns;
	return o->failed ? LAST_TIMEOUT_NS : 0;
}

static void peal_outbound_stop_timers(struct peal_outbound *o)
{
	o->probe_at = 0;
	o->give_up_at = 0;
	o->gap_at = 0;
}

/* Something is outstanding: those that do not run begin. */
static void peal_outbound_arm(struct peal_outbound *o, u64 now)
{
	u64 timeout = peal_outbound_timeout(o);

	if (!o->probe_at)
		o->probe_at = now + o->rto.ns;
	if (!o->give_up_at && timeout)
		o->give_up_at = now + timeout;
}

/* There was progress: all begin anew. */
static void peal_outbound_rearm(struct peal_outbound *o, u64 now)
{
	peal_outbound_stop_timers(o);
	if (o->una != o->top)
		peal_outbound_arm(o, now);
}

/* ---- packets ---- */

static void peal_outbound_fill_operands(struct peal_packet *header, const struct peal_message *m)
{
	switch (m->opcode) {
	case PEAL_OP_CMP_SWAP:
		header->compare = m->atomic.compare_add;
		header->swap_add = m->atomic.swap;
		break;
	case PEAL_OP_FETCH_ADD:
		header->swap_add = m->atomic.compare_add;
		break;
	case PEAL_OP_SEND_IMM:
	case PEAL_OP_WRITE_IMM:
		header->imm = m->imm_or_rkey;
		break;
	case PEAL_OP_SEND_INV:
		header->inv_rkey = m->imm_or_rkey;
		break;
	}
}

/* A READ's request names what is still wanted of it, from @at on (9.7.5.1.1). */
static void peal_outbound_fill_read(const struct peal_outbound *o, const struct peal_flight *f,
				    u32 at, u32 packets, struct peal_packet *header)
{
	header->opcode = peal_opcode_of(PEAL_RC, PEAL_WIRE_READ_REQUEST);
	header->remote_addr = f->message.remote_addr + ((u64)at << o->config.mtu_shift);
	header->length = peal_outbound_bytes(o, f, at, packets);
}

static void peal_outbound_fill_request(const struct peal_outbound *o, const struct peal_flight *f,
				       u32 at, struct peal_packet *header)
{
	const struct peal_message *m = &f->message;
	bool last = at + 1 == f->packets;

	header->opcode = peal_opcode_request(o->config.transport, m->opcode, at == 0, last);
	header->remote_addr = m->remote_addr;
	header->length = m->length;
	peal_outbound_fill_operands(header, m);
	if (peal_op_is_atomic(m->opcode))
		return;
	header->payload_bytes = peal_outbound_bytes(o, f, at, 1);
	header->pad = -header->payload_bytes & 3;
	header->solicited = last && m->flags & PEAL_WQE_SOLICITED &&
			    peal_op_takes_receive(m->opcode);
}

/* The packet of message @index that has @packets PSNs from its @at-th on. */
static void peal_outbound_build(const struct peal_outbound *o, u32 index, u32 at, u32 packets,
				struct peal_outgoing *out)
{
	const struct peal_flight *f = peal_outbound_flight(o, index);

	memset(out, 0, sizeof(*out));
	out->flight = index;
	out->offset = (u64)at << o->config.mtu_shift;
	out->header.psn = peal_psn_add(f->psn, at);
	out->header.rkey = f->message.rkey;
	out->header.migrated = true;	/* no path migration: always (9.2, 17.2.8) */
	if (f->message.opcode == PEAL_OP_READ)
		peal_outbound_fill_read(o, f, at, packets, &out->header);
	else
		peal_outbound_fill_request(o, f, at, &out->header);
	out->header.header_bytes = peal_packet_opcode(&out->header)->header_bytes;
}

/* ---- retransmission ---- */

/*
 * PSNs that one packet from @psn on gets answered. A READ that the peer has not
 * executed must be asked for as it was; of one that it has, only what is
 * missing up to the first response that was kept.
 */
static u32 peal_outbound_span(const struct peal_outbound *o, const struct peal_flight *f, u32 psn)
{
	u32 at = peal_psn_ahead(f->psn, psn);
	u32 span, kept;

	if (f->message.opcode != PEAL_OP_READ)
		return 1;
	span = peal_flight_piece(f, at);
	if (!peal_psn_before(psn, o->reached))
		return span;
	kept = peal_early_first(&o->early, psn);
	return kept == psn ? span : min_t(u32, span, peal_psn_ahead(psn, kept));
}

/* How many PSNs from `again` on need no retransmission. */
static u32 peal_outbound_needless(const struct peal_outbound *o, const struct peal_flight *f)
{
	u32 left = f->packets - peal_psn_ahead(f->psn, o->again);

	if (!peal_psn_before(o->again, o->reached))
		return 0;
	if (peal_op_wants_data(f->message.opcode))
		return peal_early_has(&o->early, o->again) ? 1 : 0;
	return min_t(u32, left, peal_psn_ahead(o->again, o->reached));
}

static void peal_outbound_stop_again(struct peal_outbound *o)
{
	o->again = o->una;
	o->again_end = o->una;
	o->again_flight = o->acking;
}

/* Move `again` to the next packet that has to leave once more; false: there is none. */
static bool peal_outbound_seek(struct peal_outbound *o)
{
	while (o->again != o->again_end) {
		const struct peal_flight *f = peal_outbound_flight(o, o->again_flight);
		u32 skip;

		if (o->failed && !peal_index_before(o->again_flight, o->bad))
			break;
		if (peal_psn_ahead(f->psn, o->again) >= f->packets) {
			o->again_flight++;
			continue;
		}
		skip = peal_outbound_needless(o, f);
		if (!skip)
			return true;
		skip = min_t(u32, skip, peal_psn_ahead(o->again, o->again_end));
		o->again = peal_psn_add(o->again, skip);
	}
	o->again_end = o->again;
	return false;
}

static enum peal_pause peal_outbound_resend(struct peal_outbound *o, u64 now,
					    struct peal_outgoing *out)
{
	const struct peal_flight *f = peal_outbound_flight(o, o->again_flight);
	u32 span = peal_outbound_span(o, f, o->again);
	u32 ahead = peal_psn_ahead(o->una, o->again);

	if (!o->probing && ahead && ahead + span > o->window.size)
		return PEAL_PAUSE_WINDOW;
	peal_outbound_build(o, o->again_flight, peal_psn_ahead(f->psn, o->again), span, out);
	out->again = true;
	out->header.ack_request = !peal_op_wants_data(f->message.opcode);
	o->again = peal_psn_add(o->again, span);
	peal_psn_raise(&o->again_end, o->again);
	if (o->probing && !o->probe_left && !peal_outbound_seek(o)) {
		o->probe_left = true;
		o->probe_left_at = now;
		peal_psn_raise(&o->probe_end, o->again_end);
	}
	peal_rto_sent_again(&o->rto, out->header.psn, o->again);
	peal_window_asked(&o->window);
	peal_outbound_arm(o, now);
	return PEAL_PAUSE_NONE;
}

/* Go-back-N: everything from una on, but what the peer is known to have (9.7.5.1.2). */
static void peal_outbound_go_back(struct peal_outbound *o)
{
	o->probing = PEAL_PROBE_NONE;
	peal_outbound_stop_again(o);
	o->again_end = o->top;
}

/*
 * One packet, to learn from its answer what else the peer has. Many peers throw
 * away what comes early, but one that keeps it needs nothing else, and nobody
 * is flooded who has just been. When the packet after it turns out to be missing
 * each time, a few more. What is missing before @psn is READ responses, and they
 * are asked for as well.
 */
static void peal_outbound_start_probe(struct peal_outbound *o, enum peal_probe why, u32 psn,
				      u64 now)
{
	const struct peal_flight *f = peal_outbound_flight(o, peal_outbound_find(o, psn));
	u32 packets = min_t(u32, 1U << o->lone_answers, peal_psn_ahead(psn, o->top));

	o->probing = why;
	o->probe_psn = psn;
	o->probe_end = peal_psn_add(psn, max_t(u32, packets, peal_outbound_span(o, f, psn)));
	o->probe_left = false;
	o->probe_heard = false;
	peal_outbound_stop_again(o);
	o->again_end = o->probe_end;
	if (why != PEAL_PROBE_NAK)
		peal_rto_forget(&o->rto);
	o->probe_at = now + o->rto.ns;
}

/* An answer that came sooner after the probe than any can answers something else. */
static bool peal_outbound_answers_probe(const struct peal_outbound *o, u64 now)
{
	return o->probe_left && peal_rto_plausible(&o->rto, o->probe_left_at, now);
}

/* The first thing heard after a silence. */
static void peal_outbound_hear(struct peal_outbound *o, u64 now)
{
	if (o->probing != PEAL_PROBE_SILENCE || !o->probe_left || o->probe_heard)
		return;
	o->probe_heard = true;
	peal_rto_heard(&o->rto, o->probe_left_at, now);
}

/*
 * The probe filled its own gap, and the next packet is missing as well. A peer
 * that says so has something beyond, or it would not know.
 */
static void peal_outbound_lone_answer(struct peal_outbound *o, bool nak, u64 now)
{
	bool keeps = o->probing == PEAL_PROBE_NAK && (nak || o->peer_keeps);

	if (o->lone_answers < LONE_SHIFT)
		o->lone_answers++;
	if (keeps && (nak || o->lone_answers < LONE_ANSWERS)) {
		peal_outbound_start_probe(o, PEAL_PROBE_NAK, o->una, now);
		return;
	}
	o->peer_keeps = o->peer_keeps && !keeps;
	o->lone_answers = 0;
	peal_outbound_go_back(o);
}

/*
 * There was progress while a probe was out. @ack: by an explicit ACK, which
 * names all that the peer has; after the responses of a READ one may follow.
 */
static void peal_outbound_probe_progress(struct peal_outbound *o, bool ack, u64 now)
{
	if (peal_psn_before(o->probe_end, o->reached)) {
		if (o->probing != PEAL_PROBE_SILENCE)
			o->peer_keeps = true;
		o->lone_answers = 0;
		o->probing = PEAL_PROBE_NONE;
		return;
	}
	if (o->una != o->probe_end)
		return;
	if (o->una == o->top)
		o->probing = PEAL_PROBE_NONE;
	else if (!ack)
		o->probe_at = now + peal_rto_patience(&o->rto);
	else if (!peal_outbound_answers_probe(o, now))
		o->probing = PEAL_PROBE_NONE;
	else
		peal_outbound_lone_answer(o, false, now);
}

/* ---- new packets ---- */

static bool peal_outbound_must_answer(const struct peal_outbound *o)
{
	return o->probing && !(o->probing == PEAL_PROBE_NAK && o->peer_keeps);
}

/*
 * Without credit one packet may go when nothing else is out, so that an update
 * that was lost cannot stop the connection; when it was acknowledged there was
 * a receive, and the rest of the message follows (9.7.7.2.5).
 */
static bool peal_outbound_has_credit(const struct peal_outbound *o, const struct peal_flight *f)
{
	bool first = !o->sending_packet;
	u32 ssn = peal_psn_add(o->credit.ssn, first ? 1 : 0);

	if (!peal_op_takes_receive(f->message.opcode) || peal_credit_covers(&o->credit, ssn))
		return true;
	return o->una == o->top || (!first && o->una != f->psn && o->acking == o->sending);
}

static enum peal_pause peal_outbound_may_begin(const struct peal_outbound *o,
					       const struct peal_flight *f)
{
	if (!o->sending_packet && f->message.flags & PEAL_WQE_FENCE && o->rd_atomic)
		return PEAL_PAUSE_FENCE;
	if (f->local || !peal_outbound_reliable(o))
		return PEAL_PAUSE_NONE;
	if (peal_op_wants_data(f->message.opcode) && o->rd_atomic >= o->config.max_rd_atomic)
		return PEAL_PAUSE_RD_ATOMIC;
	if (!peal_outbound_has_credit(o, f))
		return PEAL_PAUSE_CREDIT;
	return PEAL_PAUSE_NONE;
}

/* On a path that loses, no more than the peer may be able to keep. */
static bool peal_outbound_window_open(const struct peal_outbound *o, u32 span)
{
	u32 outstanding = peal_outbound_outstanding(o);
	u32 size = o->window.size;

	if (o->probing || o->peer_keeps)
		size = min_t(u32, size, PEAL_EARLY_SLOTS);
	return !outstanding || outstanding + span <= size;
}

static u32 peal_outbound_new_span(const struct peal_outbound *o, const struct peal_flight *f)
{
	return f->message.opcode == PEAL_OP_READ ? peal_flight_piece(f, o->sending_packet) : 1;
}

/* What can never leave fails in its turn. */
static bool peal_outbound_refuses(struct peal_outbound *o, const struct peal_flight *f)
{
	if (f->local)
		return false;
	if (!peal_outbound_carries(o, f->message.opcode))
		peal_outbound_fail(o, o->sending, IB_WC_LOC_QP_OP_ERR, PEAL_REASON_WQE_OPCODE);
	else if (peal_op_wants_data(f->message.opcode) && !o->config.max_rd_atomic)
		peal_outbound_fail(o, o->sending, IB_WC_LOC_QP_OP_ERR, PEAL_REASON_RD_ATOMIC_LIMIT);
	return o->failed && o->bad == o->sending;
}

static enum peal_pause peal_outbound_may_send(struct peal_outbound *o)
{
	const struct peal_flight *f = peal_outbound_flight(o, o->sending);
	enum peal_pause pause;

	if (o->failed && !peal_index_before(o->sending, o->bad))
		return PEAL_PAUSE_FAILED;
	if (peal_outbound_must_answer(o))
		return PEAL_PAUSE_ANSWER;
	if (o->sending == o->head)
		return PEAL_PAUSE_EMPTY;
	if (peal_outbound_refuses(o, f))
		return PEAL_PAUSE_FAILED;
	pause = peal_outbound_may_begin(o, f);
	if (!pause && !f->local && !peal_outbound_window_open(o, peal_outbound_new_span(o, f)))
		pause = PEAL_PAUSE_WINDOW;
	return pause;
}

/* una follows `reached` up to the first READ or atomic whose answer is missing. */
static void peal_outbound_follow(struct peal_outbound *o)
{
	while (o->acking != o->head) {
		const struct peal_flight *f = peal_outbound_flight(o, o->acking);
		u32 left = f->packets - peal_psn_ahead(f->psn, o->una);
		u32 step = min_t(u32, left, peal_psn_ahead(o->una, o->reached));

		if (left && (!step || peal_op_wants_data(f->message.opcode)))
			return;
		if (!left && o->acking == o->sending)
			return;
		o->una = peal_psn_add(o->una, step);
		if (step == left)
			o->acking++;
	}
}

static void peal_outbound_name_local(struct peal_outbound *o, struct peal_outgoing *out)
{
	memset(out, 0, sizeof(*out));
	out->local = true;
	out->flight = o->sending++;
	peal_outbound_follow(o);
}

/* Every READ is answered. Others ask where the sender would wait, and now and then. */
static bool peal_outbound_asks(struct peal_outbound *o, const struct peal_flight *f)
{
	bool last = o->sending_packet == f->packets;
	bool ask = peal_window_ask(&o->window, peal_outbound_outstanding(o));

	if (peal_op_wants_data(f->message.opcode)) {
		peal_window_asked(&o->window);
		return false;
	}
	ask |= last && (f->message.flags & PEAL_WQE_SIGNALED ||
			(o->sending + 1 == o->head && !f->message.more));
	ask |= o->credit.limited && peal_op_takes_receive(f->message.opcode) &&
	       !peal_credit_covers(&o->credit, o->credit.ssn);
	if (ask)
		peal_window_asked(&o->window);
	return ask;
}

/* Left and forgotten: nobody acknowledges it (9.8.2.1, 9.8.3). */
static void peal_outbound_unreliable_left(struct peal_outbound *o)
{
	peal_outbound_all_acked(o);
	peal_outbound_follow(o);
}

static void peal_outbound_left(struct peal_outbound *o, const struct peal_flight *f, u64 now,
			       struct peal_packet *header)
{
	bool wants_data = peal_op_wants_data(f->message.opcode);

	o->rd_atomic += wants_data;
	header->ack_request = peal_outbound_asks(o, f);
	if (header->ack_request || wants_data)
		peal_rto_start(&o->rto, header->psn, now);
	peal_outbound_arm(o, now);
}

static void peal_outbound_send(struct peal_outbound *o, u64 now, struct peal_outgoing *out)
{
	const struct peal_flight *f = peal_outbound_flight(o, o->sending);
	u32 span = peal_outbound_new_span(o, f);

	peal_outbound_build(o, o->sending, o->sending_packet, span, out);
	if (!o->sending_packet || f->message.opcode == PEAL_OP_READ)
		peal_credit_use(&o->credit);
	o->sending_packet += span;
	o->top = peal_psn_add(o->top, span);
	if (peal_outbound_reliable(o))
		peal_outbound_left(o, f, now, &out->header);
	if (o->sending_packet == f->packets) {
		o->sending++;
		o->sending_packet = 0;
	}
	if (!peal_outbound_reliable(o))
		peal_outbound_unreliable_left(o);
}

enum peal_pause peal_outbound_next(struct peal_outbound *o, u64 now, struct peal_outgoing *out)
{
	enum peal_pause pause;

	if (o->rnr_until)
		return PEAL_PAUSE_RNR;
	if (peal_outbound_seek(o))
		return peal_outbound_resend(o, now, out);
	pause = peal_outbound_may_send(o);
	if (pause)
		return pause;
	if (peal_outbound_flight(o, o->sending)->local)
		peal_outbound_name_local(o, out);
	else
		peal_outbound_send(o, now, out);
	return PEAL_PAUSE_NONE;
}

/* ---- responses ---- */

static void peal_outbound_drop(struct peal_landing *landing, enum peal_drop drop, bool duplicate)
{
	landing->what = PEAL_LANDING_DROPPED;
	landing->drop = drop;
	landing->duplicate = duplicate;
}

/* una was @from. All retries are there again (9.7.6.1.3). */
static void peal_outbound_progress(struct peal_outbound *o, u32 from, bool ack, u64 now)
{
	if (o->una == from)
		return;
	peal_psn_raise(&o->seen, o->una);
	peal_psn_raise(&o->reached, o->una);
	o->retries = 0;
	o->naked = false;
	if (peal_psn_before(o->rnr_psn, o->una)) {
		o->rnr_retries = 0;
		o->rnr_until = 0;
	}
	peal_window_grow(&o->window, peal_psn_ahead(from, o->una), o->una);
	if (peal_psn_before(o->again, o->una)) {
		o->again = o->una;
		o->again_flight = o->acking;
	}
	peal_psn_raise(&o->again_end, o->again);
	peal_outbound_rearm(o, now);
	if (o->probing)
		peal_outbound_probe_progress(o, ack, now);
}

/*
 * Something after una was answered, and una is a READ response or atomic's: it
 * is late or lost (9.7.5.2, implied NAK). Once for each gap it is asked for
 * soon; if that is lost as well, the estimate helps.
 */
static void peal_outbound_watch_gap(struct peal_outbound *o, u64 now)
{
	if (!peal_psn_before(o->una, o->seen)) {
		o->gap_at = 0;
		return;
	}
	if (o->gap_psn == o->una)
		return;
	o->gap_psn = o->una;
	o->gap_at = now + peal_rto_patience(&o->rto);
}

/* The peer has executed everything before @psn. */
static void peal_outbound_acknowledge(struct peal_outbound *o, u32 psn, bool ack, u64 now)
{
	u32 from = o->una;

	peal_psn_raise(&o->seen, psn);
	peal_psn_raise(&o->reached, psn);
	peal_rto_answered(&o->rto, o->seen, now);
	peal_outbound_follow(o);
	peal_outbound_progress(o, from, ack, now);
}

static void peal_outbound_receive_nak_sequence(struct peal_outbound *o, u32 psn, u64 now,
					       struct peal_landing *landing)
{
	bool next_gap = o->probing == PEAL_PROBE_NAK && psn == o->probe_end;
	bool same = o->probing && psn == o->probe_psn;

	if (peal_psn_before(psn, o->reached) || (same && !peal_outbound_answers_probe(o, now))) {
		peal_outbound_drop(landing, PEAL_DROP_stale, true);
		return;
	}
	peal_outbound_acknowledge(o, psn, false, now);
	o->naked = true;
	if (next_gap && o->una == psn) {
		peal_outbound_lone_answer(o, true, now);
		return;
	}
	if (same && o->retries >= o->config.retry_limit) {
		peal_outbound_fail(o, peal_outbound_find(o, psn), IB_WC_RETRY_EXC_ERR,
				   PEAL_REASON_NAK_SEQUENCE);
		return;
	}
	o->retries += same;
	/* It leaves anyway. */
	if (o->again != o->again_end && !peal_psn_before(psn, o->again) &&
	    peal_psn_before(psn, o->again_end))
		return;
	peal_window_shrink(&o->window, o->top);
	peal_outbound_start_probe(o, PEAL_PROBE_NAK, psn, now);
}

/* 9.7.5.2.8. The peer is there: its silence is over. */
static void peal_outbound_receive_rnr(struct peal_outbound *o, u32 psn, u8 timer, u64 now,
				      struct peal_landing *landing)
{
	bool same = o->probing && psn == o->probe_psn;

	if (peal_psn_before(psn, o->reached) || o->rnr_until ||
	    (same && !peal_outbound_answers_probe(o, now))) {
		peal_outbound_drop(landing, PEAL_DROP_stale, true);
		return;
	}
	peal_outbound_acknowledge(o, psn, false, now);
	if (o->config.rnr_limit != RNR_FOREVER && o->rnr_retries >= o->config.rnr_limit) {
		peal_outbound_fail(o, peal_outbound_find(o, psn), IB_WC_RNR_RETRY_EXC_ERR,
				   PEAL_REASON_RNR_EXHAUSTED);
		return;
	}
	o->rnr_retries += o->config.rnr_limit != RNR_FOREVER;
	o->retries = 0;
	o->probing = PEAL_PROBE_NONE;
	o->rnr_psn = psn;
	o->rnr_until = now + peal_rnr_timer_ns(timer);
	peal_outbound_stop_again(o);
	peal_outbound_stop_timers(o);
	peal_rto_forget(&o->rto);
}

/* 9.7.5.2.3 to 9.7.5.2.6, 9.9.2.4: the message is over, those before it are not. */
static void peal_outbound_receive_fatal(struct peal_outbound *o, u32 psn, u8 code, u64 now,
					struct peal_landing *landing)
{
	static const struct {
		u8 status;
		u32 reason;
	} naks[] = {
		[PEAL_NAK_INVALID_REQUEST] = {
			IB_WC_REM_INV_REQ_ERR, PEAL_REASON_NAK_INVALID_REQUEST },
		[PEAL_NAK_REMOTE_ACCESS] = { IB_WC_REM_ACCESS_ERR, PEAL_REASON_NAK_ACCESS },
		[PEAL_NAK_REMOTE_OPERATION] = { IB_WC_REM_OP_ERR, PEAL_REASON_NAK_OPERATION },
	};

	if (code > PEAL_NAK_REMOTE_OPERATION) {
		peal_outbound_drop(landing, PEAL_DROP_opcode, false);
		return;
	}
	peal_outbound_acknowledge(o, psn, false, now);
	peal_outbound_fail(o, peal_outbound_find(o, psn), naks[code].status, naks[code].reason);
}

static void peal_outbound_receive_ack(struct peal_outbound *o, const struct peal_packet *packet,
				      u64 now, struct peal_landing *landing)
{
	u8 value = packet->syndrome & PEAL_SYNDROME_VALUE;

	switch (packet->syndrome & PEAL_SYNDROME_KIND) {
	case PEAL_SYNDROME_ACK:
		peal_outbound_acknowledge(o, peal_psn_add(packet->psn, 1), true, now);
		break;
	case PEAL_SYNDROME_RNR:
		peal_outbound_receive_rnr(o, packet->psn, value, now, landing);
		break;
	case PEAL_SYNDROME_NAK:
		if (value == PEAL_NAK_SEQUENCE)
			peal_outbound_receive_nak_sequence(o, packet->psn, now, landing);
		else
			peal_outbound_receive_fatal(o, packet->psn, value, now, landing);
		break;
	default:
		peal_outbound_drop(landing, PEAL_DROP_opcode, false);
		return;
	}
	peal_outbound_watch_gap(o, now);
}

/* READ responses carry what their PSN stands for, no byte more or less (9.7.5.1.1). */
static bool peal_outbound_fits(const struct peal_outbound *o, const struct peal_flight *f,
			       const struct peal_packet *packet)
{
	bool read = peal_packet_opcode(packet)->has & PEAL_HAS_READ;

	if (f->message.opcode != PEAL_OP_READ)
		return peal_op_is_atomic(f->message.opcode) && !read;
	return read && packet->payload_bytes ==
		       peal_outbound_bytes(o, f, peal_psn_ahead(f->psn, packet->psn), 1);
}

static void peal_outbound_keep(struct peal_outbound *o, u32 psn, void *handle,
			       struct peal_landing *landing)
{
	if (peal_early_has(&o->early, psn))
		peal_outbound_drop(landing, PEAL_DROP_sequence, true);
	else if (handle && peal_early_keep(&o->early, o->una, psn, handle))
		landing->what = PEAL_LANDING_KEPT;
	else
		peal_outbound_drop(landing, PEAL_DROP_sequence, false);
}

static void peal_outbound_land(const struct peal_outbound *o, const struct peal_flight *f,
			       const struct peal_packet *packet, struct peal_landing *landing)
{
	landing->what = PEAL_LANDING_ATOMIC;
	landing->flight = o->acking;
	landing->original = packet->original;
	landing->bytes = sizeof(u64);
	if (f->message.opcode != PEAL_OP_READ)
		return;
	landing->what = PEAL_LANDING_READ;
	landing->offset = (u64)peal_psn_ahead(f->psn, packet->psn) << o->config.mtu_shift;
	landing->bytes = packet->payload_bytes;
}

/* The response to a READ or atomic: also an acknowledgement of all before it (9.7.5.1). */
static void peal_outbound_receive_data(struct peal_outbound *o, const struct peal_packet *packet,
				       u64 now, void *handle, struct peal_landing *landing)
{
	u32 index = peal_outbound_find(o, packet->psn);
	const struct peal_flight *f = peal_outbound_flight(o, index);
	u32 at = peal_psn_ahead(f->psn, packet->psn);

	if (!peal_outbound_fits(o, f, packet)) {
		peal_outbound_fail(o, index, IB_WC_BAD_RESP_ERR, PEAL_REASON_BAD_RESPONSE);
		return;
	}
	peal_psn_raise(&o->reached, peal_psn_add(packet->psn, f->message.opcode == PEAL_OP_READ ?
						 peal_flight_piece(f, at) : 1));
	peal_outbound_acknowledge(o, packet->psn, false, now);
	peal_psn_raise(&o->seen, peal_psn_add(packet->psn, 1));
	peal_rto_answered(&o->rto, o->seen, now);
	if (packet->psn != o->una) {
		peal_outbound_keep(o, packet->psn, handle, landing);
		peal_outbound_watch_gap(o, now);
	} else if (peal_early_has(&o->early, packet->psn)) {
		peal_outbound_drop(landing, PEAL_DROP_sequence, true);
	} else {
		peal_outbound_land(o, f, packet, landing);
	}
}

/*
 * Answers to nothing: what was answered already, and ghosts (9.7.5.1). The
 * newest acknowledgement may come again with more credits (9.7.7.2.4).
 */
static void peal_outbound_receive_stale(struct peal_outbound *o, const struct peal_packet *packet,
					bool learned, struct peal_landing *landing)
{
	if (!learned)
		peal_outbound_drop(landing, PEAL_DROP_stale,
				   peal_psn_before(packet->psn, o->una));
}

void peal_outbound_receive(struct peal_outbound *o, const struct peal_packet *packet, u64 now,
			   void *handle, struct peal_landing *landing)
{
	const struct peal_wire_opcode *wire = peal_packet_opcode(packet);
	u32 ahead = peal_psn_ahead(o->una, packet->psn);
	bool fresh = peal_outbound_waits(o) && ahead < peal_outbound_outstanding(o);
	bool learned = false;

	memset(landing, 0, sizeof(*landing));
	landing->what = PEAL_LANDING_TAKEN;
	if (!(wire->has & PEAL_HAS_RESPONSE) || !peal_outbound_reliable(o)) {
		peal_outbound_drop(landing, PEAL_DROP_opcode, false);
		return;
	}
	if (wire->has & PEAL_HAS_AETH && (packet->syndrome & PEAL_SYNDROME_KIND) == 0 &&
	    (fresh || ahead == PEAL_PSN_MASK))
		learned = peal_credit_learn(&o->credit, packet->syndrome, packet->msn);
	if (fresh)
		peal_outbound_hear(o, now);
	if (!fresh)
		peal_outbound_receive_stale(o, packet, learned, landing);
	else if (wire->has & (PEAL_HAS_READ | PEAL_HAS_ATOMIC))
		peal_outbound_receive_data(o, packet, now, handle, landing);
	else
		peal_outbound_receive_ack(o, packet, now, landing);
}

void peal_outbound_landed(struct peal_outbound *o, const struct peal_landing *landing, u64 now)
{
	const struct peal_flight *f = peal_outbound_flight(o, o->acking);
	u32 at = peal_psn_ahead(f->psn, o->una);
	u32 from = o->una;

	if (landing->flight != o->acking || !peal_outbound_waits(o) ||
	    landing->offset != (u64)at << o->config.mtu_shift)
		return;
	o->una = peal_psn_add(o->una, 1);
	if (f->message.opcode != PEAL_OP_READ || peal_flight_piece(f, at) == 1)
		o->rd_atomic--;
	if (at + 1 == f->packets)
		o->acking++;
	peal_psn_raise(&o->reached, o->una);
	peal_outbound_follow(o);
	peal_outbound_progress(o, from, false, now);
	peal_outbound_watch_gap(o, now);
}

void *peal_outbound_take_early(struct peal_outbound *o)
{
	return peal_outbound_waits(o) ? peal_early_take(&o->early, o->una) : NULL;
}

void *peal_outbound_drop_early(struct peal_outbound *o)
{
	return peal_early_drop(&o->early);
}

/* ---- completions ---- */

static void peal_outbound_pop(struct peal_outbound *o, struct peal_completion *completion)
{
	const struct peal_flight *f = peal_outbound_flight(o, o->tail++);

	*completion = (struct peal_completion) {
		.index = f->message.index,
		.opcode = f->message.opcode,
		.flags = f->message.flags,
		.status = f->status,
		.reason = f->reason,
		.length = f->message.length,
	};
}

bool peal_outbound_complete(struct peal_outbound *o, struct peal_completion *completion)
{
	const struct peal_flight *f = peal_outbound_flight(o, o->tail);

	if (o->failed && !peal_index_before(o->tail, o->bad)) {
		if (o->tail != o->bad)
			return false;
	} else if (!peal_index_before(o->tail, o->acking) || (f->local && !f->done)) {
		return false;
	}
	peal_outbound_pop(o, completion);
	return true;
}

bool peal_outbound_flush(struct peal_outbound *o, struct peal_completion *completion)
{
	if (!o->failed || peal_index_before(o->tail, o->bad)) {
		o->failed = true;
		o->bad = o->tail;
	}
	o->sending = o->head;
	o->acking = o->head;
	o->rnr_until = 0;
	if (o->tail == o->head)
		return false;
	peal_outbound_pop(o, completion);
	completion->status = IB_WC_WR_FLUSH_ERR;
	completion->reason = PEAL_REASON_FLUSHED;
	return true;
}

/* ---- time ---- */

static u64 peal_outbound_earlier(u64 a, u64 b)
{
	return b && b < a ? b : a;
}

u64 peal_outbound_deadline(const struct peal_outbound *o)
{
	u64 at = U64_MAX;

	if (!peal_outbound_waits(o))
		return at;
	if (o->rnr_until)
		return o->rnr_until;
	at = peal_outbound_earlier(at, o->probe_at);
	at = peal_outbound_earlier(at, o->give_up_at);
	return peal_outbound_earlier(at, o->gap_at);
}

static bool peal_outbound_due(u64 at, u64 now)
{
	return at && now >= at;
}

/* Nothing has come for a while, and the last probe has left, or there was none. */
static void peal_outbound_suspect(struct peal_outbound *o, u64 now)
{
	o->probe_at = now + o->rto.ns;
	if (o->probing && !o->probe_left)
		return;
	if (o->probing && o->una == o->probe_end) {
		peal_outbound_lone_answer(o, false, now);
		return;
	}
	peal_rto_back_off(&o->rto);
	peal_window_halve(&o->window, o->top);
	peal_outbound_start_probe(o, PEAL_PROBE_SILENCE, o->una, now);
}

/* The attribute's timeout (9.7.6.1.3). A retransmission that could not leave yet is no retry. */
static void peal_outbound_give_up(struct peal_outbound *o, u64 now)
{
	o->give_up_at = now + peal_outbound_timeout(o);
	if (o->probing && !o->probe_left)
		return;
	if (o->retries >= o->config.retry_limit) {
		peal_outbound_fail(o, o->acking, IB_WC_RETRY_EXC_ERR,
				   o->naked ? PEAL_REASON_NAK_SEQUENCE : PEAL_REASON_PEER_SILENT);
		return;
	}
	o->retries++;
	peal_window_halve(&o->window, o->top);
	peal_outbound_start_probe(o, PEAL_PROBE_SILENCE, o->una, now);
}

static void peal_outbound_ask_gap(struct peal_outbound *o, u64 now)
{
	const struct peal_flight *f = peal_outbound_flight(o, o->acking);

	o->gap_at = 0;
	if (o->again != o->again_end || peal_early_has(&o->early, o->una))
		return;
	peal_outbound_stop_again(o);
	o->again_end = peal_psn_add(o->una, peal_outbound_span(o, f, o->una));
	peal_window_shrink(&o->window, o->top);
}

void peal_outbound_expire(struct peal_outbound *o, u64 now)
{
	if (!peal_outbound_waits(o))
		return;
	if (o->rnr_until) {
		if (now < o->rnr_until)
			return;
		o->rnr_until = 0;
		peal_outbound_start_probe(o, PEAL_PROBE_RNR, o->rnr_psn, now);
	}
	peal_outbound_arm(o, now);
	if (peal_outbound_due(o->give_up_at, now))
		peal_outbound_give_up(o, now);
	else if (peal_outbound_due(o->probe_at, now))
		peal_outbound_suspect(o, now);
	if (peal_outbound_due(o->gap_at, now))
		peal_outbound_ask_gap(o, now);
}
