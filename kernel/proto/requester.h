/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The requester of a connection: from messages to request packets, and from responses to
 * completions.
 *
 * Owns: the messages in flight, their PSNs, credits and retransmission.
 * Does not know: memory, sockets, time. The caller hands it packets and the time, and carries out
 * what it answers.
 */
#ifndef PEAL_REQUESTER_H
#define PEAL_REQUESTER_H

#include <linux/types.h>
#include <rdma/peal-abi.h>

#include "proto/packet.h"
#include "proto/reorder.h"
#include "proto/timers.h"
#include "proto/window.h"

/*
 * A posted message: the PSNs that it takes, and what its packets carry.
 *
 * Owns: segmentation by path MTU, the headers of request packets.
 */

/*
 * A longer READ is requested in pieces of at most this many responses.
 * Each piece is a request packet of its own and counts against max_rd_atomic. No more responses of
 * a piece are in flight than can be kept out of order, and no two PSNs in use come near half the
 * PSN space apart. A smaller window makes the pieces smaller, because the requester's window
 * bounds what the peer sends. Then a piece is a part of the window.
 */
#define PEAL_READ_PIECE		PEAL_REORDER_SLOTS

struct peal_message {
	struct peal_wqe wqe;	/* of flags only SIGNALED, SOLICITED and FENCE have an effect */
	const struct peal_op *op;	/* of wqe.opcode */
	u8 transport;		/* enum peal_bth_transport, when it was posted */
	u8 mtu_shift;		/* of the path MTU when it was posted */
	u32 psn;		/* of the first packet */
	u32 packets;		/* PSNs: one for each request packet, or each READ response */
	/*
	 * READ: pieces have `piece` responses from number `pieces_from` on, and `old_piece`
	 * between `old_from` and `pieces_from`. What is before `old_from` is placed.
	 */
	u32 piece, old_piece;
	u32 pieces_from, old_from;
	bool local;		/* BIND_MW, LOCAL_INV, REG_MR, INVALID; has no packets */
	bool done;		/* local operation: executed */
	u8 status;		/* enum ib_wc_status; if not 0, the message has failed */
	u32 reason;		/* enum peal_reason */
};

/*
 * Build the headers of the packet that takes @packets PSNs from number @at on. The caller sets the
 * fields that name the peer. Of @message only the fields above `piece` are read.
 */
void peal_message_build(const struct peal_message *message, u32 at, u32 packets,
			struct peal_packet *header);

/*
 * End-to-end flow control: how many receives the peer says it has posted (IBTA 9.7.7.2).
 *
 * Owns: the number of messages begun (SSN) and the limit (LSN).
 */

struct peal_credit {
	bool limited;		/* the peer sends credits; if not, there is no limit */
	u32 ssn;		/* messages begun; 24 bits like the MSN */
	u32 limit;		/* the last message that surely finds a receive */
};

/*
 * The messages of a send queue in order, and the PSNs that they take.
 *
 * Owns: how far the queue is sent, executed by the peer, acknowledged and completed, and the
 * first failure. Messages behind the first failure are only flushed.
 */

struct peal_inflight {
	struct peal_message *message;	/* the caller's array, a ring */
	u32 mask;			/* entries of the array - 1 */
	/* Free-running indices into the array: tail <= acking <= sending <= head. */
	u32 head;			/* next free entry */
	u32 sending;			/* message of the next new packet */
	u32 packet;			/* next new packet within `sending` */
	u32 acking;			/* oldest unacknowledged message, which has una */
	u32 tail;			/* oldest not completed; may pass acking on failure */
	u32 locals;			/* local operations in [acking, sending) */
	/* PSNs in serial order: una <= seen <= executed <= top. */
	u32 una;			/* oldest unacknowledged */
	u32 seen;			/* after the last PSN that a response was about */
	u32 executed;			/* after the last PSN that the peer surely executed */
	u32 top;			/* first PSN that was never sent */
	u32 posted;			/* after the last posted message */
	bool failed;			/* a message has a status */
	u32 bad;			/* that message; it and all after it are not sent */
};

static inline struct peal_message *peal_inflight_at(const struct peal_inflight *inflight, u32 index)
{
	return &inflight->message[index & inflight->mask];
}

static inline bool peal_inflight_before(u32 a, u32 b)
{
	return (s32)(a - b) < 0;
}

static inline u32 peal_inflight_outstanding(const struct peal_inflight *inflight)
{
	return peal_psn_ahead(inflight->una, inflight->top);
}

