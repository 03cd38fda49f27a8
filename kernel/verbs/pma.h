/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The performance management agent (IBTA 16.1): the port's counters as other RDMA devices show
 * them.
 *
 * Owns: the answers to performance management MADs. The core also asks for them to fill the
 * files of ports/1/counters in sysfs, which monitoring programs read.
 * Does not know: peal's own counters beyond their values (base/counters.h), other MAD classes.
 */
#ifndef PEAL_PMA_H
#define PEAL_PMA_H

#include <rdma/ib_verbs.h>

struct ib_mad;

int peal_pma_process_mad(struct ib_device *ib, int flags, u32 port, const struct ib_wc *wc,
			 const struct ib_grh *grh, const struct ib_mad *in, struct ib_mad *out,
			 size_t *out_bytes, u16 *out_pkey_index);

#endif
