// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See deliver.h. No queue pair takes packets yet.
 */
#include "../dev.h"
#include "deliver.h"

bool peal_deliver_knows(struct peal_dev *dev, u32 qpn)
{
	return peal_table_qp(&dev->table, qpn);
}

void peal_deliver(struct peal_dev *dev, struct peal_datagram *dg)
{
	peal_count_drop(&dev->table, PEAL_DROP_qpn);
	kfree_skb(dg->skb);
}