/* Message @index failed, or is behind the one that failed. */
static inline bool peal_inflight_is_lost(const struct peal_inflight *inflight, u32 index)
{
	return inflight->failed && !peal_inflight_before(index, inflight->bad);
}

/* A packet in flight still needs its acknowledgment. Packets of failed messages do not. */
static inline bool peal_inflight_waits(const struct peal_inflight *inflight)
{
	return inflight->una != inflight->top && !peal_inflight_is_lost(inflight, inflight->acking);
}

void peal_inflight_init(struct peal_inflight *inflight, struct peal_message *message, u32 entries);
void peal_inflight_set_psn(struct peal_inflight *inflight, u32 psn);

void peal_inflight_post(struct peal_inflight *inflight, const struct peal_wqe *wqe, u8 transport,
			u8 mtu_shift);
/* A new packet of message `sending` was sent. It took @span PSNs. */
void peal_inflight_sent(struct peal_inflight *inflight, u32 span);
/* The local operation `sending` was returned to the caller, which executes it. */
void peal_inflight_local_begun(struct peal_inflight *inflight);

/* Index of the message that has @psn; una <= @psn < top. */
u32 peal_inflight_find(const struct peal_inflight *inflight, u32 psn);
/* The peer has executed everything before @psn. */
void peal_inflight_execute(struct peal_inflight *inflight, u32 psn);
/* Move una up to `executed`, but stop at a READ or atomic whose response is missing. */
void peal_inflight_follow(struct peal_inflight *inflight);

/*
 * Retransmission: which packets are sent again.
 *
 * Owns: the run of PSNs that is being retransmitted, and the probe. A probe is a retransmitted
 * packet (or a few) whose answer tells what else the peer has. Many peers drop out-of-order packets
 * and need all of them again. A peer that keeps out-of-order packets needs only the missing one.
 * The probe finds out which, and does not flood a peer that has just lost packets.
 */

/* Why a probe is sent. */
enum peal_probe {
	PEAL_PROBE_NONE = 0,
	PEAL_PROBE_NAK,		/* the peer sent a sequence NAK for the packet */
	PEAL_PROBE_RNR,		/* the peer sent an RNR NAK for the packet */
	PEAL_PROBE_SILENCE,	/* the peer sent nothing */
};

struct peal_retransmit {
	u32 next, end;		/* PSNs to retransmit, `end` exclusive; equal: none */
	u32 index;		/* message of `next` */
	u8 probe;		/* enum peal_probe: the probe that waits for its answer */
	u32 probe_psn;		/* first PSN that the probe is about */
	u32 probe_end;		/* PSN after the probe */
	u32 dropped;		/* PSN after the last packet for which the peer had no slot */
	bool sent;		/* the probe was sent */
	u64 sent_at;		/* when the probe was sent, ns */
	bool heard;		/* the peer has answered some packet since */
	bool doubted;		/* an answer came too soon to be the probe's */
	u8 lone;		/* probes in a row that filled only their own gap */
	bool peer_reorders;	/* the peer is known to keep out-of-order packets */
	bool asks;		/* only the last packet is sent again, to ask for an ACK */
};

/* What the acknowledgments say about the probe. */
enum peal_probe_verdict {
	PEAL_PROBE_VERDICT_OPEN, /* nothing yet, keep waiting */
	PEAL_PROBE_VERDICT_OVER, /* the peer has what follows the probe, or nothing follows */
	PEAL_PROBE_VERDICT_LONE, /* the packet after the probe is missing, too */
};

void peal_retransmit_stop(struct peal_retransmit *r, const struct peal_inflight *inflight);

/*
 * The requester of one queue pair. It turns messages into request packets, and
 * responses into completions. It serves RC, UC and XRC.
 *
 * Owns: when a packet is sent and what a response means, with retries, timers and
 * gaps in the responses. Its parts are inflight, retransmit, window, credit, rto and reorder.
 *
 * How the caller uses it, always with the lock of the send queue held:
 *
 *	post()			one message, while unsent() is 0 and has_room() is true
 *	next()			until it returns a reason why there is no packet; send each
 *	receive()		for each response, or run of as many as takes() allows; place the
 *				data that it names, call placed(),
 *				then receive() again with what take_reordered() returns
 *	conflict()		if a COPY differs from the kept packet; release what it returns
 *	complete()		after any of these, for the completed messages in order
 *	deadline(), expire()	call expire() at that time, then release what
 *				take_expired() returns until it returns NULL
 *	request_ack()		if no further message follows for now
 *	corks()		before a message is posted that no other was sent ahead of in this turn
 *	fail_message()		if a message cannot go on for a local reason
 *	flush()			in the error state, for the remaining messages in order
 */

