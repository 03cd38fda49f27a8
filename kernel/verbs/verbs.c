// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See verbs.h. Queue pairs are in verbs_qp.c, shared receive queues in verbs_srq.c, device
 * memory in verbs_dm.c, and flow rules in verbs_flow.c.
 */
#include <linux/file.h>
#include <linux/module.h>

#include "base/compat.h"
#include "engine/lifecycle.h"
#include "mem/mw.h"
#include "net/netns.h"
#include "queue/xrcd.h"
#include "transport/ah.h"
#include "transport/demux.h"
#include "verbs/dev.h"
#include "verbs/methods.h"
#include "verbs/parent.h"
#include "verbs/pma.h"
#include "verbs/post.h"
#include "verbs/query.h"
#include "verbs/restrack.h"
#include "verbs/statistic.h"
#include "verbs/verbs.h"

/* All requests consist of these fields. */
struct peal_request {
	u32 comp_mask;
	u32 flags;	/* clocks of a completion queue, step of a resize; otherwise reserved */
};

/*
 * Read the driver data of a create call. They may be absent, or longer than this version knows. The
 * unknown part must be zero.
 */
static int peal_verbs_read_request(struct ib_udata *udata, struct peal_request *req)
{
	size_t known = min(udata->inlen, sizeof(*req));
	int ret;

	*req = (struct peal_request){ };
	ret = ib_copy_from_udata(req, udata, known);
	if (ret)
		return ret;
	if (req->comp_mask)
		return -EINVAL;
	if (udata->inlen > known && !ib_is_udata_cleared(udata, known, udata->inlen - known))
		return -EINVAL;
	return 0;
}

/**
 * peal_verbs_check_request() - check the driver data of a create call that has no flags
 *
 * Return: 0, -EINVAL or -EFAULT.
 */
int peal_verbs_check_request(struct ib_udata *udata)
{
	struct peal_request req;
	int ret = peal_verbs_read_request(udata, &req);

	return ret ?: req.flags ? -EINVAL : 0;
}

/*
 * The request has no data for the driver. A program may leave room for some, so zeros are
 * accepted. Return: 0 or -EINVAL.
 */
int peal_verbs_check_no_request(struct ib_udata *udata)
{
	return !udata || ib_is_udata_cleared(udata, 0, udata->inlen) ? 0 : -EINVAL;
}

/* The response is cut to what the program has room for, because an older one knows less. */
int peal_verbs_respond(struct ib_udata *udata, void *resp, size_t bytes)
{
	return ib_copy_to_udata(udata, resp, min(bytes, udata->outlen));
}

/* Return: the context of the calling program, or NULL if a kernel user calls. */
struct peal_context *peal_verbs_context(struct ib_udata *udata)
{
	struct peal_ucontext *uctx = NULL;

	if (udata)
		uctx = rdma_udata_to_drv_context(udata, struct peal_ucontext, ib);
	return uctx ? uctx->ctx : NULL;
}

/* Return: the account that a new object is charged to. Kernel users share one. */
struct peal_account *peal_verbs_account(struct peal_dev *dev, struct ib_udata *udata)
{
	struct peal_context *ctx = peal_verbs_context(udata);

	return ctx ? &ctx->account : &dev->nic.quota.kernel;
}

/*
 * The context gets a transmit quota (socket) of its own, opened by the program, so that its packets
 * carry the cgroup that the program is in now.
 */
static struct peal_context *peal_verbs_create_context(struct peal_dev *dev, struct ib_ucontext *ib)
{
	struct peal_tx_quota *tx_quota = peal_tx_quota_open(&dev->nic.port.tx_quotas);
	struct peal_context *ctx;

	if (IS_ERR(tx_quota))
		return ERR_CAST(tx_quota);
	ctx = peal_engine_add_context(&dev->nic.engine, ib, &dev->nic.quota);
	if (IS_ERR(ctx))
		peal_tx_quota_close(tx_quota);
	else
		peal_context_set_tx_quota(ctx, tx_quota);
	return ctx;
}

