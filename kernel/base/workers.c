// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See workers.h.
 */
#include "base/workers.h"

static struct workqueue_struct *peal_workers;

int peal_workers_init(void)
{
	peal_workers = alloc_workqueue("peal", WQ_UNBOUND | WQ_MEM_RECLAIM | WQ_SYSFS, 0);
	return peal_workers ? 0 : -ENOMEM;
}

void peal_workers_exit(void)
{
	destroy_workqueue(peal_workers);
}

bool peal_workers_queue(struct work_struct *work)
{
	return queue_work(peal_workers, work);
}

bool peal_workers_queue_later(struct delayed_work *work, unsigned long delay)
{
	return queue_delayed_work(peal_workers, work, delay);
}
