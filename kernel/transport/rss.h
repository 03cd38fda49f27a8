/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Receive side scaling: from a frame of a raw packet queue pair to one of its work queues.
 *
 * Owns: the fields that are hashed, the choice of the work queue, and the way from the frame to a
 * receive of that queue.
 * Does not know: which frames the queue pair gets (flow.h), the encoding of requests in the verbs.
 *
 * Fragments are hashed without ports, because only the first one has them. The queue pair has no
 * state of its own for frames. It spreads them as long as it exists, and those for a work queue
 * that is not ready are dropped.
 */
#ifndef PEAL_RSS_H
#define PEAL_RSS_H

#include <linux/types.h>

#include <rdma/peal-abi.h>

struct ib_wq;
struct peal_frame;
struct peal_qp;

struct peal_rss {
	struct ib_wq **wqs;	/* belongs to the indirection table, which outlives this */
	u32 mask;		/* entries - 1, a power of two minus 1 */
	u32 fields;		/* PEAL_RX_HASH_* */
	u8 key[PEAL_RX_HASH_KEY_BYTES];
};

/* Return: what the caller frees with kfree(), or NULL without memory. */
struct peal_rss *peal_rss_create(struct ib_wq **wqs, u32 entries, u32 fields, const u8 *key);

/* Deliver a frame of @qp. Inside the epoch, no lock held. The frame stays the caller's. */
void peal_rss_deliver(const struct peal_rss *rss, struct peal_qp *qp,
		      const struct peal_frame *frame);

#endif
