// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The verbs: the RDMA core's calls, passed on to the objects, and all handling of driver data
 * (udata), which is sizes, unknown bits and responses. The table of operations is at the end.
 */
#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/file.h>
#include <linux/module.h>
#include <net/net_namespace.h>
#include <rdma/ib_cache.h>

#define UVERBS_MODULE_NAME peal
#include <rdma/uverbs_named_ioctl.h>

#include "base/compat.h"
#include "device/dev.h"
#include "device/post.h"
#include "engine/kick.h"
#include "engine/lifecycle.h"
#include "net/port.h"
#include "net/tx_quota.h"
#include "object/context.h"
#include "object/dm.h"
#include "object/errors.h"
#include "object/mr.h"
#include "raw/raw.h"
#include "transport/conn.h"
#include "transport/local.h"
#include "transport/ud.h"

/* ---- driver data ---- */

/* All requests consist of these fields. */
struct peal_udata_request {
	u32 comp_mask;
	u32 flags;	/* clocks of a completion queue, step of a resize; otherwise reserved */
};

/*
 * Read the driver data of a create call. They may be absent, or longer than this version knows. The
 * unknown part must be zero.
 */
static int peal_verbs_read_request(struct ib_udata *udata, struct peal_udata_request *req)
{
	size_t known = min(udata->inlen, sizeof(*req));
	int ret;

	*req = (struct peal_udata_request){ };
	ret = ib_copy_from_udata(req, udata, known);
	if (ret)
		return ret;
	if (req->comp_mask)
		return -EINVAL;
	if (udata->inlen > known && !ib_is_udata_cleared(udata, known, udata->inlen - known))
		return -EINVAL;
	return 0;
}

/* Check the driver data of a create call that has no flags. Return: 0, -EINVAL or -EFAULT. */
static int peal_verbs_check_request(struct ib_udata *udata)
{
	struct peal_udata_request req = {};
	int ret = udata ? peal_verbs_read_request(udata, &req) : 0;

	return ret ?: req.flags ? -EINVAL : 0;
}

/*
 * The request has no data for the driver. A program may leave room for some, so zeros are
 * accepted. Return: 0 or -EINVAL.
 */
static int peal_verbs_check_no_request(struct ib_udata *udata)
{
	return !udata || ib_is_udata_cleared(udata, 0, udata->inlen) ? 0 : -EINVAL;
}

/* The response is cut to what the program has room for, because an older one knows less. */
static int peal_verbs_respond(struct ib_udata *udata, void *resp, size_t bytes)
{
	return ib_copy_to_udata(udata, resp, min(bytes, udata->outlen));
}

/* Return: the context of the calling program, or NULL if a kernel user calls. */
static struct peal_context *peal_verbs_context(struct ib_udata *udata)
{
	struct peal_ucontext *uctx = NULL;

	if (udata)
		uctx = rdma_udata_to_drv_context(udata, struct peal_ucontext, ib);
	return uctx ? uctx->ctx : NULL;
}

/* Return: the account that a new object is charged to. Kernel users share one. */
static struct peal_account *peal_verbs_account(struct peal_dev *dev, struct ib_udata *udata)
{
	struct peal_context *ctx = peal_verbs_context(udata);

	return ctx ? &ctx->account : &dev->nic.quota.kernel;
}

/* Return: what the caller may have. */
static const struct peal_limits *peal_verbs_limits(struct ib_device *ib,
						   const struct ib_udata *udata)
{
	return udata ? &peal_dev(ib)->nic.options.limits : &peal_limits_top;
}

/*
 * May a program register memory with @access on this device? The core knows whether the device has
 * on-demand paging.
 *
 * Return: 0 or -EOPNOTSUPP.
 */
static int peal_verbs_check_access(struct ib_device *ib, int access)
{
	if (access & IB_ACCESS_REMOTE_ATOMIC &&
	    !peal_limits_have(&peal_dev(ib)->nic.options.limits, PEAL_NL_FEATURE_ATOMIC))
		return -EOPNOTSUPP;
	return 0;
}

/* ---- contexts and protection domains ---- */

/*
 * The context gets a transmit quota (socket) of its own, opened by the program, so that its packets
 * carry the cgroup that the program is in now.
 */
static int peal_verbs_alloc_ucontext(struct ib_ucontext *ib, struct ib_udata *udata)
{
	struct peal_dev *dev = peal_dev(ib->device);
	struct peal_alloc_ucontext_resp resp;
	struct peal_tx_quota *tx_quota;
	struct peal_context *ctx;
	int ret = peal_verbs_check_request(udata);

	if (ret)
		return ret;
	tx_quota = peal_tx_quota_open(&dev->nic.port.tx_quotas);
	if (IS_ERR(tx_quota))
		return PTR_ERR(tx_quota);
	ctx = peal_engine_add_context(&dev->nic.engine, ib, &dev->nic.quota);
	if (IS_ERR(ctx)) {
		ret = PTR_ERR(ctx);
		goto err_quota;
	}
	ctx->tx_quota = tx_quota;
	peal_context_describe(ctx, &resp);
	ret = peal_verbs_respond(udata, &resp, sizeof(resp));
	if (ret)
		goto err_context;
	peal_ucontext(ib)->ctx = ctx;
	peal_kick_file_open(ctx->kick_file);
	return 0;

err_context:
	peal_kick_file_discard(ctx->kick_file);
	peal_engine_remove_context(&dev->nic.engine, ctx);
err_quota:
	peal_tx_quota_close(tx_quota);
	return ret;
}

/*
 * A program imports the context, whose uverbs descriptor it got from another one. It maps the same
 * doorbell page, and gets a descriptor of its own for the kick file.
 */