struct peal_requester_config {
	u8 transport;		/* enum peal_bth_transport */
	u8 mtu_shift;		/* path MTU is 1 << this: 8..12 */
	u8 retry_limit;		/* attribute retry_cnt; 7 means seven retries */
	u8 rnr_limit;		/* attribute rnr_retry; 7 means no limit */
	u8 max_rd_atomic;	/* most READ pieces and atomics in flight */
	u64 timeout_ns;		/* 4.096 us * 2^timeout; 0: no timeout */
	u32 window;		/* most packets in flight */
	u32 route_mtu;		/* bytes of an IP packet; 0: unknown */
	u64 reorder_ns;		/* out-of-order responses are kept for one to two times this */
};

struct peal_requester {
	struct peal_requester_config config;	/* set by the caller */
	bool reliable;			/* the peer acknowledges requests */
	struct peal_inflight inflight;
	struct peal_retransmit retransmit;
	struct peal_window window;
	struct peal_credit credit;
	struct peal_rto rto;
	struct peal_retry retry;
	u32 rd_atomic;			/* READ pieces and atomics in flight */
	u32 rnr_psn;			/* the last PSN that got an RNR NAK */
	u64 rnr_until;			/* end of the RNR wait, ns; 0: not waiting */
	bool too_long;			/* too_long_psn is valid */
	u32 too_long_psn;		/* the oldest packet whose last copy was too long */
	/* Timers, in ns; U64_MAX: not armed. */
	u64 probe_at;			/* probe for silence, by the estimate (rto) */
	u64 give_up_at;			/* end of the try */
	u64 silent_since;		/* when the silence began that they measure, ns */
	u64 gap_at;			/* request the missing READ responses again */
	/* Until when messages wait for others, ns; U64_MAX: none waits; 0: they leave now. */
	u64 cork_until;
	u64 began_at;			/* when the last message began, ns */
	u8 stream;			/* messages in a row that began soon after another */
	u32 gap_psn;			/* the gap for which gap_at was armed last */
	bool unkept;			/* a response behind a gap was dropped */
	/* What was missing from una to gap_end is requested again, from gap_since (ns) on. */
	u32 gap_end;
	u64 gap_since;
	u32 gap_seen;			/* PSN after the last of them that has arrived since */
	u16 flow;			/* UDP source port of the last response in order */
	bool again;			/* the next receive() gets what take_reordered() returned */
	struct peal_reorder reorder;	/* READ and atomic responses ahead of una */
};

/* Why next() returns no packet. */
enum peal_blocked {
	PEAL_BLOCKED_NONE = 0,	/* there is one, in *out */
	PEAL_BLOCKED_EMPTY,	/* no unsent message */
	PEAL_BLOCKED_WINDOW,	/* the window is full, or too many local operations wait */
	PEAL_BLOCKED_CREDIT,	/* the peer's credits are used up (9.7.7.2) */
	PEAL_BLOCKED_RD_ATOMIC,	/* max_rd_atomic READ pieces and atomics are in flight */
	PEAL_BLOCKED_FENCE,	/* a fence waits for READs and atomics */
	PEAL_BLOCKED_LAST,	/* a local operation waits for all packets in flight */
	PEAL_BLOCKED_RNR,	/* waiting out an RNR NAK */
	PEAL_BLOCKED_ANSWER,	/* a probe must be answered, or a gap in responses be filled */
	PEAL_BLOCKED_FAILED,	/* a message failed; this one and all after it are not sent */
};

/* A packet to send, or a local operation to execute. */
struct peal_outgoing {
	bool local;		/* execute message.opcode, then call local_done() */
	bool again;		/* a retransmission */
	bool asks;		/* a retransmission that only asks for an ACK */
	u32 message;		/* index of the message, for peal_requester_wqe() */
	u64 offset;		/* of the payload in the message; see peal_packet_bytes() */
	struct peal_packet header; /* the caller sets qpn, pkey and DETH */
};

/* What receive() did with a response. */
enum peal_response_what {
	PEAL_RESPONSE_DROPPED,	/* the caller counts it under `drop`; nothing changed */
	PEAL_RESPONSE_TAKEN,	/* the state changed; call complete() and next() */
	PEAL_RESPONSE_READ,	/* place the payload at `offset`, then placed() or fail_message() */
	PEAL_RESPONSE_ATOMIC,	/* place `original` (8 bytes), then placed() or fail_message() */
	PEAL_RESPONSE_KEPT,	/* the requester owns it until take_reordered() returns it */
	PEAL_RESPONSE_COPY,	/* `kept` has the same PSN; if they differ, call conflict() */
};

