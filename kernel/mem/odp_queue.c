// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See odp_queue.h.
 */
#include <linux/hashtable.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

#include "base/epoch.h"
#include "base/quota.h"
#include "mem/odp_queue.h"

/* Most works at a time: of all users, of a user, and of a program. */
#define PEAL_ODP_ALL_WORKS	512
#define PEAL_ODP_USER_WORKS	16
#define PEAL_ODP_PROGRAM_WORKS	4

/* A user is ready if it may run one more work and one of its programs is ready. */
struct peal_odp_user {
	kuid_t uid;

	/* Guarded by peal_odp_queue_lock: */
	struct list_head node;		/* in odp_queue.users */
	struct list_head ready_node;	/* in odp_queue.ready, if it is */
	struct list_head ready;		/* its programs that are ready */
	u32 programs;
	u32 running;
};

/* A program is ready if it may run one more work and a region waits for that. */
struct peal_odp_program {
	struct mm_struct *mm;		/* only a name */
	struct peal_odp_user *user;

	/* Guarded by peal_odp_queue_lock: */
	struct hlist_node node;		/* in odp_queue.programs */
	struct list_head ready_node;	/* in user.ready, if it is */
	struct list_head waiting;	/* turns */
	u32 turns;			/* number of its regions */
	u32 running;
};

static DEFINE_SPINLOCK(peal_odp_queue_lock);

static struct peal_odp_queue {
	struct workqueue_struct *wq;

	/* Guarded by peal_odp_queue_lock: */
	struct list_head users;
	struct list_head ready;		/* users */
	DECLARE_HASHTABLE(programs, 8);	/* by mm */
	u32 running;
} peal_odp_queue;

int peal_odp_queue_init(void)
{
	INIT_LIST_HEAD(&peal_odp_queue.users);
	INIT_LIST_HEAD(&peal_odp_queue.ready);
	hash_init(peal_odp_queue.programs);
	peal_odp_queue.wq = alloc_workqueue("peal_odp", WQ_UNBOUND, PEAL_ODP_ALL_WORKS);
	return peal_odp_queue.wq ? 0 : -ENOMEM;
}

void peal_odp_queue_exit(void)
{
	destroy_workqueue(peal_odp_queue.wq);
}

/* Is @program ready, and is its user? Those that become ready come after the others. */
static void peal_odp_queue_sort(struct peal_odp_program *program)
{
	struct peal_odp_user *user = program->user;

	lockdep_assert_held(&peal_odp_queue_lock);
	if (list_empty(&program->waiting) || program->running >= PEAL_ODP_PROGRAM_WORKS)
		list_del_init(&program->ready_node);
	else if (list_empty(&program->ready_node))
		list_add_tail(&program->ready_node, &user->ready);
	if (list_empty(&user->ready) || user->running >= PEAL_ODP_USER_WORKS)
		list_del_init(&user->ready_node);
	else if (list_empty(&user->ready_node))
		list_add_tail(&user->ready_node, &peal_odp_queue.ready);
}

/* Start as many works as may run. Users take turns, and so do the programs of a user. */
static void peal_odp_queue_start(void)
{
	struct peal_odp_program *program;
	struct peal_odp_turn *turn;
	struct peal_odp_user *user;

	lockdep_assert_held(&peal_odp_queue_lock);
	while (peal_odp_queue.running < PEAL_ODP_ALL_WORKS && !list_empty(&peal_odp_queue.ready)) {
		user = list_first_entry(&peal_odp_queue.ready, struct peal_odp_user, ready_node);
		program = list_first_entry(&user->ready, struct peal_odp_program, ready_node);
		turn = list_first_entry(&program->waiting, struct peal_odp_turn, node);
		list_del_init(&turn->node);
		list_del_init(&program->ready_node);
		list_del_init(&user->ready_node);
		turn->state = PEAL_ODP_RUNS;
		program->running++;
		user->running++;
		peal_odp_queue.running++;
		peal_odp_queue_sort(program);
		queue_work(peal_odp_queue.wq, &turn->work);
	}
}

static struct peal_odp_program *peal_odp_queue_find(const struct mm_struct *mm)
{
	struct peal_odp_program *program;

	lockdep_assert_held(&peal_odp_queue_lock);
	hash_for_each_possible(peal_odp_queue.programs, program, node, (unsigned long)mm)
		if (program->mm == mm)
			return program;
	return NULL;
}

static struct peal_odp_user *peal_odp_queue_find_user(kuid_t uid)
{
	struct peal_odp_user *user;

	lockdep_assert_held(&peal_odp_queue_lock);
	list_for_each_entry(user, &peal_odp_queue.users, node)
		if (uid_eq(user->uid, uid))
			return user;
	return NULL;
}

