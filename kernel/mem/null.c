// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See null.h.
 */
#include <linux/minmax.h>
#include <linux/mm.h>

#include "mem/null.h"

static u8 peal_null_zeros[PAGE_SIZE] __aligned(PAGE_SIZE);	/* never written */
static u8 peal_null_forgotten[PAGE_SIZE] __aligned(PAGE_SIZE);	/* never read */

/* Return: the address of any byte. Limits *bytes to the contiguous bytes. */
void *peal_null_at(enum peal_null which, u64 *bytes)
{
	*bytes = min_t(u64, *bytes, PAGE_SIZE);
	return which == PEAL_NULL_SINK ? peal_null_forgotten : peal_null_zeros;
}
