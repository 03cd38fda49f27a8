/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * XRC domains: target queue pairs and shared receive queues that may be used together.
 *
 * Owns: the account of the target queue pairs, the list of them, and the pointer to their transmit
 * quota.
 * Does not know: processes that share the domain (the core has it by inode), messages, packets.
 *
 * A message names its shared receive queue by number, and the target queue pair keeps a pointer to
 * the last one. So a queue that is destroyed has to leave the target queue pairs first.
 *
 * Lock: xrcd.lock, outside of rq->lock. It may sleep.
 */
#ifndef PEAL_XRCD_H
#define PEAL_XRCD_H

#include <linux/list.h>
#include <linux/mutex.h>
#include <rdma/ib_verbs.h>

#include "base/quota.h"

struct peal_qp;
struct peal_srq;
struct peal_tx_quota;

/* A domain may outlive the context that made it, so it has an account and a quota of its own. */
struct peal_xrcd {
	struct ib_xrcd ib;
	struct peal_account account;
	struct peal_tx_quota *tx_quota;	/* transmit memory of the target queue pairs' packets */
	struct mutex lock;

	/* Guarded by xrcd.lock: */
	struct list_head targets;	/* peal_qp.target */
};

static inline struct peal_xrcd *peal_xrcd(struct ib_xrcd *ib)
{
	return container_of(ib, struct peal_xrcd, ib);
}

int peal_xrcd_init(struct peal_xrcd *xrcd, struct peal_quota *quota,
		   struct peal_tx_quota *tx_quota);
void peal_xrcd_end(struct peal_xrcd *xrcd);
void peal_xrcd_add(struct peal_xrcd *xrcd, struct peal_qp *qp);
void peal_xrcd_remove(struct peal_xrcd *xrcd, struct peal_qp *qp);
void peal_xrcd_forget(struct peal_xrcd *xrcd, struct peal_srq *srq);

#endif
