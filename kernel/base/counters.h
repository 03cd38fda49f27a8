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

#include "proto/drop.h"

#define PEAL_COUNTERS(X)						\
	X(posts)		/* send WQEs taken from rings */	\
	X(kicks)		/* system calls that rang */		\
	X(doorbells)		/* doorbell bits found by the engine */	\
	X(engine_wakeups)	/* times the engine began to spin */	\
	X(deferrals)		/* queue pairs handed to the worker */	\
	X(overdue_turns)	/* turns of such by their context's kicks */ \
	X(messages)		/* messages carried */			\
	X(bytes)		/* payload carried */			\
	X(direct_messages)	/* of these by the direct carrier */	\
	X(wire_messages)	/* of these by packets */		\
	X(rnr_waits)		/* waits for a receive */		\
	X(silence_waits)	/* waits for a silent peer */		\
	X(errors)		/* completions in error, flushes apart */ \
	X(flushes)		/* WQEs flushed */			\
	X(cq_overflows)		/* CQEs lost */				\
	X(packets_sent)							\
	X(packets_received)	/* well-formed, with the right ICRC */	\
	X(packet_bytes_sent)	/* from the BTH to the ICRC */		\
	X(packet_bytes_received)					\
	X(packets_unsent)	/* refused by the stack, or no memory */ \
	X(full_queues)		/* waits for room in the transmit queue */ \
	X(retransmits)		/* packets sent again, by either half */ \
	X(probes)		/* retransmissions on an estimate */	\
	X(timeouts)		/* the attribute's timeout ran out */	\
	X(duplicates)		/* packets that were known already */	\
	X(early_kept)		/* packets that waited for an earlier one */ \
	X(early_lost)		/* of these, thrown away in the end */	\
	X(naks_sent_sequence)						\
	X(naks_sent_invalid)						\
	X(naks_sent_access)						\
	X(naks_sent_operation)						\
	X(naks_sent_rnr)						\
	X(naks_received_sequence)					\
	X(naks_received_invalid)					\
	X(naks_received_access)						\
	X(naks_received_operation)					\
	X(naks_received_rnr)						\
	X(reach_asked)		/* probes sent, see reach.h */		\
	X(reach_answered)	/* answers to probes sent */		\
	X(reach_late)		/* probes and answers that took too long */ \
	X(drops)		/* received packets thrown away; why: drop_* */

#define PEAL_COUNTER_ENUM_(name) PEAL_COUNTER_##name,
#define PEAL_COUNTER_DROP_ENUM_(name, text) PEAL_COUNTER_drop_##name,
enum peal_counter {
	PEAL_COUNTERS(PEAL_COUNTER_ENUM_)
	PEAL_DROPS(PEAL_COUNTER_DROP_ENUM_)
	PEAL_COUNTER_COUNT
};

#undef PEAL_COUNTER_ENUM_
#undef PEAL_COUNTER_DROP_ENUM_

struct peal_counters {
	u64 value[PEAL_COUNTER_COUNT];
};

#define peal_count_by(table, name, n) \
	this_cpu_add((table)->counters->value[PEAL_COUNTER_##name], n)
#define peal_count(table, name) peal_count_by(table, name, 1)

/* A received packet was dropped; @drop is not PEAL_DROP_none. */
#define peal_count_drop(table, drop) do {						\
	peal_count(table, drops);							\
	this_cpu_inc((table)->counters->value[PEAL_COUNTER_drops + (drop)]);		\
} while (0)

#endif