struct peal_response {
	enum peal_response_what what;
	enum peal_drop drop;	/* DROPPED, COPY */
	bool duplicate;		/* DROPPED, COPY: this response had arrived before */
	void *kept;		/* COPY: a handle, still owned by the requester */
	u32 message;		/* READ, ATOMIC: index of the message */
	u64 offset;
	u32 bytes;
	u32 packets;		/* READ, ATOMIC: how many packets this is */
	u64 original;
};

/* @entries: a power of two, the number of slots in the send queue. */
void peal_requester_init(struct peal_requester *requester, struct peal_message *message,
			 u32 entries);
/* To RESET. Only the configuration stays. Empty `reorder` first. */
void peal_requester_reset(struct peal_requester *requester);
/* May be called at any time. The retries that are used so far stay used. */
void peal_requester_configure(struct peal_requester *requester,
			      const struct peal_requester_config *config);
void peal_requester_set_psn(struct peal_requester *requester, u32 psn);

static inline bool peal_requester_reliable(const struct peal_requester *requester)
{
	return requester->reliable;
}

static inline bool peal_requester_has_room(const struct peal_requester *requester)
{
	return requester->inflight.head - requester->inflight.tail <= requester->inflight.mask;
}

/*
 * Messages that are not yet sent completely. Post the next message only when this is 0, so
 * that SQD stops soon and no queue pair gets ahead of the others.
 */
static inline u32 peal_requester_unsent(const struct peal_requester *requester)
{
	return requester->inflight.head - requester->inflight.sending;
}

/*
 * Would next() return PEAL_BLOCKED_EMPTY, because everything has left and nothing is to be sent
 * again? If not, next() may still return it.
 */
static inline bool peal_requester_is_empty(const struct peal_requester *requester)
{
	return !peal_requester_unsent(requester) && !requester->rnr_until &&
	       requester->retransmit.next == requester->retransmit.end &&
	       !requester->retransmit.probe && !requester->inflight.failed;
}

/* All posted messages have completed. */
static inline bool peal_requester_idle(const struct peal_requester *requester)
{
	return requester->inflight.head == requester->inflight.tail;
}

/* Index of the message that post() adds next. */
static inline u32 peal_requester_head(const struct peal_requester *requester)
{
	return requester->inflight.head;
}

/* @message: index of a message that is posted and not completed. */
static inline const struct peal_wqe *peal_requester_wqe(const struct peal_requester *requester,
							u32 message)
{
	return &peal_inflight_at(&requester->inflight, message)->wqe;
}

/*
 * May new packets be on their way? Packets that are sent again are not asked about, because the
 * peer has to sort those out anyway.
 */
static inline bool peal_requester_is_under_way(const struct peal_requester *requester)
{
	return requester->inflight.executed != requester->inflight.top &&
	       requester->retransmit.next == requester->retransmit.end;
}

/* Does the last new packet ask for an ACK? Then an answer comes after all others have arrived. */
static inline bool peal_requester_asks(const struct peal_requester *requester)
{
	return !requester->window.since_ack_request;
}

/* Packets are in flight, and none of them asks for an answer. */
static inline bool peal_requester_is_unasked(const struct peal_requester *requester)
{
	u32 outstanding = peal_inflight_outstanding(&requester->inflight);

	return outstanding && requester->window.since_ack_request >= outstanding;
}

/* Is there no silence, because no answer is due, so that expire() only asks for one? */
static inline bool peal_requester_only_asks(const struct peal_requester *requester)
{
	const struct peal_retransmit *r = &requester->retransmit;

	return peal_requester_is_unasked(requester) || (r->asks && r->next != r->end);
}

/* The next message asks for an ACK, as if no other was sent right before it. */
static inline void peal_requester_end_stream(struct peal_requester *requester)
{
	requester->stream = 0;
}

/* May complete() return a message? If not, it need not be called. */
static inline bool peal_requester_may_complete(const struct peal_requester *requester)
{
	const struct peal_inflight *inflight = &requester->inflight;

	return inflight->tail != inflight->acking || inflight->failed;
}

/* A message has failed. complete() returns it in order; after it only flush() may be called. */
static inline bool peal_requester_failed(const struct peal_requester *requester)
{
	return requester->inflight.failed;
}

