/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The requester's half of a connection: from messages to request packets, and
 * from responses to completions.
 *
 * Owns: when a packet leaves and what an answer means: retries, timers, gaps of
 * one queue pair's send side; for RC, UC and UD. Its parts are trail, repair,
 * window, credit, rto and early.
 * Does not know: rings, WQEs, memory, keys, addresses, locks, clocks. Time comes
 * in as nanoseconds; payload is named by message and offset.
 *
 * How a host uses it, everything under its lock of the send queue:
 *
 *	post()			while unsent() is 0 and has_room(): one message
 *	next()			until it says why there is no packet now; send each
 *	receive()		each response; then land what it names, landed(), and
 *				receive() again what take_early() gives
 *	contradict()		a COPY that is none: release what it gives
 *	complete()		after any of these: what completed, in order
 *	deadline(), expire()	call at that time, and release what take_expired() gives
 *				until NULL
 *	spoil()			a message cannot go on for a local reason
 *	flush()			in error: what is left, in order
 */
#ifndef PEAL_REQUESTER_H
#define PEAL_REQUESTER_H

#include <linux/types.h>

#include <rdma/peal-abi.h>

#include "proto/credit.h"
#include "proto/early.h"
#include "proto/flight.h"
#include "proto/packet.h"
#include "proto/repair.h"
#include "proto/retry.h"
#include "proto/rto.h"
#include "proto/trail.h"
#include "proto/window.h"

struct peal_requester_config {
	u8 transport;		/* enum peal_bth_transport */
	u8 mtu_shift;		/* path MTU is 1 << this: 8..12 */
	u8 retry_limit;		/* attribute retry_cnt: that many retries, 7 is 7 */
	u8 rnr_limit;		/* attribute rnr_retry: 7 is for ever */
	u8 max_rd_atomic;	/* READs and atomics outstanding: exactly that many */
	u64 timeout_ns;		/* 4.096 us * 2^timeout; 0: the transport never gives up */
	u32 window;		/* packets outstanding at most */
	u64 keep_ns;		/* an early response is kept for one to two of these */
};

struct peal_requester {
	struct peal_requester_config config;	/* what the host wants */
	struct peal_trail trail;
	struct peal_repair repair;
	struct peal_window window;
	struct peal_credit credit;
	struct peal_rto rto;
	struct peal_retry retry;
	u32 rd_atomic;			/* READ pieces and atomics outstanding */
	u32 rnr_psn;			/* the last that met RNR */
	u64 rnr_until;			/* 0: not waiting */
	/* U64_MAX: none. */
	u64 probe_at;			/* next early retransmission, by estimate */
	u64 give_up_at;			/* the attribute's timeout, */
	u64 silent_since;		/* and when it began */
	u64 gap_at;			/* READ responses were overtaken: asked for again then */
	u32 gap_psn;			/* the gap that was noticed last */
	u16 flow;			/* of the last response that arrived in its turn */
	bool again;			/* take_early() gave what receive() gets next */
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
	u32 flight;		/* index of its message: peal_requester_message() */
	u64 offset;		/* of the payload in the message; header.payload_bytes long */
	struct peal_packet header; /* host fills qpn, pkey and DETH */
};

/* What became of a response. */
enum peal_landing_what {
	PEAL_LANDING_DROPPED,	/* counted by `drop`; nothing changed */
	PEAL_LANDING_TAKEN,	/* state changed; look at complete() and next() */
	PEAL_LANDING_READ,	/* place the payload at `offset`, then landed() or spoil() */
	PEAL_LANDING_ATOMIC,	/* place `original` (8 bytes), then landed() or spoil() */
	PEAL_LANDING_KEPT,	/* early: now the requester's; comes back by take_early() */
	PEAL_LANDING_COPY,	/* `kept` has its PSN: when they differ, contradict() */
};

struct peal_landing {
	enum peal_landing_what what;
	enum peal_drop drop;	/* DROPPED, COPY */
	bool duplicate;		/* DROPPED, COPY: answers what was answered already */
	void *kept;		/* COPY: a handle, still the requester's */
	u32 flight;		/* READ, ATOMIC: index of the message */
	u64 offset;
	u32 bytes;
	u64 original;
};

