// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See early.h.
 */
#include "proto/early.h"
#include "proto/psn.h"

bool peal_early_keep(struct peal_early *early, u32 expected, u32 psn, void *handle, u64 now,
		     u64 keep_ns)
{
	s32 ahead = peal_psn_distance(expected, psn);
	u32 slot = peal_early_slot(psn);

	if (ahead <= 0 || ahead >= PEAL_EARLY_SLOTS || early->slot[slot])
		return false;
	if (!early->count)
		early->look_at = now + keep_ns;
	early->slot[slot] = handle;
	early->psn[slot] = psn;
	early->count++;
	return true;
}

void *peal_early_find(const struct peal_early *early, u32 psn)
{
	return peal_early_has(early, psn) ? early->slot[peal_early_slot(psn)] : NULL;
}

static void *peal_early_empty(struct peal_early *early, u32 slot)
{
	void *handle = early->slot[slot];

	early->slot[slot] = NULL;
	early->count--;
	return handle;
}

void *peal_early_take(struct peal_early *early, u32 psn)
{
	return peal_early_has(early, psn) ? peal_early_empty(early, peal_early_slot(psn)) : NULL;
}

void *peal_early_drop(struct peal_early *early)
{
	u32 slot;

	for (slot = 0; early->count && slot < PEAL_EARLY_SLOTS; slot++) {
		if (early->slot[slot])
			return peal_early_empty(early, slot);
	}
	return NULL;
}

u32 peal_early_first(const struct peal_early *early, u32 expected)
{
	u32 ahead;

	for (ahead = 1; early->count && ahead < PEAL_EARLY_SLOTS; ahead++) {
		u32 psn = peal_psn_add(expected, ahead);

		if (peal_early_has(early, psn))
			return psn;
	}
	return expected;
}

/*
 * All slots share one deadline, so that a packet costs one bit instead of a time. A handle that two
 * scans in a row find has been kept for at least the time between them, @keep_ns.
 */
void *peal_early_expire(struct peal_early *early, u64 now, u64 keep_ns)
{
	u32 slot;

	if (now < peal_early_deadline(early))
		return NULL;
	for (slot = 0; slot < PEAL_EARLY_SLOTS; slot++) {
		if (early->slot[slot] && early->psn[slot] & PEAL_EARLY_OLD)
			return peal_early_empty(early, slot);
	}
	for (slot = 0; slot < PEAL_EARLY_SLOTS; slot++)
		early->psn[slot] |= PEAL_EARLY_OLD;
	early->look_at = now + keep_ns;
	return NULL;
}
