/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Turns of regions with on-demand paging at bringing in pages.
 *
 * Owns: the works that run, and the queues of those that wait, by program and by user.
 * Does not know: pages, and how they are brought in.
 *
 * A page may take for ever, because another program may have to deliver it (FUSE). So the number of
 * works is limited for each program and for each user, and nothing that is limited by one delays
 * others. A program is a struct mm_struct. Its user is the user that registered its first region.
 * A region that is gone keeps its work's place until the page has come.
 */
#ifndef PEAL_ODP_QUEUE_H
#define PEAL_ODP_QUEUE_H

#include <linux/list.h>
#include <linux/workqueue.h>

struct mm_struct;
struct peal_odp_program;

enum peal_odp_turn_state {
	PEAL_ODP_IDLE,
	PEAL_ODP_QUEUED,
	PEAL_ODP_RUNS,
	PEAL_ODP_RUNS_AGAIN,	/* and it was asked for another turn since */
};

struct peal_odp_turn {
	struct work_struct work;
	struct peal_odp_program *program;

	/* Guarded by peal_odp_queue_lock: */
	enum peal_odp_turn_state state;
	struct list_head node;		/* in program.waiting */
};

int peal_odp_queue_init(void);
void peal_odp_queue_exit(void);

int peal_odp_queue_join(struct peal_odp_turn *turn, struct mm_struct *mm, work_func_t func);
void peal_odp_queue_leave(struct peal_odp_turn *turn);
bool peal_odp_queue_add(struct peal_odp_turn *turn);
bool peal_odp_queue_cancel(struct peal_odp_turn *turn);
bool peal_odp_queue_finish(struct peal_odp_turn *turn, bool more);

#endif
