// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Extended completion queues: ibv_create_cq_ex and the ibv_start_poll family.
 *
 * Owns: which fields a program may ask for, and the accessors.
 * Does not know: how completions are taken (poll).
 */
#pragma once
#include <infiniband/verbs.h>

namespace peal {

ibv_cq_ex *cq_ex_create(ibv_context *context, ibv_cq_init_attr_ex *attr);

} // namespace peal
