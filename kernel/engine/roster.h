/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The roster: all contexts of a device whose doorbells are scanned.
 *
 * Owns: the list, how far a pass over all doorbells has come, and the engine's state that every
 * context's page shows (peal-abi.h, enum peal_engine_state).
 * Does not know: when to scan, and what happens to a queue pair whose doorbell was rung.
 *
 * Lock: roster->lock guards the lists and the words. Nothing else is taken inside it.
 * Interrupts and softirqs stay on, because no handler of them takes it. Only one task scans at
 * a time, either the engine's thread or the work that finishes its last pass.
 */
#ifndef PEAL_ROSTER_H
#define PEAL_ROSTER_H

#include <linux/list.h>
#include <linux/spinlock.h>

#include "queue/context.h"

struct peal_roster {
	spinlock_t lock;		/* also guards the pages' words */

	/* Guarded by roster.lock: */
	struct list_head contexts;	/* all contexts; scanned inside the guard */
	struct list_head awake;		/* contexts whose pages say AWAKE, by peal_context.awake */
	bool gone;			/* the device is being removed; no page says AWAKE */

	u64 pass;			/* number of the present pass; the scanner's */
};

void peal_roster_init(struct peal_roster *roster);
void peal_roster_add(struct peal_roster *roster, struct peal_context *ctx);
void peal_roster_remove(struct peal_roster *roster, struct peal_context *ctx);

void peal_roster_announce(struct peal_roster *roster, bool awake);
/* The device is being removed. All pages say GONE until peal_roster_return(). */
void peal_roster_leave(struct peal_roster *roster);
void peal_roster_return(struct peal_roster *roster);

void peal_roster_begin_pass(struct peal_roster *roster);
bool peal_roster_scan(struct peal_roster *roster,
		      void (*rung)(void *owner, struct peal_qp *qp), void *owner);

#endif
