/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The null region: memory that reads as zeros and forgets what is written to it.
 *
 * Owns: the two pages behind it. One is only read, and the other is only written, so that no
 * program sees what another one has written.
 * Does not know: protection domains. The key PEAL_NULL_LKEY works with all of them, as a local
 * key. It is no rkey.
 */
#ifndef PEAL_NULL_H
#define PEAL_NULL_H

#include <linux/types.h>

struct peal_mr;

struct peal_mr *peal_null_mr(bool write);

#endif
