/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The waits of a requester: for a receive of the peer (RNR), for a response, and between attempts.
 *
 * Owns: how long each wait lasts, and how many attempts there are.
 * Does not know: which packets are retransmitted (requester.h).
 */
#ifndef PEAL_TIMERS_H
#define PEAL_TIMERS_H

#include <linux/types.h>

/*
 * The encodings of RNR timers and credits, which share one sequence of numbers.
 *
 * Owns: tables 45 and 46 of the IBTA specification (9.7.5.2.8, 9.7.7.2.3).
 */

/* The wait in ns that the five bits @code of an RNR NAK ask for. Code 0 means 655.36 ms. */
u64 peal_rnr_timer_ns(u8 code);

/*
 * The receives that the five bits @code of an ACK promise. The caller handles code 31, which
 * means unlimited.
 */
u32 peal_rnr_credits(u8 code);

/*
 * How long the requester waits for an answer before it probes.
 *
 * Owns: the estimate of the round trip from samples (RFC 6298), and the current
 * sample.
 */

struct peal_rto {
	u64 srtt, rttvar;	/* ns; srtt 0: no sample yet */
	u64 shortest;		/* shortest sample, halved by peal_rto_doubt(), ns; 0: none */
	u64 latest;		/* latest sample, ns */
	u64 empty;		/* shortest clean sample, when queues were empty, ns; 0: none */
	u64 ns;			/* current wait for an answer, with back-off */
	u64 longest;		/* upper limit of `ns` */
	u8 slow;		/* slow samples in a row, up to the latest; see SLOW */
	u8 heard;		/* silences that ended without a sample; see HEARD_MOST */
	bool timing;		/* a sample is being taken */
	bool gap;		/* a packet was lost since the sampled one was sent */
	u64 since;		/* when the sampled packet was sent, ns */
	u32 psn;		/* PSN of the sampled packet */
};

/* The longest expected time to an answer, in ns. Before the first sample it is a guess. */
u64 peal_rto_estimate(const struct peal_rto *rto);
void peal_rto_reset(struct peal_rto *rto);
void peal_rto_limit(struct peal_rto *rto, u64 longest);
/* A packet that will be answered was sent. Samples it, unless another sample is being taken. */
void peal_rto_start(struct peal_rto *rto, u32 psn, u64 now);
/*
 * The PSNs @from to @to (exclusive) were retransmitted. Drops a sample of one of them, because an
 * answer would not tell which transmission it answers (Karn).
 */
void peal_rto_sent_again(struct peal_rto *rto, u32 from, u32 to);

/* Drop the sample, because the answer will not measure the round trip. */
static inline void peal_rto_forget(struct peal_rto *rto)
{
	rto->timing = false;
}

/*
 * A packet was lost. The answer to a later one may wait for its retransmission, and then tells
 * nothing of a queue.
 */
static inline void peal_rto_lost(struct peal_rto *rto)
{
	rto->gap = true;
}

/* All packets before @seen were answered. */
void peal_rto_answered(struct peal_rto *rto, u32 seen, u64 now);
/* A response ended a silence. It may answer the probe that was sent at @since. */
void peal_rto_heard(struct peal_rto *rto, u64 since, u64 now);

/*
 * How many answers in a row took so much longer than the shortest that silence no longer means
 * loss. If it is several, the packets in flight are queued in front of a slow peer. One alone may
 * be the jitter of the path. Return: at most 255.
 */
static inline u8 peal_rto_slow(const struct peal_rto *rto)
{
	return rto->slow;
}

/*
 * Did the latest answer take so much longer than the shortest that packets wait in a queue on the
 * way? The jitter of thread scheduling may look like one.
 */
bool peal_rto_sees_queue(const struct peal_rto *rto);
/* Is this queue as long as the path, or longer? */
bool peal_rto_sees_long_queue(const struct peal_rto *rto);

/*
 * The estimate was too short, or the peer is silent, for @silence ns so far. Doubles the wait until
 * the next sample (Karn), up to a limit that grows with the silence.
 */
void peal_rto_back_off(struct peal_rto *rto, u64 silence);
/* How long to wait for a packet that others have overtaken before it counts as lost, in ns. */
u64 peal_rto_patience(const struct peal_rto *rto);
/*
 * Can a response at @now answer the packet that was sent at @since? The bound is half of the
 * shortest sample and not the estimate, because the estimate includes queues that have drained
 * since, and is not updated while packets are retransmitted.
 */
bool peal_rto_plausible(const struct peal_rto *rto, u64 since, u64 now);

/*
 * peal_rto_plausible() rejected the answer to a probe. Halves its bound, because a bound that
 * keeps rejecting answers is itself wrong.
 */
static inline void peal_rto_doubt(struct peal_rto *rto)
{
	rto->shortest /= 2;
}

/*
 * Retry counts: how often the oldest packet may still be retried, and how long to wait.
 *
 * Owns: the retries used since the last progress. There are two kinds, with one attribute
 * each: rnr_retry and retry_cnt (IBTA 9.7.5.2.8, 9.7.6.1.3).
 */

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
static inline void peal_retry_heard(struct peal_retry *r)
{
	r->used = 0;
}

static inline void peal_retry_nak_seen(struct peal_retry *r)
{
	r->nak_seen = true;
}

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
 * and lasts at most @most ns.
 */
void peal_retry_postpone(u64 *at, u64 now, u64 since, u64 ns, u64 most);

#endif
