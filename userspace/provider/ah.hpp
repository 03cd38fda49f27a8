// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Address handles, and the attachment to multicast groups, for datagrams.
 *
 * Owns: creation and destruction of a handle, and the index of the handle in a WQE.
 * Does not know: how a datagram is posted (post, qp_ex).
 */
#pragma once
#include <infiniband/verbs.h>

#include <cstdint>

#include "pd.hpp"

namespace peal {

struct Ah : ibv_ah {
	DomainHold domain;
	std::uint32_t index = 0; /* peal_create_ah_resp.ah_index */

	explicit Ah(ibv_pd *owner) noexcept : ibv_ah{}, domain(owner) {}
	static const Ah &of(const ibv_ah *ah) noexcept { return *static_cast<const Ah *>(ah); }
};

ibv_ah *ah_create(ibv_pd *pd, ibv_ah_attr *attr);
int ah_destroy(ibv_ah *ah);

int mcast_attach(ibv_qp *qp, const ibv_gid *gid, std::uint16_t lid);
int mcast_detach(ibv_qp *qp, const ibv_gid *gid, std::uint16_t lid);

} // namespace peal
