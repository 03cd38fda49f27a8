/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * How long an answer may take before it is asked for again.
 *
 * Owns: the estimate of the round trip, from samples (as RFC 6298 has it), and
 * the sample under way. Does not know: what is sent again, the transport's own
 * timeout (IBTA 9.7.6.1.3), which this one lies below.
 */
#ifndef PEAL_RTO_H
#define PEAL_RTO_H

#include <linux/types.h>

struct peal_rto {
	u64 srtt, rttvar;	/* ns; srtt 0: nothing was measured yet */
	u64 shortest;		/* ns; of all samples; 0: none */
	u64 latest;		/* ns; of all samples */
	u64 ns;			/* how long an answer may take now */
	u64 longest;		/* ... at most */
	u8 heard;		/* silences that ended without a sample */
	bool timing;		/* a sample is under way: */
	u64 since;		/* it left then, */
	u32 psn;		/* and it is this packet */
};

/* How long an answer takes at most, as far as measured, in ns; before the first sample a guess. */
u64 peal_rto_estimate(const struct peal_rto *rto);
void peal_rto_reset(struct peal_rto *rto);
void peal_rto_limit(struct peal_rto *rto, u64 longest);
/* A packet that will be answered left. One sample at a time. */
void peal_rto_start(struct peal_rto *rto, u32 psn, u64 now);
/* These PSNs left again: an answer would not tell which one it answers (Karn). */
void peal_rto_sent_again(struct peal_rto *rto, u32 from, u32 to);
/* An answer would tell how long something else took. */
void peal_rto_forget(struct peal_rto *rto);
/* Everything before @seen was answered. */
void peal_rto_answered(struct peal_rto *rto, u32 seen, u64 now);
/* After a silence that something sent @since may have broken. */
void peal_rto_heard(struct peal_rto *rto, u64 since, u64 now);
/*
 * The latest answer took so much longer than the shortest that silence does not mean loss any
 * more: packets wait in front of a slow peer, as many as there are under way.
 */
bool peal_rto_is_slow(const struct peal_rto *rto);
/* It was too short, or the peer is silent. Stays until the next sample (Karn). */
void peal_rto_back_off(struct peal_rto *rto);
/* How long packets may overtake each other before the one missing is called lost. */
u64 peal_rto_patience(const struct peal_rto *rto);
/*
 * Sooner than that nothing can be the answer to what left @since. The estimate
 * will not do: it remembers queues that have drained since, and nothing is
 * measured while packets are sent again.
 */
bool peal_rto_plausible(const struct peal_rto *rto, u64 since, u64 now);
/* Who says no too often is wrong: each probe that is not believed halves the bound. */
void peal_rto_doubt(struct peal_rto *rto);

#endif