/* PSN of the next new packet. With set_psn() another requester can continue here. */
static inline u32 peal_requester_psn(const struct peal_requester *requester)
{
	return requester->inflight.top;
}

/* The caller has checked has_room(). */
void peal_requester_post(struct peal_requester *requester, const struct peal_wqe *wqe);

/*
 * Return: PEAL_BLOCKED_NONE with a packet in *out, or why there is none. @now: monotonic ns. @most:
 * the most packets of a run, at least 1.
 */
enum peal_blocked peal_requester_next(struct peal_requester *requester, u64 now, u32 most,
				      struct peal_outgoing *out);

/*
 * Call this when no further message will be posted for now, although the last one said so
 * (`more`), or when the packets in flight must be acknowledged soon. No later packet will carry
 * AckReq, so the last one is due again at once.
 */
void peal_requester_request_ack(struct peal_requester *requester, u64 now);

/*
 * The local operation that next() returned was executed, or was refused as malformed.
 * @status: 0 for success. Call this before the next next().
 */
void peal_requester_local_done(struct peal_requester *requester, u32 message, u8 status,
			       u32 reason);

/*
 * The message cannot go on, because its local buffer is gone or its WQE is malformed.
 * (A malformed WQE is posted with opcode PEAL_OP_INVALID; next() returns it as a local
 * operation.) The messages before it complete first. Then it completes with @status.
 */
void peal_requester_fail_message(struct peal_requester *requester, u32 message, u8 status,
				 u32 reason);

/*
 * Memory of this host is missing, so that the packet that next() returned was not sent, or the
 * response that receive() named was not placed. The peer is not to blame. Its time to answer starts
 * anew, with all retries.
 */
void peal_requester_excuse_silence(struct peal_requester *requester, u64 now);

/*
 * The packet @psn that next() returned did not leave, because it is too long for the way to the
 * peer. It counts as lost. If the retries end so, this is the reason.
 */
void peal_requester_too_long(struct peal_requester *requester, u32 psn);

/* Return: how many packets like @packet receive() may get as one run. 0: @packet is in no run. */
u32 peal_requester_takes(const struct peal_requester *requester, const struct peal_packet *packet);
/* @handle: what to keep if the response is out of order; NULL: never keep it. */
void peal_requester_receive(struct peal_requester *requester, const struct peal_packet *packet,
			    u64 now, void *handle, struct peal_response *response);
/* The caller has placed the payload that receive() named. */
void peal_requester_placed(struct peal_requester *requester, const struct peal_response *response,
			   u64 now);
/* Return: the kept response that is next in order, to be passed to receive() again, or NULL. */
void *peal_requester_take_reordered(struct peal_requester *requester);
/*
 * The response that receive() just called a COPY differs from the kept one, so one of them
 * is forged. Neither is placed, and the response is requested again. Return: the kept one.
 */
void *peal_requester_conflict(struct peal_requester *requester, u32 psn, u64 now);

/*
 * The network has marked packets in flight to the peer (a congestion notification), or responses
 * from it. Reduces the window, at most once a round trip.
 */
void peal_requester_notified(struct peal_requester *requester);

/* Messages wait for others only while at least so many are in flight. */
#define PEAL_CORK_BEHIND	8

/* May corks() tell the next messages to wait? If not, it need not be called. */
static inline bool peal_requester_may_cork(const struct peal_requester *requester)
{
	return requester->inflight.head - requester->inflight.acking >= PEAL_CORK_BEHIND;
}

/*
 * Shall the next messages wait, so that more of them leave together? @pending: how many the program
 * has posted that are not in flight. Short messages that are posted one at a time wait while many
 * others are in flight, until enough of them wait, or for a time (deadline()). When few are in
 * flight none waits, because the program may need the answer to each of them.
 */
bool peal_requester_corks(struct peal_requester *requester, u32 pending, u64 now);

/*
 * Return: the next message that has ended, in order, or NULL. It is valid until the next post().
 * After a message with a status only flush() may be called.
 */
const struct peal_message *peal_requester_complete(struct peal_requester *requester);
/* In the error state. Return: the next remaining message, as flushed, or NULL. */
struct peal_message *peal_requester_flush(struct peal_requester *requester);

/* When to call expire(), in ns; U64_MAX: never. */
u64 peal_requester_deadline(const struct peal_requester *requester);
/* Run the timers that are due. Call next() and complete() afterwards. */
void peal_requester_expire(struct peal_requester *requester, u64 now);
/* Return: a response that was kept for too long, to be released; NULL: no more of them. */
void *peal_requester_take_expired(struct peal_requester *requester, u64 now);

#endif
