/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The direct carrier: both queue pairs live in this kernel, so a message is one
 * copy from one registered region into the other, done by the sender.
 *
 * Owns: finding the peer, and the question whether the wire would have brought
 * the message there: connection, state, packet sequence number.
 * Does not know: rings, retries, completions of the requester.
 */
#ifndef PEAL_DIRECT_H
#define PEAL_DIRECT_H

#include "queue/qp.h"
#include "transport/outcome.h"

struct peal_outcome peal_direct_carry(struct peal_qp *qp, struct peal_burst *burst,
				      u64 max_bytes);

#endif
