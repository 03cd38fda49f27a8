/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Reach: which device of this same kernel a queue pair's packets arrive at.
 *
 * Two devices of one host, in containers for example, talk by packets. When it
 * is shown that packets really pass, through routes, bridges and firewalls as
 * they are at the moment, the direct carrier may take their place.
 *
 * Owns: the list of devices, and each queue pair's proof. A probe leaves with a
 * random number and comes in at the peer's device. There a second number is made,
 * which comes back as a packet. Whoever sees the probe leave does not know the
 * second number, so only the packet from the peer's device answers the probe.
 * Messages need both ways, because they are acknowledged. The answer counts for
 * some round trips, and the proof for seconds, so a path that is cut is noticed.
 * Does not know: how the packets travel (net/probe.c), which packets a queue pair
 * takes (net/deliver.c), how messages are carried.
 *
 * Addresses prove nothing: namespaces may use the same ones. They only choose
 * whom to ask, so that machines that are not peal never see the question.
 */
#ifndef PEAL_REACH_H
#define PEAL_REACH_H

#include <linux/jiffies.h>
#include <linux/types.h>

#include "base/options.h"
#include "base/table.h"

struct net;
struct peal_qp;

/* A device as others of this kernel see it. Immutable while it is listed, except for net. */
struct peal_reach_home {
	u32 number;			/* never 0, not soon used again */
	const struct net *net;		/* of its netdev; NULL: not known yet. Only compared. */
	struct peal_table *table;
	const struct peal_options *options;
};

/* What travels: both ends are this module, so host order will do. */
struct peal_reach_probe {
	u64 nonce[2];
	u32 home;			/* the device and queue pair that asks; 0 in an answer */
	u32 qpn;
	u32 answer;			/* 1: nonce is the second number */
	u32 reserved;
};

struct peal_reach {
	const struct peal_reach_home *home;	/* the queue pair's own device */
	/* sq.lock; asked, seen and nonce are hints without it. */
	u32 proven;			/* number of the device; 0: none */
	bool asked;			/* a probe is under way, or its answer */
	u32 seen;			/* number of the device where it came in; 0: nowhere yet */
	u64 nonce[2];			/* of the probe */
	u64 answer[2];			/* the second number, once the probe was seen */
	u64 late;			/* ktime, ns: nothing counts any more after this */
	unsigned long until;		/* jiffies: end of the proof */
	unsigned long next;		/* jiffies: when to ask (again) */
	bool wanted;			/* as of the last look: the next message is to go direct */
	bool direct;			/* the present stretch of messages goes direct */
};

int peal_reach_add(struct peal_reach_home *home, struct peal_table *table,
		   const struct peal_options *options);
/* The device has a place now: before it is registered, and for as long as it is. */
void peal_reach_settle(struct peal_reach_home *home, const struct net *net);
/* No queue pair finds the device when this returns. Sleeps. */
void peal_reach_remove(struct peal_reach_home *home);

/* May the next message go direct? What it answers stays in ->wanted: sq.lock, inside the guard. */
bool peal_reach_look(struct peal_qp *qp);
/* The next messages go direct, or not: sq.lock, idle. */
void peal_reach_go(struct peal_reach *reach, bool direct);
void peal_reach_init(struct peal_reach *reach, const struct peal_reach_home *home);
/* The queue pair has a new path or none: sq.lock. */
void peal_reach_forget(struct peal_reach *reach);

static inline bool peal_reach_is_due(const struct peal_reach *reach)
{
	return time_after_eq(jiffies, reach->next);
}

bool peal_reach_ask(struct peal_qp *qp, struct peal_reach_probe *probe, u64 trip);
bool peal_reach_see(struct peal_reach_probe *probe, const struct peal_reach_home *at, u32 qpn);
bool peal_reach_prove(struct peal_qp *qp, const struct peal_reach_probe *answer);
struct peal_table *peal_reach_table(const struct peal_qp *qp);
struct peal_table *peal_reach_home_table(u32 number);

#endif
