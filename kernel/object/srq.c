// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include <linux/log2.h>

#include "base/epoch.h"
#include "object/dm.h"
#include "object/srq.h"

/* Memory layout of the mapping. The stride and the offsets are in bytes. */
struct peal_srq_layout {
	u32 entries, stride;
	size_t ring_offset, slots_offset, bytes;
};

/* The ring begins at @ring_offset. */
static void peal_srq_lay_out(u32 max_wr, u32 max_sge, size_t ring_offset,
			     struct peal_srq_layout *layout)
{
	size_t ring_bytes;

	layout->entries = roundup_pow_of_two(max_wr);
	layout->stride = ALIGN(sizeof(struct peal_recv_wqe) + max_sge * sizeof(struct peal_sge),
			       PEAL_WQE_UNIT);
	layout->ring_offset = ring_offset;
	ring_bytes = layout->entries * sizeof(u32);
	layout->slots_offset = ALIGN(layout->ring_offset + ring_bytes, PEAL_CACHE_LINE);
	layout->bytes = layout->slots_offset + (size_t)layout->entries * layout->stride;
}

static void peal_srq_call(struct peal_events *events, enum ib_event_type type)
{
	struct peal_srq *srq = container_of(events, struct peal_srq, events);
	struct ib_event event = {
		.device = srq->ib.device, .element.srq = &srq->ib, .event = type,
	};

	if (srq->ib.event_handler)
		srq->ib.event_handler(&event, srq->ib.srq_context);
}

/**
 * peal_srq_init() - give a shared receive queue its ring
 * @account: the context's account, or the kernel's
 * @uctx: the program's context, or NULL for a kernel user's queue
 * @limits: what the caller may have
 * @attr: the requested values, updated to the granted values. The limit is not read, because a
 *	queue without WQEs is below any limit
 *
 * Return: 0, -EINVAL (beyond the limits), -ENOMEM or -ENOSPC (the account's limit is reached).
 */
int peal_srq_init(struct peal_srq *srq, struct peal_account *account, struct ib_ucontext *uctx,
		  const struct peal_limits *limits, struct ib_srq_attr *attr)
{
	struct peal_wqe_limits wqe_limits = { .max_sge = attr->max_sge };
	struct peal_srq_layout layout;
	void *base;
	int ret;

	if (!attr->max_wr || attr->max_wr > peal_limits_most(limits, PEAL_LIMIT_WR) ||
	    attr->max_sge > peal_limits_most(limits, PEAL_LIMIT_SGE))
		return -EINVAL;
	ret = peal_quota_take(account, PEAL_QUOTA_SRQ);
	if (ret)
		return ret;
	peal_srq_lay_out(attr->max_wr, attr->max_sge, sizeof(struct peal_ring_ctl), &layout);
	srq->map = peal_map_alloc(uctx, account, layout.bytes);
	if (IS_ERR(srq->map)) {
		peal_quota_give(account, PEAL_QUOTA_SRQ);
		return PTR_ERR(srq->map);
	}
	srq->account = account;
	mutex_init(&srq->resizing);
	peal_events_init(&srq->events, peal_srq_call);
	base = peal_map_address(srq->map);
	peal_srq_ring_init(&srq->ring, base, base + layout.ring_offset,
			   base + layout.slots_offset, layout.entries, layout.stride, &wqe_limits);
	peal_srq_query(srq, attr);
	return 0;
}

/* The core has destroyed the queue pairs. The caller has waited for the epoch. */
void peal_srq_free(struct peal_srq *srq)
{
	peal_events_end(&srq->events);
	peal_map_free(srq->prepared);
	peal_map_free(srq->resized);
	peal_map_free(srq->map);
	peal_quota_give(srq->account, PEAL_QUOTA_SRQ);
}

/* Call before others can find the queue. */
void peal_srq_set_work(struct peal_srq *srq, work_func_t work)
{
	INIT_WORK(&srq->work, work);
}

void peal_srq_describe(const struct peal_srq *srq, struct peal_create_srq_resp *resp)
{
	void *base = peal_map_address(srq->map);

	*resp = (struct peal_create_srq_resp){
		.srq_index = srq->index,
		.map_offset = peal_map_offset(srq->map),
		.map_bytes = peal_map_bytes(srq->map),
		.ring_offset = (void *)srq->ring.numbers - base,
		.slots_offset = srq->ring.ring.slots - base,
		.entries = srq->ring.ring.mask + 1,
		.stride = srq->ring.ring.stride,
	};
}