static int peal_verbs_query_ucontext(struct ib_ucontext *ib, struct uverbs_attr_bundle *attrs)
{
	struct peal_context *ctx = peal_ucontext(ib)->ctx;
	int fd = get_unused_fd_flags(O_CLOEXEC), ret;
	struct peal_alloc_ucontext_resp resp;
	struct file *file;

	if (fd < 0)
		return fd;
	file = peal_kick_file_again(ctx->kick_file);
	if (IS_ERR(file)) {
		put_unused_fd(fd);
		return PTR_ERR(file);
	}
	peal_context_describe(ctx, &resp);
	resp.kick_fd = fd;
	ret = uverbs_copy_to_struct_or_zero(attrs, PEAL_ATTR_QUERY_CONTEXT_RESP, &resp,
					    sizeof(resp));
	if (ret) {
		put_unused_fd(fd);
		fput(file);
		return ret;
	}
	fd_install(fd, file);
	return 0;
}

ADD_UVERBS_ATTRIBUTES_SIMPLE(peal_verbs_query_context, UVERBS_OBJECT_DEVICE,
			     UVERBS_METHOD_QUERY_CONTEXT,
			     UVERBS_ATTR_PTR_OUT(PEAL_ATTR_QUERY_CONTEXT_RESP,
						 UVERBS_ATTR_STRUCT(struct peal_alloc_ucontext_resp,
								    null_lkey),
						 UA_MANDATORY));

/* The context has no queue pairs any more. */
static void peal_verbs_dealloc_ucontext(struct ib_ucontext *ib)
{
	struct peal_context *ctx = peal_ucontext(ib)->ctx;
	struct peal_tx_quota *tx_quota = ctx->tx_quota;

	peal_kick_file_revoke(ctx->kick_file);
	peal_engine_remove_context(&peal_dev(ib->device)->nic.engine, ctx);
	peal_tx_quota_close(tx_quota);
}

/*
 * Empty, but it must exist, because it tells the core that removal of the device need not wait for
 * programs. Nothing is left to do. The rings are plain memory that stays mapped, and the kick file
 * is revoked with the context.
 */
static void peal_verbs_disassociate_ucontext(struct ib_ucontext *ib)
{
}

/* A protection domain is only an identity. The objects compare pointers to it. */
struct peal_pd {
	struct ib_pd ib;
	struct peal_account *account;
};

static struct peal_pd *peal_pd(struct ib_pd *ib)
{
	return container_of(ib, struct peal_pd, ib);
}

static int peal_verbs_alloc_pd(struct ib_pd *ib, struct ib_udata *udata)
{
	struct peal_pd *pd = peal_pd(ib);
	int ret = peal_verbs_check_no_request(udata);

	pd->account = peal_verbs_account(peal_dev(ib->device), udata);
	return ret ?: peal_quota_take(pd->account, PEAL_QUOTA_PD);
}

static int peal_verbs_dealloc_pd(struct ib_pd *ib, struct ib_udata *udata)
{
	peal_quota_give(peal_pd(ib)->account, PEAL_QUOTA_PD);
	return 0;
}

/* ---- completion queues ---- */

static int peal_verbs_create_cq(struct ib_cq *ib, const struct ib_cq_init_attr *attr,
				PEAL_CQ_UDATA_ARG)
{
	struct ib_udata *udata = PEAL_CQ_UDATA;
	struct peal_cq *cq = peal_cq(ib);
	struct peal_context *ctx = peal_verbs_context(udata);
	struct peal_create_cq_resp resp;
	struct peal_udata_request req = {};
	int ret = udata ? peal_verbs_read_request(udata, &req) : 0;

	if (ret)
		return ret;
	if (req.flags & ~PEAL_CQ_CLOCKS)
		return -EINVAL;
	if (attr->flags)
		return -EOPNOTSUPP;
	if (!attr->cqe ||
	    attr->cqe > peal_limits_most(peal_verbs_limits(ib->device, udata), PEAL_LIMIT_CQE) ||
	    attr->comp_vector >= ib->device->num_comp_vectors)
		return -EINVAL;
	ret = peal_cq_init(cq, peal_verbs_account(peal_dev(ib->device), udata),
			   ctx ? ctx->ib : NULL, attr->cqe, req.flags);
	if (ret)
		return ret;
	/*
	 * The core polls this queue on the CPU of its handler. Only queues that the core makes
	 * itself have ib->wc (__ib_alloc_cq). On the unbound workqueue the scheduler chooses.
	 */
	if (ib->wc && (ib->poll_ctx == IB_POLL_SOFTIRQ || ib->poll_ctx == IB_POLL_WORKQUEUE))
		peal_cq_set_vector(cq, attr->comp_vector);
	if (!udata)
		return 0;
	peal_cq_describe(cq, &resp);
	ret = peal_verbs_respond(udata, &resp, sizeof(resp));
	if (ret)
		peal_cq_destroy(cq);
	return ret;
}

static int peal_verbs_destroy_cq(struct ib_cq *ib, struct ib_udata *udata)
{
	peal_cq_destroy(peal_cq(ib));
	return 0;
}

static int peal_verbs_resize_cq(struct ib_cq *ib, PEAL_RESIZE_CQ_ENTRIES entries,
				struct ib_udata *udata)
{
	struct peal_context *ctx = peal_verbs_context(udata);
	struct peal_resize_cq_resp resp;
	struct peal_udata_request req;
	int ret;

	if (!ctx)
		return -EOPNOTSUPP;
	ret = peal_verbs_read_request(udata, &req);
	if (ret)
		return ret;
	if (req.flags == PEAL_RESIZE_CQ_COMMIT)
		return peal_cq_resize(peal_cq(ib));
	if (req.flags != PEAL_RESIZE_CQ_PREPARE || entries < 1 ||
	    entries > peal_limits_most(peal_verbs_limits(ib->device, udata), PEAL_LIMIT_CQE))
		return -EINVAL;
	ret = peal_cq_prepare_resize(peal_cq(ib), ctx->ib, entries, &resp);
	return ret ?: peal_verbs_respond(udata, &resp, sizeof(resp));
}

