/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Allocations, which a test counts and makes fail. */
#ifndef PEAL_SHIM_LINUX_SLAB_H
#define PEAL_SHIM_LINUX_SLAB_H

#include <linux/errno.h>
#include <linux/types.h>

#define GFP_KERNEL		0
#define GFP_KERNEL_ACCOUNT	0

extern bool shim_no_memory;
extern int shim_fail_at;		/* the how manyth allocation from now fails; 0: none */
extern long shim_allocations;	/* not freed yet */

void *shim_calloc(size_t count, size_t size);
void shim_free(const void *memory);

#define kzalloc(size, gfp)		shim_calloc(1, size)
#define kfree(memory)			shim_free(memory)
#define kvcalloc(count, size, gfp)	shim_calloc(count, size)
#define kvfree(memory)			shim_free(memory)

#endif
