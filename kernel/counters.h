/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What a device counts: one list, from which come the per-CPU array, the names
 * in `rdma statistic show` and the increments.
 *
 * Owns: the list. Does not know: who reads it.
 */
#ifndef PEAL_COUNTERS_H
#define PEAL_COUNTERS_H

#include <linux/percpu.h>
#include <linux/types.h>

#define PEAL_COUNTERS(X)						\
	X(posts)		/* send WQEs taken from rings */	\
	X(kicks)		/* system calls that rang */		\
	X(doorbells)		/* doorbell bits found by the engine */	\
	X(engine_wakeups)	/* times the engine began to spin */	\
	X(deferrals)		/* queue pairs handed to the worker */	\
	X(messages)		/* messages carried */			\
	X(bytes)		/* payload carried */			\
	X(direct_messages)	/* of these by the direct carrier */	\
	X(rnr_waits)		/* waits for a receive */		\
	X(silence_waits)	/* waits for a silent peer */		\
	X(errors)		/* completions in error, flushes apart */ \
	X(flushes)		/* WQEs flushed */			\
	X(cq_overflows)		/* CQEs lost */

#define PEAL_COUNTER_ENUM_(name) PEAL_COUNTER_##name,
enum peal_counter {
	PEAL_COUNTERS(PEAL_COUNTER_ENUM_)
	PEAL_COUNTER_COUNT
};

#undef PEAL_COUNTER_ENUM_

struct peal_counters {
	u64 value[PEAL_COUNTER_COUNT];
};

#define peal_count_by(table, name, n) \
	this_cpu_add((table)->counters->value[PEAL_COUNTER_##name], n)
#define peal_count(table, name) peal_count_by(table, name, 1)

#endif