static int peal_verbs_modify_cq(struct ib_cq *ib, u16 count, u16 us)
{
	peal_cq_moderate(peal_cq(ib), count, us);
	return 0;
}

static int peal_verbs_poll_cq(struct ib_cq *ib, int n, struct ib_wc *wc)
{
	return peal_post_poll(&peal_dev(ib->device)->nic.table, peal_cq(ib), n, wc);
}

static int peal_verbs_req_notify_cq(struct ib_cq *ib, enum ib_cq_notify_flags flags)
{
	return peal_cq_arm(peal_cq(ib), flags);
}

/* ---- memory regions, memory windows and device memory ---- */

static struct ib_mr *peal_verbs_reg_user_mr(struct ib_pd *pd, u64 start, u64 length, u64 iova,
					    int access, PEAL_MR_DMAH_ARG struct ib_udata *udata)
{
	struct peal_dev *dev = peal_dev(pd->device);
	int ret = peal_verbs_check_request(udata) ?: peal_verbs_check_access(pd->device, access);

	if (!ret && PEAL_MR_DMAH)
		ret = -EOPNOTSUPP;
	if (ret)
		return ERR_PTR(ret);
	return peal_mr_register(&dev->nic.table, peal_verbs_account(dev, udata), pd, start, length,
				iova, access);
}

static struct ib_mr *peal_verbs_reg_user_mr_dmabuf(struct ib_pd *pd, u64 offset, u64 length,
						   u64 iova, int fd, int access,
						   PEAL_MR_DMAH_ARG PEAL_DMABUF_UDATA_ARG)
{
	struct peal_dev *dev = peal_dev(pd->device);
	struct ib_udata *udata = PEAL_DMABUF_UDATA;
	int ret = peal_verbs_check_request(udata) ?: peal_verbs_check_access(pd->device, access);

	if (!ret && PEAL_MR_DMAH)
		ret = -EOPNOTSUPP;
	if (ret)
		return ERR_PTR(ret);
	return peal_mr_register_dmabuf(&dev->nic.table, peal_verbs_account(dev, udata), pd, fd,
				       offset, length, iova, access);
}

/*
 * The call brings the pages in before it returns, so IB_UVERBS_ADVISE_MR_FLAG_FLUSH changes
 * nothing.
 */
static int peal_verbs_advise_mr(struct ib_pd *pd, enum ib_uverbs_advise_mr_advice advice,
				u32 flags, struct ib_sge *list, u32 num_sge,
				struct uverbs_attr_bundle *attrs)
{
	struct peal_table *table = &peal_dev(pd->device)->nic.table;
	bool write = advice == IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE;
	bool fault = advice != IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT;
	int ret = 0;
	u32 i;

	if (advice > IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT)
		return -EOPNOTSUPP;
	for (i = 0; !ret && i < num_sge; i++)
		ret = peal_mr_prefetch(table, pd, &list[i], write, fault);
	return ret;
}

static struct ib_mr *peal_verbs_alloc_mr(struct ib_pd *pd, enum ib_mr_type type, u32 max_pages)
{
	struct peal_dev *dev = peal_dev(pd->device);

	return peal_mr_alloc(&dev->nic.table, &dev->nic.quota.kernel, pd, type, max_pages);
}

static int peal_verbs_map_mr_sg(struct ib_mr *ib, struct scatterlist *sg, int count,
				unsigned int *offset)
{
	int ret = peal_mr_begin_map(ib);

	if (ret)
		return ret;
	if (ib->type == IB_MR_TYPE_SG_GAPS)
		return peal_mr_add_pieces(ib, sg, count, offset);
	ret = ib_sg_to_pages(ib, sg, count, offset, peal_mr_add_page);
	peal_mr_finish_pages(ib);
	return ret;
}

static struct ib_mr *peal_verbs_get_dma_mr(struct ib_pd *pd, int access)
{
	struct peal_dev *dev = peal_dev(pd->device);

	return peal_mr_dma(&dev->nic.table, &dev->nic.quota.kernel, pd, access);
}

/* The region stays the same object, which a return value of NULL tells the core. */
static struct ib_mr *peal_verbs_rereg_user_mr(struct ib_mr *ib, int flags, u64 start, u64 length,
					      u64 iova, int access, struct ib_pd *pd,
					      struct ib_udata *udata)
{
	int ret = peal_verbs_check_request(udata);

	if (!ret && flags & IB_MR_REREG_ACCESS)
		ret = peal_verbs_check_access(ib->device, access);
	if (!ret)
		ret = peal_mr_reregister(ib, flags, start, length, iova, access, pd);
	return ERR_PTR(ret);
}

static int peal_verbs_dereg_mr(struct ib_mr *ib, struct ib_udata *udata)
{
	return peal_mr_deregister(ib);
}

static int peal_verbs_alloc_mw(struct ib_mw *ib, struct ib_udata *udata)
{
	struct peal_dev *dev = peal_dev(ib->device);

	if (!peal_limits_have(peal_verbs_limits(ib->device, udata), PEAL_NL_FEATURE_MW))
		return -EOPNOTSUPP;
	return peal_verbs_check_no_request(udata) ?:
	       peal_mw_init(peal_mw(ib), &dev->nic.table, peal_verbs_account(dev, udata), ib->pd);
}

static int peal_verbs_dealloc_mw(struct ib_mw *ib)
{
	peal_mw_destroy(peal_mw(ib));
	return 0;
}

static struct ib_dm *peal_verbs_alloc_dm(struct ib_device *ib, struct ib_ucontext *uctx,
					 struct ib_dm_alloc_attr *attr,
					 struct uverbs_attr_bundle *attrs)
{
	struct peal_account *account = peal_verbs_account(peal_dev(ib), &attrs->driver_udata);
	struct peal_dm *dm = peal_dm_create(uctx, account, attr->length, attr->alignment);

	return IS_ERR(dm) ? ERR_CAST(dm) : &dm->ib;
}

