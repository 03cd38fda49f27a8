/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The poller: a thread that scans the doorbells, so that posting is a store.
 *
 * Owns: the thread, when it spins and when it sleeps, the contexts whose doorbells it scans, how
 * far a pass over all doorbells has come, and the engine's state that every context's page shows
 * (peal-abi.h, enum peal_engine_state).
 *
 * Lock: poller->lock guards the lists and the words. Nothing else is taken inside it. Interrupts
 * and softirqs stay on, because no handler of them takes it. Only one task scans at a time, either
 * the thread or the work that finishes its last pass.
 */
#ifndef PEAL_POLLER_H
#define PEAL_POLLER_H

#include <linux/jiffies.h>
#include <linux/percpu.h>
#include <linux/time64.h>

#include "base/epoch.h"
#include "engine/engine.h"

int peal_poller_start(struct peal_engine *e, const char *name);
void peal_poller_stop(struct peal_engine *e);

void peal_poller_add(struct peal_poller *poller, struct peal_context *ctx);
void peal_poller_remove(struct peal_poller *poller, struct peal_context *ctx);
void peal_poller_set_gone(struct peal_poller *poller, bool gone);

/*
 * So many kicks on one CPU in one jiffy, one every 20 us, wake the thread. Fewer do not, because a
 * wake-up costs as much as a hundred kicks.
 */
#define PEAL_STREAK_KICKS	(USEC_PER_SEC / HZ / 20)

/* The kicks of one CPU in a jiffy. */
struct peal_streak {
	u32 jiffy;
	u32 kicks;
};

DECLARE_PER_CPU(struct peal_streak, peal_streak);
void peal_poller_want(struct peal_poller *poller);

/* Inside the epoch, so the CPU does not change. */
static inline void peal_poller_note_kick(struct peal_poller *poller)
{
	struct peal_streak *streak = this_cpu_ptr(&peal_streak);

	peal_epoch_assert_held();
	if (unlikely(streak->jiffy != (u32)jiffies))
		*streak = (struct peal_streak){ .jiffy = jiffies };
	if (unlikely(++streak->kicks == PEAL_STREAK_KICKS))
		peal_poller_want(poller);
}

#endif