/* The caller has revoked or discarded the kick file. The context has no queue pairs any more. */
static void peal_verbs_destroy_context(struct peal_dev *dev, struct peal_context *ctx)
{
	struct peal_tx_quota *tx_quota = ctx->tx_quota;

	peal_engine_remove_context(&dev->nic.engine, ctx);
	peal_tx_quota_close(tx_quota);
}

static int peal_verbs_alloc_ucontext(struct ib_ucontext *ib, struct ib_udata *udata)
{
	struct peal_dev *dev = peal_dev(ib->device);
	struct peal_alloc_ucontext_resp resp;
	struct peal_context *ctx;
	int ret = peal_verbs_check_request(udata);

	if (ret)
		return ret;
	ctx = peal_verbs_create_context(dev, ib);
	if (IS_ERR(ctx))
		return PTR_ERR(ctx);
	peal_context_describe(ctx, &resp);
	ret = peal_verbs_respond(udata, &resp, sizeof(resp));
	if (ret) {
		peal_kick_file_discard(ctx->kick_file);
		peal_verbs_destroy_context(dev, ctx);
		return ret;
	}
	peal_ucontext(ib)->ctx = ctx;
	peal_kick_file_open(ctx->kick_file);
	return 0;
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

const struct uapi_definition peal_verbs_attributes[] = {
	UAPI_DEF_CHAIN_OBJ_TREE(UVERBS_OBJECT_DEVICE, &peal_verbs_query_context),
	UAPI_DEF_CHAIN(peal_verbs_srq_attributes),
	UAPI_DEF_CHAIN(peal_verbs_dm_attributes),
	{}
};

static void peal_verbs_dealloc_ucontext(struct ib_ucontext *ib)
{
	struct peal_context *ctx = peal_ucontext(ib)->ctx;

	peal_kick_file_revoke(ctx->kick_file);
	peal_verbs_destroy_context(peal_dev(ib->device), ctx);
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

/*
 * Will the core poll this queue on the CPU of its handler? Only queues that it makes itself have
 * ib->wc (__ib_alloc_cq). On the unbound workqueue the scheduler chooses the CPU.
 */
static bool peal_verbs_is_polled_by_core(const struct ib_cq *ib)
{
	return ib->wc && (ib->poll_ctx == IB_POLL_SOFTIRQ || ib->poll_ctx == IB_POLL_WORKQUEUE);
}

static int peal_verbs_create_cq(struct ib_cq *ib, const struct ib_cq_init_attr *attr,
				PEAL_CQ_UDATA_ARG)
{
	struct ib_udata *udata = PEAL_CQ_UDATA;
	struct peal_cq *cq = peal_cq(ib);
	struct peal_context *ctx = peal_verbs_context(udata);
	struct peal_create_cq_resp resp;
	struct peal_request req = {};
	int ret = udata ? peal_verbs_read_request(udata, &req) : 0;

	if (ret)
		return ret;
	if (req.flags & ~PEAL_CQ_CLOCKS)
		return -EINVAL;
	if (attr->flags)
		return -EOPNOTSUPP;
	if (!attr->cqe || attr->cqe > PEAL_MAX_CQE ||
	    attr->comp_vector >= ib->device->num_comp_vectors)
		return -EINVAL;
	ret = peal_cq_init(cq, peal_verbs_account(peal_dev(ib->device), udata),
			   ctx ? ctx->ib : NULL, attr->cqe, req.flags);
	if (!ret && peal_verbs_is_polled_by_core(ib))
		peal_cq_set_vector(cq, attr->comp_vector);
	if (ret || !udata)
		return ret;
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
	struct peal_request req;
	int ret;

	if (!ctx)
		return -EOPNOTSUPP;
	ret = peal_verbs_read_request(udata, &req);
	if (ret)
		return ret;
	if (req.flags == PEAL_RESIZE_CQ_COMMIT)
		return peal_cq_resize(peal_cq(ib));
	if (req.flags != PEAL_RESIZE_CQ_PREPARE || entries < 1 || entries > PEAL_MAX_CQE)
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

static struct ib_mr *peal_verbs_reg_user_mr(struct ib_pd *pd, u64 start, u64 length, u64 iova,
					    int access, PEAL_MR_DMAH_ARG struct ib_udata *udata)
{
	struct peal_dev *dev = peal_dev(pd->device);
	int ret = udata ? peal_verbs_check_request(udata) : 0;

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
	int ret = peal_verbs_check_request(udata);

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

	return peal_verbs_check_no_request(udata) ?:
	       peal_mw_init(peal_mw(ib), &dev->nic.table, peal_verbs_account(dev, udata), ib->pd);
}

static int peal_verbs_dealloc_mw(struct ib_mw *ib)
{
	peal_mw_destroy(peal_mw(ib));
	return 0;
}

/* A program gets the number by which its work requests name the address handle. */
static int peal_verbs_introduce_ah(struct peal_ah *ah, struct ib_udata *udata)
{
	struct peal_create_ah_resp resp = { .ah_index = ah->address->index };

	return udata ? peal_verbs_respond(udata, &resp, sizeof(resp)) : 0;
}

static int peal_verbs_create_ah(struct ib_ah *ib, struct rdma_ah_init_attr *init,
				struct ib_udata *udata)
{
	struct peal_dev *dev = peal_dev(ib->device);
	gfp_t gfp = init->flags & RDMA_CREATE_AH_SLEEPABLE ? GFP_KERNEL_ACCOUNT : GFP_ATOMIC;
	struct peal_tx_quota *tx_quota = peal_nic_tx_quota(&dev->nic, peal_verbs_context(udata));
	struct peal_ah *ah = peal_ah(ib);
	int ret = udata ? peal_verbs_check_request(udata) : 0;

	if (!ret && udata)
		ret = peal_path_permit(&dev->nic.port, init->ah_attr);
	if (!ret)
		ret = peal_ah_init(ah, peal_verbs_account(dev, udata), &dev->nic.port, tx_quota,
				   init->ah_attr, gfp);
	if (ret)
		return ret;
	ret = peal_verbs_introduce_ah(ah, udata);
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

/* The core frees the memory afterwards. */
static void peal_verbs_dealloc_driver(struct ib_device *ib)
{
	struct peal_dev *dev = peal_dev(ib);

	peal_netns_detach(&dev->nic.port);
	peal_locality_remove(&dev->nic.locality);
	peal_engine_stop(&dev->nic.engine);
	/* The work that takes frames for the flows counts drops in the table. */
	peal_flows_destroy(&dev->nic.flows);
	peal_groups_destroy(&dev->nic.groups);
	peal_table_destroy(&dev->nic.table);
	peal_quota_end(&dev->nic.quota);
	peal_port_end(&dev->nic.port);
	xa_destroy(&dev->statistics);
	peal_parent_free(dev->parent);
}

const struct ib_device_ops peal_verbs_ops = {
	.owner = THIS_MODULE,
	.driver_id = (enum rdma_driver_id)PEAL_DRIVER_ID,
	.uverbs_abi_ver = PEAL_ABI_VERSION,

	.advise_mr = peal_verbs_advise_mr,
	.alloc_dm = peal_verbs_alloc_dm,
	.alloc_hw_port_stats = peal_query_alloc_stats,
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
	.destroy_flow = peal_verbs_destroy_flow,
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
	.get_hw_stats = peal_query_stats,
	.get_link_layer = peal_query_link_layer,
	.get_port_immutable = peal_query_immutable,
	.map_mr_sg = peal_verbs_map_mr_sg,
	.mmap = peal_map_mmap,
	.mmap_free = peal_map_release,
	.modify_cq = peal_verbs_modify_cq,
	.modify_hw_stat = peal_query_modify_stat,
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
