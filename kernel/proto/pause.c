// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See pause.h. Clauses are those of the IBTA specification, volume 1.
 */
#include <linux/minmax.h>
#include <rdma/ib_verbs.h>

#include "proto/pause.h"

/*
 * Local operations that may be ahead of what was acknowledged. They take no PSN, so
 * that the answer to one packet ends all that are behind it.
 */
#define PEAL_PAUSE_LOCALS	256

/*
 * Without credit one packet may go when nothing else is out, so that an update
 * that was lost cannot stop the connection; when it was acknowledged there was
 * a receive, and the rest of the message follows (9.7.7.2.5).
 */
static bool peal_pause_has_credit(const struct peal_outbound *o, const struct peal_flight *f)
{
	const struct peal_trail *t = &o->trail;
	bool first = !t->packet;
	u32 ssn = peal_psn_add(o->credit.ssn, first ? 1 : 0);

	if (!peal_flight_takes_receive(f) || peal_credit_covers(&o->credit, ssn))
		return true;
	return t->una == t->top || (!first && t->una != f->psn && t->acking == t->sending);
}

static enum peal_pause peal_pause_to_begin(const struct peal_outbound *o,
					   const struct peal_flight *f)
{
	if (!o->trail.packet && f->message.flags & PEAL_WQE_FENCE && o->rd_atomic)
		return PEAL_PAUSE_FENCE;
	if (f->local)
		return o->trail.locals < PEAL_PAUSE_LOCALS ? PEAL_PAUSE_NONE : PEAL_PAUSE_WINDOW;
	if (!peal_outbound_reliable(o))
		return PEAL_PAUSE_NONE;
	if (peal_flight_wants_data(f) && o->rd_atomic >= o->config.max_rd_atomic)
		return PEAL_PAUSE_RD_ATOMIC;
	if (!peal_pause_has_credit(o, f))
		return PEAL_PAUSE_CREDIT;
	return PEAL_PAUSE_NONE;
}

/* On a path that loses, no more than the peer may be able to keep. */
static bool peal_pause_window_open(const struct peal_outbound *o, u32 span)
{
	u32 outstanding = peal_trail_outstanding(&o->trail);
	u32 size = o->window.size;

	if (o->repair.probe || o->repair.peer_keeps)
		size = min_t(u32, size, PEAL_EARLY_SLOTS);
	return !outstanding || outstanding + span <= size;
}

u32 peal_pause_span(const struct peal_outbound *o, const struct peal_flight *f)
{
	return peal_flight_is_read(f) ? peal_flight_piece(f, o->trail.packet) : 1;
}

enum peal_pause peal_pause_before(const struct peal_outbound *o, const struct peal_flight *f)
{
	enum peal_pause pause = peal_pause_to_begin(o, f);

	if (!pause && !f->local && !peal_pause_window_open(o, peal_pause_span(o, f)))
		pause = PEAL_PAUSE_WINDOW;
	return pause;
}
