/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Whether the next packet may leave: fences, READ depth, credits, window.
 *
 * Owns: nothing; reads where a requester stands.
 * Does not know: packets, time, what has to leave once more.
 */
#ifndef PEAL_PAUSE_H
#define PEAL_PAUSE_H

#include "proto/outbound.h"

/* PSNs that the next packet of @f takes: as many as a READ asks to be answered with. */
u32 peal_pause_span(const struct peal_outbound *o, const struct peal_flight *f);
/* @f: the message whose turn it is, which can be sent. PEAL_PAUSE_NONE: now. */
enum peal_pause peal_pause_before(const struct peal_outbound *o, const struct peal_flight *f);

#endif
