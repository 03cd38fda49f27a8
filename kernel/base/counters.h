/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The counters of a device. The per-CPU array, the names in `rdma statistic show` and the
 * increments all come from one list.
 *
 * Owns: the list. Does not know: the readers.
 */
#ifndef PEAL_COUNTERS_H
#define PEAL_COUNTERS_H

#include <linux/percpu.h>
#include <linux/types.h>

#include "proto/packet.h"

#define PEAL_COUNTERS(X)						\
	X(posts)		/* send WQEs taken from rings */	\
	X(kicks)		/* kick system calls */			\
	X(doorbells)		/* doorbell bits that the engine found set */ \
	X(engine_wakeups)	/* times the engine began to spin */	\
	X(deferrals)		/* queue pairs handed to the worker */	\
	X(overdue_turns)	/* turns that kicks gave to deferred queue pairs */ \
	X(messages)		/* messages that requesters completed */ \
	X(bytes)		/* payload of messages */		\
	X(direct_messages)	/* messages on the direct path */	\
	X(wire_messages)	/* messages on the wire */		\
	X(rnr_waits)		/* waits because the peer had no receive */ \
	X(silence_waits)	/* waits because the peer did not answer */ \
	X(errors)		/* completions in error, except flushes */ \
	X(flushes)		/* WQEs flushed */			\
	X(cq_overflows)		/* CQEs lost because their queue was full */ \
	X(packets_sent)							\
	X(packets_received)	/* well-formed, with the right ICRC */	\
	X(packet_bytes_sent)	/* from the BTH to the ICRC */		\
	X(packet_bytes_received)					\
	X(packets_unsent)	/* refused by the stack, or no memory */ \
	X(packets_too_long)	/* of these, refused because of an MTU */ \
	X(packets_refused)	/* of programs, in the device's name, see rx.h */ \
	X(frames_sent)		/* by raw packet queue pairs */		\
	X(frames_received)	/* by raw packet queue pairs */		\
	X(full_queues)		/* waits for room in the transmit queues */ \
	X(retransmits)		/* packets sent again, by either side */ \
	X(probes)		/* retransmits when the RTT estimate ran out */ \
	X(timeouts)		/* expiries of the queue pair's timeout */ \
	X(duplicates)		/* packets that were known already */	\
	X(reorder_kept)		/* packets kept until their turn came */ \
	X(reorder_lost)		/* kept packets that were thrown away */ \
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
	X(locality_challenges)		/* sent, see local.h */	\
	X(locality_responses)	/* sent for challenges of peers */	\
	X(locality_late)	/* challenges and responses that came late */ \
	X(drops)		/* received packets thrown away, see drop_* */

/*
 * Messages by operation. They are counted while an administrator has them enabled, because each of
 * them costs an instruction or two of every message. The core wants them behind all others.
 */
#define PEAL_OPTIONAL_COUNTERS(X)					\
	X(sends)		/* SEND of any kind, datagrams and frames too */ \
	X(writes)		/* RDMA WRITE of any kind, ATOMIC_WRITE too */ \
	X(reads)							\
	X(atomics)		/* CMP_SWAP and FETCH_ADD */		\
	X(remote_flushes)	/* FLUSH */

#define PEAL_COUNTER_ENUM_(name) PEAL_COUNTER_##name,
#define PEAL_COUNTER_DROP_ENUM_(name, text) PEAL_COUNTER_drop_##name,
enum peal_counter {
	PEAL_COUNTERS(PEAL_COUNTER_ENUM_)
	PEAL_DROPS(PEAL_COUNTER_DROP_ENUM_)
	PEAL_OPTIONAL_COUNTERS(PEAL_COUNTER_ENUM_)
	PEAL_COUNTER_COUNT,
	PEAL_COUNTER_OPTIONAL = PEAL_COUNTER_sends	/* the first of them */
};

#undef PEAL_COUNTER_ENUM_
#undef PEAL_COUNTER_DROP_ENUM_

struct peal_counters {
	u64 value[PEAL_COUNTER_COUNT];
};

/* @owner is the table of a device, or a queue pair. */
#define peal_count_by(owner, name, n) \
	this_cpu_add((owner)->counters->value[PEAL_COUNTER_##name], n)
#define peal_count(owner, name) peal_count_by(owner, name, 1)

/* Count a received packet that is dropped. @drop is not PEAL_DROP_none. */
#define peal_count_drop(table, drop) do {						\
	peal_count(table, drops);							\
	this_cpu_inc((table)->counters->value[PEAL_COUNTER_drops + (drop)]);		\
} while (0)

#endif
