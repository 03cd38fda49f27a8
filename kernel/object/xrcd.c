// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See xrcd.h.
 */
#include "object/qp.h"
#include "object/xrcd.h"

/*
 * The account's user is the caller. @tx_quota outlives the domain.
 *
 * Return: 0, -ENOMEM or -ENOSPC (the user's limit is reached).
 */
int peal_xrcd_init(struct peal_xrcd *xrcd, struct peal_quota *quota,
		   struct peal_tx_quota *tx_quota)
{
	int ret = peal_quota_open(quota, &xrcd->account);

	if (ret)
		return ret;
	ret = peal_quota_take(&xrcd->account, PEAL_QUOTA_XRCD);
	if (ret)
		peal_quota_close(&xrcd->account);
	xrcd->tx_quota = tx_quota;
	mutex_init(&xrcd->lock);
	INIT_LIST_HEAD(&xrcd->targets);
	return ret;
}

/* The core has destroyed the queue pairs and the shared receive queues of the domain. */
void peal_xrcd_end(struct peal_xrcd *xrcd)
{
	peal_quota_give(&xrcd->account, PEAL_QUOTA_XRCD);
	peal_quota_close(&xrcd->account);
}

/* Call before @qp can receive messages. */
void peal_xrcd_add(struct peal_xrcd *xrcd, struct peal_qp *qp)
{
	mutex_lock(&xrcd->lock);
	list_add(&qp->target, &xrcd->targets);
	mutex_unlock(&xrcd->lock);
}

/* Call when @qp receives no messages any more. */
void peal_xrcd_remove(struct peal_xrcd *xrcd, struct peal_qp *qp)
{
	mutex_lock(&xrcd->lock);
	list_del(&qp->target);
	mutex_unlock(&xrcd->lock);
}

/*
 * No look-up finds @srq any more, and the caller has waited for the epoch. When this returns, no
 * queue pair has a WQE of it or waits for one.
 */
void peal_xrcd_forget(struct peal_xrcd *xrcd, struct peal_srq *srq)
{
	struct peal_qp *qp;

	mutex_lock(&xrcd->lock);
	list_for_each_entry(qp, &xrcd->targets, target) {
		peal_qp_forget_srq(qp, srq);
		cond_resched();
	}
	mutex_unlock(&xrcd->lock);
}
