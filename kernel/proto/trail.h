/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The messages of a send queue in their order, and the PSNs they occupy.
 *
 * Owns: how far has been sent, executed by the peer, acknowledged, completed;
 * and the first failure, behind which nothing counts any more.
 * Does not know: when something is sent, or sent again.
 */
#ifndef PEAL_TRAIL_H
#define PEAL_TRAIL_H

#include <linux/types.h>

#include "proto/flight.h"
#include "proto/psn.h"

struct peal_trail {
	struct peal_flight *flight;	/* the host's array, a ring */
	u32 mask;			/* its entries - 1 */
	/* Free-running indices into it: tail <= acking <= sending <= head. */
	u32 head;			/* next free */
	u32 sending;			/* message of the next new packet */
	u32 packet;			/* of `sending`: its next packet */
	u32 acking;			/* oldest not acknowledged: has una */
	u32 tail;			/* oldest not completed; in failure beyond acking */
	u32 locals;			/* local operations in [acking, sending) */
	/* PSNs, in circle order: una <= seen <= reached <= top. */
	u32 una;			/* oldest unacknowledged */
	u32 seen;			/* after the last that an answer was about */
	u32 reached;			/* after the last that the peer surely executed */
	u32 top;			/* of the first packet that never left */
	u32 posted;			/* after the last message */
	bool failed;			/* a message has a status: this one and all after it ... */
	u32 bad;			/* ... are not sent any more */
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

/* Message @index is, or is behind, the one that failed. */
static inline bool peal_trail_is_lost(const struct peal_trail *t, u32 index)
{
	return t->failed && !peal_trail_before(index, t->bad);
}

/* An acknowledgment is waited for that still matters. */
static inline bool peal_trail_waits(const struct peal_trail *t)
{
	return t->una != t->top && !peal_trail_is_lost(t, t->acking);
}

void peal_trail_init(struct peal_trail *t, struct peal_flight *flight, u32 entries);
void peal_trail_set_psn(struct peal_trail *t, u32 psn);

void peal_trail_post(struct peal_trail *t, const struct peal_message *message, u8 transport,
		     u8 mtu_shift);
/* The packet of `sending` that has @span PSNs left for the first time. */
void peal_trail_left(struct peal_trail *t, u32 span);
/* The local operation `sending` was named to the host. */
void peal_trail_named(struct peal_trail *t);
/* Nobody acknowledges what left (UC, UD). */
void peal_trail_forget(struct peal_trail *t);

/* The message that has @psn, una <= @psn < top. */
u32 peal_trail_find(const struct peal_trail *t, u32 psn);
/* The peer has executed everything before @psn. */
void peal_trail_execute(struct peal_trail *t, u32 psn);
/* An answer was about the PSN before @psn. */
void peal_trail_see(struct peal_trail *t, u32 psn);
/* una follows `reached` up to the first READ or atomic whose answer is missing. */
void peal_trail_follow(struct peal_trail *t);
/* That answer is there: one response of a READ, or an atomic's. */
void peal_trail_land(struct peal_trail *t);

/* The first failure in the order of messages is the one that counts. */
void peal_trail_fail(struct peal_trail *t, u32 index, u8 status, u32 reason);
/* The oldest message, when it has ended and may be completed; else NULL. */
const struct peal_flight *peal_trail_complete(struct peal_trail *t);
/* The oldest message in whatever state, or NULL; nothing is sent any more. */
const struct peal_flight *peal_trail_flush(struct peal_trail *t);

#endif
