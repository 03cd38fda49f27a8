// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See reorder.h.
 */
#include "proto/packet.h"
#include "proto/reorder.h"

bool peal_reorder_insert(struct peal_reorder *reorder, u32 expected, u32 psn, void *handle, u64 now,
			 u64 reorder_ns)
{
	s32 ahead = peal_psn_distance(expected, psn);
	u32 slot = peal_reorder_slot(psn);

	if (ahead <= 0 || ahead >= PEAL_REORDER_SLOTS || reorder->slot[slot])
		return false;
	if (!reorder->count)
		reorder->look_at = now + reorder_ns;
	reorder->slot[slot] = handle;
	reorder->psn[slot] = psn;
	reorder->count++;
	return true;
}

void *peal_reorder_find(const struct peal_reorder *reorder, u32 psn)
{
	return peal_reorder_has(reorder, psn) ? reorder->slot[peal_reorder_slot(psn)] : NULL;
}

static void *peal_reorder_empty(struct peal_reorder *reorder, u32 slot)
{
	void *handle = reorder->slot[slot];

	reorder->slot[slot] = NULL;
	reorder->count--;
	return handle;
}

void *peal_reorder_take(struct peal_reorder *reorder, u32 psn)
{
	return peal_reorder_has(reorder, psn) ?
		       peal_reorder_empty(reorder, peal_reorder_slot(psn)) :
		       NULL;
}

void *peal_reorder_drop(struct peal_reorder *reorder)
{
	u32 slot;

	for (slot = 0; reorder->count && slot < PEAL_REORDER_SLOTS; slot++) {
		if (reorder->slot[slot])
			return peal_reorder_empty(reorder, slot);
	}
	return NULL;
}

u32 peal_reorder_first(const struct peal_reorder *reorder, u32 expected)
{
	u32 ahead;

	for (ahead = 1; reorder->count && ahead < PEAL_REORDER_SLOTS; ahead++) {
		u32 psn = peal_psn_add(expected, ahead);

		if (peal_reorder_has(reorder, psn))
			return psn;
	}
	return expected;
}

/*
 * All slots share one deadline, so that a packet costs one bit instead of a time. A handle that two
 * scans in a row find has been kept for at least the time between them, @reorder_ns.
 */
void *peal_reorder_expire(struct peal_reorder *reorder, u64 now, u64 reorder_ns)
{
	u32 slot;

	if (now < peal_reorder_deadline(reorder))
		return NULL;
	for (slot = 0; slot < PEAL_REORDER_SLOTS; slot++) {
		if (reorder->slot[slot] && reorder->psn[slot] & PEAL_REORDER_OLD)
			return peal_reorder_empty(reorder, slot);
	}
	for (slot = 0; slot < PEAL_REORDER_SLOTS; slot++)
		reorder->psn[slot] |= PEAL_REORDER_OLD;
	reorder->look_at = now + reorder_ns;
	return NULL;
}
