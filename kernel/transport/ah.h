/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Address handles, which name the destination of a datagram.
 *
 * Owns: creation and destruction of handles, and the path, the proof and the number of each. The
 * RDMA core frees its ib_ah as soon as destroy returns, also where nothing may sleep. The data path
 * therefore uses struct peal_address, which RCU frees. This is safe because a section of the epoch
 * is an RCU reader.
 * Does not know: what is sent there.
 */
#ifndef PEAL_AH_H
#define PEAL_AH_H

#include <linux/rcupdate.h>
#include <rdma/ib_verbs.h>

#include "base/table.h"
#include "net/path.h"
#include "transport/proof.h"

/*
 * The object that a WQE's ah_index names. An address that is found inside the epoch stays valid
 * until the end of the section.
 */
struct peal_address {
	const struct ib_pd *pd;
	u32 index;
	struct peal_path path;
	struct peal_proof proof;
	struct rcu_head rcu;
};

struct peal_ah {
	struct ib_ah ib;
	struct peal_table *table;
	struct peal_account *account;
	struct peal_address *address;
	struct rdma_ah_attr attr;	/* sgid_attr is NULL: no reference to the GID is held */
};

static inline struct peal_ah *peal_ah(struct ib_ah *ib)
{
	return container_of(ib, struct peal_ah, ib);
}

/**
 * peal_ah_init() - set up the path and give it a number
 * @account: the context's, or the kernel's
 * @tx_quota: the transmit quota of the queue pairs of its protection domain
 * @gfp: GFP_ATOMIC where nothing may sleep, because the connection manager calls from
 *	there
 *
 * Return: 0, -EINVAL (not a RoCEv2 address), -ENOMEM, -ENOSPC.
 */
int peal_ah_init(struct peal_ah *ah, struct peal_account *account, struct peal_port *port,
		 struct peal_tx_quota *tx_quota, const struct rdma_ah_attr *attr, gfp_t gfp);
/* Never sleeps, because the connection manager calls with interrupts off. */
void peal_ah_destroy(struct peal_ah *ah);
void peal_ah_query(const struct peal_ah *ah, struct rdma_ah_attr *attr);

#endif
