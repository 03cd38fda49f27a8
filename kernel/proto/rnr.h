/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The encodings that share one sequence of numbers: RNR timers and credits.
 *
 * Owns: tables 45 and 46 of the IBTA specification (9.7.5.2.8, 9.7.7.2.3).
 * Does not know: who waits, who counts.
 */
#ifndef PEAL_RNR_H
#define PEAL_RNR_H

#include <linux/types.h>

/* What the five bits @code of an RNR NAK ask the requester to wait. 0 encodes 655.36 ms. */
u64 peal_rnr_timer_ns(u8 code);

/* Receives that the five bits @code of an ACK promise; 31, unlimited, is the caller's to see. */
u32 peal_rnr_credits(u8 code);

#endif
