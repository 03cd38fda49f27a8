/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Types only: nothing that is compiled here hashes. */
#ifndef PEAL_KSHIM_LINUX_SIPHASH_H
#define PEAL_KSHIM_LINUX_SIPHASH_H

#include <linux/types.h>

typedef struct {
	u64 key[2];
} siphash_key_t;

#endif
