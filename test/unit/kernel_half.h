/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The kernel's half of the rings, callable from C++.
 *
 * Owns: only the wrapping. The code behind it is kernel/object/wqe.h itself, which is C.
 * Does not know: doorbells (fake_engine.hpp).
 */
#ifndef PEAL_TEST_KERNEL_HALF_H
#define PEAL_TEST_KERNEL_HALF_H

#include <rdma/peal-abi.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct kernel_ring;
struct kernel_cq;

struct kernel_ring *kernel_ring_new(struct peal_ring_ctl *ctl, void *slots, uint32_t entries,
				    uint32_t stride);
void kernel_ring_delete(struct kernel_ring *ring);
int kernel_ring_pending(const struct kernel_ring *ring);
const void *kernel_ring_slot(const struct kernel_ring *ring);
uint32_t kernel_ring_next(const struct kernel_ring *ring);
void kernel_ring_take(struct kernel_ring *ring);
void kernel_ring_discard(struct kernel_ring *ring);
void kernel_ring_want_kick(struct kernel_ring *ring, bool want);

struct kernel_cq *kernel_cq_new(void *base, uint32_t entries);
void kernel_cq_delete(struct kernel_cq *cq);
bool kernel_cq_full(struct kernel_cq *cq);
void kernel_cq_push(struct kernel_cq *cq, const struct peal_cqe *cqe);
/* Goes on with a ring of `entries` CQEs at `cqe`, as a resize does. */
void kernel_cq_resize(struct kernel_cq *cq, struct peal_cqe *cqe, uint32_t entries);
/* Return: the arm value whose event is due, or 0. The event then counts as raised. */
uint32_t kernel_cq_fire(struct kernel_cq *cq);

#ifdef __cplusplus
}
#endif

#endif
