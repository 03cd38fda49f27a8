// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include <linux/delay.h>
#include <linux/ktime.h>
#include <linux/log2.h>
#include <linux/sched/isolation.h>
#include <linux/slab.h>

#include "base/compat.h"
#include "base/epoch.h"
#include "object/cq.h"
#include "object/dm.h"

/* A resize copies this many CQEs between two looks at the ring, and the last ones with the lock. */
#define PEAL_CQ_COPY		4096U
#define PEAL_CQ_COPY_LOCKED	64

static enum hrtimer_restart peal_cq_expire(struct hrtimer *timer);
static enum hrtimer_restart peal_cq_late_expire(struct hrtimer *timer);
static void peal_cq_run_handler(struct tasklet_struct *tasklet);
static void peal_cq_call(void *data);

static void peal_events_work(struct work_struct *work)
{
	struct peal_events *events = container_of(work, struct peal_events, work);
	unsigned long due;
	enum ib_event_type type;

	while ((due = READ_ONCE(events->due))) {
		type = __ffs(due);
		clear_bit(type, &events->due);
		/* An event that is noted from here on is another one. */
		smp_mb__after_atomic();
		events->call(events, type);
	}
}

/* @call calls the handler of the object's user. */
void peal_events_init(struct peal_events *events,
		      void (*call)(struct peal_events *events, enum ib_event_type type))
{
	events->due = 0;
	events->call = call;
	INIT_WORK(&events->work, peal_events_work);
}

/*
 * Inside the epoch with no lock held. @program: the object is a program's. The caller keeps the
 * object alive until peal_events_end().
 */
void peal_events_raise(struct peal_events *events, bool program, enum ib_event_type type)
{
	peal_epoch_assert_held();
	if (program) {
		events->call(events, type);
		return;
	}
	set_bit(type, &events->due);
	peal_workers_queue(&events->work);
}

static void peal_cq_call_events(struct peal_events *events, enum ib_event_type type)
{
	struct peal_cq *cq = container_of(events, struct peal_cq, events);
	struct ib_event event = {
		.device = cq->ib.device, .element.cq = &cq->ib, .event = type,
	};

	if (cq->ib.event_handler)
		cq->ib.event_handler(&event, cq->ib.cq_context);
}

/**
 * peal_cq_init() - give a completion queue its ring
 * @account: the context's account, or the kernel's
 * @uctx: the program's context, or NULL for a kernel user's queue
 * @entries: the ring holds at least this many CQEs; 1 to PEAL_MAX_CQE
 * @clocks: PEAL_CQ_*, the times that each CQE gets
 *
 * Return: 0, -ENOMEM or -ENOSPC (the account's limit is reached).
 */
int peal_cq_init(struct peal_cq *cq, struct peal_account *account, struct ib_ucontext *uctx,
		 u32 entries, u32 clocks)
{
	u32 size = roundup_pow_of_two(entries);
	int ret = peal_quota_take(account, PEAL_QUOTA_CQ);
	void *base;

	if (ret)
		return ret;
	cq->map = peal_map_alloc(uctx, account, PEAL_CQ_RING_OFFSET +
				 (size_t)size * sizeof(struct peal_cqe));
	if (IS_ERR(cq->map)) {
		peal_quota_give(account, PEAL_QUOTA_CQ);
		return PTR_ERR(cq->map);
	}
	cq->account = account;
	cq->clocks = clocks;
	cq->faults = peal_faults_are_on(account->quota->faults) ? account->quota->faults : NULL;
	cq->plain = !clocks && !cq->faults;
	INIT_LIST_HEAD(&cq->late);
	peal_hrtimer_setup(&cq->late_timer, peal_cq_late_expire, CLOCK_MONOTONIC,
			   HRTIMER_MODE_ABS_SOFT);
	cq->cpu = -1;
	tasklet_setup(&cq->tasklet, peal_cq_run_handler);
	peal_events_init(&cq->events, peal_cq_call_events);
	spin_lock_init(&cq->lock);
	spin_lock_init(&cq->poll_lock);
	mutex_init(&cq->resizing);
	peal_hrtimer_setup(&cq->moderation, peal_cq_expire, CLOCK_MONOTONIC,
			   HRTIMER_MODE_REL_SOFT);
	base = peal_map_address(cq->map);
	cq->ring = (struct peal_cq_ring){
		.ctl = base, .cqe = base + PEAL_CQ_RING_OFFSET, .mask = size - 1,
	};
	cq->ib.cqe = size;
	return 0;
}

