/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Options of a device that an administrator may change while it runs.
 *
 * Owns: the values and their limits. Written under the netlink family's lock,
 * read anywhere: each is one word, and a stale one does no harm.
 * Does not know: netlink.
 */
#ifndef PEAL_OPTIONS_H
#define PEAL_OPTIONS_H

#include <linux/types.h>
#include <rdma/ib_verbs.h>

/* Real targets refuse connections that ask for a greater depth than they have. */
#define PEAL_DEFAULT_RD_ATOMIC	16

struct peal_options {
	bool direct;		/* the direct carrier may be used */
	u32 max_rd_atomic;	/* advertised, either way, per queue pair */
};

void peal_options_init(struct peal_options *options);
void peal_options_set_direct(struct peal_options *options, bool on);
void peal_options_set_max_rd_atomic(struct peal_options *options, struct ib_device_attr *attrs,
				    u32 max);

static inline bool peal_options_direct(const struct peal_options *options)
{
	return READ_ONCE(options->direct);
}

static inline u32 peal_options_max_rd_atomic(const struct peal_options *options)
{
	return READ_ONCE(options->max_rd_atomic);
}

#endif
