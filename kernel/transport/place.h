/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * From a packet's payload to memory: the last step of every received byte.
 *
 * Owns: nothing. Does not know: skbs (receive.h), keys (cursor.h), who asks.
 */
#ifndef PEAL_PLACE_H
#define PEAL_PLACE_H

#include "mem/cursor.h"
#include "net/receive.h"

/* The first @bytes of the payload, to where @to stands; there is as much room. */
void peal_place(const struct peal_datagram *dg, struct peal_cursor *to, u32 bytes);

#endif
