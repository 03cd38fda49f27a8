/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The result of one attempt to transfer a message. It says as a value why a queue does not
 * go on, so that the reader does not have to work it out from flags. It has 16 bytes, so
 * that it is passed in registers.
 */
#ifndef PEAL_OUTCOME_H
#define PEAL_OUTCOME_H

#include <linux/types.h>
#include <rdma/ib_verbs.h>
#include <rdma/peal-abi.h>

enum peal_outcome_kind {
	PEAL_CARRIED,		/* the whole message; complete the WQE */
	PEAL_PROGRESS,		/* a chunk; call again for the next one */
	PEAL_NOT_READY,		/* RNR NAK; try again after `timer` */
	PEAL_SILENT,		/* no answer; try again after the timeout */
	PEAL_ABSENT,		/* a page is not in memory; try again soon */
	PEAL_UNPROVEN,		/* the peer is not known to be in this kernel any more */
	PEAL_FAILED,		/* complete with status and reason */
};

struct peal_outcome {
	u8 what;			/* enum peal_outcome_kind */
	u8 status;			/* FAILED: enum ib_wc_status */
	u16 pieces;			/* PROGRESS, CARRIED: pieces looked up and copied */
	u32 reason;			/* enum peal_reason, unless CARRIED or PROGRESS */
	union {
		u8 timer;		/* NOT_READY: the peer's RNR timer, as encoded */
		u64 bytes;		/* PROGRESS, CARRIED: bytes moved by this attempt */
	};
};

static inline struct peal_outcome peal_failed(u8 status, enum peal_reason reason)
{
	return (struct peal_outcome){ .what = PEAL_FAILED, .status = status, .reason = reason };
}

static inline struct peal_outcome peal_silent(enum peal_reason reason)
{
	return (struct peal_outcome){ .what = PEAL_SILENT, .reason = reason };
}

static inline struct peal_outcome peal_absent(void)
{
	return (struct peal_outcome){ .what = PEAL_ABSENT, .reason = PEAL_REASON_LKEY_PAGE };
}

static inline struct peal_outcome peal_unproven(void)
{
	return (struct peal_outcome){
		.what = PEAL_UNPROVEN, .reason = PEAL_REASON_PEER_UNREACHABLE,
	};
}

#endif
