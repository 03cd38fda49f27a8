// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See inflight.h. Clauses are those of the IBTA specification, volume 1.
 */
#include <linux/minmax.h>

#include "proto/inflight.h"

void peal_inflight_init(struct peal_inflight *inflight, struct peal_message *message, u32 entries)
{
	*inflight = (struct peal_inflight) { .message = message, .mask = entries - 1 };
}

static void peal_inflight_acknowledge_psns(struct peal_inflight *inflight)
{
	inflight->una = inflight->top;
	inflight->seen = inflight->top;
	inflight->executed = inflight->top;
}

void peal_inflight_set_psn(struct peal_inflight *inflight, u32 psn)
{
	inflight->top = psn & PEAL_PSN_MASK;
	inflight->posted = inflight->top;
	peal_inflight_acknowledge_psns(inflight);
}

void peal_inflight_post(struct peal_inflight *inflight, const struct peal_wr *wr, u8 transport,
			u8 mtu_shift)
{
	struct peal_message *message = peal_inflight_at(inflight, inflight->head++);

	peal_message_init(message, wr, transport, mtu_shift, inflight->posted);
	inflight->posted = peal_psn_add(inflight->posted, message->packets);
}

void peal_inflight_sent(struct peal_inflight *inflight, u32 span)
{
	inflight->top = peal_psn_add(inflight->top, span);
	inflight->packet += span;
	if (inflight->packet < peal_inflight_at(inflight, inflight->sending)->packets)
		return;
	inflight->sending++;
	inflight->packet = 0;
}

void peal_inflight_local_begun(struct peal_inflight *inflight)
{
	inflight->sending++;
	inflight->locals++;
	peal_inflight_follow(inflight);
}

void peal_inflight_acknowledge_all(struct peal_inflight *inflight)
{
	peal_inflight_acknowledge_psns(inflight);
	inflight->acking = inflight->sending;
	inflight->locals = 0;
}

/*
 * Messages take consecutive PSNs and local operations take none, so the end PSNs of the messages
 * never decrease from `acking` on. A bisection is needed because there may be as many local
 * operations between two READs as the queue has slots.
 */
u32 peal_inflight_find(const struct peal_inflight *inflight, u32 psn)
{
	u32 base = peal_inflight_at(inflight, inflight->acking)->psn;
	u32 ahead = peal_psn_ahead(base, psn);
	u32 left = inflight->sending - inflight->acking;
	u32 index = inflight->acking;

	while (left) {
		u32 half = left / 2;
		const struct peal_message *message = peal_inflight_at(inflight, index + half);

		if (peal_psn_ahead(base, message->psn) + message->packets > ahead) {
			left = half;
		} else {
			index += half + 1;
			left -= half + 1;
		}
	}
	return index;
}

void peal_inflight_execute(struct peal_inflight *inflight, u32 psn)
{
	peal_psn_raise(&inflight->executed, psn);
}

void peal_inflight_see(struct peal_inflight *inflight, u32 psn)
{
	peal_psn_raise(&inflight->seen, psn);
	peal_psn_raise(&inflight->executed, psn);
}

void peal_inflight_follow(struct peal_inflight *inflight)
{
	while (inflight->acking != inflight->head) {
		const struct peal_message *message = peal_inflight_at(inflight, inflight->acking);
		u32 left = message->packets - peal_psn_ahead(message->psn, inflight->una);
		u32 step = min_t(u32, left, peal_psn_ahead(inflight->una, inflight->executed));

		if (left && (!step || peal_message_wants_data(message)))
			break;
		if (!left && inflight->acking == inflight->sending)
			break;
		inflight->una = peal_psn_add(inflight->una, step);
		if (step < left)
			continue;
		inflight->acking++;
		inflight->locals -= message->local;
	}
	peal_inflight_see(inflight, inflight->una);
}

void peal_inflight_placed(struct peal_inflight *inflight)
{
	const struct peal_message *message = peal_inflight_at(inflight, inflight->acking);

	inflight->una = peal_psn_add(inflight->una, 1);
	if (peal_psn_ahead(message->psn, inflight->una) == message->packets)
		inflight->acking++;
	peal_inflight_see(inflight, inflight->una);
	peal_inflight_follow(inflight);
}

/* 9.9.2. The messages before @index still complete in order. */
void peal_inflight_fail(struct peal_inflight *inflight, u32 index, u8 status, u32 reason)
{
	if (peal_inflight_before(index, inflight->tail) ||
	    !peal_inflight_before(index, inflight->head) || peal_inflight_is_lost(inflight, index))
		return;
	inflight->failed = true;
	inflight->bad = index;
	peal_message_fail(peal_inflight_at(inflight, index), status, reason);
}

const struct peal_message *peal_inflight_complete(struct peal_inflight *inflight)
{
	const struct peal_message *message = peal_inflight_at(inflight, inflight->tail);

	if (peal_inflight_is_lost(inflight, inflight->tail)) {
		if (inflight->tail != inflight->bad)
			return NULL;
	} else if (!peal_inflight_before(inflight->tail, inflight->acking) ||
		   (message->local && !message->done)) {
		return NULL;
	}
	inflight->tail++;
	return message;
}

const struct peal_message *peal_inflight_flush(struct peal_inflight *inflight)
{
	if (!peal_inflight_is_lost(inflight, inflight->tail)) {
		inflight->failed = true;
		inflight->bad = inflight->tail;
	}
	inflight->sending = inflight->head;
	inflight->acking = inflight->head;
	inflight->locals = 0;
	return inflight->tail == inflight->head ? NULL :
						  peal_inflight_at(inflight, inflight->tail++);
}
