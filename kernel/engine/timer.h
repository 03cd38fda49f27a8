/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The handler of the queue pairs' timers.
 *
 * Owns: how much timers may do in softirq.
 * Does not know: which code has set them (schedule.h), and what is due.
 */
#ifndef PEAL_TIMER_H
#define PEAL_TIMER_H

#include <linux/hrtimer.h>

enum hrtimer_restart peal_timer_expired(struct hrtimer *timer);

#endif
