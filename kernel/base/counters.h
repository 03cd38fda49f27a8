/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The counters of a device. The per-CPU array, the increments, the names in `rdma statistic show`
 * and the tables of Documentation/counters.rst all come from this list.
 */
#ifndef PEAL_COUNTERS_H
#define PEAL_COUNTERS_H

#include <linux/percpu.h>
#include <linux/types.h>

#include "proto/packet.h"

#define PEAL_COUNTERS(X)									\
	/* Work: */										\
	X(posts, "WQEs taken from send rings, also malformed ones and those only flushed")	\
	X(kicks, "system calls on kick files, whatever they ask for")				\
	X(doorbells, "doorbell bits that the poller found set")					\
	X(engine_wakeups, "times the poller began to spin")					\
	X(deferrals, "queue pairs left to the worker: budget ended, or caller may not run them") \
	X(overdue_turns, "turns that a kick gave to queue pairs which an earlier call deferred") \
	X(messages, "messages completed with success: `direct_messages` plus `wire_messages`")	\
	X(bytes, "their payload")								\
	X(direct_messages, "of these, copied within this host without packets")			\
	X(wire_messages, "of these, sent as packets; a UD message counts when its packet is sent") \
	X(rnr_waits, "waits because the peer has no receive or, on the wire, absent memory (ODP)") \
	X(silence_waits, "waits for the timeout, because the peer on this host does not answer") \
	X(errors, "completions in error, of sends and receives, without flushed ones")		\
	X(flushes, "completions with `IBV_WC_WR_FLUSH_ERR`")					\
	X(cq_overflows, "completions that found their completion queue full and are lost")	\
	/* Packets: */										\
	X(packets_sent, "packets that the stack took")						\
	X(packets_received, "well-formed, with the right ICRC; later checks may drop them")	\
	X(packet_bytes_sent, "bytes of `packets_sent`, from the BTH to the ICRC")		\
	X(packet_bytes_received, "bytes of `packets_received`, likewise")			\
	X(packets_unsent, "refused by the stack, or no memory; for the protocol they are lost")	\
	X(packets_too_long, "of these, larger than the MTU of the netdev or the route")		\
	X(packets_refused, "of programs, to port 4791 from an address of the device; not sent")	\
	X(frames_sent, "frames of raw packet queue pairs that the netdev took")			\
	X(frames_received, "frames that raw packet queue pairs received, each copy counted")	\
	X(frames_missed, "frames for a sniffer without a receive, or too many for its backlog")	\
	X(full_queues, "waits of connected queue pairs for room in the transmit queues")	\
	X(retransmits, "packets sent again: requests, and responses that were requested again")	\
	X(ack_requests, "packets sent again, only to ask for an acknowledgment")		\
	X(probes, "packets sent again, because no answer came in the estimated round trip")	\
	X(timeouts, "expiries of the queue pair's timeout; each uses up a retry")		\
	X(duplicates, "packets that came before: executed requests, received responses")	\
	X(reorder_kept, "out-of-order packets that were kept until their turn")			\
	X(reorder_lost, "of these, dropped: turn did not come, queue pair ended, or conflict")	\
	X(locality_challenges, "challenges sent for a proof of locality")			\
	X(locality_responses, "responses sent to the challenges of peers")			\
	X(locality_late, "challenges and responses that came too late to count")		\
	/* Congestion: */									\
	X(np_ecn_marked_roce_packets, "packets of connected peers that arrived with CE")	\
	X(np_cnp_sent, "congestion notifications sent to the peers of such packets")		\
	X(rp_cnp_handled, "congestion notifications that came from the connected peer")		\
	X(rp_cnp_ignored, "those to a queue pair that dropped them; a `drop_*` counts why")	\
	/* Negative acknowledgements: */							\
	X(naks_sent_sequence, "a packet is missing")						\
	X(naks_sent_invalid, "a request is invalid; the connection ends")			\
	X(naks_sent_access, "key, range or right is missing; the connection ends")		\
	X(naks_sent_operation, "a request cannot be completed; the connection ends")		\
	X(naks_sent_rnr, "no receive is posted, or a page is absent (on-demand paging)")	\
	X(naks_received_sequence, "the peer misses a packet")					\
	X(naks_received_invalid, "the peer finds a request invalid")				\
	X(naks_received_access, "the peer refuses access")					\
	X(naks_received_operation, "the peer cannot complete a request")			\
	X(naks_received_rnr, "the peer has no receive posted, or a page is absent there")	\
	/* Drops: */										\
	X(drops, "received packets and frames that were dropped, each counted in a `drop_*`, too")

/*
 * Messages by operation. They are counted while an administrator has them enabled, because each of
 * them costs an instruction or two of every message. The core wants them behind all others.
 */
#define PEAL_OPTIONAL_COUNTERS(X)								\
	/* Messages by operation: */								\
	X(sends, "of `messages`: SEND of any kind, with datagrams and raw frames")		\
	X(writes, "RDMA WRITE of any kind, and ATOMIC_WRITE")					\
	X(reads, "RDMA READ")									\
	X(atomics, "compare and swap, fetch and add")						\
	X(remote_flushes, "FLUSH")

#define PEAL_COUNTER_ENUM_(name, text) PEAL_COUNTER_##name,
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