/* The core has refused while a region is registered. */
static int peal_verbs_dealloc_dm(struct ib_dm *ib, struct uverbs_attr_bundle *attrs)
{
	peal_dm_destroy(peal_dm(ib));
	return 0;
}

/* The core has compared the range with the memory's length. */
static struct ib_mr *peal_verbs_reg_dm_mr(struct ib_pd *pd, struct ib_dm *ib,
					  struct ib_dm_mr_attr *attr,
					  struct uverbs_attr_bundle *attrs)
{
	struct peal_dev *dev = peal_dev(pd->device);
	int ret = peal_verbs_check_access(pd->device, attr->access_flags);

	if (ret)
		return ERR_PTR(ret);
	return peal_mr_register_map(&dev->nic.table, peal_verbs_account(dev, &attrs->driver_udata),
				    pd, peal_dm(ib)->map, attr->offset, attr->length,
				    attr->access_flags);
}

/* A program maps its device memory, or memory that it has imported. */
static int UVERBS_HANDLER(PEAL_METHOD_QUERY_DM)(struct uverbs_attr_bundle *attrs)
{
	struct ib_dm *ib = uverbs_attr_get_obj(attrs, PEAL_ATTR_QUERY_DM_HANDLE);
	struct peal_query_dm_resp resp;

	if (IS_ERR(ib))
		return PTR_ERR(ib);
	peal_dm_describe(peal_dm(ib), &resp);
	return uverbs_copy_to_struct_or_zero(attrs, PEAL_ATTR_QUERY_DM_RESP, &resp, sizeof(resp));
}

DECLARE_UVERBS_NAMED_METHOD(PEAL_METHOD_QUERY_DM,
			    UVERBS_ATTR_IDR(PEAL_ATTR_QUERY_DM_HANDLE, UVERBS_OBJECT_DM,
					    UVERBS_ACCESS_READ, UA_MANDATORY),
			    UVERBS_ATTR_PTR_OUT(PEAL_ATTR_QUERY_DM_RESP,
						UVERBS_ATTR_STRUCT(struct peal_query_dm_resp,
								   length),
						UA_MANDATORY));

ADD_UVERBS_METHODS(peal_verbs_dm_methods, UVERBS_OBJECT_DM, &UVERBS_METHOD(PEAL_METHOD_QUERY_DM));

/* ---- address handles, multicast groups and flow rules ---- */

static int peal_verbs_create_ah(struct ib_ah *ib, struct rdma_ah_init_attr *init,
				struct ib_udata *udata)
{
	struct peal_dev *dev = peal_dev(ib->device);
	gfp_t gfp = init->flags & RDMA_CREATE_AH_SLEEPABLE ? GFP_KERNEL_ACCOUNT : GFP_ATOMIC;
	struct peal_tx_quota *tx_quota = peal_nic_tx_quota(&dev->nic, peal_verbs_context(udata));
	struct peal_create_ah_resp resp = {};
	struct peal_ah *ah = peal_ah(ib);
	int ret = peal_verbs_check_request(udata);

	if (!ret && udata)
		ret = peal_path_permit(&dev->nic.port, init->ah_attr);
	if (!ret)
		ret = peal_ah_init(ah, peal_verbs_account(dev, udata), &dev->nic.port, tx_quota,
				   init->ah_attr, gfp);
	if (ret || !udata)
		return ret;
	/* A program's work requests name the address handle by this number. */
	resp.ah_index = ah->address->index;
	ret = peal_verbs_respond(udata, &resp, sizeof(resp));
	if (ret)
		peal_ah_destroy(ah);
	return ret;
}

static int peal_verbs_query_ah(struct ib_ah *ib, struct rdma_ah_attr *attr)
{
	peal_ah_query(peal_ah(ib), attr);
	return 0;
}

/* Must not sleep, because it may be called with interrupts off. */
static int peal_verbs_destroy_ah(struct ib_ah *ib, u32 flags)
{
	peal_ah_destroy(peal_ah(ib));
	return 0;
}

/* RoCE has no LIDs, so @lid is ignored. */
static int peal_verbs_attach_mcast(struct ib_qp *ib, union ib_gid *gid, u16 lid)
{
	return peal_group_attach(&peal_dev(ib->device)->nic.groups, peal_qp(ib), gid);
}

static int peal_verbs_detach_mcast(struct ib_qp *ib, union ib_gid *gid, u16 lid)
{
	return peal_group_detach(&peal_dev(ib->device)->nic.groups, peal_qp(ib), gid);
}

static struct ib_flow *peal_verbs_create_flow(struct ib_qp *ib, struct ib_flow_attr *attr,
					      struct ib_udata *udata)
{
	int ret = peal_verbs_check_request(udata);

	return ret ? ERR_PTR(ret) : peal_flow_create(&peal_dev(ib->device)->flows, ib, attr);
}

/* ---- XRC domains and shared receive queues ---- */

static int peal_verbs_alloc_xrcd(struct ib_xrcd *ib, struct ib_udata *udata)
{
	struct peal_nic *nic = &peal_dev(ib->device)->nic;
	struct peal_tx_quota *tx_quota;
	int ret = peal_verbs_check_no_request(udata);

	if (ret)
		return ret;
	if (!peal_limits_have(&nic->options.limits, PEAL_NL_FEATURE_XRC))
		return -EOPNOTSUPP;
	tx_quota = peal_tx_quota_open(&nic->port.tx_quotas);
	if (IS_ERR(tx_quota))
		return PTR_ERR(tx_quota);
	ret = peal_xrcd_init(peal_xrcd(ib), &nic->quota, tx_quota);
	if (ret)
		peal_tx_quota_close(tx_quota);
	return ret;
}

static int peal_verbs_dealloc_xrcd(struct ib_xrcd *ib, struct ib_udata *udata)
{
	struct peal_tx_quota *tx_quota = peal_xrcd(ib)->tx_quota;

	peal_xrcd_end(peal_xrcd(ib));
	peal_tx_quota_close(tx_quota);
	return 0;
}

