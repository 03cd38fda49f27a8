/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Retransmission: which packets are sent again.
 *
 * Owns: the run of PSNs that is being retransmitted, and the probe. A probe is a retransmitted
 * packet (or a few) whose answer tells what else the peer has. Many peers drop out-of-order packets
 * and need all of them again. A peer that keeps out-of-order packets needs only the missing one.
 * The probe finds out which, and does not flood a peer that has just lost packets.
 * Does not know: timers, windows, retry counts.
 */
#ifndef PEAL_RETRANSMIT_H
#define PEAL_RETRANSMIT_H

#include <linux/types.h>

#include "proto/inflight.h"
#include "proto/reorder.h"

/* Why a probe is sent. */
enum peal_probe {
	PEAL_PROBE_NONE = 0,
	PEAL_PROBE_NAK,		/* the peer sent a sequence NAK for the packet */
	PEAL_PROBE_RNR,		/* the peer sent an RNR NAK for the packet */
	PEAL_PROBE_SILENCE,	/* the peer sent nothing */
};

struct peal_retransmit {
	u32 next, end;		/* PSNs to retransmit, `end` exclusive; equal: none */
	u32 index;		/* message of `next` */
	u8 probe;		/* enum peal_probe: the probe that waits for its answer */
	u32 probe_psn;		/* first PSN that the probe is about */
	u32 probe_end;		/* PSN after the probe */
	bool sent;		/* the probe was sent */
	u64 sent_at;		/* when the probe was sent, ns */
	bool heard;		/* the peer has answered some packet since */
	bool doubted;		/* an answer came too soon to be the probe's */
	u8 lone;		/* probes in a row that filled only their own gap */
	bool peer_reorders;	/* the peer is known to keep out-of-order packets */
};

/* What an acknowledgment says about the probe. */
enum peal_probe_verdict {
	PEAL_PROBE_VERDICT_OPEN, /* nothing yet, keep waiting */
	PEAL_PROBE_VERDICT_OVER, /* the peer has what follows the probe, or nothing follows */
	PEAL_PROBE_VERDICT_LONE, /* the packet after the probe is missing, too */
};

void peal_retransmit_reset(struct peal_retransmit *r, const struct peal_inflight *inflight);
/* End the retransmission and the probe. */
void peal_retransmit_stop(struct peal_retransmit *r, const struct peal_inflight *inflight);
/* Go-back-N: retransmit everything from una on, except what the peer is known to have. */
void peal_retransmit_go_back(struct peal_retransmit *r, const struct peal_inflight *inflight);
/* Retransmit only what is missing at una. A probe that was sent still waits for its answer. */
void peal_retransmit_request_missing(struct peal_retransmit *r,
				     const struct peal_inflight *inflight,
				     const struct peal_reorder *reorder);
/* Retransmit what is missing before @psn, and @psn, as a probe. */
void peal_retransmit_probe(struct peal_retransmit *r, const struct peal_inflight *inflight,
			   const struct peal_reorder *reorder, enum peal_probe why, u32 psn);
/* una has moved. Packets before it need no retransmission. */
void peal_retransmit_advance(struct peal_retransmit *r, const struct peal_inflight *inflight);
enum peal_probe_verdict peal_retransmit_judge(const struct peal_retransmit *r,
					      const struct peal_inflight *inflight);
/*
 * End a probe that was judged OVER. If the peer has packets behind the probe, this also notes that
 * the peer keeps out-of-order packets.
 */
void peal_retransmit_conclude(struct peal_retransmit *r, const struct peal_inflight *inflight);
/*
 * Go on after a probe that was judged LONE, with another probe or with go-back-N. @nak: a sequence
 * NAK for the PSN after the probe said so.
 */
void peal_retransmit_continue(struct peal_retransmit *r, const struct peal_inflight *inflight,
			      const struct peal_reorder *reorder, bool nak);

/* Move `next` to the next PSN to retransmit. Return: false if there is none. */
bool peal_retransmit_seek(struct peal_retransmit *r, const struct peal_inflight *inflight,
			  const struct peal_reorder *reorder);
/* PSNs that the packet at `next` takes. */
u32 peal_retransmit_span(const struct peal_retransmit *r, const struct peal_inflight *inflight,
			 const struct peal_reorder *reorder);
/* The probe was not sent yet, and is no longer needed because its packets were answered. */
bool peal_retransmit_probe_is_needless(struct peal_retransmit *r,
				       const struct peal_inflight *inflight,
				       const struct peal_reorder *reorder);
void peal_retransmit_sent(struct peal_retransmit *r, const struct peal_inflight *inflight,
			  const struct peal_reorder *reorder, u32 span, u64 now);
/* Return: true once for each probe, at the first response after it was sent. */
bool peal_retransmit_hear(struct peal_retransmit *r);
/* Return: true once for each probe. */
bool peal_retransmit_doubt(struct peal_retransmit *r);

/* @psn is yet to be retransmitted. */
static inline bool peal_retransmit_covers(const struct peal_retransmit *r, u32 psn)
{
	return r->next != r->end && !peal_psn_before(psn, r->next) && peal_psn_before(psn, r->end);
}

/* No new packet may be sent before the probe is answered. */
static inline bool peal_retransmit_is_lone(const struct peal_retransmit *r)
{
	return r->probe && !(r->probe == PEAL_PROBE_NAK && r->peer_reorders);
}

#endif
