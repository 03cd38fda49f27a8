/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What has to leave once more.
 *
 * Owns: the run of PSNs that is being sent again, and the probe: one packet
 * whose answer tells what else the peer has. Many peers throw away what comes
 * early and need all of it again, but one that keeps it needs nothing else, and
 * nobody is flooded who has just been.
 * Does not know: timers, windows, retry counts.
 */
#ifndef PEAL_REPAIR_H
#define PEAL_REPAIR_H

#include <linux/types.h>

#include "proto/early.h"
#include "proto/trail.h"

/* What a probe answers to. */
enum peal_probe {
	PEAL_PROBE_NONE = 0,
	PEAL_PROBE_NAK,		/* the peer said that it misses the packet */
	PEAL_PROBE_RNR,		/* the peer had no receive for it */
	PEAL_PROBE_SILENCE,	/* the peer said nothing */
};

struct peal_repair {
	u32 next, end;		/* to leave again: PSNs, end exclusive; equal: nothing */
	u32 index;		/* message of `next` */
	u8 probe;		/* enum peal_probe; what leaves again is one, or was */
	u32 probe_psn;		/* what it is about, */
	u32 probe_end;		/* and the PSN after it */
	bool left;		/* it has; when: */
	u64 left_at;
	bool heard;		/* the peer has answered something since, */
	bool doubted;		/* and so soon that it seemed to answer something else */
	u8 lone;		/* probes in a row that filled nothing but their own gap */
	bool peer_keeps;	/* seen: the peer keeps early packets */
};

/* What an acknowledgment says of the probe. */
enum peal_verdict_of_probe {
	PEAL_PROBE_OPEN,	/* nothing yet */
	PEAL_PROBE_OVER,	/* the peer has what follows, or nothing does */
	PEAL_PROBE_LONE,	/* the packet after it is missing as well */
};

void peal_repair_reset(struct peal_repair *r, const struct peal_trail *t);
/* Nothing leaves again. */
void peal_repair_stop(struct peal_repair *r, const struct peal_trail *t);
/* Go-back-N: everything from una on, but what the peer is known to have. */
void peal_repair_go_back(struct peal_repair *r, const struct peal_trail *t);
/* What is missing at una, and nothing else. A probe that has left stays one. */
void peal_repair_ask(struct peal_repair *r, const struct peal_trail *t,
		     const struct peal_early *early);
/* What is missing before @psn, and @psn. */
void peal_repair_probe(struct peal_repair *r, const struct peal_trail *t,
		       const struct peal_early *early, enum peal_probe why, u32 psn);
/* una has moved: what lies behind it need not leave. */
void peal_repair_advance(struct peal_repair *r, const struct peal_trail *t);
enum peal_verdict_of_probe peal_repair_judge(const struct peal_repair *r,
					     const struct peal_trail *t);
/* As judged OVER: by what lies beyond? Then the peer keeps early packets. */
void peal_repair_conclude(struct peal_repair *r, const struct peal_trail *t);
/* As judged LONE; @nak: the peer said so. Either another probe follows, or all of it. */
void peal_repair_continue(struct peal_repair *r, const struct peal_trail *t,
			  const struct peal_early *early, bool nak);

/* Move `next` to what has to leave; false: nothing. */
bool peal_repair_seek(struct peal_repair *r, const struct peal_trail *t,
		      const struct peal_early *early);
/* PSNs that the packet at `next` stands for. */
u32 peal_repair_span(const struct peal_repair *r, const struct peal_trail *t,
		     const struct peal_early *early);
/* A probe could not leave yet, and what it would have asked for came: it never will. */
bool peal_repair_is_moot(struct peal_repair *r, const struct peal_trail *t,
			 const struct peal_early *early);
void peal_repair_left(struct peal_repair *r, const struct peal_trail *t,
		      const struct peal_early *early, u32 span, u64 now);
/* True once for each probe: the first answer after it has left. */
bool peal_repair_hear(struct peal_repair *r);
/* True once for each probe. */
bool peal_repair_doubt(struct peal_repair *r);

/* @psn is about to leave again. */
static inline bool peal_repair_covers(const struct peal_repair *r, u32 psn)
{
	return r->next != r->end && !peal_psn_before(psn, r->next) && peal_psn_before(psn, r->end);
}

/* New packets wait for the answer. */
static inline bool peal_repair_is_lone(const struct peal_repair *r)
{
	return r->probe && !(r->probe == PEAL_PROBE_NAK && r->peer_keeps);
}

#endif
