/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The requester's half of a connection: from messages to request packets, and
 * from responses to completions.
 *
 * Owns: packet numbers, what is in flight, the window, credits, retries and
 * timers of one queue pair's send side; for RC, UC and UD.
 * Does not know: rings, WQEs, memory, keys, addresses, locks, clocks. Time comes
 * in as nanoseconds; payload is named by message and offset.
 *
 * How a host uses it, everything under its lock of the send queue:
 *
 *	post()			while unsent() is 0 and has_room(): one message
 *	next()			until it says why there is no packet now; send each
 *	receive()		each response; then land what it names, landed(), and
 *				receive() again what take_early() gives
 *	complete()		after any of these: what completed, in order
 *	deadline(), expire()	call at that time
 *	spoil()			a message cannot go on for a local reason
 *	flush()			in error: what is left, in order
 */
#ifndef PEAL_OUTBOUND_H
#define PEAL_OUTBOUND_H

#include <linux/types.h>

#include <rdma/peal-abi.h>

#include "credit.h"
#include "early.h"
#include "packet.h"
#include "rto.h"
#include "window.h"

/*
 * A longer READ is asked for in pieces of this many responses, each a request
 * of its own on the wire and each one of max_rd_atomic: the window then bounds
 * what the peer sends, as many as can be kept early are under way, and no
 * distance between PSNs comes near half their circle.
 */
#define PEAL_READ_PIECE		PEAL_EARLY_SLOTS

/* A message as the protocol sees it. */
struct peal_message {
	u8 opcode;		/* enum peal_opcode; also BIND_MW and LOCAL_INV */
	u8 flags;		/* PEAL_WQE_SIGNALED, _SOLICITED, _FENCE matter */
	u32 index;		/* of its WQE: the host's name for it */
	u32 imm_or_rkey;
	u32 rkey;
	u64 remote_addr;
	u64 length;		/* bytes, up to PEAL_MAX_MSG */
	struct peal_atomic_seg atomic;
	bool more;		/* another follows at once: not signaled, it asks for no ACK */
};

/* A message in flight; the host gives the array, outbound.c alone writes it. */
struct peal_flight {
	struct peal_message message;
	u32 psn;		/* of its first packet */
	u32 packets;		/* PSNs it occupies: requests, or a READ's responses */
	bool local;		/* BIND_MW, LOCAL_INV, INVALID: no packets */
	bool done;		/* local: executed */
	u8 status;		/* enum ib_wc_status, when not 0 it ends the connection */
	u32 reason;		/* enum peal_reason */
};

struct peal_outbound_config {
	u8 transport;		/* enum peal_transport */
	u8 mtu_shift;		/* path MTU is 1 << this: 8..12 */
	u8 retry_limit;		/* attribute retry_cnt: that many retries, 7 is 7 */
	u8 rnr_limit;		/* attribute rnr_retry: 7 is for ever */
	u8 max_rd_atomic;	/* READs and atomics outstanding: exactly that many */
	u64 timeout_ns;		/* 4.096 us * 2^timeout; 0: the transport never gives up */
	u32 window;		/* packets outstanding at most */
};

/* What a lone retransmission answers to. */
enum peal_probe {
	PEAL_PROBE_NONE = 0,
	PEAL_PROBE_NAK,		/* the peer said that it misses the packet */
	PEAL_PROBE_RNR,		/* the peer had no receive for it */
	PEAL_PROBE_SILENCE,	/* the peer said nothing */
};

struct peal_outbound {
	/* What the host sets. */
	struct peal_outbound_config config;
	struct peal_flight *flight;	/* ring */
	u32 mask;			/* its entries - 1 */
	/* Free-running indices into the ring: tail <= sending <= head. */
	u32 head;			/* next free */
	u32 sending;			/* message of the next new packet */
	u32 tail;			/* oldest that is not completed */
	u32 sending_packet;		/* of `sending`: its next packet */
	u32 acking;			/* oldest not acknowledged: has una; tail <= it <= sending */
	/* PSNs, in circle order: una <= seen <= reached <= top. */
	u32 una;			/* oldest unacknowledged */
	u32 seen;			/* after the last that an answer was about */
	u32 reached;			/* after the last that the peer has executed */
	u32 top;			/* of the first packet that never left */
	u32 posted;			/* after the last message */
	/* A retransmission: from `again` to `again_end`; equal: none. */
	u32 again, again_end;
	u32 again_flight;		/* message of `again` */
	/* A lone one, that is to find out what the peer has. */
	u8 probing;			/* enum peal_probe: why */
	u32 probe_psn, probe_end;	/* it has these PSNs (exclusive) */
	bool probe_left, probe_heard;	/* it has left; the peer has answered something since */
	u64 probe_left_at;
	u8 lone_answers;		/* in a row that told of nothing beyond */
	bool peer_keeps;		/* seen: the peer keeps early packets */

	u32 rd_atomic;			/* READ pieces and atomics outstanding */
	struct peal_window window;
	struct peal_credit credit;
	struct peal_rto rto;
	bool failed;			/* a message has a status: this one and all after it ... */
	u32 bad;			/* ... are not sent any more */
	bool naked;			/* a sequence NAK came since the last progress */
	u8 retries, rnr_retries;	/* used since the last progress */
	u32 rnr_psn;			/* the last that met RNR */
	u64 rnr_until;			/* 0: not waiting */
	u64 probe_at;			/* next early retransmission, by estimate; 0: none */
	u64 give_up_at;			/* the attribute's timeout; 0: none */
	u64 gap_at;			/* READ responses overtaken: asked for again then; 0: no */
	u32 gap_psn;			/* the gap that was noticed last */
	struct peal_early early;	/* READ and atomic responses before their turn */
};

