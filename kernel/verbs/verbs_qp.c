// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The verbs of queue pairs. See verbs.h.
 */
#include <linux/capability.h>
#include <linux/cred.h>
#include <net/net_namespace.h>
#include <rdma/ib_cache.h>
#include <rdma/uverbs_ioctl.h>

#include "engine/kick.h"
#include "engine/lifecycle.h"
#include "queue/xrcd.h"
#include "transport/direct.h"
#include "transport/raw.h"
#include "transport/ud.h"
#include "transport/wire.h"
#include "verbs/dev.h"
#include "verbs/post.h"
#include "verbs/verbs.h"

/* A shared receive queue may be of another protection domain, but not of another device. */
static int peal_verbs_check_srq(const struct ib_qp *ib, const struct ib_qp_init_attr *init)
{
	if (!init->srq)
		return 0;
	if (init->srq->device != ib->device || init->srq->srq_type != IB_SRQT_BASIC ||
	    init->qp_type == IB_QPT_GSI)
		return -EINVAL;
	return 0;
}

static int peal_verbs_check_init(const struct ib_qp_init_attr *init, bool user)
{
	if (init->create_flags || (init->rwq_ind_tbl && init->qp_type != IB_QPT_RAW_PACKET))
		return -EOPNOTSUPP;
	switch (init->qp_type) {
	case IB_QPT_RC:
	case IB_QPT_UC:
	case IB_QPT_UD:
		return 0;
	case IB_QPT_XRC_INI:
		/* A kernel user's work request has no field for the shared receive queue. */
		return user ? 0 : -EOPNOTSUPP;
	case IB_QPT_XRC_TGT:
		return init->xrcd && !init->srq ? 0 : -EINVAL;
	case IB_QPT_RAW_PACKET:
		return user ? 0 : -EOPNOTSUPP;
	case IB_QPT_GSI:
		/* Only for kernel users. The device has one port. */
		return user || init->port_num != 1 ? -EINVAL : 0;
	default:
		return -EOPNOTSUPP;
	}
}

/*
 * The queue pair pushes no further CQE, and the epoch was waited for. When ib_free_cq() has stopped
 * the polling of a completion queue, its handler must not schedule another one.
 */
static void peal_verbs_wait_handlers(struct peal_qp *qp)
{
	if (qp->ib.send_cq)
		peal_cq_wait_handler(peal_cq(qp->ib.send_cq));
	if (qp->ib.recv_cq)
		peal_cq_wait_handler(peal_cq(qp->ib.recv_cq));
}

/*
 * Remove a queue pair that the data path and pollers may already use. It stops and leaves the
 * table first, then this waits for the users that found it before. Pollers find it until the slots
 * of a shared receive queue are free.
 */
static void peal_verbs_remove_qp(struct peal_dev *dev, struct peal_qp *qp)
{
	peal_context_remove_qp(qp);
	peal_qp_stop(qp);
	peal_post_drop_shared(qp);
	peal_qp_unpublish(qp);
	if (qp->ib.send_cq)
		peal_cq_wait_pollers(peal_cq(qp->ib.send_cq));
	if (qp->ib.recv_cq)
		peal_cq_wait_pollers(peal_cq(qp->ib.recv_cq));
	peal_engine_remove_qp(qp);
	peal_events_end(&qp->events);
	peal_verbs_wait_handlers(qp);
	if (qp->xrcd)
		peal_xrcd_remove(peal_xrcd(qp->xrcd), qp);
	peal_post_free(qp);
	peal_qp_free(qp);
}

/* A program gets a doorbell bit for the queue pair, and the offsets of the rings. */
static int peal_verbs_introduce_qp(struct peal_context *ctx, struct peal_qp *qp,
				   struct ib_udata *udata)
{
	struct peal_create_qp_resp resp;
	int ret = peal_context_add_qp(ctx, qp);

	if (ret)
		return ret;
	peal_qp_describe(qp, &resp);
	return peal_verbs_respond(udata, &resp, sizeof(resp));
}

/* Attach the initial transport. A connection may get another one with its path. */
static int peal_verbs_attach_transport(struct peal_dev *dev, struct peal_qp *qp,
				       struct peal_context *ctx)
{
	if (qp->ib.qp_type == IB_QPT_RAW_PACKET)
		return peal_raw_attach(qp, &dev->nic.port, &dev->nic.flows.ingress,
				       peal_nic_tx_quota(&dev->nic, ctx));
	if (peal_qp_is_datagram(qp))
		return peal_ud_attach(qp, &dev->nic.port, &dev->nic.locality,
				      peal_nic_tx_quota(&dev->nic, ctx));
	return peal_direct_attach(qp, &dev->nic.locality);
}

/* An XRC target may outlive the context of its maker, so its domain pays for it. */
static struct peal_account *peal_verbs_qp_account(struct peal_dev *dev, struct peal_context *ctx,
						  const struct ib_qp_init_attr *init)
{
	if (init->qp_type == IB_QPT_XRC_TGT)
		return &peal_xrcd(init->xrcd)->account;
	return ctx ? &ctx->account : &dev->nic.quota.kernel;
}

/* An XRC target has the account and the transmit quota of its domain for the same reason. */
static struct peal_tx_quota *peal_verbs_qp_tx_quota(struct peal_dev *dev, const struct peal_qp *qp)
{
	if (qp->xrcd)
		return peal_xrcd(qp->xrcd)->tx_quota;
	return peal_nic_tx_quota(&dev->nic, qp->context);
}

static int peal_verbs_init_qp(struct peal_dev *dev, struct peal_qp *qp, struct peal_context *ctx,
			      struct ib_qp_init_attr *init)
{
	int ret = peal_verbs_attach_transport(dev, qp, ctx);

