/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Messages of the direct path for sniffers, as the packets that would have carried them.
 *
 * Owns: which packets these are, and the response of the peer.
 * Does not know: how the message travels (local.c), and what packets look like (proto/, net/tx.c).
 */
#ifndef PEAL_SHOW_H
#define PEAL_SHOW_H

#include "object/cursor.h"
#include "object/qp.h"
#include "transport/exec.h"

struct peal_port;

/* One attempt to transfer the message in sq.wqe, or a chunk of it. */
struct peal_show {
	struct peal_port *to;		/* of the peer, or the own one if there is no peer */
	u32 psn;			/* of the message's first packet */
	u64 done;			/* bytes that earlier chunks have moved */
	u64 bytes;			/* bytes of this chunk */
	int to_ifindex;			/* of the netdev of the peer's GID; 0: there is no peer */
	u32 msn;			/* of the peer after this attempt */
	const struct peal_outcome *outcome;
	struct peal_cursor *local;	/* the requester's bytes of the chunk, also of a response */
};

/* Under sq.lock of @qp, inside the epoch. */
void peal_show_message(struct peal_qp *qp, const struct peal_show *show);

#endif