/**
 * peal_cq_set_vector() - let the handler run on one CPU
 * @vector: smaller than the number of possible CPUs
 *
 * For a queue that the RDMA core polls for a kernel user. Its handler only schedules the polling,
 * which then happens on the same CPU. That is why the CPU decides where the user's functions run.
 *
 * A CPU that an administrator keeps free of device interrupts (isolcpus=managed_irq) is left alone.
 */
void peal_cq_set_vector(struct peal_cq *cq, u32 vector)
{
	unsigned int cpu;

	for_each_possible_cpu(cpu)
		if (!vector--)
			break;	/* vector number n is the n-th possible CPU */
	if (cpu >= nr_cpu_ids || !housekeeping_test_cpu(cpu, HK_TYPE_MANAGED_IRQ))
		return;
	INIT_CSD(&cq->call, peal_cq_call, cq);
	cq->cpu = cpu;
}

/*
 * The core has destroyed the queue pairs and XRC shared receive queues that complete
 * here. Each destruction waited for the epoch after its last CQE (peal_engine_remove_qp() and
 * _srq()), and a section that pushes a CQE ends after its peal_cq_notify(). So no CPU is there
 * any more, and this need not wait for the epoch. Nothing sets the timer either.
 */
void peal_cq_destroy(struct peal_cq *cq)
{
	peal_cq_show_late(cq);
	hrtimer_cancel(&cq->late_timer);
	hrtimer_cancel(&cq->moderation);
	peal_cq_wait_handler(cq);
	while (atomic_read_acquire(&cq->calls))
		usleep_range(10, 50);
	tasklet_kill(&cq->tasklet);	/* nothing schedules it any more; it may still be running */
	peal_events_end(&cq->events);
	peal_map_free(cq->prepared);
	peal_map_free(cq->resized);
	peal_map_free(cq->map);
	peal_quota_give(cq->account, PEAL_QUOTA_CQ);
}

void peal_cq_describe(const struct peal_cq *cq, struct peal_create_cq_resp *resp)
{
	*resp = (struct peal_create_cq_resp){
		.entries = cq->ring.mask + 1,
		.map_offset = peal_map_offset(cq->map),
		.map_bytes = peal_map_bytes(cq->map),
	};
}

/* Copy the CQEs from *copied to @end. */
static void peal_cq_copy(struct peal_cq *cq, struct peal_cq_ring *to, u32 *copied, u32 end)
{
	for (; *copied != end; (*copied)++)
		peal_cq_ring_copy(to, &cq->ring, *copied);
}

/*
 * Let @to take the place of the ring. The program has consumed the CQEs before @first. CQEs that
 * have been written do not change any more, so all but the last few are copied without the lock,
 * because pushes wait for the lock.
 *
 * Return: 0, or -EINVAL if @to is too small for the unread CQEs.
 */
static int peal_cq_replace_ring(struct peal_cq *cq, struct peal_cq_ring *to, u32 first)
{
	u32 room = min(to->mask, cq->ring.mask) + 1, copied = first, end;
	bool done = false;
	int ret = 0;

	lockdep_assert_held(&cq->resizing);
	while (!done) {
		spin_lock_bh(&cq->lock);
		end = cq->ring.next;
		if (end - first > room)
			ret = -EINVAL;
		done = ret || end - copied <= PEAL_CQ_COPY_LOCKED;
		if (done && !ret) {
			peal_cq_copy(cq, to, &copied, end);
			cq->ring.cqe = to->cqe;
			cq->ring.mask = to->mask;
		}
		spin_unlock_bh(&cq->lock);
		if (!done)
			peal_cq_copy(cq, to, &copied, min(end - copied, PEAL_CQ_COPY) + copied);
		cond_resched();
	}
	return ret;
}

/**
 * peal_cq_prepare_resize() - make a ring of another size for a program's completion queue
 * @uctx: the program's context
 * @entries: the ring holds at least this many CQEs; 1 to PEAL_MAX_CQE
 * @resp: describes the new ring
 *
 * The old ring stays in use. A ring that was prepared before is freed.
 *
 * Return: 0, -ENOMEM or -ENOSPC (the account's limit is reached).
 */
