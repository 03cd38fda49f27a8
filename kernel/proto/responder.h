/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The responder's half of a connection: from request packets to what they ask
 * of the host, and to responses.
 *
 * Owns: the order of opcodes in a message and the lengths of its packets (9.7.4.1), the
 * expected packet number, the place in the message under way, saved
 * responder resources (READ and atomic, for replay), owed acknowledgments and
 * negative ones, early packets; for RC and UC. UD needs none of it.
 * Does not know: receive queues, memory, keys, addresses, locks, clocks.
 *
 * A packet that comes before its turn is believed less than one that comes in it,
 * because a forger hits one of 127 numbers more easily than the one that is expected.
 * It has to be of the same flow as the packet in front of it, no other packet may have
 * its number and differ, and it has to be of use soon.
 *
 * How a host uses it, everything under its lock of the receive queue:
 *
 *	receive()		each request. EXECUTE: do what *request asks, then
 *				done() with the verdict, before anything else
 *	contradict()		a COPY that is none: release what it gives
 *	take_early()		then: give it to receive() again
 *	next()			after a batch of these, until false: send each reply.
 *				Also whenever earlier replies have room to leave
 *	deadline(), expire()	call at that time, release what take_expired() gives until
 *				NULL, then next()
 */
#ifndef PEAL_RESPONDER_H
#define PEAL_RESPONDER_H

#include <linux/types.h>

#include <rdma/peal-abi.h>

#include "proto/early.h"
#include "proto/packet.h"

struct peal_responder_config {
	u8 transport;		/* PEAL_RC or PEAL_UC */
	u8 mtu_shift;		/* path MTU is 1 << this: 8..12 */
	u8 rd_atomic;		/* resources: attribute max_dest_rd_atomic */
	u8 rnr_timer;		/* attribute min_rnr_timer, as encoded */
	u64 keep_ns;		/* an early packet is kept for one to two of these */
};

/* A READ or atomic that was accepted, kept for replay (IBTA 9.7.5.1.1 ff). */
struct peal_resource {
	u32 psn;		/* of its request */
	u32 packets;		/* PSNs it occupies */
	u8 operation;		/* PEAL_OP_READ, _CMP_SWAP, _FETCH_ADD */
	u32 rkey;
	u64 remote_addr;
	u64 length;
	u64 original;		/* atomic: the value it returned */
	u32 msn;		/* to answer with */
	u32 sent;		/* responses, from the first on, that left at least once */
	bool replying;		/* responses are still to be sent: from ... */
	u32 from, to;		/* ... packet to packet (exclusive), of the resource: */
	u32 begin;		/* first of this run: its opcode says so */
	u64 end;		/* bytes of the resource when the run is over */
};

struct peal_responder {
	struct peal_responder_config config;
	struct peal_resource *resource;	/* the host's array, a ring of the last ones */
	u32 resources;			/* its entries, >= config.rd_atomic */
	u32 head;			/* entry of the next resource */
	u32 saved;			/* resources before it, <= config.rd_atomic */
	u32 replying;			/* of these, how many are */
	u32 trailing;			/* of these, how many came after the last SEND or WRITE */
	u32 psn;			/* expected */
	u32 msn;			/* messages completed */
	/* the message under way */
	u8 operation;			/* PEAL_OP_SEND, PEAL_OP_WRITE; 0: none */
	u64 offset;			/* bytes of it so far */
	u64 length;			/* WRITE: of the RETH */
	u32 rkey;
	u64 remote_addr;
	/* what is owed */
	u32 unanswered;			/* packets executed since the last acknowledgment */
	bool ack_now;			/* it was asked for */
	u8 nak;				/* syndrome owed; 0: none */
	u32 nak_psn;
	u32 reply_psn;			/* of the last READ reply that next() gave */
	/* why packets are not executed */
	bool fatal;			/* answered a fatal NAK: accepts nothing */
	bool rnr;			/* answered RNR: only the expected packet is looked at */
	bool nak_sent;			/* for this gap: not again */
	bool recovering;		/* from a loss; packets kept behind it are still here */
	u32 early_seen;			/* in this gap */
	u64 nak_at;			/* a gap is patiently looked at until then; 0: it is not */
	/* who sent what is early */
	u16 flow;			/* of the last packet that arrived in its turn */
	bool again;			/* take_early() gave the packet that receive() gets next */
	bool contradicted;		/* a packet was thrown away that had come, with PSN: */
	u32 contradicted_psn;
	bool executing;			/* between receive() and done(): */
	struct peal_packet packet;
	struct peal_early early;
};

