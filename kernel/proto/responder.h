/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The responder of one queue pair. It turns request packets into requests for the
 * caller to execute, and into responses. It serves RC, UC and XRC.
 *
 * Owns: the order of opcodes in a message and the lengths of its packets (9.7.4.1), the
 * expected PSN, the position in the current message, saved responder resources (READ and
 * atomic, for replay), pending ACKs and NAKs, out-of-order packets.
 * Does not know: receive queues, memory, keys, addresses, locks, clocks.
 *
 * An out-of-order packet is trusted less than one with the expected PSN, because a forger guesses
 * one of 127 PSNs more easily than a single one. An out-of-order packet is therefore executed only
 * if it has the same flow as the packet in front of it, if no different packet with the same
 * PSN arrives, and if its turn comes before it has been kept for too long.
 *
 * How the caller uses it, always with the lock of the receive queue held:
 *
 *	receive()		for each request, or run of as many as takes() allows; on EXECUTE
 *				do what *request asks, then call done() with the result before
 *				anything else, and before the packet is freed
 *	conflict()		if a COPY differs from the kept packet; release what it returns
 *	take_reordered()		after receive(); pass what it returns to receive() again
 *	next()			after a batch of these, until it returns false; send each reply.
 *				Also when there is room again to send earlier replies
 *	deadline(), expire()	call expire() at that time, release what take_expired()
 *				returns until it returns NULL, then call next()
 */
#ifndef PEAL_RESPONDER_H
#define PEAL_RESPONDER_H

#include <linux/types.h>

#include <rdma/peal-abi.h>

#include "proto/packet.h"
#include "proto/reorder.h"

struct peal_responder_config {
	u8 transport;		/* PEAL_RC, _UC or _XRC; PEAL_NO_TRANSPORT: accepts nothing */
	u8 mtu_shift;		/* path MTU is 1 << this: 8..12 */
	u8 rd_atomic;		/* attribute max_dest_rd_atomic: responder resources */
	u64 reorder_ns;		/* out-of-order packets are kept for one to two times this */
};

/* A READ or atomic that was accepted and is saved for replay (IBTA 9.7.5.1.1 ff). */
struct peal_resource {
	u32 psn;		/* of the request */
	u32 packets;		/* PSNs that it takes */
	u8 operation;		/* enum peal_opcode */
	u32 rkey;
	u64 remote_addr;
	u64 length;
	u32 srqn;		/* XRC: the shared receive queue that it names */
	u64 original;		/* atomic: the value that it returned */
	u32 msn;		/* of its responses */
	u32 sent;		/* responses sent at least once, counted from the first */
	bool replying;		/* a run of responses remains to be sent */
	u32 from, to;		/* remaining run: packets of this resource, `to` exclusive */
	u32 begin;		/* first packet of the run, which gets opcode FIRST or ONLY */
	u64 end;		/* payload offset in the resource at the end of the run */
};

struct peal_responder {
	struct peal_responder_config config;
	struct peal_resource *resource;	/* the caller's array, a ring of the newest ones */
	u32 resources;			/* entries of the array, >= config.rd_atomic */
	u32 head;			/* entry for the next resource */
	u32 saved;			/* resources before `head`, <= config.rd_atomic */
	u32 replying;			/* saved resources with `replying` set */
	u32 trailing;			/* saved resources since the last SEND or WRITE */
	u32 psn;			/* expected PSN */
	u32 msn;			/* messages completed */
	/* The current message. */
	u8 operation;			/* PEAL_OP_SEND, PEAL_OP_WRITE; 0: none */
	u64 offset;			/* bytes received so far */
	u64 length;			/* WRITE: from the RETH */
	u32 rkey;
	u32 srqn;
	u64 remote_addr;
	/* Pending acknowledgments. */
	u32 unanswered;			/* packets executed since the last acknowledgment */
	bool ack_now;			/* an ACK is due now */
	u8 nak;				/* syndrome of the pending NAK; 0: none */
	u32 nak_psn;			/* PSN of the pending NAK */
	u32 reply_psn;			/* first PSN of the last READ or atomic reply */
	/* Why packets are not executed. */
	bool fatal;			/* a fatal NAK is due or sent; accepts nothing */
	bool rnr;			/* an RNR NAK is due or sent; drops out-of-order packets */
	bool nak_sent;			/* a sequence NAK is due or sent for this gap */
	bool recovering;		/* after a loss, while later packets are kept */
	u32 gap_packets;		/* out-of-order packets that arrived in this gap */
	u64 nak_at;			/* when the gap gets a sequence NAK, ns; 0: not armed */
	/* Trust in out-of-order packets. */
	u16 flow;			/* UDP source port of the last packet in order */
	bool again;			/* the next receive() gets what take_reordered() returned */
	/*
	 * A packet was dropped as suspect. The gap at its PSN is reported, because its sender may
	 * believe that the packet was received.
	 */
	bool conflict;
	u32 conflict_psn;		/* PSN of that packet */
	/* The caller's packet that receive() returned EXECUTE for; done() is due. */
	const struct peal_packet *executing;
	struct peal_reorder reorder;
};

enum peal_request_what {
	PEAL_REQUEST_DROPPED,	/* the caller counts it under `drop` */
	PEAL_REQUEST_ANSWERED,	/* nothing to execute; replies may be due, call next() */
	PEAL_REQUEST_KEPT,	/* the responder owns it until take_reordered() returns it */
	PEAL_REQUEST_COPY,	/* `kept` has the same PSN; if they differ, call conflict() */
	PEAL_REQUEST_EXECUTE,	/* execute it, then call done() */
};

