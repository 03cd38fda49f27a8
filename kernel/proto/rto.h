/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * How long the requester waits for an answer before it probes.
 *
 * Owns: the estimate of the round trip from samples (RFC 6298), and the current
 * sample.
 * Does not know: what is retransmitted, and the transport's own timeout (IBTA 9.7.6.1.3),
 * which is longer than this estimate.
 */
#ifndef PEAL_RTO_H
#define PEAL_RTO_H

#include <linux/types.h>

struct peal_rto {
	u64 srtt, rttvar;	/* ns; srtt 0: no sample yet */
	u64 shortest;		/* shortest sample, halved by peal_rto_doubt(), ns; 0: none */
	u64 ns;			/* current wait for an answer, with back-off */
	u64 longest;		/* upper limit of `ns` */
	u8 slow;		/* slow samples in a row, up to the latest; see SLOW */
	u8 heard;		/* silences that ended without a sample; see HEARD_MOST */
	bool timing;		/* a sample is being taken */
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
void peal_rto_forget(struct peal_rto *rto);
/* All packets before @seen were answered. */
void peal_rto_answered(struct peal_rto *rto, u32 seen, u64 now);
/* A response ended a silence. It may answer the probe that was sent at @since. */
void peal_rto_heard(struct peal_rto *rto, u64 since, u64 now);
/*
 * How many answers in a row took so much longer than the shortest that silence no longer means
 * loss. If it is several, the packets in flight are queued in front of a slow peer. One alone may
 * be the jitter of the path. Return: at most 255.
 */
u8 peal_rto_slow(const struct peal_rto *rto);
/*
 * The estimate was too short, or the peer is silent. Doubles the wait until the next sample (Karn).
 */
void peal_rto_back_off(struct peal_rto *rto);
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
void peal_rto_doubt(struct peal_rto *rto);

#endif
