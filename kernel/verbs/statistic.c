// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See statistic.h. The core serialises all calls for one counter (rdma_counter.lock), except
 * dealloc, which is the last one.
 */
#include <linux/slab.h>
#include <linux/xarray.h>

#include "base/epoch.h"
#include "queue/qp.h"
#include "verbs/dev.h"
#include "verbs/query.h"
#include "verbs/statistic.h"

/* A set of counters. The per-CPU memory cannot be in the tree itself. */
struct peal_statistic {
	struct peal_counters __percpu *counters;
};

/* Return: the set that belongs to @counter, or NULL. */
static struct peal_statistic *peal_statistic_find(struct rdma_counter *counter)
{
	return xa_load(&peal_dev(counter->device)->statistics, counter->id);
}

static void peal_statistic_free(struct peal_statistic *statistic)
{
	free_percpu(statistic->counters);
	kfree(statistic);
}

/* Return: 0, -ENOMEM or -EBUSY (no number is left). */
static int peal_statistic_number(struct rdma_counter *counter, struct peal_statistic *statistic)
{
	u32 id;
	int ret = xa_alloc(&peal_dev(counter->device)->statistics, &id, statistic, xa_limit_31b,
			   GFP_KERNEL);

	if (!ret)
		counter->id = id;
	return ret;
}

/* The core asks for a new set by an id of 0. Return: as peal_statistic_number(). */
static int peal_statistic_new(struct rdma_counter *counter)
{
	struct peal_statistic *statistic = kzalloc(sizeof(*statistic), GFP_KERNEL_ACCOUNT);
	int ret;

	if (!statistic)
		return -ENOMEM;
	statistic->counters = alloc_percpu_gfp(struct peal_counters, GFP_KERNEL_ACCOUNT);
	ret = statistic->counters ? peal_statistic_number(counter, statistic) : -ENOMEM;
	if (ret)
		peal_statistic_free(statistic);
	return ret;
}

int peal_statistic_bind_qp(struct rdma_counter *counter, PEAL_COUNTER_QP(struct ib_qp *ib))
{
	int ret = counter->id ? 0 : peal_statistic_new(counter);

	if (ret)
		return ret;
	peal_qp_set_counters(peal_qp(ib), peal_statistic_find(counter)->counters);
	ib->counter = counter;	/* the core leaves this to the driver */
	return 0;
}

int peal_statistic_unbind_qp(PEAL_COUNTER_QP(struct ib_qp *ib))
{
	struct peal_qp *qp = peal_qp(ib);

	peal_qp_set_counters(qp, qp->table->counters);
	ib->counter = NULL;
	return 0;
}

/* No queue pair is bound any more, but another CPU may still count. */
int peal_statistic_dealloc(struct rdma_counter *counter)
{
	struct peal_statistic *statistic = xa_erase(&peal_dev(counter->device)->statistics,
						    counter->id);

	if (!statistic)
		return 0;
	peal_epoch_wait();
	peal_statistic_free(statistic);
	return 0;
}

struct rdma_hw_stats *peal_statistic_alloc_stats(struct rdma_counter *counter)
{
	return peal_query_alloc_stats(counter->device, counter->port);
}

/*
 * Before the first queue pair is bound there is no set. Optional counters are enabled for a port,
 * so that its state may have changed since the last call.
 */
int peal_statistic_update_stats(struct rdma_counter *counter)
{
	const struct peal_statistic *statistic = peal_statistic_find(counter);
	int i;

	peal_query_hide_stats(&peal_dev(counter->device)->nic.table, counter->stats);
	for (i = 0; statistic && i < PEAL_COUNTER_COUNT; i++)
		counter->stats->value[i] = peal_counters_sum(statistic->counters, i);
	return 0;
}

#ifdef PEAL_HAS_COUNTER_INIT
/* The core's struct is all that there is. The core calls this without looking whether it exists. */
void peal_statistic_init(struct rdma_counter *counter)
{
}
#endif
