/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The poll list: all contexts of a device whose doorbells are scanned.
 *
 * Owns: the list, how far a pass over all doorbells has come, and the engine's state that every
 * context's page shows (peal-abi.h, enum peal_engine_state).
 * Does not know: when to scan, and what happens to a queue pair whose doorbell was rung.
 *
 * Lock: poll_list->lock guards the lists and the words. Nothing else is taken inside it.
 * Interrupts and softirqs stay on, because no handler of them takes it. Only one task scans at
 * a time, either the engine's thread or the work that finishes its last pass.
 */
#ifndef PEAL_POLL_LIST_H
#define PEAL_POLL_LIST_H

#include <linux/list.h>
#include <linux/spinlock.h>

#include "object/context.h"

struct peal_poll_list {
	spinlock_t lock;		/* also guards the pages' words */

	/* Guarded by poll_list.lock: */
	struct list_head contexts;	/* all contexts; scanned inside the epoch */
	struct list_head awake;		/* contexts whose pages say AWAKE, by peal_context.awake */
	bool gone;			/* the device is being removed; no page says AWAKE */

	u64 pass;			/* number of the present pass; the scanner's */
};

void peal_poll_list_init(struct peal_poll_list *poll_list);
void peal_poll_list_add(struct peal_poll_list *poll_list, struct peal_context *ctx);
void peal_poll_list_remove(struct peal_poll_list *poll_list, struct peal_context *ctx);

void peal_poll_list_announce(struct peal_poll_list *poll_list, bool awake);
/* The device is being removed. All pages say GONE until peal_poll_list_return(). */
void peal_poll_list_leave(struct peal_poll_list *poll_list);
void peal_poll_list_return(struct peal_poll_list *poll_list);

void peal_poll_list_begin_pass(struct peal_poll_list *poll_list);
bool peal_poll_list_scan(struct peal_poll_list *poll_list,
			 void (*found)(struct peal_poll_list *poll_list, struct peal_qp *qp));

#endif
