// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See window.h.
 */
#include <linux/kernel.h>
#include <linux/minmax.h>

#include "proto/packet.h"
#include "proto/window.h"

#define WINDOW_START	16
#define WINDOW_LEAST	2
/*
 * The window stops growing after WINDOW_STAY slow answers in a row. It is halved after
 * WINDOW_HALVE, because they mean a queue in front of the peer. Jitter alone rarely makes so many,
 * because each answer is late or early by itself.
 */
#define WINDOW_STAY	2
#define WINDOW_HALVE	8
/* PSNs compare only within 2^23. With this limit the PSNs in use stay far below that. */
#define WINDOW_MOST	0x200000U
/* Without a queue the window loses or gains one part in so many. */
#define WINDOW_PARTS	8
/* It gains a part only after so many round trips without a cut, because the path may be full. */
#define WINDOW_CALM	8
/*
 * DENSE losses in a row, each after fewer than DENSE_PACKETS acknowledged packets, mean a queue.
 * A flow that has never met the queue empty does not see it in its round trips.
 */
#define DENSE		3
#define DENSE_PACKETS	8
/*
 * A peer that does not keep what follows a loss needs all of it again. So every CHANCE-th such loss
 * without a queue counts as one with a queue, for the same reason.
 */
#define CHANCE		5
/* Packets from one AckReq to the next: a quarter of the window, but at most so many. */
#define ACK_INTERVAL_MOST	64

/* alpha is a share in 1/ALPHA_ONE, an average over about ALPHA_GAIN round trips (RFC 8257, 3.3). */
#define ALPHA_ONE	1024
#define ALPHA_GAIN	16
/* Below this alpha the network has not marked a packet for long. */
#define ALPHA_UNMARKED	(ALPHA_ONE / 64)
/*
 * A mark takes half of alpha from the window. The least is what a mark takes from CUBIC (RFC 9438),
 * otherwise TCP would get far less than half of the path.
 */
#define ALPHA_LEAST	(ALPHA_ONE * 6 / 10)

static void peal_window_set(struct peal_window *w, u32 size)
{
	w->size = min_t(u32, max_t(u32, size, WINDOW_LEAST), w->limit);
}

void peal_window_reset(struct peal_window *w)
{
	*w = (struct peal_window) {
		.limit = w->limit,
		.threshold = WINDOW_MOST,
		.alpha = ALPHA_ONE,
	};
	peal_window_set(w, WINDOW_START);
}

void peal_window_limit(struct peal_window *w, u32 limit)
{
	w->limit = min_t(u32, max_t(u32, limit, 1), WINDOW_MOST);
	peal_window_set(w, max_t(u32, w->size, WINDOW_START));
}

void peal_window_set_psn(struct peal_window *w, u32 psn)
{
	w->shrunk = false;
	w->round = psn;
	w->marked = false;
}

/*
 * At most one cut a round trip. @lasting: the path is full, so the threshold goes along. Otherwise
 * the window comes back to its size at once.
 */
static void peal_window_cut(struct peal_window *w, u32 by, u32 top, bool lasting)
{
	u32 before = w->size;

	if (w->shrunk)
		return;
	w->shrunk = true;
	w->recovered = top;
	w->grown = 0;
	peal_window_set(w, before - by);
	w->threshold = lasting ? w->size : max(w->threshold, before);
	if (lasting)
		w->calm = 0;
}

void peal_window_mark(struct peal_window *w, u32 top)
{
	w->marked = true;
	peal_window_cut(w, w->size * max_t(u32, w->alpha, ALPHA_LEAST) / (2 * ALPHA_ONE), top,
			true);
}

void peal_window_lose(struct peal_window *w, u32 top, bool queue, enum peal_loss loss)
{
	u32 by = w->size / WINDOW_PARTS;

	w->dense = w->since_loss < DENSE_PACKETS ? min(w->dense + 1, DENSE) : 1;
	w->since_loss = 0;
	/* A retransmission was lost, which is a new loss. */
	if (loss == PEAL_LOSS_AGAIN)
		w->shrunk = false;
	w->chance = loss == PEAL_LOSS_GOES_BACK || loss == PEAL_LOSS_AGAIN ? w->chance + 1 : 0;
	/* The first loss ends the doubling, which goes on until there is a queue. */
	if (w->dense == DENSE || w->chance == CHANCE || w->threshold == WINDOW_MOST)
		queue = true;
	if (queue) {
		w->chance = 0;
		by = loss == PEAL_LOSS_RESPONSE ? DIV_ROUND_UP(w->size, 4) : w->size / 2;
	}
	peal_window_cut(w, by, top, queue);
}

void peal_window_silence(struct peal_window *w, u32 top, bool queue)
{
	peal_window_cut(w, w->size / 2, top, queue);
}

void peal_window_restart(struct peal_window *w)
{
	if (w->size <= WINDOW_LEAST)
		return;
	w->threshold = min(w->threshold, w->size);
	w->shrunk = false;
	w->grown = 0;
	peal_window_set(w, WINDOW_LEAST);
}

/* A round trip has ended. */
static void peal_window_end_round(struct peal_window *w, u32 top)
{
	w->alpha -= w->alpha / ALPHA_GAIN;
	if (w->marked)
		w->alpha += ALPHA_ONE / ALPHA_GAIN;
	w->marked = false;
	w->calm = min(w->calm + 1, WINDOW_CALM);
	w->round = top;
}

void peal_window_follow(struct peal_window *w, u32 packets, u32 una, u32 top, u8 slow, bool queue)
{
	u32 step;

	w->since_loss += packets;
	if (w->shrunk && peal_psn_distance(w->recovered, una) >= 0)
		w->shrunk = false;
	if (peal_psn_distance(w->round, una) >= 0)
		peal_window_end_round(w, top);
	if (slow >= WINDOW_HALVE) {
		peal_window_cut(w, w->size / 2, top, true);
		return;
	}
	if (slow >= WINDOW_STAY || w->shrunk ||
	    2 * (packets + peal_psn_ahead(una, top)) < w->size)
		return;
	if (w->size < w->threshold) {
		peal_window_set(w, min(w->size + packets, w->threshold));
		return;
	}
	step = w->size;
	if (!queue && w->alpha < ALPHA_UNMARKED && w->calm >= WINDOW_CALM)
		step = min_t(u32, step, WINDOW_PARTS);
	w->grown += packets;
	peal_window_set(w, w->size + w->grown / step);
	w->grown %= step;
}

static u32 peal_window_ack_interval(const struct peal_window *w)
{
	return clamp_t(u32, w->size / 4, 1, ACK_INTERVAL_MOST);
}

bool peal_window_wants_ack(struct peal_window *w, u32 packets, u32 outstanding)
{
	w->since_ack_request += packets;
	return outstanding >= w->size || w->since_ack_request >= peal_window_ack_interval(w);
}

u32 peal_window_room(const struct peal_window *w, u32 outstanding)
{
	u32 interval = peal_window_ack_interval(w);

	if (outstanding >= w->size || w->since_ack_request >= interval)
		return 1;
	return min(w->size - outstanding, interval - w->since_ack_request);
}
