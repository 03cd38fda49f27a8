/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Counters, for headers that use them. The tests have one thread each. */
#ifndef PEAL_SHIM_LINUX_ATOMIC_H
#define PEAL_SHIM_LINUX_ATOMIC_H

#include <linux/types.h>

static inline int atomic_read(const atomic_t *v)
{
	return __atomic_load_n(&v->counter, __ATOMIC_RELAXED);
}

static inline void atomic_set(atomic_t *v, int value)
{
	__atomic_store_n(&v->counter, value, __ATOMIC_RELAXED);
}

static inline int atomic_cmpxchg(atomic_t *v, int old, int value)
{
	__atomic_compare_exchange_n(&v->counter, &old, value, false, __ATOMIC_SEQ_CST,
				    __ATOMIC_SEQ_CST);
	return old;
}

static inline void atomic_inc(atomic_t *v)
{
	__atomic_fetch_add(&v->counter, 1, __ATOMIC_RELAXED);
}

static inline void atomic_dec(atomic_t *v)
{
	__atomic_fetch_sub(&v->counter, 1, __ATOMIC_RELAXED);
}

static inline bool atomic_inc_unless_negative(atomic_t *v)
{
	int now = atomic_read(v);

	while (now >= 0) {
		int seen = atomic_cmpxchg(v, now, now + 1);

		if (seen == now)
			return true;
		now = seen;
	}
	return false;
}

#endif