/* What a packet asks the caller to do. */
struct peal_request {
	enum peal_request_what what;
	enum peal_drop drop;	/* DROPPED, COPY */
	void *kept;		/* COPY: a handle, still owned by the responder */
	bool duplicate;		/* ANSWERED, DROPPED: executed before, or (UC) late */
	bool fatal;		/* ANSWERED by a fatal NAK; go to the error state */
	bool first, last;	/* of its message; UC: `first` may come before a `last` did */
	u64 offset;		/* of the payload in the message */
	u32 bytes;		/* payload bytes of this packet, or run of packets */
	/*
	 * The message. The length of a SEND is that up to the end of this packet, and that of an
	 * atomic is 8. imm_or_rkey is valid in the last packet.
	 */
	struct peal_wqe wqe;
};

/* A reply to send. */
struct peal_reply {
	struct peal_packet header;	/* the caller fills in qpn and pkey */
	bool read;			/* has payload: peal_packet_bytes() at remote_addr */
	bool again;			/* a replay */
	u32 srqn;			/* XRC: it says which domain the key must have */
	u32 rkey;			/* check it; if gone, refuse_read() or refuse_again() */
	u64 remote_addr;		/* of the first byte of this packet */
};

/*
 * UC: a packet at most this far behind the expected PSN is late or a duplicate, and is dropped.
 * The specification would accept it as new if it begins a message (9.8). 1024 packets are about
 * a millisecond at 10 Gb/s, as far as networks reorder. The limit is no higher, because a forged
 * packet can put the peer's true packets behind the expected PSN, and up to so many are lost.
 */
#define PEAL_UC_LATE_PACKETS	1024

static inline bool peal_responder_is_late_uc(u32 expected, u32 psn)
{
	s32 distance = peal_psn_distance(expected, psn);

	return distance < 0 && distance >= -PEAL_UC_LATE_PACKETS;
}

/* @entries: entries of @resource, which bound max_dest_rd_atomic; may be 0. */
void peal_responder_init(struct peal_responder *responder, struct peal_resource *resource,
			 u32 entries);
/* To RESET. Only the configuration stays. Call peal_reorder_drop() until NULL first. */
void peal_responder_reset(struct peal_responder *responder);
void peal_responder_configure(struct peal_responder *responder,
			      const struct peal_responder_config *config);
void peal_responder_set_psn(struct peal_responder *responder, u32 psn);

/*
 * The direct transport has delivered whole messages. The next packet has PSN @psn, and
 * @msn messages are completed. The messages before need no replay, because they have been
 * answered.
 */
void peal_responder_skip(struct peal_responder *responder, u32 psn, u32 msn);

/*
 * Return: how many MIDDLE packets like @packet receive() may get as one run. 0: @packet is in no
 * run.
 */
u32 peal_responder_takes(const struct peal_responder *responder, const struct peal_packet *packet);
/* May @last join @run, as many packets as takes() allows? */
bool peal_responder_takes_last(const struct peal_responder *responder,
			       const struct peal_packet *run, const struct peal_packet *last);
/* @handle: what to keep if the packet is out of order; NULL: never keep it. */
void peal_responder_receive(struct peal_responder *responder, const struct peal_packet *packet,
			    u64 now, void *handle, struct peal_request *request);
/*
 * The request under execution has ended. @syndrome: PEAL_SYNDROME_ACK if it was executed, else the
 * one that answers it: an RNR NAK with its timer if no receive was posted, or a fatal NAK, after
 * which the caller moves the queue pair to error. On UC any of them loses the message, and the
 * caller decides the rest. @original: for atomics, the value before.
 */
void peal_responder_done(struct peal_responder *responder, u8 syndrome, u64 original, u64 now);
/* Return: the kept request with the expected PSN, to be passed to receive() again, or NULL. */
void *peal_responder_take_reordered(struct peal_responder *responder);
/*
 * The packet that receive() just called a COPY differs from the kept one, so one of them is
 * forged. Neither is executed, and the peer is asked for the PSN again. Return: the kept one.
 */
void *peal_responder_conflict(struct peal_responder *responder, u32 psn);

/* Would next() return a reply? */
static inline bool peal_responder_has_reply(const struct peal_responder *responder)
{
	return responder->replying || responder->nak || responder->ack_now;
}

/*
 * Return: true with the next reply in PSN order; false: no reply is due. @most: the most packets of
 * a run of READ responses, at least 1.
 */
bool peal_responder_next(struct peal_responder *responder, u32 most, struct peal_reply *reply);
/* The key of the READ reply that next() just returned is gone. A fatal NAK replaces the reply. */
void peal_responder_refuse_read(struct peal_responder *responder);
/*
 * Like peal_responder_refuse_read(), but for a replay. Once a READ is answered its key may
 * legitimately be removed while a late copy of the request is still on its way, so this is
 * no error. *reply becomes a NAK, which only a requester that still lacks these bytes
 * believes. The connection goes on.
 */
void peal_responder_refuse_again(struct peal_responder *responder, struct peal_reply *reply);

/* When to call expire() or take_expired(), in ns; U64_MAX: never. */
u64 peal_responder_deadline(const struct peal_responder *responder);
void peal_responder_expire(struct peal_responder *responder, u64 now);
/* Return: a request that was kept for too long, to be released; NULL: no more of them. */
void *peal_responder_take_expired(struct peal_responder *responder, u64 now);

#endif
