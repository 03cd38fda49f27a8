/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The roster: all contexts of a device whose doorbells are looked at.
 *
 * Owns: the list, how far a pass through all doorbells has come, and what every
 * context's page says of the engine (peal-abi.h, enum peal_engine_state).
 * Does not know: when to look, and what becomes of a queue pair that was rung for.
 *
 * Lock: roster->lock guards the lists and the words. Inside it nothing else is taken,
 * and no interrupt or softirq takes it: those are left on. One scans at a time: the
 * engine's thread, or the work that ends its last pass.
 */
#ifndef PEAL_ROSTER_H
#define PEAL_ROSTER_H

#include <linux/list.h>
#include <linux/spinlock.h>

#include "queue/context.h"

struct peal_roster {
	spinlock_t lock;		/* guards the lists and what the pages say */
	struct list_head contexts;	/* read inside the guard */
	struct list_head awake;		/* contexts whose pages say AWAKE, by their `awake` */
	bool gone;			/* the device is being removed: nobody wakes again */
	u64 pass;			/* through all doorbells; who scans */
};

void peal_roster_init(struct peal_roster *roster);
void peal_roster_add(struct peal_roster *roster, struct peal_context *ctx);
void peal_roster_remove(struct peal_roster *roster, struct peal_context *ctx);

void peal_roster_announce(struct peal_roster *roster, bool awake);
/* The device goes. GONE stays until peal_roster_return(). */
void peal_roster_leave(struct peal_roster *roster);
void peal_roster_return(struct peal_roster *roster);

void peal_roster_begin_pass(struct peal_roster *roster);
bool peal_roster_scan(struct peal_roster *roster,
		      void (*rung)(void *owner, struct peal_qp *qp), void *owner);

#endif
