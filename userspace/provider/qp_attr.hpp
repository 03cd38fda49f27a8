// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Queue pair attributes, between verbs.h and the kernel's encoding.
 *
 * Owns: field-by-field copies in both directions.
 * Does not know: the meaning of the attributes. The kernel checks them.
 */
#pragma once
#include <infiniband/verbs.h>
#include <rdma/ib_user_verbs.h>

namespace peal {

ib_uverbs_create_qp create_qp_request(const ibv_qp_init_attr_ex &attr, const ibv_qp *qp) noexcept;
ibv_qp_cap granted_cap(const ib_uverbs_create_qp_resp &response) noexcept;
ib_uverbs_modify_qp modify_qp_request(const ibv_qp &qp, const ibv_qp_attr &attr, int mask) noexcept;
void fill_qp_attr(const ib_uverbs_query_qp_resp &response, ibv_qp_attr &attr) noexcept;
void fill_qp_init_attr(const ib_uverbs_query_qp_resp &response, const ibv_qp &qp,
		       ibv_qp_init_attr &attr) noexcept;

} // namespace peal
