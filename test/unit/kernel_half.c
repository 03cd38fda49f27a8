// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* See kernel_half.h. */
#include "kernel_half.h"

#include <stdlib.h>

#include "object/wqe.h"

struct kernel_ring {
	struct peal_ring ring;
};

struct kernel_cq {
	struct peal_cq_ring ring;
};

struct kernel_ring *kernel_ring_new(struct peal_ring_ctl *ctl, void *slots, uint32_t entries,
				    uint32_t stride)
{
	struct kernel_ring *r = calloc(1, sizeof(*r));

	r->ring.ctl = ctl;
	r->ring.slots = slots;
	r->ring.mask = entries - 1;
	r->ring.stride = stride;
	return r;
}

void kernel_ring_delete(struct kernel_ring *r)
{
	free(r);
}

int kernel_ring_pending(const struct kernel_ring *r)
{
	return peal_ring_pending(&r->ring);
}

const void *kernel_ring_slot(const struct kernel_ring *r)
{
	return peal_ring_slot(&r->ring);
}

uint32_t kernel_ring_next(const struct kernel_ring *r)
{
	return r->ring.next;
}

void kernel_ring_take(struct kernel_ring *r)
{
	peal_ring_take(&r->ring);
	peal_ring_show(&r->ring);
}

void kernel_ring_discard(struct kernel_ring *r)
{
	peal_ring_discard(&r->ring);
}

void kernel_ring_want_kick(struct kernel_ring *r, bool want)
{
	peal_ring_want_kick(&r->ring, want);
}

struct kernel_cq *kernel_cq_new(void *base, uint32_t entries)
{
	struct kernel_cq *cq = calloc(1, sizeof(*cq));

	cq->ring.ctl = base;
	cq->ring.cqe = (struct peal_cqe *)((char *)base + PEAL_CQ_RING_OFFSET);
	cq->ring.mask = entries - 1;
	return cq;
}

void kernel_cq_delete(struct kernel_cq *cq)
{
	free(cq);
}

bool kernel_cq_full(struct kernel_cq *cq)
{
	return peal_cq_ring_full(&cq->ring);
}

void kernel_cq_push(struct kernel_cq *cq, const struct peal_cqe *cqe)
{
	peal_cq_ring_push(&cq->ring, cqe);
}

void kernel_cq_resize(struct kernel_cq *cq, struct peal_cqe *cqe, uint32_t entries)
{
	struct peal_cq_ring to = { .cqe = cqe, .mask = entries - 1 };
	uint32_t first = peal_cq_ring_consumed(&cq->ring), i;

	for (i = 0; i < entries; i++)
		peal_cq_ring_invalidate(&to, first + i);
	for (i = first; i != cq->ring.next; i++)
		peal_cq_ring_copy(&to, &cq->ring, i);
	cq->ring.cqe = to.cqe;
	cq->ring.mask = to.mask;
}

uint32_t kernel_cq_fire(struct kernel_cq *cq)
{
	uint32_t arm = peal_cq_ring_armed(&cq->ring);

	if (arm)
		peal_cq_ring_fire(&cq->ring, arm);
	return arm;
}