/* Remove the queue from the tables, then wait for the kicks that found it before. */
static int peal_verbs_destroy_srq(struct ib_srq *ib, struct ib_udata *udata)
{
	struct peal_srq *srq = peal_srq(ib);

	peal_context_remove_srq(srq);
	if (ib->ext.xrc.srq_num) {
		peal_table_remove_srq(&peal_dev(ib->device)->nic.table, ib->ext.xrc.srq_num);
		peal_epoch_wait();
		peal_xrcd_forget(peal_xrcd(ib->ext.xrc.xrcd), srq);
	}
	peal_engine_remove_srq(srq);
	peal_srq_post_free(srq);
	peal_srq_free(srq);
	return 0;
}

static int peal_verbs_create_srq(struct ib_srq *ib, struct ib_srq_init_attr *init,
				 struct ib_udata *udata)
{
	const struct peal_limits *limits = peal_verbs_limits(ib->device, udata);
	struct peal_dev *dev = peal_dev(ib->device);
	struct peal_context *ctx = peal_verbs_context(udata);
	struct peal_srq *srq = peal_srq(ib);
	struct peal_create_srq_resp resp;
	int ret = peal_verbs_check_request(udata);

	if (ret)
		return ret;
	if (!peal_limits_have(limits, PEAL_NL_FEATURE_SRQ))
		return -EOPNOTSUPP;
	/* A kernel user has no use for an XRC queue, because it cannot make the queue pairs. */
	if (init->srq_type != IB_SRQT_BASIC && (init->srq_type != IB_SRQT_XRC || !ctx))
		return -EOPNOTSUPP;
	if (init->srq_type == IB_SRQT_XRC && (!init->ext.xrc.xrcd || !init->ext.cq))
		return -EINVAL;
	peal_engine_add_srq(srq);
	ret = peal_srq_init(srq, peal_verbs_account(dev, udata), ctx ? ctx->ib : NULL, limits,
			    &init->attr);
	if (ret)
		return ret;
	if (!ctx) {
		ret = peal_srq_post_init(srq);
		goto out;
	}
	/* A program gets a number for its kicks, and the offsets of the ring. */
	ret = peal_context_add_srq(ctx, srq);
	if (!ret && init->srq_type == IB_SRQT_XRC)
		ret = peal_table_add_srq(&dev->nic.table, srq, &ib->ext.xrc.srq_num);
	if (ret)
		goto out;
	peal_srq_describe(srq, &resp);
	ret = peal_verbs_respond(udata, &resp, sizeof(resp));
out:
	if (ret)
		peal_verbs_destroy_srq(ib, udata);
	return ret;
}

static int peal_verbs_modify_srq(struct ib_srq *ib, struct ib_srq_attr *attr,
				 enum ib_srq_attr_mask mask, struct ib_udata *udata)
{
	return peal_verbs_check_no_request(udata) ?: peal_srq_modify(peal_srq(ib), attr, mask);
}

static int peal_verbs_query_srq(struct ib_srq *ib, struct ib_srq_attr *attr)
{
	peal_srq_query(peal_srq(ib), attr);
	return 0;
}

