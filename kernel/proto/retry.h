/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * How often the oldest packet may still be tried, and how much later.
 *
 * Owns: the retries that were used since the last progress, of the two kinds
 * that have an attribute each (IBTA 9.7.5.2.8, 9.7.6.1.3).
 * Does not know: timers, what fails when there are none left.
 */
#ifndef PEAL_RETRY_H
#define PEAL_RETRY_H

#include <linux/types.h>

struct peal_retry {
	u8 used;		/* against silence and sequence NAKs */
	u8 used_rnr;
	u8 waits;		/* for a receive, in a row, where any number is allowed */
	u8 copies;		/* of the packet that left by mere suspicion; 255 is many */
	u8 excused;		/* so many copies may come back with the RNR that was counted */
	bool naked;		/* a sequence NAK came */
};

/* Another message, or progress where each packet is answered at once: all tries are left. */
static inline void peal_retry_reset(struct peal_retry *r)
{
	*r = (struct peal_retry){ };
}

/* The oldest packet was acknowledged. */
void peal_retry_progress(struct peal_retry *r);
/* The packet that had met RNR was acknowledged. */
void peal_retry_received(struct peal_retry *r);
/* The peer is there: its silence is over. */
void peal_retry_heard(struct peal_retry *r);
void peal_retry_naked(struct peal_retry *r);
/* It left once more, and that is no retry. */
void peal_retry_copied(struct peal_retry *r);
/* One more, of @limit. Return: false when there is none left. */
bool peal_retry_use(struct peal_retry *r, u8 limit);
/*
 * @limit 7: for ever. When a packet that had copies meets RNR, its copies may meet
 * it too: that is one RNR of the peer's, and several of ours.
 */
bool peal_retry_use_rnr(struct peal_retry *r, u8 limit);
/*
 * In ns, after peal_retry_use_rnr(). @timer: the peer's, of which each wait in a row takes
 * twice as much, up to a millisecond. A peer that waits for its program, and a requester
 * that may ask it for ever, are a load on both hosts without an end.
 */
u64 peal_retry_rnr_ns(const struct peal_retry *r, u8 timer);

/*
 * The peer is busy: what is due at @at waits @ns from @now. It began to wait at
 * @since, and a timeout is at most four times what the attribute says (9.7.6.1.3).
 */
void peal_retry_put_off(u64 *at, u64 now, u64 since, u64 ns);

#endif
