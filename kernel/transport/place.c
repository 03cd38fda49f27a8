// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See place.h.
 */
#include "transport/place.h"

void peal_place(const struct peal_datagram *dg, struct peal_cursor *to, u32 bytes)
{
	u64 at, piece;
	void *here;

	peal_cursor_skip(to, 0);	/* to an entry with room */
	for (at = 0; at < bytes; at += piece) {
		piece = bytes - at;
		here = peal_cursor_here(to, &piece);
		peal_receive_copy(dg, at, here, piece);
		peal_cursor_skip(to, piece);
	}
}
