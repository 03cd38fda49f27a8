// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Extended queue pairs: ibv_create_qp_ex and ibv_wr_start .. ibv_wr_complete.
 *
 * Owns: the builders, and which of them a program may ask for.
 * Does not know: ibv_post_send (post).
 */
#pragma once
#include <infiniband/verbs.h>

namespace peal {

ibv_qp *qp_ex_create(ibv_context *context, ibv_qp_init_attr_ex *attr);

} // namespace peal
