/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The window: how many packets may be in flight.
 *
 * Owns: the size of the window, its growth and shrinking, and how often a packet
 * carries AckReq.
 * Does not know: which packets are in flight.
 */
#ifndef PEAL_WINDOW_H
#define PEAL_WINDOW_H

#include <linux/types.h>

struct peal_window {
	u32 size;		/* most packets in flight now */
	u32 limit;		/* upper limit of size */
	bool shrunk;		/* it shrank and stays as it is until una reaches `recovered` */
	u32 recovered;		/* PSN after the last packet sent when it shrank */
	u32 since_ack_request;	/* packets sent since the last AckReq */
};

void peal_window_reset(struct peal_window *w);
void peal_window_limit(struct peal_window *w, u32 limit);

/* The PSNs start anew, so no packet of an earlier loss is in flight any more. */
static inline void peal_window_recover(struct peal_window *w)
{
	w->shrunk = false;
}

/*
 * @packets more packets were acknowledged, all before @una. @slow: the slow answers in a row, by
 * peal_rto_slow(). The window grows, unless these are a few. If they are many, it is halved. @top:
 * the PSN after the last packet that was sent.
 */
void peal_window_follow(struct peal_window *w, u32 packets, u32 una, u32 top, u8 slow);
/* The peer was silent. */
void peal_window_halve(struct peal_window *w, u32 top);
/* A packet was lost, and later ones arrived. */
void peal_window_shrink(struct peal_window *w, u32 top);
/*
 * @packets more are sent, which makes @outstanding in flight. Return: should the last of them carry
 * AckReq?
 */
bool peal_window_wants_ack(struct peal_window *w, u32 packets, u32 outstanding);
/*
 * How many packets may be sent together, the last of which may carry AckReq, while @outstanding are
 * in flight? At least one.
 */
u32 peal_window_room(const struct peal_window *w, u32 outstanding);

/* A packet that makes the peer answer was sent. */
static inline void peal_window_ack_requested(struct peal_window *w)
{
	w->since_ack_request = 0;
}

#endif
