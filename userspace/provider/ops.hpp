// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The verbs of the provider: what context_ops of driver.cpp names, by file. Those that are not
 * noexcept may throw, so they are called through entry<>.
 */
#pragma once
#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

struct verbs_mr;

namespace peal {

/* device.cpp */
int device_query(ibv_context *context, const ibv_query_device_ex_input *input,
		 ibv_device_attr_ex *attr, std::size_t attr_size);
int port_query(ibv_context *context, std::uint8_t port, ibv_port_attr *attr);
/* @speed: in units of 100 Mb/s. */
int port_query_speed(ibv_context *context, std::uint32_t port, std::uint64_t *speed);
/* The clock of IBV_WC_EX_WITH_COMPLETION_TIMESTAMP. */
int rt_values_query(ibv_context *context, ibv_values_ex *values) noexcept;

/* pd.cpp. Import takes an object that the kernel has already, perhaps of another process. */
ibv_pd *pd_alloc(ibv_context *context);
int pd_dealloc(ibv_pd *pd);
ibv_pd *pd_import(ibv_context *context, std::uint32_t handle);
void pd_unimport(ibv_pd *pd) noexcept;
ibv_td *td_alloc(ibv_context *context, ibv_td_init_attr *attr);
int td_dealloc(ibv_td *td);
ibv_pd *parent_domain_alloc(ibv_context *context, ibv_parent_domain_init_attr *attr);
ibv_xrcd *xrcd_open(ibv_context *context, ibv_xrcd_init_attr *attr);
int xrcd_close(ibv_xrcd *xrcd);

/* mr.cpp */
ibv_mr *mr_register(ibv_pd *pd, void *addr, std::size_t length, std::uint64_t iova, int access);
/* A region that reads as zeros and forgets what is written to it. */
ibv_mr *mr_alloc_null(ibv_pd *pd);
/* A part of device memory. */
ibv_mr *mr_register_dm(ibv_pd *pd, ibv_dm *dm, std::uint64_t offset, std::size_t length,
		       unsigned access);
/* A part of a DMA buffer, which is open as `fd`. */
ibv_mr *mr_register_dmabuf(ibv_pd *pd, std::uint64_t offset, std::size_t length, std::uint64_t iova,
			   int fd, int access);
int mr_advise(ibv_pd *pd, ibv_advise_mr_advice advice, std::uint32_t flags, ibv_sge *list,
	      std::uint32_t num_sge);
int mr_reregister(verbs_mr *mr, int flags, ibv_pd *pd, void *addr, std::size_t length, int access);
int mr_deregister(verbs_mr *mr);
ibv_mr *mr_import(ibv_pd *pd, std::uint32_t handle);
void mr_unimport(ibv_mr *mr) noexcept;
ibv_mw *mw_alloc(ibv_pd *pd, ibv_mw_type type);
int mw_dealloc(ibv_mw *mw);
int mw_bind(ibv_qp *qp, ibv_mw *mw, ibv_mw_bind *bind) noexcept;
ibv_dm *dm_alloc(ibv_context *context, ibv_alloc_dm_attr *attr);
int dm_free(ibv_dm *dm);
ibv_dm *dm_import(ibv_context *context, std::uint32_t handle);
void dm_unimport(ibv_dm *dm) noexcept;

/* cq.cpp */
ibv_cq *cq_create(ibv_context *context, int cqe, ibv_comp_channel *channel, int comp_vector);
ibv_cq_ex *cq_create_ex(ibv_context *context, ibv_cq_init_attr_ex *attr);
int cq_destroy(ibv_cq *cq);
int cq_modify(ibv_cq *cq, ibv_modify_cq_attr *attr);
int cq_resize(ibv_cq *cq, int cqe);
int cq_req_notify(ibv_cq *cq, int solicited_only) noexcept;

/* poll.cpp */
int cq_poll(ibv_cq *cq, int count, ibv_wc *wc) noexcept;

/* srq.cpp */
ibv_srq *srq_create(ibv_pd *pd, ibv_srq_init_attr *init);
ibv_srq *srq_create_ex(ibv_context *context, ibv_srq_init_attr_ex *init);
int srq_number(ibv_srq *srq, std::uint32_t *number) noexcept;
int srq_modify(ibv_srq *srq, ibv_srq_attr *attr, int mask);
int srq_query(ibv_srq *srq, ibv_srq_attr *attr);
int srq_destroy(ibv_srq *srq);

/* qp.cpp */
ibv_qp *qp_create(ibv_pd *pd, ibv_qp_init_attr *attr);
ibv_qp *qp_create_ex(ibv_context *context, ibv_qp_init_attr_ex *attr);
ibv_qp *qp_open(ibv_context *context, ibv_qp_open_attr *attr);
int qp_modify(ibv_qp *qp, ibv_qp_attr *attr, int mask);
int qp_query(ibv_qp *qp, ibv_qp_attr *attr, int mask, ibv_qp_init_attr *init_attr);
int qp_destroy(ibv_qp *qp);

/* post.cpp */
int post_send(ibv_qp *qp, ibv_send_wr *wr, ibv_send_wr **bad) noexcept;
/* Posts the bind of a type 1 window, which a program cannot post with post_send. */
int post_send_bind(ibv_qp *qp, ibv_send_wr *wr, ibv_send_wr **bad) noexcept;
int post_recv(ibv_qp *qp, ibv_recv_wr *wr, ibv_recv_wr **bad) noexcept;
int post_srq_recv(ibv_srq *srq, ibv_recv_wr *wr, ibv_recv_wr **bad) noexcept;

/* ah.cpp */
ibv_ah *ah_create(ibv_pd *pd, ibv_ah_attr *attr);
int ah_destroy(ibv_ah *ah);
int mcast_attach(ibv_qp *qp, const ibv_gid *gid, std::uint16_t lid);
int mcast_detach(ibv_qp *qp, const ibv_gid *gid, std::uint16_t lid);

/* flow.cpp */
ibv_flow *flow_create(ibv_qp *qp, ibv_flow_attr *attr);
int flow_destroy(ibv_flow *flow);

} // namespace peal
