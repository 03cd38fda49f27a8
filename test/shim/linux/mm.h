/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The allocator is in linux/slab.h. The size of the memory is the test's. */
#ifndef PEAL_SHIM_LINUX_MM_H
#define PEAL_SHIM_LINUX_MM_H

#include <linux/slab.h>
#include <linux/types.h>

/* Return: pages. */
extern unsigned long shim_pages;
static inline unsigned long totalram_pages(void)
{
	return shim_pages;
}

#endif
