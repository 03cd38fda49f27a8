// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * XRC domains. Processes share one through a file.
 *
 * Owns: the handle.
 * Does not know: the queues of the domain.
 */
#pragma once
#include <infiniband/verbs.h>

#include <cstdint>

namespace peal {

struct Xrcd : ibv_xrcd {
	std::uint32_t handle = 0;

	static Xrcd &of(ibv_xrcd *xrcd) noexcept { return *static_cast<Xrcd *>(xrcd); }
};

ibv_xrcd *xrcd_open(ibv_context *context, ibv_xrcd_init_attr *attr);
int xrcd_close(ibv_xrcd *xrcd);

} // namespace peal
