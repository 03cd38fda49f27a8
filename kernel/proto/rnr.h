/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The encodings of RNR timers and credits, which share one sequence of numbers.
 *
 * Owns: tables 45 and 46 of the IBTA specification (9.7.5.2.8, 9.7.7.2.3).
 * Does not know: how waits and credits are used.
 */
#ifndef PEAL_RNR_H
#define PEAL_RNR_H

#include <linux/types.h>

/* The wait in ns that the five bits @code of an RNR NAK ask for. Code 0 means 655.36 ms. */
u64 peal_rnr_timer_ns(u8 code);

/*
 * The receives that the five bits @code of an ACK promise. The caller handles code 31, which
 * means unlimited.
 */
u32 peal_rnr_credits(u8 code);

#endif
