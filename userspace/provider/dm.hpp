// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Device memory.
 *
 * Owns: its mapping, and the copies between it and the program's memory.
 * Does not know: regions of it (mr).
 */
#pragma once
#include <infiniband/verbs.h>

#include <cstdint>

namespace peal {

ibv_dm *dm_alloc(ibv_context *context, ibv_alloc_dm_attr *attr);
int dm_free(ibv_dm *dm);
/* Device memory that the kernel has already, perhaps of another process. */
ibv_dm *dm_import(ibv_context *context, std::uint32_t handle);
void dm_unimport(ibv_dm *dm) noexcept;

} // namespace peal
