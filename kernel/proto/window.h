/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The congestion window: how many packets may be in flight.
 *
 * It is counted in packets of the path MTU, as TCP's is in Linux. It doubles each round trip up to
 * a threshold, which is what the path carried when a queue was last seen. Above the threshold it
 * grows by about a packet a round trip, at a rate that shares the path with TCP. It grows by an
 * eighth if it has had the time to grow back after a cut and round trips still show no queue. A
 * queue is also what tells the losses apart: a loss with a queue halves the window and sets the
 * threshold. A loss without one takes an eighth, which comes back at once, so that random loss does
 * not slow a path that is not full. Marks take what DCTCP takes (RFC 8257, 3.3). The responses of
 * READs may wait at a peer that loses none of them, so there a long round trip stops the growth.
 *
 * Owns: the size of the window, its growth and its cuts, and how often a packet carries AckReq.
 * Does not know: which packets are in flight, what a round trip takes (timers.h).
 */
#ifndef PEAL_WINDOW_H
#define PEAL_WINDOW_H

#include <linux/types.h>

struct peal_window {
	u32 size;		/* most packets in flight now */
	u32 limit;		/* upper limit of size */
	u32 threshold;		/* up to this size it doubles each round trip */
	u32 grown;		/* growth since the last packet that it grew by */
	u32 since_loss;		/* packets acknowledged since the last loss */
	u8 dense;		/* losses in a row that followed each other closely; saturates */
	u8 chance;		/* losses in a row without a queue, if the peer goes back */
	/* Growth in a round trip, in eighths of a packet: the least, and by the route's MTU. */
	u16 least_growth, route_growth;
	u16 growth;		/* the one of these two that the last cut has chosen */
	u32 waiting_from;	/* from this size on READ responses may wait at the peer */
	u16 calm;		/* round trips until it may grow by an eighth */
	u32 burst;		/* while shrunk: most packets that are sent again at once */
	bool shrunk;		/* it shrank, and una has not reached `recovered` */
	bool frozen;		/* while shrunk: it does not grow */
	u32 recovered;		/* PSN after the last packet sent when it shrank */
	u32 round;		/* PSN after the last packet of the current round trip */
	bool marked;		/* the network has marked a packet in this round trip */
	u16 alpha;		/* share of the round trips with marks, in 1/1024 */
	u32 since_ack_request;	/* packets sent since the last AckReq */
};

void peal_window_reset(struct peal_window *w);
/*
 * @limit: most packets in flight. Packets have 1 << @mtu_shift bytes. @route_mtu: most bytes of an
 * IP packet of others on this path, 0 if unknown.
 */
void peal_window_configure(struct peal_window *w, u32 limit, u8 mtu_shift, u32 route_mtu);
/* The PSNs start anew at @psn, so no packet of an earlier loss is in flight any more. */
void peal_window_set_psn(struct peal_window *w, u32 psn);

/*
 * @packets more packets were acknowledged, all before @una. The window grows, if so many packets
 * were in flight that it was needed. @top: the PSN after the last packet that was sent. @dropped:
 * so many packets from @una on are known not to be in flight any more. @slow: the slow answers in a
 * row, by peal_rto_slow(). A few keep the window as it is. Many halve it. @queue: by
 * peal_rto_sees_queue(). @waiting: these are READ responses, and the round trip shows a long queue.
 */
void peal_window_follow(struct peal_window *w, u32 packets, u32 una, u32 top, u32 dropped, u8 slow,
			bool queue, bool waiting);
/* The network has marked a packet in flight. */
void peal_window_mark(struct peal_window *w, u32 top);
/* What was lost while later packets arrived. */
enum peal_loss {
	PEAL_LOSS_REQUEST,	/* only this packet is sent again */
	PEAL_LOSS_PART,		/* a part of what follows is sent again, too */
	PEAL_LOSS_GOES_BACK,	/* what follows is sent again, too; the peer may lack it */
	PEAL_LOSS_AGAIN,	/* as GOES_BACK, but a retransmission was lost */
	PEAL_LOSS_RESPONSE,	/* a READ response */
};

void peal_window_lose(struct peal_window *w, u32 top, bool queue, enum peal_loss loss);
/* The peer was silent. */
void peal_window_silence(struct peal_window *w, u32 top, bool queue);
/* The peer answers no probes. When it is back, the path may be another one. */
void peal_window_restart(struct peal_window *w);
/*
 * @packets more are sent, which makes @outstanding in flight and leaves @rest of the message.
 * Return: should the last of them carry AckReq?
 */
bool peal_window_wants_ack(struct peal_window *w, u32 packets, u32 outstanding, u32 rest);
/*
 * How many packets may be sent together, the last of which may carry AckReq, while @outstanding are
 * in flight? @rest: so many are left of the message. Return: at least one.
 */
u32 peal_window_room(const struct peal_window *w, u32 outstanding, u32 rest);

/* A packet that makes the peer answer was sent. */
static inline void peal_window_ack_requested(struct peal_window *w)
{
	w->since_ack_request = 0;
}

#endif
