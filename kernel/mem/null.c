// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See null.h.
 */
#include <linux/mm.h>

#include "mem/mr.h"
#include "mem/null.h"

static u8 peal_null_zeros[PAGE_SIZE] __aligned(PAGE_SIZE);	/* never written */
static u8 peal_null_sink[PAGE_SIZE] __aligned(PAGE_SIZE);	/* never read */

static struct peal_mr peal_null_source = { .null_page = peal_null_zeros };
static struct peal_mr peal_null_target = { .null_page = peal_null_sink };

/* Return: the region for one direction, without end. */
struct peal_mr *peal_null_mr(bool write)
{
	return write ? &peal_null_target : &peal_null_source;
}
