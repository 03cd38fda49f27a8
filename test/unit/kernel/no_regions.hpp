// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * For benchmarks that copy no bytes of a memory region.
 */
#pragma once
#include <cstdlib>

#include "kernel_parts.hpp"

/* Replace kernel/object/mr.c. No bytes of a region are copied. */
extern "C" {
enum peal_reason peal_mr_local(struct peal_table *, const struct ib_pd *, const struct peal_sge *,
			       enum peal_key_use, struct peal_target *)
{
	std::abort();
}
void peal_mr_end_use(struct peal_mr *)
{
	std::abort();
}
void *peal_target_kernel_at(const struct peal_target *, u64, u64 *)
{
	std::abort();
}
enum peal_odp_state peal_target_look(const struct peal_target *, u64, u64, bool)
{
	std::abort();
}
}
