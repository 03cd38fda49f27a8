// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Posting: ibv_post_send, ibv_post_recv and ibv_post_srq_recv.
 *
 * Owns: the way from a work request to a published WQE, and the doorbell.
 * Does not know: ibv_wr_* (qp_ex), completions.
 */
#pragma once
#include <infiniband/verbs.h>

namespace peal {

int post_send(ibv_qp *qp, ibv_send_wr *wr, ibv_send_wr **bad) noexcept;
int post_recv(ibv_qp *qp, ibv_recv_wr *wr, ibv_recv_wr **bad) noexcept;
int post_srq_recv(ibv_srq *srq, ibv_recv_wr *wr, ibv_recv_wr **bad) noexcept;

/* Posts the bind of a type 1 window, which a program cannot post with post_send. */
int post_send_bind(ibv_qp *qp, ibv_send_wr *wr, ibv_send_wr **bad) noexcept;

} // namespace peal