/* For kernel users only. Programs write to their rings. */
static int peal_verbs_post_srq_recv(struct ib_srq *ib, const struct ib_recv_wr *wr,
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
	if (ret)
		return ret;
	if (req.comp_mask || req.reserved)
		return -EINVAL;
	if (req.step == PEAL_RESIZE_SRQ_COMMIT && !req.max_wr)
		ret = peal_srq_resize(peal_srq(ib), &resp);
	else if (req.step == PEAL_RESIZE_SRQ_PREPARE)
		ret = peal_srq_prepare_resize(peal_srq(ib), peal_srq(ib)->context->ib,
					      &peal_dev(ib->device)->nic.options.limits,
					      req.max_wr, &resp);
	else
		ret = -EINVAL;
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

/* ---- queue pairs ---- */

/*
 * The features without which there are no such queue pairs. XRC has shared receive queues only. The
 * connection manager's queue pair, GSI, is not a program's.
 */
static const u32 peal_verbs_features[IB_QPT_MAX] = {
	[IB_QPT_RC] = 1 << PEAL_NL_FEATURE_RC,
	[IB_QPT_UC] = 1 << PEAL_NL_FEATURE_UC,
	[IB_QPT_UD] = 1 << PEAL_NL_FEATURE_UD,
	[IB_QPT_XRC_INI] = 1 << PEAL_NL_FEATURE_XRC | 1 << PEAL_NL_FEATURE_SRQ,
	[IB_QPT_XRC_TGT] = 1 << PEAL_NL_FEATURE_XRC | 1 << PEAL_NL_FEATURE_SRQ,
	[IB_QPT_RAW_PACKET] = 1 << PEAL_NL_FEATURE_RAW,
};

/* Does the device have such queue pairs, and may the caller make them? */
static int peal_verbs_check_qp(const struct ib_qp *ib, const struct ib_qp_init_attr *init,
			       const struct peal_limits *limits, bool user)
{
	const struct ib_srq *srq = init->srq;

	if (init->qp_type < IB_QPT_MAX &&
	    READ_ONCE(limits->without) & peal_verbs_features[init->qp_type])
		return -EOPNOTSUPP;
	if (init->create_flags || init->rwq_ind_tbl)
		return -EOPNOTSUPP;
	switch (init->qp_type) {
	case IB_QPT_RC:
	case IB_QPT_UC:
	case IB_QPT_UD:
		break;
	case IB_QPT_XRC_INI:	/* a kernel's work request has no field for the receive queue */
	case IB_QPT_RAW_PACKET:
		if (!user)
			return -EOPNOTSUPP;
		break;
	case IB_QPT_XRC_TGT:
		if (!init->xrcd || srq)
			return -EINVAL;
		break;
	case IB_QPT_GSI:
		/* Only for kernel users. The device has one port. */
		if (user || init->port_num != 1 || srq)
			return -EINVAL;
		break;
	default:
		return -EOPNOTSUPP;
	}
	/* A shared receive queue may be of another protection domain, but not of another device. */
	if (srq && (srq->device != ib->device || srq->srq_type != IB_SRQT_BASIC))
		return -EINVAL;
	return 0;
}

/*
 * The queue pair is destroyed or reset. What it has completed is in its completion queues, where
 * its user removes it, or finds it when the device is removed.
 */
static void peal_verbs_show_late(const struct ib_qp *ib)
{
	struct ib_cq *cqs[] = { ib->send_cq, ib->recv_cq };
	int i;

	for (i = 0; i < ARRAY_SIZE(cqs); i++) {
		if (!cqs[i] || !peal_cq(cqs[i])->faults)
			continue;
		peal_cq_show_late(peal_cq(cqs[i]));
		peal_epoch_enter();
		peal_cq_notify(peal_cq(cqs[i]));
		peal_epoch_exit();
	}
}

/*
 * Remove a queue pair that the data path and pollers may already use. It stops and leaves the
 * table first, then this waits for the users that found it before. Pollers find it until the slots
 * of a shared receive queue are free.
 */
static int peal_verbs_destroy_qp(struct ib_qp *ib, struct ib_udata *udata)
{
	struct peal_qp *qp = peal_qp(ib);

	peal_context_remove_qp(qp);
	peal_qp_stop(qp);
	peal_post_drop_shared(qp);
	peal_qp_unpublish(qp);
	if (ib->send_cq)
		peal_cq_wait_pollers(peal_cq(ib->send_cq));
	if (ib->recv_cq)
		peal_cq_wait_pollers(peal_cq(ib->recv_cq));
	peal_engine_remove_qp(qp);
	peal_events_end(&qp->events);
	peal_verbs_show_late(ib);
	/*
	 * The queue pair pushes no further CQE, and the epoch was waited for. When ib_free_cq() has
	 * stopped the polling of a completion queue, its handler must not schedule another one.
	 */
	if (ib->send_cq)
		peal_cq_wait_handler(peal_cq(ib->send_cq));
	if (ib->recv_cq)
		peal_cq_wait_handler(peal_cq(ib->recv_cq));
	if (qp->xrcd)
		peal_xrcd_remove(peal_xrcd(qp->xrcd), qp);
	peal_post_free(qp);
	peal_qp_free(qp);
	return 0;
}

/* The core makes XRC targets in its own name, without udata. */
static int peal_verbs_create_qp(struct ib_qp *ib, struct ib_qp_init_attr *init,
				struct ib_udata *udata)
{
	const struct peal_limits *limits = peal_verbs_limits(ib->device, udata);
	struct peal_dev *dev = peal_dev(ib->device);
	struct peal_context *ctx = peal_verbs_context(udata);
	struct peal_account *account = peal_verbs_account(dev, udata);
	struct peal_tx_quota *tx_quota = peal_nic_tx_quota(&dev->nic, ctx);
	struct peal_create_qp_resp resp;
	struct peal_qp *qp = peal_qp(ib);
	int ret = peal_verbs_check_qp(ib, init, limits, udata);

	if (!ret)
		ret = peal_verbs_check_request(udata);
	if (ret)
		return ret;
	peal_engine_add_qp(&dev->nic.engine, qp);
	/* The initial transport. A connection may get another one with its path. */
	if (init->qp_type == IB_QPT_RAW_PACKET)
		ret = peal_raw_attach(qp, &dev->flows, tx_quota);
	else if (peal_qp_is_datagram(qp))
		ret = peal_ud_attach(qp, &dev->nic.port, &dev->nic.locality, tx_quota);
	else
		ret = peal_direct_attach(qp, &dev->nic.locality);
	if (ret)
		return ret;
	/* An XRC target may outlive the context of its maker, so its domain pays for it. */
	if (init->qp_type == IB_QPT_XRC_TGT)
		account = &peal_xrcd(init->xrcd)->account;
	ret = peal_qp_init(qp, &dev->nic.table, account, ctx ? ctx->ib : NULL, limits, init);
	if (ret) {
		peal_qp_free_transports(qp);
		return ret;
	}
	if (ctx || qp->xrcd)
		peal_errors_set_owner(qp);
	if (qp->xrcd) {
		peal_xrcd_add(peal_xrcd(qp->xrcd), qp);	/* and nobody posts to it */
		return 0;
	}
	if (!ctx) {
		ret = peal_post_init(qp);
		goto out;
	}
	/* A program gets a doorbell bit for the queue pair, and the offsets of the rings. */
	ret = peal_context_add_qp(ctx, qp);
	if (ret)
		goto out;
	peal_qp_describe(qp, &resp);
	ret = peal_verbs_respond(udata, &resp, sizeof(resp));
out:
	if (ret)
		peal_verbs_destroy_qp(ib, udata);
	return ret;
}

/* ib_post_send() and ib_post_recv() are for kernel users only. Programs write to their rings. */
static int peal_verbs_post_send(struct ib_qp *ib, const struct ib_send_wr *wr,
				const struct ib_send_wr **bad)
{
	struct peal_qp *qp = peal_qp(ib);
	int ret;

	if (!qp->posts.send.ids || READ_ONCE(qp->state) < IB_QPS_RTS) {
		*bad = wr;
		return -EINVAL;
	}
	ret = peal_post_send(qp, wr, bad);
	peal_kick(qp);
	return ret;
}

static int peal_verbs_post_recv(struct ib_qp *ib, const struct ib_recv_wr *wr,
				const struct ib_recv_wr **bad)
{
	struct peal_qp *qp = peal_qp(ib);
	bool wants_kick;
	int ret;

	if (!qp->posts.recv.ids || qp->srq || READ_ONCE(qp->state) == IB_QPS_RESET) {
		*bad = wr;
		return -EINVAL;
	}
	ret = peal_post_recv(qp, wr, bad, &wants_kick);
	if (wants_kick)
		peal_kick_receives(qp);
	return ret;
}

/*
 * Choose the transport for a new path. A connection whose peer is on this device gets the direct
 * transport, if the options allow it. All others get the wire. In later states than INIT a
 * connection keeps its transport. The caller holds qp->control.
 *
 * Return: 0, -EOPNOTSUPP if a direct connection would have to leave the device, or an error of
 * peal_wire_attach().
 */
static int peal_verbs_choose_transport(struct peal_qp *qp, const struct ib_qp_attr *attr, int mask,
				       struct peal_transport **transport)
{
	const struct ib_global_route *grh = rdma_ah_read_grh(&attr->ah_attr);
	struct peal_dev *dev = peal_dev(qp->ib.device);
	bool on_wire = peal_qp_is_on_wire(qp), local;
	const struct ib_gid_attr *destination;
	struct peal_tx_quota *tx_quota;
	int ret;

	lockdep_assert_held(&qp->control);
	destination = rdma_find_gid_by_port(&dev->ib, &grh->dgid, IB_GID_TYPE_ROCE_UDP_ENCAP, 1,
					    NULL);
	local = !IS_ERR(destination);
	if (local)
		rdma_put_gid_attr(destination);
	if (qp->state == IB_QPS_INIT)
		on_wire = !local || !peal_options_allow(&dev->nic.options, PEAL_NL_SCOPE_DEVICE);
	*transport = qp->direct;
	if (!on_wire)
		return local ? 0 : -EOPNOTSUPP;
	/* An XRC target has the quota of its domain, because it may outlive its maker's. */
	tx_quota = qp->xrcd ? peal_xrcd(qp->xrcd)->tx_quota :
			      peal_nic_tx_quota(&dev->nic, qp->context);
	ret = peal_wire_attach(qp, &dev->nic.port, tx_quota, attr, mask);
	*transport = qp->wire;
	return ret;
}

static int peal_verbs_modify_qp(struct ib_qp *ib, struct ib_qp_attr *attr, int mask,
				struct ib_udata *udata)
{
	struct peal_qp *qp = peal_qp(ib);
	struct peal_transport *transport = NULL;
	int ret = peal_verbs_check_no_request(udata);

	if (ret)
		return ret;
	/* The connection manager asks for the right on every device, so this is no error. */
	if (mask & IB_QP_ACCESS_FLAGS &&
	    !peal_limits_have(peal_verbs_limits(ib->device, udata), PEAL_NL_FEATURE_ATOMIC))
		attr->qp_access_flags &= ~IB_ACCESS_REMOTE_ATOMIC;
	mutex_lock(&qp->control);
	ret = peal_qp_check(qp, attr, mask);
	if (!ret && mask & IB_QP_AV && udata)
		ret = peal_path_permit(&peal_dev(ib->device)->nic.port, &attr->ah_attr);
	if (!ret && mask & IB_QP_AV)
		ret = peal_verbs_choose_transport(qp, attr, mask, &transport);
	if (!ret)
		ret = peal_qp_modify(qp, attr, mask, transport);
	if (!ret && mask & IB_QP_AV)
		WRITE_ONCE(qp->sgid_ifindex,
			   peal_path_ifindex(rdma_ah_read_grh(&attr->ah_attr)->sgid_attr));
	if (!ret && mask & IB_QP_STATE && attr->qp_state == IB_QPS_RESET) {
		peal_verbs_show_late(ib);
		peal_post_forget(qp);
	}
	mutex_unlock(&qp->control);
	if (!ret)
		peal_kick(qp);
	return ret;
}

/*
 * May the caller know what a sender needs to forge packets of @ib? The user whose program made the
 * queue pair may, and the administrator of the network namespace. A program that has changed its
 * user ids shares its secrets with none of them, as for ptrace(2).
 */
static bool peal_verbs_may_know_psns(const struct ib_qp *ib)
{
	const struct net *net = peal_dev(ib->device)->nic.port.net;
	kuid_t uid = current_uid();
	const struct cred *owner;
	bool same = false;

	if (ib->res.task) {
		rcu_read_lock();
		owner = __task_cred(ib->res.task);
		same = uid_eq(owner->uid, uid) && uid_eq(owner->euid, uid) &&
		       uid_eq(owner->suid, uid);
		rcu_read_unlock();
	}
	return same || ns_capable(net->user_ns, CAP_NET_ADMIN);
}

/*
 * The core asks for no attribute (@mask 0) when it answers `rdma resource show`, which any user may
 * call. A program that has the queue pair asks for those that it wants to know.
 */
static int peal_verbs_query_qp(struct ib_qp *ib, struct ib_qp_attr *attr, int mask,
			       struct ib_qp_init_attr *init)
{
	peal_qp_query(peal_qp(ib), attr, init);
	if (!mask && !peal_verbs_may_know_psns(ib)) {
		attr->sq_psn = 0;
		attr->rq_psn = 0;
	}
	return 0;
}

/* ---- the device ---- */

/* The core frees the memory afterwards. */
static void peal_verbs_dealloc_driver(struct ib_device *ib)
{
	struct peal_dev *dev = peal_dev(ib);

	peal_netns_detach(&dev->nic.port);
	peal_locality_remove(&dev->nic.locality);
	peal_engine_stop(&dev->nic.engine);
	/* The work that takes frames for the flows counts drops in the table. */
	peal_flows_destroy(&dev->flows);
	peal_groups_destroy(&dev->nic.groups);
	peal_faults_end(&dev->nic.table.faults);
	kvfree(dev->nic.table.errors);
	peal_table_destroy(&dev->nic.table);
	peal_quota_end(&dev->nic.quota);
	peal_port_end(&dev->nic.port);
	xa_destroy(&dev->statistics);
	peal_parent_free(dev->parent);
}

const struct uapi_definition peal_verbs_attributes[] = {
	UAPI_DEF_CHAIN_OBJ_TREE(UVERBS_OBJECT_DEVICE, &peal_verbs_query_context),
	UAPI_DEF_CHAIN_OBJ_TREE(UVERBS_OBJECT_SRQ, &peal_verbs_srq_methods),
	UAPI_DEF_CHAIN_OBJ_TREE(UVERBS_OBJECT_DM, &peal_verbs_dm_methods),
	{}
};

const struct ib_device_ops peal_verbs_ops = {
	.owner = THIS_MODULE,
	.driver_id = (enum rdma_driver_id)PEAL_DRIVER_ID,
	.uverbs_abi_ver = PEAL_ABI_VERSION,

	.advise_mr = peal_verbs_advise_mr,
	.alloc_dm = peal_verbs_alloc_dm,
	.alloc_hw_port_stats = peal_statistic_alloc_port,
	.alloc_mr = peal_verbs_alloc_mr,
	.alloc_mw = peal_verbs_alloc_mw,
	.alloc_pd = peal_verbs_alloc_pd,
	.alloc_ucontext = peal_verbs_alloc_ucontext,
	.alloc_xrcd = peal_verbs_alloc_xrcd,
	.attach_mcast = peal_verbs_attach_mcast,
	.counter_alloc_stats = peal_statistic_alloc_stats,
	.counter_bind_qp = peal_statistic_bind_qp,
	.counter_dealloc = peal_statistic_dealloc,
#ifdef PEAL_HAS_COUNTER_INIT
	.counter_init = peal_statistic_init,
#endif
	.counter_unbind_qp = peal_statistic_unbind_qp,
	.counter_update_stats = peal_statistic_update_stats,
	.create_ah = peal_verbs_create_ah,
	.create_cq = peal_verbs_create_cq,
	.create_flow = peal_verbs_create_flow,
	.create_qp = peal_verbs_create_qp,
	.create_srq = peal_verbs_create_srq,
	.create_user_ah = peal_verbs_create_ah,
	.dealloc_dm = peal_verbs_dealloc_dm,
	.dealloc_driver = peal_verbs_dealloc_driver,
	.dealloc_mw = peal_verbs_dealloc_mw,
	.dealloc_pd = peal_verbs_dealloc_pd,
	.dealloc_ucontext = peal_verbs_dealloc_ucontext,
	.dealloc_xrcd = peal_verbs_dealloc_xrcd,
	.dereg_mr = peal_verbs_dereg_mr,
	.destroy_ah = peal_verbs_destroy_ah,
	.destroy_cq = peal_verbs_destroy_cq,
	.destroy_flow = peal_flow_destroy,
	.destroy_qp = peal_verbs_destroy_qp,
	.destroy_srq = peal_verbs_destroy_srq,
	.detach_mcast = peal_verbs_detach_mcast,
	.disassociate_ucontext = peal_verbs_disassociate_ucontext,
	.fill_res_cq_entry = peal_restrack_fill_cq,
	.fill_res_mr_entry = peal_restrack_fill_mr,
	.fill_res_qp_entry = peal_restrack_fill_qp,
#ifdef PEAL_HAS_SRQ_RESTRACK
	.fill_res_srq_entry = peal_restrack_fill_srq,
#endif
	.get_dma_mr = peal_verbs_get_dma_mr,
	.get_hw_stats = peal_statistic_get_port,
	.get_link_layer = peal_query_link_layer,
	.get_port_immutable = peal_query_immutable,
	.map_mr_sg = peal_verbs_map_mr_sg,
	.mmap = peal_map_mmap,
	.mmap_free = peal_map_release,
	.modify_cq = peal_verbs_modify_cq,
	.modify_hw_stat = peal_statistic_modify,
	.modify_qp = peal_verbs_modify_qp,
	.modify_srq = peal_verbs_modify_srq,
	.poll_cq = peal_verbs_poll_cq,
	.post_recv = peal_verbs_post_recv,
	.post_send = peal_verbs_post_send,
	.post_srq_recv = peal_verbs_post_srq_recv,
	.process_mad = peal_pma_process_mad,
	.query_ah = peal_verbs_query_ah,
	.query_device = peal_query_device,
	.query_pkey = peal_query_pkey,
	.query_port = peal_query_port,
#ifdef PEAL_HAS_PORT_SPEED
	.query_port_speed = peal_query_port_speed,
#endif
	.query_qp = peal_verbs_query_qp,
	.query_srq = peal_verbs_query_srq,
	.query_ucontext = peal_verbs_query_ucontext,
	.reg_dm_mr = peal_verbs_reg_dm_mr,
	.reg_user_mr = peal_verbs_reg_user_mr,
	.reg_user_mr_dmabuf = peal_verbs_reg_user_mr_dmabuf,
	.req_notify_cq = peal_verbs_req_notify_cq,
	.rereg_user_mr = peal_verbs_rereg_user_mr,
	.PEAL_RESIZE_CQ_OP = peal_verbs_resize_cq,

	INIT_RDMA_OBJ_SIZE(ib_ah, peal_ah, ib),
	INIT_RDMA_OBJ_SIZE(ib_cq, peal_cq, ib),
	INIT_RDMA_OBJ_SIZE(ib_mw, peal_mw, ib),
	INIT_RDMA_OBJ_SIZE(ib_pd, peal_pd, ib),
	INIT_RDMA_OBJ_SIZE(ib_qp, peal_qp, ib),
	INIT_RDMA_OBJ_SIZE(ib_srq, peal_srq, ib),
#ifdef PEAL_HAS_COUNTER_INIT
	.size_rdma_counter = sizeof(struct rdma_counter),
#endif
	INIT_RDMA_OBJ_SIZE(ib_ucontext, peal_ucontext, ib),
	INIT_RDMA_OBJ_SIZE(ib_xrcd, peal_xrcd, ib),
};
