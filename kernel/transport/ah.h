/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Address handles: where a datagram goes.
 *
 * Owns: the path of a handle, its number, and its life. The RDMA core frees its
 * ib_ah as soon as destroy returns, also where nothing may sleep; the data path
 * uses a structure of its own, which RCU frees: a guard section is a reader.
 * Does not know: what is sent there.
 */
#ifndef PEAL_AH_H
#define PEAL_AH_H

#include <linux/rcupdate.h>
#include <rdma/ib_verbs.h>

#include "base/table.h"
#include "net/path.h"

/* What a WQE's ah_index names. Found inside the guard it stays until its end. */
struct peal_address {
	const struct ib_pd *pd;
	u32 index;
	struct peal_path path;
	struct rcu_head rcu;
};

struct peal_ah {
	struct ib_ah ib;
	struct peal_table *table;
	struct peal_account *account;
	struct peal_address *address;
	struct rdma_ah_attr attr;	/* without the core's reference to the GID */
};

static inline struct peal_ah *peal_ah(struct ib_ah *ib)
{
	return container_of(ib, struct peal_ah, ib);
}

/**
 * peal_ah_init() - resolve the path and give it a number
 * @account: the context's, or the kernel's
 * @room: that of the queue pairs of its protection domain
 * @gfp: GFP_ATOMIC from where nothing may sleep, as the connection manager calls
 *
 * Return: 0, -EINVAL (not a RoCEv2 address), -ENOMEM, -ENOSPC.
 */
int peal_ah_init(struct peal_ah *ah, struct peal_account *account, struct peal_port *port,
		 struct peal_room *room, const struct rdma_ah_attr *attr, gfp_t gfp);
/* Never sleeps. */
void peal_ah_destroy(struct peal_ah *ah);
void peal_ah_query(const struct peal_ah *ah, struct rdma_ah_attr *attr);

#endif