/*
 * @turn takes part, as a region of the calling program. The caller keeps @mm until the turn leaves.
 * Return: 0 or -ENOMEM.
 */
int peal_odp_queue_join(struct peal_odp_turn *turn, struct mm_struct *mm, work_func_t func)
{
	struct peal_odp_program *fresh = kzalloc(sizeof(*fresh), GFP_KERNEL_ACCOUNT), *program;
	struct peal_odp_user *fresh_user = kzalloc(sizeof(*fresh_user), GFP_KERNEL_ACCOUNT);

	if (!fresh || !fresh_user) {
		kfree(fresh);
		kfree(fresh_user);
		return -ENOMEM;
	}
	INIT_WORK(&turn->work, func);
	INIT_LIST_HEAD(&turn->node);
	turn->state = PEAL_ODP_IDLE;
	spin_lock_bh(&peal_odp_queue_lock);
	program = peal_odp_queue_find(mm);
	if (!program) {
		swap(program, fresh);
		program->mm = mm;
		INIT_LIST_HEAD(&program->ready_node);
		INIT_LIST_HEAD(&program->waiting);
		hash_add(peal_odp_queue.programs, &program->node, (unsigned long)mm);
		program->user = peal_odp_queue_find_user(peal_quota_current());
	}
	if (!program->user) {
		swap(program->user, fresh_user);
		program->user->uid = peal_quota_current();
		INIT_LIST_HEAD(&program->user->ready_node);
		INIT_LIST_HEAD(&program->user->ready);
		list_add(&program->user->node, &peal_odp_queue.users);
	}
	if (!program->turns++)
		program->user->programs++;
	spin_unlock_bh(&peal_odp_queue_lock);
	turn->program = program;
	kfree(fresh);
	kfree(fresh_user);
	return 0;
}

/* Its work neither waits nor runs. */
void peal_odp_queue_leave(struct peal_odp_turn *turn)
{
	struct peal_odp_program *program = turn->program;
	struct peal_odp_user *user = program->user;
	bool last, last_of_user = false;

	spin_lock_bh(&peal_odp_queue_lock);
	WARN_ON(turn->state != PEAL_ODP_IDLE);
	last = !--program->turns;
	if (last) {
		hash_del(&program->node);
		last_of_user = !--user->programs;
	}
	if (last_of_user)
		list_del(&user->node);
	spin_unlock_bh(&peal_odp_queue_lock);
	if (last)
		kfree(program);
	if (last_of_user)
		kfree(user);
}

static void peal_odp_queue_wait(struct peal_odp_turn *turn)
{
	struct peal_odp_program *program = turn->program;

	lockdep_assert_held(&peal_odp_queue_lock);
	turn->state = PEAL_ODP_QUEUED;
	list_add_tail(&turn->node, &program->waiting);
	peal_odp_queue_sort(program);
}

/*
 * Ask for a turn, inside the epoch. Return: true if @turn was idle. It is idle again when
 * peal_odp_queue_finish() returns false or peal_odp_queue_cancel() true.
 */
bool peal_odp_queue_add(struct peal_odp_turn *turn)
{
	bool idle;

	peal_epoch_assert_held();
	spin_lock(&peal_odp_queue_lock);
	idle = turn->state == PEAL_ODP_IDLE;
	if (idle) {
		peal_odp_queue_wait(turn);
		peal_odp_queue_start();
	} else if (turn->state == PEAL_ODP_RUNS) {
		turn->state = PEAL_ODP_RUNS_AGAIN;
	}
	spin_unlock(&peal_odp_queue_lock);
	return idle;
}

/* Return: true if @turn waited, and does not wait any more. */
bool peal_odp_queue_cancel(struct peal_odp_turn *turn)
{
	bool waited;

	spin_lock_bh(&peal_odp_queue_lock);
	waited = turn->state == PEAL_ODP_QUEUED;
	if (waited) {
		turn->state = PEAL_ODP_IDLE;
		list_del_init(&turn->node);
		peal_odp_queue_sort(turn->program);
	}
	spin_unlock_bh(&peal_odp_queue_lock);
	return waited;
}

/* The work ends. @more: it needs another turn. Return: whether it gets one. */
bool peal_odp_queue_finish(struct peal_odp_turn *turn, bool more)
{
	struct peal_odp_program *program = turn->program;
	bool again;

	spin_lock_bh(&peal_odp_queue_lock);
	again = more || turn->state == PEAL_ODP_RUNS_AGAIN;
	program->running--;
	program->user->running--;
	peal_odp_queue.running--;
	turn->state = PEAL_ODP_IDLE;
	if (again)
		peal_odp_queue_wait(turn);
	else
		peal_odp_queue_sort(program);
	peal_odp_queue_start();
	spin_unlock_bh(&peal_odp_queue_lock);
	return again;
}
