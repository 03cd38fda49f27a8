/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The verbs: the RDMA core's calls, passed on to the objects.
 *
 * Owns: the operations table, and all handling of driver data (udata), which is sizes,
 * unknown bits and responses.
 * Does not know: how the objects work.
 */
#ifndef PEAL_VERBS_H
#define PEAL_VERBS_H

#include <rdma/ib_verbs.h>
#include <rdma/uverbs_ioctl.h>

struct peal_account;
struct peal_context;
struct peal_dev;

extern const struct ib_device_ops peal_verbs_ops;
extern const struct uapi_definition peal_verbs_attributes[];
extern const struct uapi_definition peal_verbs_srq_attributes[];
extern const struct uapi_definition peal_verbs_dm_attributes[];

int peal_verbs_check_request(struct ib_udata *udata);
int peal_verbs_check_no_request(struct ib_udata *udata);
int peal_verbs_respond(struct ib_udata *udata, void *resp, size_t bytes);
struct peal_context *peal_verbs_context(struct ib_udata *udata);
struct peal_account *peal_verbs_account(struct peal_dev *dev, struct ib_udata *udata);

int peal_verbs_create_qp(struct ib_qp *ib, struct ib_qp_init_attr *init, struct ib_udata *udata);
int peal_verbs_modify_qp(struct ib_qp *ib, struct ib_qp_attr *attr, int mask,
			 struct ib_udata *udata);
int peal_verbs_query_qp(struct ib_qp *ib, struct ib_qp_attr *attr, int mask,
			struct ib_qp_init_attr *init);
int peal_verbs_post_send(struct ib_qp *ib, const struct ib_send_wr *wr,
			 const struct ib_send_wr **bad);
int peal_verbs_post_recv(struct ib_qp *ib, const struct ib_recv_wr *wr,
			 const struct ib_recv_wr **bad);
int peal_verbs_destroy_qp(struct ib_qp *ib, struct ib_udata *udata);

int peal_verbs_create_srq(struct ib_srq *ib, struct ib_srq_init_attr *init,
			  struct ib_udata *udata);
int peal_verbs_alloc_xrcd(struct ib_xrcd *ib, struct ib_udata *udata);
int peal_verbs_dealloc_xrcd(struct ib_xrcd *ib, struct ib_udata *udata);
int peal_verbs_modify_srq(struct ib_srq *ib, struct ib_srq_attr *attr,
			  enum ib_srq_attr_mask mask, struct ib_udata *udata);
int peal_verbs_query_srq(struct ib_srq *ib, struct ib_srq_attr *attr);
int peal_verbs_post_srq_recv(struct ib_srq *ib, const struct ib_recv_wr *wr,
			     const struct ib_recv_wr **bad);
int peal_verbs_destroy_srq(struct ib_srq *ib, struct ib_udata *udata);

struct ib_dm *peal_verbs_alloc_dm(struct ib_device *ib, struct ib_ucontext *uctx,
				  struct ib_dm_alloc_attr *attr, struct uverbs_attr_bundle *attrs);
int peal_verbs_dealloc_dm(struct ib_dm *ib, struct uverbs_attr_bundle *attrs);
struct ib_mr *peal_verbs_reg_dm_mr(struct ib_pd *pd, struct ib_dm *ib,
				   struct ib_dm_mr_attr *attr, struct uverbs_attr_bundle *attrs);

int peal_verbs_attach_mcast(struct ib_qp *ib, union ib_gid *gid, u16 lid);
int peal_verbs_detach_mcast(struct ib_qp *ib, union ib_gid *gid, u16 lid);

#endif