/**
 * peal_srq_modify() - arm or disarm the limit
 *
 * If there are fewer WQEs already, the event is raised here.
 *
 * Return: 0, -EINVAL (a limit beyond the ring, or an unknown attribute), -EOPNOTSUPP (resizing, for
 * which programs use peal_srq_resize()).
 */
int peal_srq_modify(struct peal_srq *srq, const struct ib_srq_attr *attr, int mask)
{
	if (mask & ~(IB_SRQ_MAX_WR | IB_SRQ_LIMIT))
		return -EINVAL;
	if (mask & IB_SRQ_MAX_WR)
		return -EOPNOTSUPP;
	if (!(mask & IB_SRQ_LIMIT))
		return 0;
	if (attr->srq_limit > peal_srq_ring_entries(&srq->ring))
		return -EINVAL;
	peal_srq_ring_arm(&srq->ring, attr->srq_limit);
	peal_epoch_enter();
	peal_srq_notify(srq);
	peal_epoch_exit();
	return 0;
}

/**
 * peal_srq_prepare_resize() - make a ring of another size for a program's queue
 * @uctx: the program's context
 * @limits: what the program may have
 * @max_wr: the ring holds at least this many WQEs
 * @resp: describes the new ring
 *
 * The old ring stays in use. A ring that was prepared before is freed.
 *
 * Return: 0, -EINVAL (beyond the limits), -ENOMEM or -ENOSPC (the account's limit is reached).
 */
int peal_srq_prepare_resize(struct peal_srq *srq, struct ib_ucontext *uctx,
			    const struct peal_limits *limits, u32 max_wr,
			    struct peal_resize_srq_resp *resp)
{
	struct peal_srq_layout layout;
	struct peal_map *map;

	if (!max_wr || max_wr > peal_limits_most(limits, PEAL_LIMIT_WR))
		return -EINVAL;
	peal_srq_lay_out(max_wr, srq->ring.limits.max_sge, 0, &layout);
	map = peal_map_alloc(uctx, srq->account, layout.bytes);
	if (IS_ERR(map))
		return PTR_ERR(map);
	*resp = (struct peal_resize_srq_resp){
		.entries = layout.entries,
		.map_offset = peal_map_offset(map),
		.map_bytes = peal_map_bytes(map),
		.slots_offset = layout.slots_offset,
		.stride = layout.stride,
	};
	mutex_lock(&srq->resizing);
	peal_map_free(srq->prepared);
	srq->prepared = map;
	srq->prepared_entries = layout.entries;
	peal_srq_ring_prepare(&srq->ring);
	mutex_unlock(&srq->resizing);
	return 0;
}

/**
 * peal_srq_resize() - let the prepared ring take the place of the old one
 * @resp: entries and taken are set
 *
 * Return: 0, or -EINVAL if no ring is prepared, or as peal_srq_ring_replace().
 */
int peal_srq_resize(struct peal_srq *srq, struct peal_resize_srq_resp *resp)
{
	struct peal_srq_layout layout;
	int ret = -EINVAL;
	void *base;

	mutex_lock(&srq->resizing);
	if (srq->prepared) {
		peal_srq_lay_out(srq->prepared_entries, srq->ring.limits.max_sge, 0, &layout);
		base = peal_map_address(srq->prepared);
		*resp = (struct peal_resize_srq_resp){ .entries = layout.entries };
		ret = peal_srq_ring_replace(&srq->ring, base, base + layout.slots_offset,
					    layout.entries, &resp->taken);
	}
	if (!ret) {
		peal_map_free(srq->resized);
		srq->resized = srq->prepared;
		srq->prepared = NULL;
	}
	mutex_unlock(&srq->resizing);
	return ret;
}

void peal_srq_query(struct peal_srq *srq, struct ib_srq_attr *attr)
{
	attr->max_wr = peal_srq_ring_entries(&srq->ring);
	attr->max_sge = srq->ring.limits.max_sge;
	attr->srq_limit = peal_srq_ring_limit(&srq->ring);
}

/* Raise the events that takes made due. Call inside the epoch with no lock held. */
void peal_srq_notify(struct peal_srq *srq)
{
	u32 due;

	peal_epoch_assert_held();
	if (likely(!READ_ONCE(srq->ring.due)))
		return;
	due = peal_srq_ring_take_due(&srq->ring);
	if (due & PEAL_SRQ_DUE_LIMIT)
		peal_events_raise(&srq->events, srq->context, IB_EVENT_SRQ_LIMIT_REACHED);
	if (due & PEAL_SRQ_DUE_ERROR)
		peal_events_raise(&srq->events, srq->context, IB_EVENT_SRQ_ERR);
}
