// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See inflight.h. Clauses are those of the IBTA specification, volume 1.
 */
#include <linux/minmax.h>

#include "proto/inflight.h"

void peal_inflight_init(struct peal_inflight *t, struct peal_message *message, u32 entries)
{
	*t = (struct peal_inflight) { .message = message, .mask = entries - 1 };
}

static void peal_inflight_all_acknowledged(struct peal_inflight *t)
{
	t->una = t->top;
	t->seen = t->top;
	t->executed = t->top;
}

void peal_inflight_set_psn(struct peal_inflight *t, u32 psn)
{
	t->top = psn & PEAL_PSN_MASK;
	t->posted = t->top;
	peal_inflight_all_acknowledged(t);
}

void peal_inflight_post(struct peal_inflight *t, const struct peal_wr *wr, u8 transport,
			u8 mtu_shift)
{
	struct peal_message *f = peal_inflight_at(t, t->head++);

	peal_message_init(f, wr, transport, mtu_shift, t->posted);
	t->posted = peal_psn_add(t->posted, f->packets);
}

void peal_inflight_left(struct peal_inflight *t, u32 span)
{
	t->top = peal_psn_add(t->top, span);
	t->packet += span;
	if (t->packet < peal_inflight_at(t, t->sending)->packets)
		return;
	t->sending++;
	t->packet = 0;
}

void peal_inflight_named(struct peal_inflight *t)
{
	t->sending++;
	t->locals++;
	peal_inflight_follow(t);
}

void peal_inflight_forget(struct peal_inflight *t)
{
	peal_inflight_all_acknowledged(t);
	t->acking = t->sending;
	t->locals = 0;
}

/*
 * Messages take consecutive PSNs and local operations take none, so the end PSNs of the messages
 * never decrease from `acking` on. A bisection is needed because there may be as many local
 * operations between two READs as the queue has slots.
 */
u32 peal_inflight_find(const struct peal_inflight *t, u32 psn)
{
	u32 base = peal_inflight_at(t, t->acking)->psn;
	u32 ahead = peal_psn_ahead(base, psn);
	u32 left = t->sending - t->acking;
	u32 index = t->acking;

	while (left) {
		u32 half = left / 2;
		const struct peal_message *f = peal_inflight_at(t, index + half);

		if (peal_psn_ahead(base, f->psn) + f->packets > ahead) {
			left = half;
		} else {
			index += half + 1;
			left -= half + 1;
		}
	}
	return index;
}

void peal_inflight_execute(struct peal_inflight *t, u32 psn)
{
	peal_psn_raise(&t->executed, psn);
}

void peal_inflight_see(struct peal_inflight *t, u32 psn)
{
	peal_psn_raise(&t->seen, psn);
	peal_psn_raise(&t->executed, psn);
}

void peal_inflight_follow(struct peal_inflight *t)
{
	while (t->acking != t->head) {
		const struct peal_message *f = peal_inflight_at(t, t->acking);
		u32 left = f->packets - peal_psn_ahead(f->psn, t->una);
		u32 step = min_t(u32, left, peal_psn_ahead(t->una, t->executed));

		if (left && (!step || peal_message_wants_data(f)))
			break;
		if (!left && t->acking == t->sending)
			break;
		t->una = peal_psn_add(t->una, step);
		if (step < left)
			continue;
		t->acking++;
		t->locals -= f->local;
	}
	peal_inflight_see(t, t->una);
}

void peal_inflight_land(struct peal_inflight *t)
{
	const struct peal_message *f = peal_inflight_at(t, t->acking);

	t->una = peal_psn_add(t->una, 1);
	if (peal_psn_ahead(f->psn, t->una) == f->packets)
		t->acking++;
	peal_inflight_see(t, t->una);
	peal_inflight_follow(t);
}

/* 9.9.2. The messages before @index still complete in order. */
void peal_inflight_fail(struct peal_inflight *t, u32 index, u8 status, u32 reason)
{
	if (peal_inflight_before(index, t->tail) || !peal_inflight_before(index, t->head) ||
	    peal_inflight_is_lost(t, index))
		return;
	t->failed = true;
	t->bad = index;
	peal_message_fail(peal_inflight_at(t, index), status, reason);
}

const struct peal_message *peal_inflight_complete(struct peal_inflight *t)
{
	const struct peal_message *f = peal_inflight_at(t, t->tail);

	if (peal_inflight_is_lost(t, t->tail)) {
		if (t->tail != t->bad)
			return NULL;
	} else if (!peal_inflight_before(t->tail, t->acking) || (f->local && !f->done)) {
		return NULL;
	}
	t->tail++;
	return f;
}

const struct peal_message *peal_inflight_flush(struct peal_inflight *t)
{
	if (!peal_inflight_is_lost(t, t->tail)) {
		t->failed = true;
		t->bad = t->tail;
	}
	t->sending = t->head;
	t->acking = t->head;
	t->locals = 0;
	return t->tail == t->head ? NULL : peal_inflight_at(t, t->tail++);
}
