// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See retransmit.h.
 */
#include <linux/limits.h>
#include <linux/minmax.h>

#include "proto/retransmit.h"

/* After so many lone probes a peer is no longer believed to keep out-of-order packets. */
#define LONE_PROBES	2
/* Each lone probe doubles the packets of the next one, up to 2^LONE_SHIFT. */
#define LONE_SHIFT	5

void peal_retransmit_reset(struct peal_retransmit *r, const struct peal_inflight *inflight)
{
	*r = (struct peal_retransmit) { .probe = PEAL_PROBE_NONE };
	peal_retransmit_stop(r, inflight);
}

static void peal_retransmit_from_una(struct peal_retransmit *r,
				     const struct peal_inflight *inflight, u32 end)
{
	r->next = inflight->una;
	r->end = end;
	r->index = inflight->acking;
}

void peal_retransmit_stop(struct peal_retransmit *r, const struct peal_inflight *inflight)
{
	r->probe = PEAL_PROBE_NONE;
	peal_retransmit_from_una(r, inflight, inflight->una);
}

void peal_retransmit_go_back(struct peal_retransmit *r, const struct peal_inflight *inflight)
{
	r->probe = PEAL_PROBE_NONE;
	peal_retransmit_from_una(r, inflight, inflight->top);
}

/*
 * A READ that the peer has not executed must be requested as it was. Of an executed READ, only
 * the missing responses up to the first kept one are requested, and at most @limit of them.
 */
static u32 peal_retransmit_span_at(const struct peal_inflight *inflight,
				   const struct peal_reorder *reorder,
				   const struct peal_message *message, u32 psn, u32 limit)
{
	u32 span, kept;

	if (!peal_message_is_read(message))
		return 1;
	span = peal_message_piece(message, peal_psn_ahead(message->psn, psn));
	if (!peal_psn_before(psn, inflight->executed))
		return span;
	kept = peal_reorder_first(reorder, psn);
	if (kept != psn)
		span = min_t(u32, span, peal_psn_ahead(psn, kept));
	return min_t(u32, span, limit);
}

/* After silence request one response only, because the others may be on their way. */
static u32 peal_retransmit_enough(enum peal_probe why)
{
	return why == PEAL_PROBE_SILENCE ? 1 : U32_MAX;
}

void peal_retransmit_request_missing(struct peal_retransmit *r,
				     const struct peal_inflight *inflight,
				     const struct peal_reorder *reorder)
{
	const struct peal_message *message = peal_inflight_at(inflight, inflight->acking);
	u32 span = peal_retransmit_span_at(inflight, reorder, message, inflight->una, U32_MAX);

	peal_retransmit_from_una(r, inflight, peal_psn_add(inflight->una, span));
}

void peal_retransmit_probe(struct peal_retransmit *r, const struct peal_inflight *inflight,
			   const struct peal_reorder *reorder, enum peal_probe why, u32 psn)
{
	const struct peal_message *message =
		peal_inflight_at(inflight, peal_inflight_find(inflight, psn));
	u32 packets = min_t(u32, 1U << r->lone, peal_psn_ahead(psn, inflight->top));

	packets = max_t(u32, packets,
			peal_retransmit_span_at(inflight, reorder, message, psn,
						peal_retransmit_enough(why)));
	r->probe = why;
	r->probe_psn = psn;
	r->probe_end = peal_psn_add(psn, packets);
	r->sent = false;
	r->heard = false;
	r->doubted = false;
	peal_retransmit_from_una(r, inflight, r->probe_end);
}

void peal_retransmit_advance(struct peal_retransmit *r, const struct peal_inflight *inflight)
{
	if (peal_psn_before(r->next, inflight->una)) {
		r->next = inflight->una;
		r->index = inflight->acking;
	}
	peal_psn_raise(&r->end, r->next);
}

/*
 * After silence the data of a READ or atomic behind the probe is missing. That the peer has
 * executed the request does not help, only its responses do.
 */
static bool peal_retransmit_lacks_data(const struct peal_retransmit *r,
				       const struct peal_inflight *inflight)
{
	return r->probe == PEAL_PROBE_SILENCE && inflight->una == r->probe_end &&
	       inflight->una != inflight->top &&
	       peal_message_wants_data(peal_inflight_at(inflight, inflight->acking));
}