int peal_cq_prepare_resize(struct peal_cq *cq, struct ib_ucontext *uctx, u32 entries,
			   struct peal_resize_cq_resp *resp)
{
	u32 size = roundup_pow_of_two(entries);
	struct peal_map *map = peal_map_alloc(uctx, cq->account,
					      (size_t)size * sizeof(struct peal_cqe));

	if (IS_ERR(map))
		return PTR_ERR(map);
	*resp = (struct peal_resize_cq_resp){
		.entries = size,
		.map_offset = peal_map_offset(map),
		.map_bytes = peal_map_bytes(map),
	};
	mutex_lock(&cq->resizing);
	peal_map_free(cq->prepared);
	cq->prepared = map;
	cq->prepared_entries = size;
	mutex_unlock(&cq->resizing);
	return 0;
}

/**
 * peal_cq_resize() - let the prepared ring take the place of the old one
 *
 * The program does not poll during the call. Queue pairs go on to complete.
 *
 * Return: 0, or -EINVAL if no ring is prepared, or it is too small for the unread CQEs
 * (IBTA 11.2.8.4).
 */
int peal_cq_resize(struct peal_cq *cq)
{
	struct peal_cq_ring ring;
	int ret = -EINVAL;
	u32 first, i;

	mutex_lock(&cq->resizing);
	if (!cq->prepared)
		goto unlock;
	ring = (struct peal_cq_ring){
		.cqe = peal_map_address(cq->prepared), .mask = cq->prepared_entries - 1,
	};
	first = peal_cq_ring_consumed(&cq->ring);
	/* A zeroed slot would look valid to an index whose lap has phase 0. */
	for (i = 0; i <= ring.mask; i++) {
		peal_cq_ring_invalidate(&ring, first + i);
		if (i % PEAL_CQ_COPY == 0)
			cond_resched();
	}
	ret = peal_cq_replace_ring(cq, &ring, first);
	if (ret)
		goto unlock;
	peal_map_free(cq->resized);
	cq->resized = cq->prepared;
	cq->prepared = NULL;
	cq->ib.cqe = ring.mask + 1;
unlock:
	mutex_unlock(&cq->resizing);
	return ret;
}

/*
 * Under cq.lock, so that the times of one queue's CQEs never go back, as far as the clock does not.
 * Apart from peal_cq_push(), because the compiler clears the copy.
 */
static noinline void peal_cq_push_stamped(struct peal_cq *cq, const struct peal_cqe *cqe)
{
	struct peal_cqe stamped = *cqe;

	lockdep_assert_held(&cq->lock);
	if (cq->clocks & PEAL_CQ_CLOCK)
		stamped.clock_ns = ktime_get_raw_ns();
	if (cq->clocks & PEAL_CQ_WALL_CLOCK)
		stamped.wall_ns = ktime_get_real_ns();
	peal_cq_ring_push(&cq->ring, &stamped);
}

/*
 * A CQE that becomes visible later, because an administrator wants the completion queue to be slow
 * (base/fault.h).
 */
struct peal_late_cqe {
	struct list_head node;		/* on cq.late */
	u64 due;			/* when it becomes visible, ns */
	struct peal_cqe cqe;
};

/* Let CQEs that are due by @now become visible, at most @most of them. */
static void peal_cq_push_due(struct peal_cq *cq, u64 now, u32 most)
{
	struct peal_late_cqe *late, *next;

	lockdep_assert_held(&cq->lock);
	list_for_each_entry_safe(late, next, &cq->late, node) {
		if (late->due > now || !most--)
			break;
		cq->overflowed |= peal_cq_ring_full(&cq->ring);
		if (!cq->overflowed) {
			peal_cq_push_stamped(cq, &late->cqe);
			cq->solicited |= late->cqe.flags & PEAL_CQE_SOLICITED || late->cqe.status;
		}
		list_del(&late->node);
		cq->num_late--;
		kfree(late);
	}
	if (!list_empty(&cq->late))
		hrtimer_start(&cq->late_timer,
			      ns_to_ktime(list_first_entry(&cq->late, struct peal_late_cqe,
							   node)->due), HRTIMER_MODE_ABS_SOFT);
}

static enum hrtimer_restart peal_cq_late_expire(struct hrtimer *timer)
{
	struct peal_cq *cq = container_of(timer, struct peal_cq, late_timer);

