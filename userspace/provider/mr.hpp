// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Memory regions.
 *
 * Owns: creation and destruction of a region.
 * Does not know: windows (mw), queues.
 */
#pragma once
#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

struct verbs_mr;

namespace peal {

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
/* Do addresses in it count from 0? */
bool mr_is_zero_based(const ibv_mr &mr) noexcept;
/* A region that the kernel has already, perhaps of another process. */
ibv_mr *mr_import(ibv_pd *pd, std::uint32_t handle);
void mr_unimport(ibv_mr *mr) noexcept;

} // namespace peal
