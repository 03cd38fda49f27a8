/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Retry counts: how often the oldest packet may still be retried, and how long to wait.
 *
 * Owns: the retries used since the last progress. There are two kinds, with one attribute
 * each: rnr_retry and retry_cnt (IBTA 9.7.5.2.8, 9.7.6.1.3).
 * Does not know: timers, and what fails when no retry is left.
 */
#ifndef PEAL_RETRY_H
#define PEAL_RETRY_H

#include <linux/types.h>

struct peal_retry {
	u8 used;		/* retries after silence and sequence NAKs */
	u8 used_rnr;		/* retries after RNR NAKs */
	u8 waits;		/* RNR waits in a row if rnr_retry sets no limit; saturates */
	u8 copies;		/* retransmissions after silence since progress; saturates */
	u8 excused;		/* further RNR NAKs that those copies may cause, not counted */
	bool nak_seen;		/* a sequence NAK arrived */
};

/*
 * Restore all retries. For the next message, or after progress on a transport that answers every
 * packet at once.
 */
static inline void peal_retry_reset(struct peal_retry *r)
{
	*r = (struct peal_retry){ };
}

/* The oldest packet was acknowledged. */
void peal_retry_progress(struct peal_retry *r);
/* The packet that had got an RNR NAK was received. */
void peal_retry_received(struct peal_retry *r);
/* The peer answered, so its silence is over. */
void peal_retry_heard(struct peal_retry *r);
void peal_retry_nak_seen(struct peal_retry *r);
/* A packet was retransmitted after silence. This alone is no retry. */
void peal_retry_copied(struct peal_retry *r);
/* Use one more retry of @limit. Return: false if none is left. */
bool peal_retry_use(struct peal_retry *r, u8 limit);
/*
 * The same after an RNR NAK. @limit: 7 means no limit. The peer may answer each copy of a
 * retransmitted packet with an RNR NAK; together these count as one retry.
 */
bool peal_retry_use_rnr(struct peal_retry *r, u8 limit);
/*
 * How long to wait after an RNR NAK, in ns. Call it after peal_retry_use_rnr(). @timer: the peer's
 * timer code. If the retries have no limit, each wait in a row takes twice as long, up to a
 * millisecond. Otherwise a peer whose program posts no receive would keep both hosts busy without
 * an end.
 */
u64 peal_retry_rnr_ns(const struct peal_retry *r, u8 timer);

/*
 * The peer is busy. Postpone the timer *at, if armed, to @ns from @now. The wait began at @since
 * and lasts at most four times @ns, because 9.7.6.1.3 bounds a timeout at four times the
 * attribute.
 */
void peal_retry_postpone(u64 *at, u64 now, u64 since, u64 ns);

#endif