	peal_epoch_enter();
	spin_lock(&cq->lock);
	peal_cq_push_due(cq, ktime_get_ns(), PEAL_CQ_COPY_LOCKED);
	spin_unlock(&cq->lock);
	peal_cq_notify(cq);
	peal_epoch_exit();
	return HRTIMER_NORESTART;
}

/*
 * The completion queue or one of its queue pairs ends, maybe because the device is removed. The
 * program still sees the ring then, so the late CQEs become visible now. The timer stays armed,
 * because another queue pair may add a late CQE at any time.
 */
void peal_cq_show_late(struct peal_cq *cq)
{
	spin_lock_bh(&cq->lock);
	peal_cq_push_due(cq, U64_MAX, U32_MAX);
	spin_unlock_bh(&cq->lock);
}

/*
 * The queue pairs of the device may be slow. CQEs behind a late one wait, too, because those of a
 * queue pair have an order. Return: true if @cqe becomes visible later. Then it is kept, or the
 * queue has overflowed.
 */
static bool peal_cq_is_late(struct peal_cq *cq, const struct peal_cqe *cqe)
{
	const struct peal_fault_message message = {
		.kinds = 1 << PEAL_NL_FAULT_KIND_SLOW, .qpn = cqe->qp_num,
	};
	u64 due = ktime_get_ns();
	struct peal_late_cqe *late;
	struct peal_fault fault;

	lockdep_assert_held(&cq->lock);
	/* No program could connect if the connection manager were late. */
	if (peal_faults_exist(cq->faults) && cqe->qp_num != PEAL_GSI_QPN &&
	    peal_faults_hit(cq->faults, &message, &fault))
		due += (u64)fault.delay_us * NSEC_PER_USEC;
	else if (list_empty(&cq->late))
		return false;
	late = cq->num_late > cq->ring.mask ? NULL : kmalloc(sizeof(*late), GFP_ATOMIC);
	if (!late) {
		cq->overflowed = true;
		return true;
	}
	late->cqe = *cqe;
	late->due = list_empty(&cq->late) ? due :
		    max(due, list_last_entry(&cq->late, struct peal_late_cqe, node)->due);
	list_add_tail(&late->node, &cq->late);
	if (!cq->num_late++)
		hrtimer_start(&cq->late_timer, ns_to_ktime(due), HRTIMER_MODE_ABS_SOFT);
	return true;
}

/**
 * peal_cq_push() - add one CQE
 *
 * The caller has softirqs off. The event is raised later, in peal_cq_notify(), so that a batch of
 * CQEs needs one event.
 *
 * Return: false when the CQE was lost, because the queue overflowed now or earlier.
 */
bool peal_cq_push(struct peal_cq *cq, const struct peal_cqe *cqe)
{
	bool pushed;

	lockdep_assert(softirq_count());
	spin_lock(&cq->lock);
	cq->overflowed |= peal_cq_ring_full(&cq->ring);
	pushed = !cq->overflowed;
	if (likely(pushed)) {
		if (likely(cq->plain))
			peal_cq_ring_push(&cq->ring, cqe);
		else if (cq->faults && peal_cq_is_late(cq, cqe))
			goto unlock;
		else
			peal_cq_push_stamped(cq, cqe);
		cq->solicited |= (cqe->flags & PEAL_CQE_SOLICITED) || cqe->status;
	}
unlock:
	spin_unlock(&cq->lock);
	return pushed;
}

/**
 * peal_cq_moderate() - set how many completions one event may wait for, and how long
 * @count: completions; 0 or 1: each event is raised at once
 * @us: microseconds; 0: each event is raised at once
 *
 * An event that is held already is raised when its timer expires.
 */
void peal_cq_moderate(struct peal_cq *cq, u16 count, u16 us)
{
	spin_lock_bh(&cq->lock);
	cq->most_held = count > 1 && us ? count : 0;
	cq->held_us = us;
	cq->held_from = cq->ring.next;
	spin_unlock_bh(&cq->lock);
}

/*
 * Must the event that is due wait for more CQEs? The timer raises it if they do not come, so that
 * the event for the last CQE is never lost.
 */
