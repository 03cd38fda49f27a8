// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See extents.h. The caller walks the same runs twice. It measures each run, allocates the table,
 * and then fills each run in.
 */
#include <linux/bitops.h>
#include <linux/kernel.h>
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/slab.h>

#include "mem/extents.h"

/* A granule of 2^62 bytes holds any region, and a 64-bit shift by 62 is defined. */
#define PEAL_EXTENTS_WHOLE	62

/**
 * peal_extents_measure() - first pass: note the length and the end of one run
 * @x: zeroed before the first call
 * @base: kernel address of the run; page aligned
 * @bytes: length of the run; a multiple of the page size
 */
void peal_extents_measure(struct peal_extents *x, void *base, u64 bytes)
{
	if (x->bytes && base != x->run_end) {
		if (!x->split)
			x->first = x->bytes;
		x->spans |= x->bytes - x->first;
		x->split = true;
	}
	x->run_end = base + bytes;
	x->bytes += bytes;
}

/*
 * Two runs have one boundary, which any granule size fits. Use the smallest size that gives each
 * run one granule.
 */
static u32 peal_extents_shift(const struct peal_extents *x)
{
	if (!x->split)
		return PEAL_EXTENTS_WHOLE;
	if (x->spans)
		return __ffs64(x->spans);
	return ilog2(roundup_pow_of_two(max(x->first, x->bytes - x->first)));
}

/**
 * peal_extents_alloc() - between the passes: choose the granule size and allocate the table
 *
 * Return: 0 or -ENOMEM.
 */
int peal_extents_alloc(struct peal_extents *x)
{
	u64 size;

	x->shift = peal_extents_shift(x);
	size = 1ULL << x->shift;
	x->phase = x->split ? (size - (x->first & (size - 1))) & (size - 1) : 0;
	x->count = (x->phase + x->bytes + size - 1) >> x->shift;
	if (x->count == 1) {
		x->granule = &x->single;
		return 0;
	}
	x->granule = kvcalloc(x->count, sizeof(*x->granule),
			      GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	return x->granule ? 0 : -ENOMEM;
}

/* Second pass: fill in the same runs in the same order as in the first pass. */
void peal_extents_fill(struct peal_extents *x, void *base, u64 bytes)
{
	u64 begin = x->phase + x->filled;
	u32 last = (begin + bytes - 1) >> x->shift;
	u32 g;

	for (g = begin >> x->shift; g <= last; g++)
		x->granule[g] = base + (((u64)g << x->shift) - begin);
	x->filled += bytes;
}

void peal_extents_free(struct peal_extents *x)
{
	if (x->granule != &x->single)
		kvfree(x->granule);
	x->granule = NULL;
}

/* @to is free or zeroed, and not in use. @from is free afterwards. */
void peal_extents_move(struct peal_extents *to, struct peal_extents *from)
{
	*to = *from;
	if (from->granule == &from->single)
		to->granule = &to->single;
	from->granule = NULL;
}
