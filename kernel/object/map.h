/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Memory that the kernel and one program share: rings and doorbells.
 *
 * Owns: the mmap offset of an object's shared pages. The object gives the pages up when
 * peal_map_free() was called and no mmap call is running. A mapping that outlives the object keeps
 * them (kick_file.h). The program can then still use them, but the kernel no longer reads them.
 * Does not know: the contents of the memory.
 */
#ifndef PEAL_MAP_H
#define PEAL_MAP_H

#include <rdma/ib_verbs.h>

#include "base/quota.h"

struct peal_map;

struct peal_map *peal_map_alloc(struct ib_ucontext *uctx, struct peal_account *account,
				size_t bytes);
void peal_map_free(struct peal_map *map);
void *peal_map_address(const struct peal_map *map);
size_t peal_map_bytes(const struct peal_map *map);
u64 peal_map_offset(const struct peal_map *map);

int peal_map_mmap(struct ib_ucontext *uctx, struct vm_area_struct *vma);
void peal_map_release(struct rdma_user_mmap_entry *entry);

#endif
