// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See ah.h.
 */
#include <linux/jhash.h>
#include <linux/slab.h>

#include "net/port.h"
#include "transport/ah.h"

static int peal_ah_check(const struct rdma_ah_attr *attr)
{
	if (!(rdma_ah_get_ah_flags(attr) & IB_AH_GRH) || rdma_ah_get_port_num(attr) != 1)
		return -EINVAL;
	return 0;
}

/*
 * Return: the value that chooses the UDP source port if the flow label is 0. All packets to one
 * destination have the same one.
 */
static u32 peal_ah_hash(const struct rdma_ah_attr *attr)
{
	return jhash(&rdma_ah_read_grh(attr)->dgid, sizeof(union ib_gid), 0);
}

int peal_ah_init(struct peal_ah *ah, struct peal_account *account, struct peal_port *port,
		 struct peal_tx_quota *tx_quota, const struct rdma_ah_attr *attr, gfp_t gfp)
{
	struct peal_address *address;
	int ret = peal_ah_check(attr);

	if (ret)
		return ret;
	address = kzalloc(sizeof(*address), gfp);
	if (!address)
		return -ENOMEM;
	address->pd = ah->ib.pd;
	peal_proof_init(&address->proof);
	ret = peal_path_init(&address->path, port, tx_quota, attr, peal_ah_hash(attr));
	if (ret)
		goto free;
	ret = peal_table_add_address(port->table, account, address, &address->index, gfp);
	if (ret)
		goto release;
	ah->table = port->table;
	ah->account = account;
	ah->address = address;
	ah->attr = *attr;
	ah->attr.grh.sgid_attr = NULL;
	return 0;

release:
	peal_path_release(&address->path);
free:
	kfree(address);
	return ret;
}

static void peal_ah_free(struct rcu_head *rcu)
{
	struct peal_address *address = container_of(rcu, struct peal_address, rcu);

	peal_path_release(&address->path);
	kfree(address);
}

void peal_ah_destroy(struct peal_ah *ah)
{
	peal_table_remove_address(ah->table, ah->account, ah->address->index);
	call_rcu(&ah->address->rcu, peal_ah_free);
}

void peal_ah_query(const struct peal_ah *ah, struct rdma_ah_attr *attr)
{
	*attr = ah->attr;
}
