/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The epoch: how the data path uses objects that another CPU may destroy.
 *
 * Owns: one sequence word per CPU. Between enter and exit a CPU may follow pointers that it
 * finds in the tables (queue pairs, completion queues, memory regions, contexts) without a
 * reference. A destroyer first removes the object from the tables, then calls
 * peal_epoch_wait(), then frees the object.
 * Does not know: which objects the sections use.
 *
 * The epoch is RCU with two differences. First, a section is short by construction (a turn,
 * or one received piece), so the wait takes microseconds. synchronize_rcu() takes
 * milliseconds, which is too long because programs measure the time of dereg_mr and
 * destroy_qp. Second, a section disables softirqs, which the locks taken inside it need
 * anyway.
 *
 * Price: one full barrier per section, which is one per batch of WQEs.
 */
#ifndef PEAL_EPOCH_H
#define PEAL_EPOCH_H

#include <linux/bottom_half.h>
#include <linux/lockdep.h>
#include <linux/percpu.h>
#include <linux/rcupdate.h>

struct peal_epoch {
	unsigned long seq;	/* odd while this CPU is inside */
	unsigned int depth;	/* nesting, because a completion handler may post */
};

DECLARE_PER_CPU_ALIGNED(struct peal_epoch, peal_epoch);

#ifdef CONFIG_DEBUG_LOCK_ALLOC
/* Lockdep lists a section among the held locks, as it does for RCU. */
extern struct lockdep_map peal_epoch_lockdep;
#define peal_epoch_lockdep_enter()	rcu_lock_acquire(&peal_epoch_lockdep)
#define peal_epoch_lockdep_exit()	rcu_lock_release(&peal_epoch_lockdep)
#else
#define peal_epoch_lockdep_enter()	do { } while (0)
#define peal_epoch_lockdep_exit()	do { } while (0)
#endif

static inline void peal_epoch_enter(void)
{
	struct peal_epoch *epoch;

	local_bh_disable();
	__acquire(peal_epoch);	/* sparse: each section ends in the function that began it */
	peal_epoch_lockdep_enter();
	epoch = this_cpu_ptr(&peal_epoch);
	if (epoch->depth++)
		return;
	WRITE_ONCE(epoch->seq, epoch->seq + 1);
	/*
	 * G, reader: "inside" is visible before any table is read. Pairs with the full
	 * barrier G in peal_epoch_wait(), so either the destroyer sees this CPU inside, or
	 * this CPU does not find the object.
	 */
	smp_mb();
}

static inline void peal_epoch_exit(void)
{
	struct peal_epoch *epoch = this_cpu_ptr(&peal_epoch);

	if (!--epoch->depth)
		/* G: uses of the objects end before "outside" is visible. */
		smp_store_release(&epoch->seq, epoch->seq + 1);
	peal_epoch_lockdep_exit();
	__release(peal_epoch);
	local_bh_enable();
}

static inline bool peal_epoch_held(void)
{
	return this_cpu_read(peal_epoch.depth) != 0;
}

/* For functions whose comment says that they run inside the epoch. */
#define peal_epoch_assert_held()	lockdep_assert(peal_epoch_held())

void peal_epoch_wait(void);

#endif
