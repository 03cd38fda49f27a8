// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Flow rules of raw packet queue pairs.
 *
 * Owns: the translation of a rule to the kernel's encoding.
 * Does not know: which rules the kernel accepts.
 */
#pragma once
#include <infiniband/verbs.h>

namespace peal {

ibv_flow *flow_create(ibv_qp *qp, ibv_flow_attr *attr);
int flow_destroy(ibv_flow *flow);

} // namespace peal
