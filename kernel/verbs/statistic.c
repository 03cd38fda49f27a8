// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See statistic.h. The core serialises all calls for one counter (rdma_counter.lock), except
 * dealloc, which is the last one.
 */
#include "base/epoch.h"
#include "queue/qp.h"
#include "verbs/dev.h"
#include "verbs/query.h"
#include "verbs/statistic.h"

/* Return: the set that belongs to @counter, or NULL. */
static struct peal_counters __percpu *peal_statistic_set(struct rdma_counter *counter)
{
	/* A number that is not in the tree gives NULL. */
	return (struct peal_counters __percpu __force *)
		xa_load(&peal_dev(counter->device)->statistics, counter->id);
}

/* The core asks for a new set by an id of 0. Return: 0, -ENOMEM or -EBUSY (no number is left). */
static int peal_statistic_new_set(struct rdma_counter *counter)
{
	struct peal_dev *dev = peal_dev(counter->device);
	struct peal_counters __percpu *set = alloc_percpu_gfp(struct peal_counters,
							      GFP_KERNEL_ACCOUNT);
	u32 id;
	int ret;

	if (!set)
		return -ENOMEM;
	ret = xa_alloc(&dev->statistics, &id, (void __force *)set, xa_limit_31b, GFP_KERNEL);
	if (ret)
		free_percpu(set);
	else
		counter->id = id;
	return ret;
}

int peal_statistic_bind_qp(struct rdma_counter *counter, PEAL_COUNTER_QP(struct ib_qp *ib))
{
	int ret = counter->id ? 0 : peal_statistic_new_set(counter);

	if (ret)
		return ret;
	peal_qp_set_counters(peal_qp(ib), peal_statistic_set(counter));
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
	void *set = xa_erase(&peal_dev(counter->device)->statistics, counter->id);

	peal_epoch_wait();
	free_percpu((struct peal_counters __percpu __force *)set);
	return 0;
}

struct rdma_hw_stats *peal_statistic_alloc_stats(struct rdma_counter *counter)
{
	return peal_query_alloc_stats(counter->device, counter->port);
}

/* Before the first queue pair is bound there is no set. */
int peal_statistic_update_stats(struct rdma_counter *counter)
{
	const struct peal_counters __percpu *set = peal_statistic_set(counter);
	int i;

	for (i = 0; set && i < PEAL_COUNTER_COUNT; i++)
		counter->stats->value[i] = peal_counters_sum(set, i);
	return 0;
}

#ifdef PEAL_HAS_COUNTER_INIT
/* The core's struct is all that there is. The core calls this without looking whether it exists. */
void peal_statistic_init(struct rdma_counter *counter)
{
}
#endif
