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
/*
 * Before it gains a part, the window gets the time to grow back to the size that it had before the
 * last cut, because the path was full there. These are the least and the most round trips for it.
 */
#define CALM_LEAST	12
#define CALM_MOST	1024
/* A cut of less than one part in so many is small. */
#define CALM_PARTS	4
/*
 * READ responses come in bursts of a piece, which meet a full queue more often than the packets of
 * others do. So a lost response takes only one part in so many, if the window would have had the
 * time to grow back in fewer than CALM_RESPONSE round trips. Others have the room then.
 */
#define RESPONSE_PARTS	32
#define RESPONSE_LEAST	2
#define CALM_RESPONSE	16
/*
 * The responses of READs may wait at the peer, which loses none of them. From so many bytes on a
 * long queue is taken for that, and the window stops growing. Fewer do no harm.
 */
#define WAITING_BYTES	0x100000U
/*
 * Growth in a round trip is counted in eighths of a packet with its headers. TCP grows by about
 * half a packet a round trip, and its packets are as large as the route's MTU permits (CUBIC, RFC
 * 9438, 4.3). A mark takes from the window what it takes from TCP, so a bit more than TCP's growth
 * is right. A loss takes half, and TCP loses less, so the growth after a loss is a packet or
 * GROWTH_BYTES at least. It is less if the peer keeps nothing that follows a loss, because each
 * loss wastes much then.
 */
#define GROWTH_PACKET	8
#define GROWTH_BYTES	1500U
#define GROWTH_ROUTE(mtu)	((mtu) * 5 / 8)
#define GROWTH_LEAST(mtu)	((mtu) / 2)
#define ROUTE_MTU_MOST	9000U	/* of what others send, if the route takes more */
#define PACKET_HEADERS	60
/*
 * After a loss with a queue the peer may have dropped most of the window, because it keeps only so
 * many packets behind a gap. Then one part in so many is sent again at once, and the rest as ACKs
 * arrive, otherwise the burst would fill the queue again.
 */
#define BURST_PARTS	4
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
/*
 * Packets from one AckReq to the next: one part of the window in so many, but at most this many.
 * Such a part leaves as one burst when its ACK arrives. Where a loss or a mark has shown a queue,
 * the part is smaller. A large burst would fill the queue, and others would lose packets.
 */
#define ACK_INTERVAL_MOST	64
#define ACK_PARTS		4
#define ACK_PARTS_QUEUE		8

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

static u16 peal_window_full_growth(const struct peal_window *w)
{
	return max(w->least_growth, w->route_growth);
}

void peal_window_reset(struct peal_window *w)
{
	*w = (struct peal_window) {
		.limit = w->limit,
		.waiting_from = w->waiting_from,
		.least_growth = w->least_growth,
		.route_growth = w->route_growth,
		.growth = peal_window_full_growth(w),
		.threshold = WINDOW_MOST,
		.alpha = ALPHA_ONE,
	};
	peal_window_set(w, WINDOW_START);
}

