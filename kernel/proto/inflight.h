/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The messages of a send queue in order, and the PSNs that they take.
 *
 * Owns: how far the queue is sent, executed by the peer, acknowledged and completed, and the
 * first failure. Messages behind the first failure are only flushed.
 * Does not know: when packets are sent or retransmitted.
 */
#ifndef PEAL_INFLIGHT_H
#define PEAL_INFLIGHT_H

#include <linux/types.h>

#include "proto/message.h"
#include "proto/psn.h"

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

void peal_inflight_post(struct peal_inflight *inflight, const struct peal_wr *wr, u8 transport,
			u8 mtu_shift);
/* A new packet of message `sending` was sent. It took @span PSNs. */
void peal_inflight_sent(struct peal_inflight *inflight, u32 span);
/* The local operation `sending` was returned to the caller, which executes it. */
void peal_inflight_local_begun(struct peal_inflight *inflight);
/* UC and UD: treat all sent packets as acknowledged, because the peer sends no ACKs. */
void peal_inflight_acknowledge_all(struct peal_inflight *inflight);

/* Index of the message that has @psn; una <= @psn < top. */
u32 peal_inflight_find(const struct peal_inflight *inflight, u32 psn);
/* The peer has executed everything before @psn. */
void peal_inflight_execute(struct peal_inflight *inflight, u32 psn);
/* A response was about the PSN before @psn. */
void peal_inflight_see(struct peal_inflight *inflight, u32 psn);
/* Move una up to `executed`, but stop at a READ or atomic whose response is missing. */
void peal_inflight_follow(struct peal_inflight *inflight);
/* The response at una was placed: one packet of a READ, or that of an atomic. */
void peal_inflight_placed(struct peal_inflight *inflight);

/* Fail message @index. Only the first failure in the order of messages counts. */
void peal_inflight_fail(struct peal_inflight *inflight, u32 index, u8 status, u32 reason);
/* Return: the oldest message if it has ended and may be completed, otherwise NULL. */
const struct peal_message *peal_inflight_complete(struct peal_inflight *inflight);
/* Return: the oldest message in any state, or NULL. No packet is sent after this. */
const struct peal_message *peal_inflight_flush(struct peal_inflight *inflight);

#endif