static noinline bool peal_cq_hold(struct peal_cq *cq)
{
	lockdep_assert_held(&cq->lock);
	if (cq->ring.next - cq->held_from >= cq->most_held)
		return false;
	if (!cq->held)
		hrtimer_start(&cq->moderation, ns_to_ktime(cq->held_us * NSEC_PER_USEC),
			      HRTIMER_MODE_REL_SOFT);
	cq->held = true;
	return true;
}

/*
 * @expired: the timer has, so the event waits no longer. An event that was raised in the meantime
 * may have covered the held one. Return: whether the caller must raise an event now. Then only
 * later CQEs make another one due.
 */
static __always_inline bool peal_cq_event_due(struct peal_cq *cq, bool expired)
{
	bool due = false;
	u32 arm;

	spin_lock(&cq->lock);
	if (expired && !cq->held)
		goto unlock;
	arm = peal_cq_ring_armed(&cq->ring);
	due = arm & PEAL_CQ_ARM_NEXT || (arm & PEAL_CQ_ARM_SOLICITED && cq->solicited);
	if (due && !expired && unlikely(cq->most_held) && peal_cq_hold(cq)) {
		due = false;
		goto unlock;
	}
	if (due)
		peal_cq_ring_fire(&cq->ring, arm);
	cq->solicited = false;
	cq->held = false;
	cq->held_from = cq->ring.next;
unlock:
	spin_unlock(&cq->lock);
	return due;
}

/* An administrator wants the queue to overflow now. Inside the epoch; the caller notifies it. */
void peal_cq_overflow(struct peal_cq *cq)
{
	peal_epoch_assert_held();
	spin_lock(&cq->lock);
	cq->overflowed = true;
	spin_unlock(&cq->lock);
}

/* A queue reports once that it has overflowed. */
static void peal_cq_report_overflow(struct peal_cq *cq)
{
	bool due;

	spin_lock(&cq->lock);
	due = cq->overflowed && !cq->overflow_reported;
	cq->overflow_reported |= due;
	spin_unlock(&cq->lock);
	if (due)
		peal_events_raise(&cq->events, cq->ib.uobject, IB_EVENT_CQ_ERR);
}

/*
 * Call a kernel user's handler. Events that are raised meanwhile schedule the tasklet again,
 * because the handler may have looked at the queue already. If the handler covered an event whose
 * call was still on its way to the CPU of the vector, the tasklet has nothing to do. It must not
 * call the handler then, because the user may be destroying the queue.
 */
static void peal_cq_run_handler(struct tasklet_struct *tasklet)
{
	struct peal_cq *cq = container_of(tasklet, struct peal_cq, tasklet);
	int raised = atomic_read(&cq->raised);

	if (raised == atomic_read(&cq->handled))
		return;
	cq->ib.comp_handler(&cq->ib, cq->ib.cq_context);
	atomic_set_release(&cq->handled, raised);
}

/*
 * On the CPU of the vector, with interrupts off. An event that is raised from here on needs
 * another call. The queue may be freed after the last statement.
 */
static void peal_cq_call(void *data)
{
	struct peal_cq *cq = data;

	atomic_xchg(&cq->call_queued, 0);
	tasklet_schedule(&cq->tasklet);
	atomic_fetch_dec_release(&cq->calls);
}

/*
 * Schedule a kernel user's handler. The count comes first, so that a handler which begins later
 * covers the event. Softirqs are off, so this CPU does not change. If the CPU of the vector is this
 * one, or is offline, the tasklet runs here.
 */
static noinline void peal_cq_schedule(struct peal_cq *cq)
{
	atomic_inc(&cq->raised);
	if (cq->cpu >= 0 && cq->cpu != smp_processor_id()) {
		if (atomic_xchg(&cq->call_queued, 1))
			return;	/* its handler comes later than this event */
		atomic_inc(&cq->calls);
		if (!smp_call_function_single_async(cq->cpu, &cq->call))
			return;
		atomic_xchg(&cq->call_queued, 0);
		atomic_dec(&cq->calls);
	}
	tasklet_schedule(&cq->tasklet);
}

static void peal_cq_raise(struct peal_cq *cq)
{
	if (likely(cq->ib.uobject))
		cq->ib.comp_handler(&cq->ib, cq->ib.cq_context);
	else
		peal_cq_schedule(cq);
}