/* Why no packet leaves now. */
enum peal_pause {
	PEAL_PAUSE_NONE = 0,	/* one does: *out is filled */
	PEAL_PAUSE_EMPTY,	/* nothing unsent */
	PEAL_PAUSE_WINDOW,
	PEAL_PAUSE_CREDIT,	/* the peer has told how many receives it has */
	PEAL_PAUSE_RD_ATOMIC,	/* as many READs and atomics as negotiated */
	PEAL_PAUSE_FENCE,	/* behind READs and atomics */
	PEAL_PAUSE_RNR,
	PEAL_PAUSE_ANSWER,	/* a lone retransmission is out */
	PEAL_PAUSE_FAILED,
};

/* A packet to send, or a local operation to execute. */
struct peal_outgoing {
	bool local;		/* execute message.opcode, then local_done() */
	bool again;		/* a retransmission */
	u32 flight;		/* index of its message: &o->flight[flight & o->mask] */
	u64 offset;		/* of the payload in the message; header.payload_bytes long */
	struct peal_packet header; /* host fills qpn, pkey and DETH */
};

/* What became of a response. */
enum peal_landing_what {
	PEAL_LANDING_DROPPED,	/* counted by `drop`; nothing changed */
	PEAL_LANDING_TAKEN,	/* state changed; look at complete() and next() */
	PEAL_LANDING_READ,	/* place the payload at `offset`, then landed() or spoil() */
	PEAL_LANDING_ATOMIC,	/* place `original` (8 bytes), then landed() or spoil() */
	PEAL_LANDING_KEPT,	/* early: now outbound's; comes back by take_early() */
};

struct peal_landing {
	enum peal_landing_what what;
	enum peal_drop drop;	/* DROPPED */
	bool duplicate;		/* DROPPED: answers what was answered already */
	u32 flight;		/* READ, ATOMIC: index of the message */
	u64 offset;
	u32 bytes;
	u64 original;
};

struct peal_completion {
	u32 index;		/* of the WQE */
	u8 opcode;
	u8 flags;		/* of the message */
	u8 status;		/* enum ib_wc_status */
	u32 reason;		/* enum peal_reason */
	u64 length;
};

/* @entries: a power of two, as many as the send queue has. */
void peal_outbound_init(struct peal_outbound *o, struct peal_flight *flight, u32 entries);
/* To RESET: everything forgotten but config. Empty `early` first (drop_early). */
void peal_outbound_reset(struct peal_outbound *o);
/* Any time; new retry counts leave used ones alone. */
void peal_outbound_configure(struct peal_outbound *o, const struct peal_outbound_config *config);
void peal_outbound_set_psn(struct peal_outbound *o, u32 psn);

static inline bool peal_outbound_has_room(const struct peal_outbound *o)
{
	return o->head - o->tail <= o->mask;
}

/* Messages that have not left whole. SQD and fairness: post only when 0. */
static inline u32 peal_outbound_unsent(const struct peal_outbound *o)
{
	return o->head - o->sending;
}

/* Nothing posted that has not completed. */
static inline bool peal_outbound_idle(const struct peal_outbound *o)
{
	return o->head == o->tail;
}

/* PSN of the next new packet: what set_psn() would be told to go on. */
static inline u32 peal_outbound_psn(const struct peal_outbound *o)
{
	return o->top;
}

/* Needs has_room(). */
void peal_outbound_post(struct peal_outbound *o, const struct peal_message *message);

/* The next packet (PAUSE_NONE), or why there is none. @now: monotonic ns. */
enum peal_pause peal_outbound_next(struct peal_outbound *o, u64 now, struct peal_outgoing *out);

/*
 * The local operation that next() named was executed, or is malformed and was
 * not; @status 0: well. Before next() is called again.
 */
void peal_outbound_local_done(struct peal_outbound *o, u32 flight, u8 status, u32 reason);

/*
 * The message cannot go on: its local buffer is gone, or its WQE is malformed
 * (post it with opcode PEAL_OP_INVALID: next() then names it as local).
 * Those before it complete first; then it does, with @status.
 */
void peal_outbound_spoil(struct peal_outbound *o, u32 flight, u8 status, u32 reason);

/* @packet: a response opcode. @handle: kept when early; NULL: never keep. */
void peal_outbound_receive(struct peal_outbound *o, const struct peal_packet *packet, u64 now,
			   void *handle, struct peal_landing *landing);
/* The payload that receive() named was placed. */
void peal_outbound_landed(struct peal_outbound *o, const struct peal_landing *landing, u64 now);
/* The kept response whose turn has come, or NULL: give it to receive() again. */
void *peal_outbound_take_early(struct peal_outbound *o);
/* Any kept response, to be released, or NULL. */
void *peal_outbound_drop_early(struct peal_outbound *o);

/* The next completion in order. After one with a status only flush() remains. */
bool peal_outbound_complete(struct peal_outbound *o, struct peal_completion *completion);
/* In error: the next message left; the host completes it as flushed. */
bool peal_outbound_flush(struct peal_outbound *o, struct peal_completion *completion);

/* When expire() shall be called, ns; U64_MAX: never. */
u64 peal_outbound_deadline(const struct peal_outbound *o);
/* Timers: leads to packets from next(), or to a failed completion. */
void peal_outbound_expire(struct peal_outbound *o, u64 now);

#endif