enum peal_probe_verdict peal_retransmit_judge(const struct peal_retransmit *r,
					      const struct peal_inflight *inflight)
{
	if (peal_retransmit_lacks_data(r, inflight))
		return PEAL_PROBE_VERDICT_LONE;
	if (peal_psn_before(r->probe_end, inflight->executed))
		return PEAL_PROBE_VERDICT_OVER;
	if (inflight->una != r->probe_end)
		return PEAL_PROBE_VERDICT_OPEN;
	return inflight->una == inflight->top ? PEAL_PROBE_VERDICT_OVER : PEAL_PROBE_VERDICT_LONE;
}

/*
 * After silence no packet was known to be missing, so packets behind the probe do not prove that
 * the peer kept them out of order.
 */
void peal_retransmit_conclude(struct peal_retransmit *r, const struct peal_inflight *inflight)
{
	if (r->probe != PEAL_PROBE_SILENCE && peal_psn_before(r->probe_end, inflight->executed))
		r->peer_reorders = true;
	r->lone = 0;
	r->probe = PEAL_PROBE_NONE;
}

/* A peer that sends a NAK must have received a later packet, otherwise it would see no gap. */
void peal_retransmit_continue(struct peal_retransmit *r, const struct peal_inflight *inflight,
			      const struct peal_reorder *reorder, bool nak)
{
	bool keeps = r->probe == PEAL_PROBE_NAK && (nak || r->peer_reorders);

	if (r->lone < LONE_SHIFT)
		r->lone++;
	if (keeps && (nak || r->lone < LONE_PROBES)) {
		peal_retransmit_probe(r, inflight, reorder, PEAL_PROBE_NAK, inflight->una);
		return;
	}
	if (keeps)
		r->peer_reorders = false;
	r->lone = 0;
	peal_retransmit_go_back(r, inflight);
}

/* PSNs from `next` on, within one message, that need no retransmission. */
static u32 peal_retransmit_skippable(const struct peal_retransmit *r,
				     const struct peal_inflight *inflight,
				     const struct peal_reorder *reorder,
				     const struct peal_message *message)
{
	u32 left = message->packets - peal_psn_ahead(message->psn, r->next);

	if (!peal_psn_before(r->next, inflight->executed))
		return 0;
	if (peal_message_wants_data(message))
		return peal_reorder_has(reorder, r->next) ? 1 : 0;
	return min_t(u32, left, peal_psn_ahead(r->next, inflight->executed));
}

bool peal_retransmit_seek(struct peal_retransmit *r, const struct peal_inflight *inflight,
			  const struct peal_reorder *reorder)
{
	while (r->next != r->end && !peal_inflight_is_lost(inflight, r->index)) {
		const struct peal_message *message = peal_inflight_at(inflight, r->index);
		u32 skip;

		if (peal_psn_ahead(message->psn, r->next) >= message->packets) {
			r->index = peal_inflight_find(inflight, r->next);
			continue;
		}
		skip = peal_retransmit_skippable(r, inflight, reorder, message);
		if (!skip)
			return true;
		r->next = peal_psn_add(r->next, min_t(u32, skip, peal_psn_ahead(r->next, r->end)));
	}
	r->end = r->next;
	return false;
}

u32 peal_retransmit_span(const struct peal_retransmit *r, const struct peal_inflight *inflight,
			 const struct peal_reorder *reorder)
{
	u32 limit = r->probe == PEAL_PROBE_SILENCE ? peal_psn_ahead(r->next, r->end) : U32_MAX;

	return peal_retransmit_span_at(inflight, reorder, peal_inflight_at(inflight, r->index),
				       r->next, limit);
}

bool peal_retransmit_probe_is_needless(struct peal_retransmit *r,
				       const struct peal_inflight *inflight,
				       const struct peal_reorder *reorder)
{
	return r->probe && !r->sent && !peal_retransmit_seek(r, inflight, reorder);
}

void peal_retransmit_sent(struct peal_retransmit *r, const struct peal_inflight *inflight,
			  const struct peal_reorder *reorder, u32 span, u64 now)
{
	r->next = peal_psn_add(r->next, span);
	peal_psn_raise(&r->end, r->next);
	if (!r->probe || r->sent)
		return;
	peal_psn_raise(&r->probe_end, r->end);
	if (peal_retransmit_seek(r, inflight, reorder))
		return;
	r->sent = true;
	r->sent_at = now;
}

bool peal_retransmit_hear(struct peal_retransmit *r)
{
	if (!r->sent || r->heard)
		return false;
	r->heard = true;
	return true;
}

bool peal_retransmit_doubt(struct peal_retransmit *r)
{
	bool first = !r->doubted;

	r->doubted = true;
	return first;
}
