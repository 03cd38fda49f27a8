// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The verbs of work queues, of indirection tables, and of the queue pairs that spread their frames
 * with these. See verbs.h.
 */
#include <linux/slab.h>
#include <rdma/uverbs_ioctl.h>

#include "engine/flush.h"
#include "engine/lifecycle.h"
#include "queue/context.h"
#include "queue/ind_table.h"
#include "transport/rss.h"
#include "verbs/dev.h"
#include "verbs/verbs.h"

/* ---- work queues ---- */

/* Remove the queue from the tables, then wait for the users that found it before. */
static void peal_verbs_remove_wq(struct peal_wq *wq)
{
	peal_context_remove_wq(wq);
	peal_wq_unpublish(wq);
	peal_engine_remove_wq(wq);
	peal_wq_free(wq);
}

/* The program gets a number for its kicks, and the offset of the slots. */
static int peal_verbs_introduce_wq(struct peal_context *ctx, struct peal_wq *wq,
				   struct ib_udata *udata)
{
	struct peal_create_wq_resp resp;
	int ret = peal_context_add_wq(ctx, wq);

	if (ret)
		return ret;
	peal_wq_describe(wq, &resp);
	return peal_verbs_respond(udata, &resp, sizeof(resp));
}

static int peal_verbs_init_wq(struct peal_wq *wq, struct ib_pd *pd, struct ib_wq_init_attr *init,
			      struct ib_udata *udata)
{
	struct peal_context *ctx = peal_verbs_context(udata);
	int ret;

	peal_engine_add_wq(wq);
	ret = peal_wq_init(wq, &peal_dev(pd->device)->nic.table, &ctx->account, ctx->ib, pd, init);
	if (ret)
		return ret;
	ret = peal_verbs_introduce_wq(ctx, wq, udata);
	if (ret)
		peal_verbs_remove_wq(wq);
	return ret;
}

/*
 * Kernel users have none, because they cannot make a raw packet queue pair. Programs that may not
 * make one have no use for work queues either. They must not have them, because the core of some
 * kernels never unlocks a work queue whose modification asked for an unknown state.
 */
struct ib_wq *peal_verbs_create_wq(struct ib_pd *pd, struct ib_wq_init_attr *init,
				   struct ib_udata *udata)
{
	int ret = udata ? peal_verbs_permit_raw(peal_dev(pd->device)) : -EOPNOTSUPP;
	struct peal_wq *wq;

	if (!ret)
		ret = peal_verbs_check_request(udata);
	if (ret)
		return ERR_PTR(ret);
	wq = kzalloc(sizeof(*wq), GFP_KERNEL_ACCOUNT);
	if (!wq)
		return ERR_PTR(-ENOMEM);
	ret = peal_verbs_init_wq(wq, pd, init, udata);
	if (!ret)
		return &wq->ib;
	kfree(wq);
	return ERR_PTR(ret);
}

int peal_verbs_modify_wq(struct ib_wq *ib, struct ib_wq_attr *attr, u32 mask,
			 struct ib_udata *udata)
{
	struct peal_wq *wq = peal_wq(ib);
	int ret = peal_verbs_check_request(udata);

	if (!ret)
		ret = peal_wq_modify(wq, attr, mask);
	if (!ret)
		peal_flush_failed_wq(wq);
	return ret;
}

int peal_verbs_destroy_wq(struct ib_wq *ib, struct ib_udata *udata)
{
	peal_verbs_remove_wq(peal_wq(ib));
	kfree(peal_wq(ib));
	return 0;
}

/* ---- indirection tables ---- */

int peal_verbs_create_ind_table(struct ib_rwq_ind_table *ib,
				struct ib_rwq_ind_table_init_attr *init, struct ib_udata *udata)
{
	int ret = udata ? peal_verbs_check_request(udata) : -EOPNOTSUPP;

	if (ret)
		return ret;
	return peal_ind_table_init(peal_ind_table(ib),
				   peal_verbs_account(peal_dev(ib->device), udata),
				   init->log_ind_tbl_size);
}

int peal_verbs_destroy_ind_table(struct ib_rwq_ind_table *ib)
{
	peal_ind_table_end(peal_ind_table(ib));
	return 0;
}

/* ---- queue pairs with an indirection table ---- */

/* As the request of other objects, it may be shorter or longer than this version knows. */
static int peal_verbs_read_rx_hash(struct ib_udata *udata, struct peal_create_rss_qp_req *req)
{
	size_t known = min(udata->inlen, sizeof(*req));
	int ret;

	*req = (struct peal_create_rss_qp_req){ };
	ret = ib_copy_from_udata(req, udata, known);
	if (ret)
		return ret;
	if (req->comp_mask || req->reserved ||
	    memchr_inv(req->reserved1, 0, sizeof(req->reserved1)))
		return -EINVAL;
	if (udata->inlen > known && !ib_is_udata_cleared(udata, known, udata->inlen - known))
		return -EINVAL;
	return 0;
}

/* Without a field all frames go to the first entry, so a table of several makes no sense. */
static int peal_verbs_check_rx_hash(const struct peal_create_rss_qp_req *req, u32 entries)
{
	if (req->rx_hash_function != PEAL_RX_HASH_TOEPLITZ ||
	    req->rx_hash_fields & ~(u64)PEAL_RX_HASH_FIELDS)
		return -EOPNOTSUPP;
	if (req->rx_hash_key_len != PEAL_RX_HASH_KEY_BYTES || (!req->rx_hash_fields && entries > 1))
		return -EINVAL;
	return 0;
}

/**
 * peal_verbs_create_rss() - make the part of a queue pair that spreads its frames
 * @init: has an indirection table
 *
 * Return: what peal_raw_spread() takes, or ERR_PTR() of -EINVAL, -EOPNOTSUPP, -EFAULT or -ENOMEM.
 */
struct peal_rss *peal_verbs_create_rss(const struct ib_qp_init_attr *init, struct ib_udata *udata)
{
	u32 entries = 1U << init->rwq_ind_tbl->log_ind_tbl_size;
	struct peal_create_rss_qp_req req;
	struct peal_rss *rss;
	int ret = peal_verbs_read_rx_hash(udata, &req);

	/* Such a queue pair sends nothing, and its receives are those of the work queues. */
	if (!ret && (init->send_cq || init->recv_cq || init->srq))
		ret = -EINVAL;
	if (!ret)
		ret = peal_verbs_check_rx_hash(&req, entries);
	if (ret)
		return ERR_PTR(ret);
	rss = peal_rss_create(init->rwq_ind_tbl->ind_tbl, entries, req.rx_hash_fields,
			      req.rx_hash_key);
	return rss ?: ERR_PTR(-ENOMEM);
}
