/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The messages of a send queue in order, and the PSNs that they take.
 *
 * Owns: how far the queue is sent, executed by the peer, acknowledged and completed, and the
 * first failure. Messages behind the first failure are only flushed.
 * Does not know: when packets are sent or retransmitted.
 */
#ifndef PEAL_TRAIL_H
#define PEAL_TRAIL_H

#include <linux/types.h>

#include "proto/flight.h"
#include "proto/psn.h"

struct peal_trail {
	struct peal_flight *flight;	/* the caller's array, a ring */
	u32 mask;			/* entries of the array - 1 */
	/* Free-running indices into the array: tail <= acking <= sending <= head. */
	u32 head;			/* next free entry */
	u32 sending;			/* message of the next new packet */
	u32 packet;			/* next new packet within `sending` */
	u32 acking;			/* oldest unacknowledged message, which has una */
	u32 tail;			/* oldest not completed; may pass acking on failure */
	u32 locals;			/* local operations in [acking, sending) */
	/* PSNs in serial order: una <= seen <= reached <= top. */
	u32 una;			/* oldest unacknowledged */
	u32 seen;			/* after the last PSN that a response was about */
	u32 reached;			/* after the last PSN that the peer surely executed */
	u32 top;			/* first PSN that was never sent */
	u32 posted;			/* after the last posted message */
	bool failed;			/* a message has a status */
	u32 bad;			/* that message; it and all after it are not sent */
};

static inline struct peal_flight *peal_trail_at(const struct peal_trail *t, u32 index)
{
	return &t->flight[index & t->mask];
}

static inline bool peal_trail_before(u32 a, u32 b)
{
	return (s32)(a - b) < 0;
}

static inline u32 peal_trail_outstanding(const struct peal_trail *t)
{
	return peal_psn_ahead(t->una, t->top);
}

/* Message @index failed, or is behind the one that failed. */
static inline bool peal_trail_is_lost(const struct peal_trail *t, u32 index)
{
	return t->failed && !peal_trail_before(index, t->bad);
}

/* A packet in flight still needs its acknowledgment. Packets of failed messages do not. */
static inline bool peal_trail_waits(const struct peal_trail *t)
{
	return t->una != t->top && !peal_trail_is_lost(t, t->acking);
}

void peal_trail_init(struct peal_trail *t, struct peal_flight *flight, u32 entries);
void peal_trail_set_psn(struct peal_trail *t, u32 psn);

void peal_trail_post(struct peal_trail *t, const struct peal_message *message, u8 transport,
		     u8 mtu_shift);
/* A new packet of message `sending` was sent. It took @span PSNs. */
void peal_trail_left(struct peal_trail *t, u32 span);
/* The local operation `sending` was returned to the caller. */
void peal_trail_named(struct peal_trail *t);
/* UC and UD: treat all sent packets as acknowledged, because the peer sends no ACKs. */
void peal_trail_forget(struct peal_trail *t);

/* Index of the message that has @psn; una <= @psn < top. */
u32 peal_trail_find(const struct peal_trail *t, u32 psn);
/* The peer has executed everything before @psn. */
void peal_trail_execute(struct peal_trail *t, u32 psn);
/* A response was about the PSN before @psn. */
void peal_trail_see(struct peal_trail *t, u32 psn);
/* Move una up to `reached`, but stop at a READ or atomic whose response is missing. */
void peal_trail_follow(struct peal_trail *t);
/* The response at una was placed: one packet of a READ, or that of an atomic. */
void peal_trail_land(struct peal_trail *t);

/* Fail message @index. Only the first failure in the order of messages counts. */
void peal_trail_fail(struct peal_trail *t, u32 index, u8 status, u32 reason);
/* Return: the oldest message if it has ended and may be completed, otherwise NULL. */
const struct peal_flight *peal_trail_complete(struct peal_trail *t);
/* Return: the oldest message in any state, or NULL. No packet is sent after this. */
const struct peal_flight *peal_trail_flush(struct peal_trail *t);

#endif
