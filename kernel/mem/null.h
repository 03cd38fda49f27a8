/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The memory of the null region, which reads as zeros and forgets what is written to it.
 *
 * Owns: the two pages behind it. One is only read, and the other is only written, so that no
 * program sees what another one has written.
 * Does not know: keys, regions.
 */
#ifndef PEAL_NULL_H
#define PEAL_NULL_H

#include <linux/types.h>

enum peal_null {
	PEAL_NULL_NONE = 0,
	PEAL_NULL_SOURCE,	/* reads as zeros */
	PEAL_NULL_SINK,		/* forgets what is written */
};

void *peal_null_at(enum peal_null which, u64 *bytes);

#endif
