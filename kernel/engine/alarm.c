// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See alarm.h.
 */
#include "base/compat.h"
#include "engine/alarm.h"

/* A queue pair is run by its timer at most that often: others need the CPU, too. */
#define PEAL_ALARM_LEAST_NS	(5 * NSEC_PER_USEC)

void peal_alarm_init(struct peal_alarm *alarm,
		     enum hrtimer_restart (*expired)(struct hrtimer *timer))
{
	spin_lock_init(&alarm->lock);
	peal_hrtimer_setup(&alarm->timer, expired, CLOCK_MONOTONIC, HRTIMER_MODE_ABS_SOFT);
}

void peal_alarm_cancel(struct peal_alarm *alarm)
{
	hrtimer_cancel(&alarm->timer);
}

static bool peal_alarm_will_go_off(struct peal_alarm *alarm, ktime_t when)
{
	return hrtimer_is_queued(&alarm->timer) &&
	       !ktime_after(hrtimer_get_expires(&alarm->timer), when);
}

/*
 * Never arm the timer for a time in the past, because its handler would run again at
 * once and nothing else would run on that CPU. Never move it later either, because a
 * queue pair that is due must not be postponed again and again.
 */
static void peal_alarm_start(struct peal_alarm *alarm, ktime_t when)
{
	ktime_t least = ktime_add_ns(ktime_get(), PEAL_ALARM_LEAST_NS);

	if (ktime_before(when, least))
		when = least;
	if (!peal_alarm_will_go_off(alarm, when))
		hrtimer_start(&alarm->timer, when, HRTIMER_MODE_ABS_SOFT);
}

/**
 * peal_alarm_set_to() - go off at @when at the latest
 *
 * Holds one of the queue pair's locks, inside the guard. The requester and the responder
 * have different locks and times: alarm->lock sees to it that the later one does not
 * replace the earlier.
 *
 * Barrier J: what is due is visible before we look whether the timer is still
 * queued; the timer's half stands at the beginning of peal_engine_timer(). So
 * either we see that it has gone off, and set it, or its turn sees what is due.
 */
void peal_alarm_set_to(struct peal_alarm *alarm, ktime_t when)
{
	smp_mb();	/* J */
	if (likely(peal_alarm_will_go_off(alarm, when)))
		return;
	spin_lock(&alarm->lock);
	peal_alarm_start(alarm, when);
	spin_unlock(&alarm->lock);
}
