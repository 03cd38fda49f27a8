// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The waiting side of the epoch. See epoch.h.
 */
#include <linux/cpumask.h>
#include <linux/sched.h>

#include "base/epoch.h"

DEFINE_PER_CPU_ALIGNED(struct peal_epoch, peal_epoch);

#ifdef CONFIG_DEBUG_LOCK_ALLOC
static struct lock_class_key peal_epoch_key;
struct lockdep_map peal_epoch_lockdep = STATIC_LOCKDEP_MAP_INIT("peal_epoch", &peal_epoch_key);
#endif

/* A CPU that was outside, or has left since, cannot hold a pointer to the removed object. */
static void peal_epoch_wait_cpu(int cpu)
{
	const struct peal_epoch *epoch = per_cpu_ptr(&peal_epoch, cpu);
	unsigned long seq;

	/*
	 * G: pairs with the release in peal_epoch_exit(). The last barrier of
	 * peal_epoch_wait() does the same for the value that ends the loop.
	 */
	seq = smp_load_acquire(&epoch->seq);
	while (seq & 1) {
		cpu_relax();
		cond_resched();
		if (READ_ONCE(epoch->seq) != seq)
			break;
	}
}

/**
 * peal_epoch_wait() - wait until no CPU uses objects that left the tables before the call
 *
 * May sleep. Returns after every section that began before the call has ended. Must not be
 * called inside a section, because it would wait for itself.
 */
void peal_epoch_wait(void)
{
	int cpu;

	might_sleep();
#ifdef CONFIG_DEBUG_LOCK_ALLOC
	RCU_LOCKDEP_WARN(lock_is_held(&peal_epoch_lockdep), "the epoch is waited for inside it");
#endif
	/* G, writer: the removal from the tables is visible before the CPUs' words are read. */
	smp_mb();
	for_each_possible_cpu(cpu)
		peal_epoch_wait_cpu(cpu);
	/* G: the code below runs after the last use of the removed objects. */
	smp_mb();
}
