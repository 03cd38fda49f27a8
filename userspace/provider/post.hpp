// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Posting: ibv_post_send and ibv_post_recv.
 *
 * Owns: the checks that a work request passes before it becomes a WQE, which
 * opcodes take what, and the doorbell after a post.
 * Does not know: what the kernel checks again (everything: it trusts no WQE).
 */
#pragma once
#include <infiniband/verbs.h>

#include <cstdint>

#include "qp.hpp"

namespace peal {

/* What follows the header of a WQE, and what the header carries. */
enum class WrShape : std::uint8_t { NONE, SEND, RDMA, ATOMIC, BIND, INVALIDATE };

struct WrRow {
	peal_opcode opcode;
	WrShape shape;
	bool inline_allowed;
	bool immediate; /* imm_data or invalidate_rkey travels */
	bool solicited; /* the flag means something */
};

/* The row of an opcode; shape NONE if a program may not post it. */
const WrRow &wr_row(unsigned int ibv_wr_opcode) noexcept;

/* Send flags that may be combined with any opcode; IBV_SEND_INLINE comes apart. */
constexpr unsigned int PLAIN_SEND_FLAGS = IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED;

/* How many scatter-gather entries a WQE of this row takes. */
std::uint32_t sge_limit(const Qp &qp, const WrRow &row) noexcept;

std::uint8_t wqe_flags(const Qp &qp, const WrRow &row, unsigned int send_flags) noexcept;

/* May this queue pair be posted to, going by the state that libibverbs keeps? */
int send_state_error(const Qp &qp) noexcept;

peal_bind_seg bind_segment(const ibv_mw_bind_info &info, std::uint32_t new_rkey) noexcept;

int post_send(ibv_qp *qp, ibv_send_wr *wr, ibv_send_wr **bad) noexcept;
int post_recv(ibv_qp *qp, ibv_recv_wr *wr, ibv_recv_wr **bad) noexcept;

/* As post_send, for the bind of a type 1 window, which a program cannot post. */
int post_send_bind(ibv_qp *qp, ibv_send_wr *wr, ibv_send_wr **bad) noexcept;

} // namespace peal