void peal_window_configure(struct peal_window *w, u32 limit, u8 mtu_shift, u32 route_mtu)
{
	u32 packet = (1U << mtu_shift) + PACKET_HEADERS;
	u32 least = max(packet, GROWTH_BYTES);
	u32 mtu = clamp_t(u32, route_mtu, least, ROUTE_MTU_MOST);

	w->limit = min_t(u32, max_t(u32, limit, 1), WINDOW_MOST);
	w->waiting_from = WAITING_BYTES >> mtu_shift;
	w->least_growth = DIV_ROUND_CLOSEST(GROWTH_PACKET * max(least, GROWTH_LEAST(mtu)),
					    packet);
	w->route_growth = DIV_ROUND_CLOSEST(GROWTH_PACKET * GROWTH_ROUTE(mtu), packet);
	w->growth = peal_window_full_growth(w);
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
 * the window comes back to its size at once. @growth: from then on, in eighths of a packet. A small
 * cut gives the window no more time to grow back than it had.
 */
static void peal_window_cut(struct peal_window *w, u32 by, u32 top, bool lasting, u16 growth)
{
	u32 before = w->size;

	if (w->shrunk)
		return;
	w->shrunk = true;
	w->frozen = true;
	w->recovered = top;
	w->grown = 0;
	w->growth = growth;
	peal_window_set(w, before - by);
	w->threshold = lasting ? w->size : max(w->threshold, before);
	w->burst = lasting ? DIV_ROUND_UP(w->size, BURST_PARTS) : WINDOW_MOST;
	if (lasting && by > before / CALM_PARTS)
		w->calm = clamp_t(u32, by * GROWTH_PACKET / growth, CALM_LEAST, CALM_MOST);
}

void peal_window_mark(struct peal_window *w, u32 top)
{
	w->marked = true;
	peal_window_cut(w, w->size * max_t(u32, w->alpha, ALPHA_LEAST) / (2 * ALPHA_ONE), top,
			true, w->route_growth);
}

void peal_window_lose(struct peal_window *w, u32 top, bool queue, enum peal_loss loss)
{
	u32 by = w->size / WINDOW_PARTS;
	u16 growth = peal_window_full_growth(w);
	bool frozen;

	w->dense = w->since_loss < DENSE_PACKETS ? min(w->dense + 1, DENSE) : 1;
	w->since_loss = 0;
	/* A retransmission was lost, which is a new loss. */
	if (loss == PEAL_LOSS_AGAIN)
		w->shrunk = false;
	w->chance = loss == PEAL_LOSS_REQUEST || loss == PEAL_LOSS_RESPONSE ? 0 : w->chance + 1;
	if (loss == PEAL_LOSS_GOES_BACK || loss == PEAL_LOSS_AGAIN)
		growth = w->least_growth;
	/* The first loss ends the doubling, which goes on until there is a queue. */
	if (w->dense == DENSE || w->chance == CHANCE || w->threshold == WINDOW_MOST)
		queue = true;
	if (queue) {
		w->chance = 0;
		by = w->size / 2;
		if (loss == PEAL_LOSS_RESPONSE && w->calm && w->calm < CALM_RESPONSE)
			by = max_t(u32, w->size / RESPONSE_PARTS, RESPONSE_LEAST);
	}
	/*
	 * Growth goes on after a loss with a queue. Each further gap in the same round trip delays
	 * the end of the recovery by another one. Otherwise a flow with two gaps would grow less
	 * than others each time. A peer that goes back needs all packets again, so it gets no more.
	 * Neither does a READ, whose missing responses are requested together.
	 */
	frozen = w->shrunk ? w->frozen : !queue || loss != PEAL_LOSS_REQUEST;
	peal_window_cut(w, by, top, queue, growth);
	w->frozen = frozen;
}

void peal_window_silence(struct peal_window *w, u32 top, bool queue)
{
	peal_window_cut(w, w->size / 2, top, queue, peal_window_full_growth(w));
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
	if (w->calm)
		w->calm--;
	w->round = top;
}

void peal_window_follow(struct peal_window *w, u32 packets, u32 una, u32 top, u32 dropped, u8 slow,
			bool queue, bool waiting)
{
	u32 step, growth, behind = peal_psn_ahead(una, top);
	bool held = w->shrunk && dropped > w->burst;

	w->since_loss += packets;
	if (held)
		peal_window_set(w, min(w->size, behind - dropped + w->burst));
	if (w->shrunk && peal_psn_distance(w->recovered, una) >= 0)
		w->shrunk = false;
	if (peal_psn_distance(w->round, una) >= 0)
		peal_window_end_round(w, top);
	waiting = waiting && w->size >= w->waiting_from;
	/* While this answer was on its way, the window has doubled once more. */
	if (slow >= WINDOW_HALVE || (waiting && w->threshold == WINDOW_MOST)) {
		peal_window_cut(w, w->size / 2, top, true, peal_window_full_growth(w));
		return;
	}
	if (slow >= WINDOW_STAY || waiting || held || 2 * (packets + behind) < w->size)
		return;
	/* What `burst` has taken comes back in any case. */
	if (w->shrunk && w->frozen && (w->burst == WINDOW_MOST || w->size >= w->threshold))
		return;
	if (w->size < w->threshold) {
		peal_window_set(w, min(w->size + packets, w->threshold));
		return;
	}
	step = GROWTH_PACKET * w->size;
	growth = w->growth;
	if (!queue && w->alpha < ALPHA_UNMARKED && !w->calm) {
		step = GROWTH_PACKET * min_t(u32, w->size, WINDOW_PARTS);
		growth = GROWTH_PACKET;
	}
	w->grown += packets * growth;
	peal_window_set(w, w->size + w->grown / step);
	w->grown %= step;
}

static u32 peal_window_ack_interval(const struct peal_window *w)
{
	u32 part = w->threshold == WINDOW_MOST ? w->size / ACK_PARTS : w->size / ACK_PARTS_QUEUE;

	return clamp_t(u32, part, 1, ACK_INTERVAL_MOST);
}

/*
 * Is the message not divided here, because it ends within another part? At both ends a message that
 * leaves as one is cheaper than in two parts. But where there is a queue, a large burst fills it.
 * @rest: packets of the message behind this place.
 */
static bool peal_window_ends_soon(const struct peal_window *w, u32 interval, u32 rest)
{
	return rest && rest <= interval && w->threshold == WINDOW_MOST;
}

bool peal_window_wants_ack(struct peal_window *w, u32 packets, u32 outstanding, u32 rest)
{
	u32 interval = peal_window_ack_interval(w);

	w->since_ack_request += packets;
	return outstanding >= w->size || (w->since_ack_request >= interval &&
					  !peal_window_ends_soon(w, interval, rest));
}

u32 peal_window_room(const struct peal_window *w, u32 outstanding, u32 rest)
{
	u32 interval = peal_window_ack_interval(w), part = 1;

	if (outstanding >= w->size)
		return 1;
	if (w->since_ack_request < interval)
		part = interval - w->since_ack_request;
	if (rest > part && peal_window_ends_soon(w, interval, rest - part))
		part = rest;
	return min(w->size - outstanding, part);
}