enum peal_request_what {
	PEAL_REQUEST_DROPPED,	/* counted by `drop` */
	PEAL_REQUEST_ANSWERED,	/* nothing to do; replies may be due: next() */
	PEAL_REQUEST_KEPT,	/* early: now the responder's; comes back by take_early() */
	PEAL_REQUEST_COPY,	/* `kept` has its PSN: when they differ, contradict() */
	PEAL_REQUEST_EXECUTE,	/* do it, then done() */
};

/* What a packet asks of the host. */
struct peal_request {
	enum peal_request_what what;
	enum peal_drop drop;	/* DROPPED, COPY */
	void *kept;		/* COPY: a handle, still the responder's */
	bool duplicate;		/* ANSWERED, DROPPED: was executed before */
	bool fatal;		/* ANSWERED: by a NAK, invalid request: then the host's error */
	u8 operation;		/* enum peal_opcode of its message */
	bool first, last;	/* place in the message; UC: first may come before last did */
	bool solicited;
	u64 offset;		/* of the payload in the message */
	u32 bytes;		/* payload of this packet */
	u64 length;		/* WRITE, READ: of the message; SEND: so far, with this packet */
	u32 rkey;		/* WRITE, READ, atomic: of the message */
	u64 remote_addr;	/* likewise: of its first byte */
	struct peal_atomic_seg atomic;
	u32 imm_or_rkey;	/* in the last packet */
};

/* What the host answers. */
enum peal_verdict {
	PEAL_VERDICT_DONE,
	PEAL_VERDICT_NOT_READY,		/* no receive posted: RNR NAK (UC: the message is lost) */
	PEAL_VERDICT_INVALID_REQUEST,	/* the others are fatal: NAK, then the host's error; */
	PEAL_VERDICT_ACCESS,		/* UC: the message is lost, what else is the host's */
	PEAL_VERDICT_OPERATION,
};

/* A reply to send. */
struct peal_reply {
	struct peal_packet header;	/* host fills qpn and pkey */
	bool read;			/* payload: header.payload_bytes of what a READ named: */
	bool again;			/* a replay */
	u32 rkey;			/* check again: it may be gone, then refuse_read() */
	u64 remote_addr;		/* of this packet's first byte */
};

/* @entries: at least the max_dest_rd_atomic that will ever be configured, or 0. */
void peal_responder_init(struct peal_responder *in, struct peal_resource *resource, u32 entries);
/* To RESET: everything forgotten but config. Empty `early` first (drop_early). */
void peal_responder_reset(struct peal_responder *in);
void peal_responder_configure(struct peal_responder *in,
			      const struct peal_responder_config *config);
void peal_responder_set_psn(struct peal_responder *in, u32 psn);

/*
 * Another carrier has delivered whole messages: the next packet has number @psn,
 * @msn messages are completed. What came before needs no replay: it is answered.
 */
void peal_responder_skip(struct peal_responder *in, u32 psn, u32 msn);

/* @packet: a request opcode of this transport. @handle: kept when early; NULL: never. */
void peal_responder_receive(struct peal_responder *in, const struct peal_packet *packet, u64 now,
			    void *handle, struct peal_request *request);
/* The verdict on the request under execution. @original: atomics, the value before. */
void peal_responder_done(struct peal_responder *in, enum peal_verdict verdict, u64 original,
			 u64 now);
/* The kept request whose turn has come, or NULL: give it to receive() again. */
void *peal_responder_take_early(struct peal_responder *in);
/*
 * The packet that receive() just called a COPY differs from what is kept: one of them is
 * forged. Neither is executed, and the PSN is asked for again. Return: the kept one.
 */
void *peal_responder_contradict(struct peal_responder *in, u32 psn);

/* Any kept request, to be released, or NULL. */
static inline void *peal_responder_drop_early(struct peal_responder *in)
{
	return peal_early_drop(&in->early);
}

/* The next reply in PSN order; false: nothing is due. */
bool peal_responder_next(struct peal_responder *in, struct peal_reply *reply);
/* The key of the READ reply that next() just gave is gone: a fatal NAK comes instead. */
void peal_responder_refuse_read(struct peal_responder *in);
/*
 * As before, but the reply is a repetition. Who has had the answer may take the key
 * away, and a late repetition of the request still be here: that is nobody's error.
 * *reply becomes a NAK that means something only to who lacks these bytes; the
 * connection goes on.
 */
void peal_responder_refuse_again(struct peal_responder *in, struct peal_reply *reply);

/* When expire() shall be called, ns; U64_MAX: never. */
u64 peal_responder_deadline(const struct peal_responder *in);
void peal_responder_expire(struct peal_responder *in, u64 now);
/* A request that was kept for too long, to be released; NULL: there is none any more. */
void *peal_responder_take_expired(struct peal_responder *in, u64 now);

#endif