/* @entries: a power of two, as many as the send queue has. */
void peal_requester_init(struct peal_requester *o, struct peal_flight *flight, u32 entries);
/* To RESET: everything forgotten but config. Empty `early` first (drop_early). */
void peal_requester_reset(struct peal_requester *o);
/* Any time; new retry counts leave used ones alone. */
void peal_requester_configure(struct peal_requester *o, const struct peal_requester_config *config);
void peal_requester_set_psn(struct peal_requester *o, u32 psn);

static inline bool peal_requester_reliable(const struct peal_requester *o)
{
	return o->config.transport == PEAL_RC;
}

static inline bool peal_requester_has_room(const struct peal_requester *o)
{
	return o->trail.head - o->trail.tail <= o->trail.mask;
}

/* Messages that have not left whole. SQD and fairness: post only when 0. */
static inline u32 peal_requester_unsent(const struct peal_requester *o)
{
	return o->trail.head - o->trail.sending;
}

/* Nothing posted that has not completed. */
static inline bool peal_requester_idle(const struct peal_requester *o)
{
	return o->trail.head == o->trail.tail;
}

/* Index in flight of the message that post() gets next. */
static inline u32 peal_requester_head(const struct peal_requester *o)
{
	return o->trail.head;
}

/* A message that was posted and not completed. */
static inline const struct peal_message *peal_requester_message(const struct peal_requester *o,
								u32 flight)
{
	return &peal_trail_at(&o->trail, flight)->message;
}

/* A message has failed: complete() gives it in its turn, then only flush() remains. */
static inline bool peal_requester_failed(const struct peal_requester *o)
{
	return o->trail.failed;
}

/* PSN of the next new packet: what set_psn() would be told to go on. */
static inline u32 peal_requester_psn(const struct peal_requester *o)
{
	return o->trail.top;
}

/* Needs has_room(). */
void peal_requester_post(struct peal_requester *o, const struct peal_message *message);

/* The next packet (PAUSE_NONE), or why there is none. @now: monotonic ns. */
enum peal_pause peal_requester_next(struct peal_requester *o, u64 now, struct peal_outgoing *out);

/* The host posts nothing more for now, though it said it would: ask about what has left at once. */
void peal_requester_hurry(struct peal_requester *o, u64 now);

/*
 * The local operation that next() named was executed, or is malformed and was
 * not; @status 0: well. Before next() is called again.
 */
void peal_requester_local_done(struct peal_requester *o, u32 flight, u8 status, u32 reason);

/*
 * The message cannot go on: its local buffer is gone, or its WQE is malformed
 * (post it with opcode PEAL_OP_INVALID: next() then names it as local).
 * Those before it complete first; then it does, with @status.
 */
void peal_requester_spoil(struct peal_requester *o, u32 flight, u8 status, u32 reason);

/* @packet: a response opcode. @handle: kept when early; NULL: never keep. */
void peal_requester_receive(struct peal_requester *o, const struct peal_packet *packet, u64 now,
			    void *handle, struct peal_landing *landing);
/* The payload that receive() named was placed. */
void peal_requester_landed(struct peal_requester *o, const struct peal_landing *landing, u64 now);
/* The kept response whose turn has come, or NULL: give it to receive() again. */
void *peal_requester_take_early(struct peal_requester *o);
/*
 * The response that receive() just called a COPY differs from what is kept: one of them is
 * forged. Neither is placed, and the PSN is asked for again. Return: the kept one.
 */
void *peal_requester_contradict(struct peal_requester *o, u32 psn, u64 now);
/* Any kept response, to be released, or NULL. */
void *peal_requester_drop_early(struct peal_requester *o);

/* The next completion in order. After one with a status only flush() remains. */
bool peal_requester_complete(struct peal_requester *o, struct peal_completion *completion);
/* In error: the next message left; the host completes it as flushed. */
bool peal_requester_flush(struct peal_requester *o, struct peal_completion *completion);

/* When expire() shall be called, ns; U64_MAX: never. */
u64 peal_requester_deadline(const struct peal_requester *o);
/* Timers: leads to packets from next(), or to a failed completion. */
void peal_requester_expire(struct peal_requester *o, u64 now);
/* A response that was kept for too long, to be released; NULL: there is none any more. */
void *peal_requester_take_expired(struct peal_requester *o, u64 now);

#endif
