/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The timer of one queue pair: when it is to be run although nothing happens.
 *
 * Owns: the hrtimer, and the rule that a later time never replaces an earlier one.
 * Does not know: what happens when it goes off.
 *
 * Lock: alarm->lock guards the setting. Innermost; nothing is taken inside it.
 */
#ifndef PEAL_ALARM_H
#define PEAL_ALARM_H

#include <linux/hrtimer.h>
#include <linux/spinlock.h>

struct peal_alarm {
	struct hrtimer timer;		/* in softirq */
	spinlock_t lock;		/* setting the timer */
};

void peal_alarm_init(struct peal_alarm *alarm,
		     enum hrtimer_restart (*expired)(struct hrtimer *timer));
void peal_alarm_cancel(struct peal_alarm *alarm);

void peal_alarm_set_to(struct peal_alarm *alarm, ktime_t when);

/* Go off at @when at the latest. KTIME_MAX: no need to. */
static inline void peal_alarm_set(struct peal_alarm *alarm, ktime_t when)
{
	if (unlikely(when != KTIME_MAX))
		peal_alarm_set_to(alarm, when);
}

#endif
