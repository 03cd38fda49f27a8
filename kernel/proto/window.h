/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * How many packets may be under way.
 *
 * Owns: the window's size, its growth and shrinking, and how often an
 * acknowledgment is asked for. Does not know: which packets.
 */
#ifndef PEAL_WINDOW_H
#define PEAL_WINDOW_H

#include <linux/types.h>

struct peal_window {
	u32 size;		/* packets that may be outstanding now */
	u32 limit;		/* ... at most, ever */
	bool shrunk;		/* one loss shrinks it once: not again before ... */
	u32 recovered;		/* ... this PSN is acknowledged */
	u32 unasked;		/* packets since an acknowledgment was asked for */
};

void peal_window_reset(struct peal_window *w);
void peal_window_limit(struct peal_window *w, u32 limit);
/* Packets are numbered anew: none of those that were lost is out any more. */
void peal_window_recover(struct peal_window *w);
/*
 * @packets more were acknowledged, all before @una. It grows, unless they have
 * waited for too long: then it is halved. @top: the PSN after the last that left.
 */
void peal_window_follow(struct peal_window *w, u32 packets, u32 una, u32 top, bool slow);
/* The peer was silent. */
void peal_window_halve(struct peal_window *w, u32 top);
/* A packet was lost and others after it were not. */
void peal_window_shrink(struct peal_window *w, u32 top);
/* One more left, and now @outstanding are. Return: shall it ask for an acknowledgment? */
bool peal_window_ask(struct peal_window *w, u32 outstanding);
/* It asks anyway. */
void peal_window_asked(struct peal_window *w);

#endif
