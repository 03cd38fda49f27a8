/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Copying payload. Every copy of payload goes through this function.
 *
 * Owns: the order in which bytes become visible. Some programs poll the last byte of a message
 * (ib_write_lat does), so the last eight bytes are stored by one plain store after all others.
 * The others are stored in ascending order, except within one string instruction.
 * Does not know: where the bytes come from or go to. Programs may change source and destination
 * during the copy, and the two may overlap. The result is then undefined, but nothing outside
 * the destination is written.
 */
#ifndef PEAL_COPY_H
#define PEAL_COPY_H

#include <linux/types.h>

void peal_copy(void *dst, const void *src, size_t bytes);

#endif
