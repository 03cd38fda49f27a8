// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The verbs of shared receive queues and XRC domains. See verbs.h.
 */
#include "engine/kick.h"
#include "engine/lifecycle.h"
#include "net/tx_quota.h"
#include "queue/context.h"
#include "queue/xrcd.h"
#include "verbs/dev.h"
#include "verbs/methods.h"
#include "verbs/srq_post.h"
#include "verbs/verbs.h"

static void peal_verbs_remove_xrc_srq(struct peal_srq *srq)
{
	peal_table_remove_srq(&peal_dev(srq->ib.device)->nic.table, srq->ib.ext.xrc.srq_num);
	peal_epoch_wait();
	peal_xrcd_forget(peal_xrcd(srq->ib.ext.xrc.xrcd), srq);
}

/* Remove the queue from the tables, then wait for the kicks that found it before. */
static void peal_verbs_remove_srq(struct peal_srq *srq)
{
	peal_context_remove_srq(srq);
	if (srq->ib.ext.xrc.srq_num)
		peal_verbs_remove_xrc_srq(srq);
	peal_engine_remove_srq(srq);
	peal_srq_post_free(srq);
	peal_srq_free(srq);
}

/* A program gets a number for its kicks, and the offsets of the ring. */
static int peal_verbs_introduce_srq(struct peal_context *ctx, struct peal_srq *srq,
				    struct ib_udata *udata)
{
	struct peal_create_srq_resp resp;
	int ret = peal_context_add_srq(ctx, srq);

	if (!ret && srq->ib.srq_type == IB_SRQT_XRC)
		ret = peal_table_add_srq(&peal_dev(srq->ib.device)->nic.table, srq,
					 &srq->ib.ext.xrc.srq_num);
	if (ret)
		return ret;
	peal_srq_describe(srq, &resp);
	return peal_verbs_respond(udata, &resp, sizeof(resp));
}

/* A kernel user has no use for an XRC queue, because it cannot make the queue pairs. */
static int peal_verbs_check_srq_type(const struct ib_srq_init_attr *init, bool user)
{
	if (init->srq_type == IB_SRQT_XRC && user)
		return init->ext.xrc.xrcd && init->ext.cq ? 0 : -EINVAL;
	return init->srq_type == IB_SRQT_BASIC ? 0 : -EOPNOTSUPP;
}

int peal_verbs_create_srq(struct ib_srq *ib, struct ib_srq_init_attr *init,
			  struct ib_udata *udata)
{
	struct peal_dev *dev = peal_dev(ib->device);
	struct peal_srq *srq = peal_srq(ib);
	struct peal_context *ctx = peal_verbs_context(udata);
	int ret = udata ? peal_verbs_check_request(udata) : 0;

	if (!ret)
		ret = peal_verbs_check_srq_type(init, ctx);
	if (ret)
		return ret;
	peal_engine_add_srq(srq);
	ret = peal_srq_init(srq, peal_verbs_account(dev, udata), ctx ? ctx->ib : NULL,
			    &init->attr);
	if (ret)
		return ret;
	ret = ctx ? peal_verbs_introduce_srq(ctx, srq, udata) : peal_srq_post_init(srq);
	if (ret)
		peal_verbs_remove_srq(srq);
	return ret;
}

int peal_verbs_alloc_xrcd(struct ib_xrcd *ib, struct ib_udata *udata)
{
	struct peal_nic *nic = &peal_dev(ib->device)->nic;
	struct peal_tx_quota *tx_quota;
	int ret = peal_verbs_check_no_request(udata);

	if (ret)
		return ret;
	tx_quota = peal_tx_quota_open(&nic->port.tx_quotas);
	if (IS_ERR(tx_quota))
		return PTR_ERR(tx_quota);
	ret = peal_xrcd_init(peal_xrcd(ib), &nic->quota, tx_quota);
	if (ret)
		peal_tx_quota_close(tx_quota);
	return ret;
}

int peal_verbs_dealloc_xrcd(struct ib_xrcd *ib, struct ib_udata *udata)
{
	struct peal_tx_quota *tx_quota = peal_xrcd(ib)->tx_quota;

	peal_xrcd_end(peal_xrcd(ib));
	peal_tx_quota_close(tx_quota);
	return 0;
}

