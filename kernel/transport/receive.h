/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The receive that a datagram or a frame fills. Neither waits for a receive, and neither is
 * answered.
 *
 * Owns: the checks of the receive (room for the bytes, keys, pages in memory), and the error of a
 * queue pair whose receive cannot be used.
 * Does not know: what arrives, messages of connections (execute.h).
 *
 * Lock: every function is called with qp->rq.lock held, inside the epoch.
 */
#ifndef PEAL_RECEIVE_H
#define PEAL_RECEIVE_H

#include "mem/cursor.h"
#include "proto/drop.h"
#include "queue/qp.h"

/* Why a receive cannot be used. */
struct peal_receive_fault {
	u8 status;			/* of its completion */
	enum peal_reason reason;	/* PEAL_REASON_NONE: it can be used */
};

enum peal_drop peal_receive_begin(struct peal_qp *qp, struct peal_notify *notify, u32 bytes,
				  struct peal_cursor *to, struct peal_receive_fault *fault);
void peal_receive_refuse(struct peal_qp *qp, struct peal_notify *notify, u32 src_qpn, u32 bytes,
			 const struct peal_receive_fault *fault);

#endif
