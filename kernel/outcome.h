/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What came of one attempt to carry a message: the answer that a carrier gives
 * the requester. It says why a queue does not move as a value, so that nobody
 * has to find it out from flags.
 */
#ifndef PEAL_OUTCOME_H
#define PEAL_OUTCOME_H

#include <linux/types.h>
#include <rdma/ib_verbs.h>
#include <rdma/peal-abi.h>

enum peal_what {
	PEAL_CARRIED,		/* all of it; complete the WQE */
	PEAL_PROGRESS,		/* a chunk; come again */
	PEAL_NOT_READY,		/* RNR NAK: try again after `ns` */
	PEAL_SILENT,		/* no answer: try again after the timeout */
	PEAL_FAILED,		/* complete with status and reason */
};

struct peal_outcome {
	enum peal_what what;
	enum peal_reason reason;	/* unless CARRIED or PROGRESS */
	u8 status;			/* FAILED: enum ib_wc_status */
	u64 ns;				/* NOT_READY: the peer's RNR timer */
	u64 bytes;			/* PROGRESS, CARRIED: moved just now */
	u32 pieces;			/* ... looked up and copied */
};

static inline struct peal_outcome peal_failed(u8 status, enum peal_reason reason)
{
	return (struct peal_outcome){ .what = PEAL_FAILED, .status = status, .reason = reason };
}

static inline struct peal_outcome peal_silent(enum peal_reason reason)
{
	return (struct peal_outcome){ .what = PEAL_SILENT, .reason = reason };
}

#endif