/**
 * peal_cq_wait_handler() - wait until the handler has run for each event that was raised
 *
 * The caller has made sure that the events that matter to it have been raised, for example by
 * peal_epoch_wait(). It does not wait for later events. Sleeps.
 */
void peal_cq_wait_handler(struct peal_cq *cq)
{
	int raised = atomic_read(&cq->raised);

	while (atomic_read_acquire(&cq->handled) - raised < 0)
		usleep_range(10, 50);
}

/**
 * peal_cq_notify() - raise the events that the pushed CQEs made due
 *
 * Call inside the epoch with no lock held.
 */
void peal_cq_notify(struct peal_cq *cq)
{
	peal_epoch_assert_held();
	/* A program's completion queue without a completion channel needs no event. */
	if (cq->ib.comp_handler && (!cq->ib.uobject || cq->ib.cq_context) &&
	    peal_cq_event_due(cq, false))
		peal_cq_raise(cq);
	if (unlikely(READ_ONCE(cq->overflowed)))
		peal_cq_report_overflow(cq);
}

static enum hrtimer_restart peal_cq_expire(struct hrtimer *timer)
{
	struct peal_cq *cq = container_of(timer, struct peal_cq, moderation);

	peal_epoch_enter();
	if (peal_cq_event_due(cq, true))
		peal_cq_raise(cq);
	peal_epoch_exit();
	return HRTIMER_NORESTART;
}

/* The caller holds poll_lock. Return: false when there is no further CQE. */
bool peal_cq_take(struct peal_cq *cq, struct peal_cqe *cqe)
{
	lockdep_assert_held(&cq->poll_lock);
	if (!peal_cq_ring_peek(&cq->ring, cq->taken))
		return false;
	*cqe = cq->ring.cqe[cq->taken & cq->ring.mask];
	cq->taken++;
	return true;
}

/*
 * The caller holds poll_lock. Return: CQE number @i of those not taken yet, or NULL. It is the
 * kernel user's, so the caller may change it, but not its flags.
 */
struct peal_cqe *peal_cq_untaken(struct peal_cq *cq, u32 i)
{
	u32 index = cq->taken + i;

	lockdep_assert_held(&cq->poll_lock);
	if (i > cq->ring.mask || !peal_cq_ring_peek(&cq->ring, index))
		return NULL;
	return &cq->ring.cqe[index & cq->ring.mask];
}

/* The caller holds poll_lock. Lets the ring reuse the slots of the CQEs that were read. */
void peal_cq_show_taken(struct peal_cq *cq)
{
	lockdep_assert_held(&cq->poll_lock);
	smp_store_release(&cq->ring.ctl->consumer, cq->taken);	/* F */
}

/**
 * peal_cq_arm() - ib_req_notify_cq of a kernel queue
 *
 * A request for solicited events does not replace an outstanding request for events on any CQE.
 *
 * Return: 1 when @flags has IB_CQ_REPORT_MISSED_EVENTS and there are CQEs to poll, else 0.
 */
int peal_cq_arm(struct peal_cq *cq, enum ib_cq_notify_flags flags)
{
	bool solicited = (flags & IB_CQ_SOLICITED_MASK) == IB_CQ_SOLICITED;
	unsigned long irq;
	int missed;
	u32 arm;

	spin_lock_irqsave(&cq->poll_lock, irq);
	/* An outstanding request may be fulfilled at any time, because cq->lock is not held. */
	arm = READ_ONCE(cq->ring.ctl->arm);
	if (arm & PEAL_CQ_ARM_NEXT && arm != READ_ONCE(cq->ring.fired))
		solicited = false;
	cq->armings += 1 << PEAL_CQ_ARM_SHIFT;
	WRITE_ONCE(cq->ring.ctl->arm,
		   cq->armings | (solicited ? PEAL_CQ_ARM_SOLICITED : PEAL_CQ_ARM_NEXT));
	smp_mb();	/* E: pairs with peal_cq_ring_armed() */
	missed = flags & IB_CQ_REPORT_MISSED_EVENTS && peal_cq_ring_peek(&cq->ring, cq->taken);
	spin_unlock_irqrestore(&cq->poll_lock, irq);
	return missed;
}

/* Wait until the pollers that hold poll_lock have released it. */
void peal_cq_wait_pollers(struct peal_cq *cq)
{
	spin_lock_irq(&cq->poll_lock);
	spin_unlock_irq(&cq->poll_lock);
}