int peal_verbs_modify_srq(struct ib_srq *ib, struct ib_srq_attr *attr,
			  enum ib_srq_attr_mask mask, struct ib_udata *udata)
{
	return peal_verbs_check_no_request(udata) ?: peal_srq_modify(peal_srq(ib), attr, mask);
}

int peal_verbs_query_srq(struct ib_srq *ib, struct ib_srq_attr *attr)
{
	peal_srq_query(peal_srq(ib), attr);
	return 0;
}

/* For kernel users only. Programs write to their rings. */
int peal_verbs_post_srq_recv(struct ib_srq *ib, const struct ib_recv_wr *wr,
			     const struct ib_recv_wr **bad)
{
	struct peal_srq *srq = peal_srq(ib);
	bool wants_kick;
	int ret;

	if (!srq->posts.ids) {
		*bad = wr;
		return -EINVAL;
	}
	ret = peal_srq_post_recv(srq, wr, bad, &wants_kick);
	if (wants_kick)
		peal_kick_srq_receives(srq);
	return ret;
}

int peal_verbs_destroy_srq(struct ib_srq *ib, struct ib_udata *udata)
{
	peal_verbs_remove_srq(peal_srq(ib));
	return 0;
}

static int peal_verbs_resize_srq(struct peal_srq *srq, const struct peal_resize_srq_req *req,
				 struct peal_resize_srq_resp *resp)
{
	if (req->comp_mask || req->reserved)
		return -EINVAL;
	if (req->step == PEAL_RESIZE_SRQ_COMMIT && !req->max_wr)
		return peal_srq_resize(srq, resp);
	if (req->step != PEAL_RESIZE_SRQ_PREPARE)
		return -EINVAL;
	return peal_srq_prepare_resize(srq, srq->context->ib, req->max_wr, resp);
}

/* modify_srq has no response, so a resize is a method of its own. */
static int UVERBS_HANDLER(PEAL_METHOD_SRQ_RESIZE)(struct uverbs_attr_bundle *attrs)
{
	struct ib_srq *ib = uverbs_attr_get_obj(attrs, PEAL_ATTR_SRQ_RESIZE_HANDLE);
	struct peal_resize_srq_resp resp;
	struct peal_resize_srq_req req;
	int ret;

	if (IS_ERR(ib))
		return PTR_ERR(ib);
	ret = uverbs_copy_from(&req, attrs, PEAL_ATTR_SRQ_RESIZE_REQ);
	if (!ret)
		ret = peal_verbs_resize_srq(peal_srq(ib), &req, &resp);
	if (ret)
		return ret;
	return uverbs_copy_to_struct_or_zero(attrs, PEAL_ATTR_SRQ_RESIZE_RESP, &resp,
					     sizeof(resp));
}

DECLARE_UVERBS_NAMED_METHOD(PEAL_METHOD_SRQ_RESIZE,
			    UVERBS_ATTR_IDR(PEAL_ATTR_SRQ_RESIZE_HANDLE, UVERBS_OBJECT_SRQ,
					    UVERBS_ACCESS_READ, UA_MANDATORY),
			    UVERBS_ATTR_PTR_IN(PEAL_ATTR_SRQ_RESIZE_REQ,
					       UVERBS_ATTR_STRUCT(struct peal_resize_srq_req,
								  reserved),
					       UA_MANDATORY),
			    UVERBS_ATTR_PTR_OUT(PEAL_ATTR_SRQ_RESIZE_RESP,
						UVERBS_ATTR_STRUCT(struct peal_resize_srq_resp,
								   reserved),
						UA_MANDATORY));

ADD_UVERBS_METHODS(peal_verbs_srq_methods, UVERBS_OBJECT_SRQ,
		   &UVERBS_METHOD(PEAL_METHOD_SRQ_RESIZE));

const struct uapi_definition peal_verbs_srq_attributes[] = {
	UAPI_DEF_CHAIN_OBJ_TREE(UVERBS_OBJECT_SRQ, &peal_verbs_srq_methods),
	{}
};
