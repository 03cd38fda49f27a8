// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See window.h.
 */
#include <linux/minmax.h>

#include "proto/packet.h"
#include "proto/window.h"

#define WINDOW_START	32
#define WINDOW_LEAST	4
/*
 * The window stops growing after WINDOW_STAY slow answers in a row. It is halved after
 * WINDOW_HALVE, because they mean a queue in front of the peer. Jitter alone rarely makes so many,
 * because each answer is late or early by itself.
 */
#define WINDOW_STAY	2
#define WINDOW_HALVE	8
/* PSNs compare only within 2^23. With this limit the PSNs in use stay far below that. */
#define WINDOW_MOST	0x200000U

static void peal_window_set(struct peal_window *w, u32 size)
{
	w->size = min_t(u32, max_t(u32, size, WINDOW_LEAST), w->limit);
}

void peal_window_reset(struct peal_window *w)
{
	*w = (struct peal_window) { .limit = w->limit };
	peal_window_set(w, WINDOW_START);
}

void peal_window_limit(struct peal_window *w, u32 limit)
{
	w->limit = min_t(u32, max_t(u32, limit, 1), WINDOW_MOST);
	peal_window_set(w, max_t(u32, w->size, WINDOW_START));
}

static void peal_window_cut(struct peal_window *w, u32 by, u32 top)
{
	if (w->shrunk)
		return;
	w->shrunk = true;
	w->recovered = top;
	peal_window_set(w, w->size - by);
}

void peal_window_halve(struct peal_window *w, u32 top)
{
	peal_window_cut(w, w->size / 2, top);
}

void peal_window_shrink(struct peal_window *w, u32 top)
{
	peal_window_cut(w, w->size / 8, top);
}

void peal_window_follow(struct peal_window *w, u32 packets, u32 una, u32 top, u8 slow)
{
	if (w->shrunk && peal_psn_distance(w->recovered, una) >= 0)
		w->shrunk = false;
	if (slow >= WINDOW_HALVE)
		peal_window_halve(w, top);
	else if (slow < WINDOW_STAY && !w->shrunk)
		peal_window_set(w, w->size + packets);
}

/* Packets from one AckReq to the next. */
static u32 peal_window_ack_interval(const struct peal_window *w)
{
	return max_t(u32, w->size / 4, 1);
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