	if (ret)
		return ret;
	ret = peal_qp_init(qp, &dev->nic.table, peal_verbs_qp_account(dev, ctx, init),
			   ctx ? ctx->ib : NULL, init);
	if (ret)
		peal_qp_free_transports(qp);
	return ret;
}

/* Let the owner of the queue pair use it. An XRC target has no owner who posts. */
static int peal_verbs_hand_over_qp(struct peal_context *ctx, struct peal_qp *qp,
				   struct ib_udata *udata)
{
	if (qp->xrcd) {
		peal_xrcd_add(peal_xrcd(qp->xrcd), qp);
		return 0;
	}
	return ctx ? peal_verbs_introduce_qp(ctx, qp, udata) : peal_post_init(qp);
}

/* The core makes XRC targets in its own name, without udata. */
int peal_verbs_create_qp(struct ib_qp *ib, struct ib_qp_init_attr *init, struct ib_udata *udata)
{
	struct peal_dev *dev = peal_dev(ib->device);
	struct peal_qp *qp = peal_qp(ib);
	struct peal_ucontext *uctx = NULL;
	struct peal_context *ctx;
	int ret = peal_verbs_check_init(init, udata);

	if (!ret && init->qp_type == IB_QPT_RAW_PACKET)
		ret = peal_verbs_permit_raw(dev);
	if (!ret)
		ret = peal_verbs_check_srq(ib, init);
	if (!ret && udata)
		ret = peal_verbs_check_request(udata);
	if (ret)
		return ret;
	if (udata)
		uctx = rdma_udata_to_drv_context(udata, struct peal_ucontext, ib);
	ctx = uctx ? uctx->ctx : NULL;
	peal_engine_add_qp(&dev->nic.engine, qp);
	ret = peal_verbs_init_qp(dev, qp, ctx, init);
	if (ret)
		return ret;
	ret = peal_verbs_hand_over_qp(ctx, qp, udata);
	if (ret)
		peal_verbs_remove_qp(dev, qp);
	return ret;
}

/* ib_post_send() and ib_post_recv() are for kernel users only. Programs write to their rings. */
int peal_verbs_post_send(struct ib_qp *ib, const struct ib_send_wr *wr,
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

int peal_verbs_post_recv(struct ib_qp *ib, const struct ib_recv_wr *wr,
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

/* Is the destination GID a GID of this device? */
static bool peal_verbs_gid_is_local(struct ib_device *ib, const struct ib_qp_attr *attr)
{
	const struct ib_global_route *grh = rdma_ah_read_grh(&attr->ah_attr);
	const struct ib_gid_attr *found;

	found = rdma_find_gid_by_port(ib, &grh->dgid, IB_GID_TYPE_ROCE_UDP_ENCAP, 1, NULL);
	if (IS_ERR(found))
		return false;
	rdma_put_gid_attr(found);
	return true;
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
	struct peal_dev *dev = peal_dev(qp->ib.device);
	bool local = peal_verbs_gid_is_local(&dev->ib, attr);
	bool on_wire = peal_qp_is_on_wire(qp);
	int ret;

	lockdep_assert_held(&qp->control);
	if (qp->state == IB_QPS_INIT)
		on_wire = !local || !peal_options_allow(&dev->nic.options, PEAL_NL_SCOPE_DEVICE);
	*transport = qp->direct;
	if (!on_wire)
		return local ? 0 : -EOPNOTSUPP;
	ret = peal_wire_attach(qp, &dev->nic.port, peal_verbs_qp_tx_quota(dev, qp), attr, mask);
	*transport = qp->wire;
	return ret;
}

int peal_verbs_modify_qp(struct ib_qp *ib, struct ib_qp_attr *attr, int mask,
			 struct ib_udata *udata)
{
	struct peal_qp *qp = peal_qp(ib);
	struct peal_transport *transport = NULL;
	int ret;

	ret = peal_verbs_check_no_request(udata);
	if (ret)
		return ret;
	mutex_lock(&qp->control);
	ret = peal_qp_check(qp, attr, mask);
	if (!ret && mask & IB_QP_AV && udata)
		ret = peal_path_permit(&peal_dev(ib->device)->nic.port, &attr->ah_attr);
	if (!ret && mask & IB_QP_AV)
		ret = peal_verbs_choose_transport(qp, attr, mask, &transport);
	if (!ret)
		ret = peal_qp_modify(qp, attr, mask, transport);
	if (!ret && mask & IB_QP_STATE && attr->qp_state == IB_QPS_RESET)
		peal_post_forget(qp);
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
int peal_verbs_query_qp(struct ib_qp *ib, struct ib_qp_attr *attr, int mask,
			struct ib_qp_init_attr *init)
{
	peal_qp_query(peal_qp(ib), attr, init);
	if (!mask && !peal_verbs_may_know_psns(ib)) {
		attr->sq_psn = 0;
		attr->rq_psn = 0;
	}
	return 0;
}

int peal_verbs_destroy_qp(struct ib_qp *ib, struct ib_udata *udata)
{
	peal_verbs_remove_qp(peal_dev(ib->device), peal_qp(ib));
	return 0;
}

/* RoCE has no LIDs, so @lid is ignored. */
int peal_verbs_attach_mcast(struct ib_qp *ib, union ib_gid *gid, u16 lid)
{
	return peal_group_attach(&peal_dev(ib->device)->nic.groups, peal_qp(ib), gid);
}

int peal_verbs_detach_mcast(struct ib_qp *ib, union ib_gid *gid, u16 lid)
{
	return peal_group_detach(&peal_dev(ib->device)->nic.groups, peal_qp(ib), gid);
}
