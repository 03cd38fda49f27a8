/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Locks do nothing, because the test is the only thread. */
#ifndef PEAL_SHIM_LINUX_SPINLOCK_H
#define PEAL_SHIM_LINUX_SPINLOCK_H

typedef struct {
	int unused;
} spinlock_t;

#define __SPIN_LOCK_UNLOCKED(name)		{ 0 }

static inline void spin_lock_init(spinlock_t *lock)
{
	lock->unused = 0;
}

#define spin_lock(lock)				((void)(lock))
#define spin_unlock(lock)			((void)(lock))
#define spin_lock_bh(lock)			((void)(lock))
#define spin_unlock_bh(lock)			((void)(lock))
#define spin_lock_irq(lock)			((void)(lock))
#define spin_unlock_irq(lock)			((void)(lock))
#define spin_lock_irqsave(lock, flags)		((void)(lock), (flags) = 0)
#define spin_unlock_irqrestore(lock, flags)	((void)(lock), (void)(flags))
#define lockdep_assert_held(lock)		((void)(lock))
#define lockdep_assert(condition)		((void)(condition))
/* The test is the only thread, so nothing interrupts it. */
#define softirq_count()				1

#endif
