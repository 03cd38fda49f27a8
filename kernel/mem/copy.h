/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The one place that moves payload.
 *
 * Owns: the order in which bytes become visible. Programs poll the last byte of
 * a message (ib_write_lat does), so the last eight are stored with one plain
 * store after all others, which go in ascending order but for what a string
 * instruction does inside itself.
 * Does not know: where the bytes come from or go to. Source and destination may
 * change under our hands, and may overlap: the result is then whatever it is,
 * but never outside the destination.
 */
#ifndef PEAL_COPY_H
#define PEAL_COPY_H

#include <linux/types.h>

void peal_copy(void *dst, const void *src, size_t bytes);

#endif
