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
#ifndef PEAL_LOCALITY_H
#define PEAL_LOCALITY_H

#include <linux/jiffies.h>
#include <linux/types.h>

#include "base/options.h"
#include "base/table.h"

struct net;
struct peal_datagram;
struct peal_line;
struct peal_qp;

/* A device as others of this kernel see it. Immutable while it is listed, except for net. */
struct peal_locality_device {
	u32 number;			/* never 0, not soon used again */
	const struct net *net;		/* of its netdev; NULL: not known yet. Only compared. */
	struct peal_table *table;
	const struct peal_options *options;
};

/* What travels: both ends are this module, so host order will do. */
struct peal_locality_probe {
	u64 nonce[2];
	u32 device;			/* the device and queue pair that asks; 0 in an answer */
	u32 qpn;
	u32 answer;			/* 1: nonce is the second number */
	u32 reserved;
};

struct peal_locality {
	const struct peal_locality_device *device;	/* the queue pair's own device */
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
};

int peal_locality_add(struct peal_locality_device *device, struct peal_table *table,
		      const struct peal_options *options);
/* The device has a place now: before it is registered, and for as long as it is. */
void peal_locality_settle(struct peal_locality_device *device, const struct net *net);
/* No queue pair finds the device when this returns. Sleeps. */
void peal_locality_remove(struct peal_locality_device *device);

/* May the next message go direct? What it answers stays in ->wanted: sq.lock, inside the guard. */
bool peal_locality_look(struct peal_qp *qp);
void peal_locality_init(struct peal_locality *loc, const struct peal_locality_device *device);
/* The queue pair has a new path or none: sq.lock. */
void peal_locality_forget(struct peal_locality *loc);

static inline bool peal_locality_is_due(const struct peal_locality *loc)
{
	return time_after_eq(jiffies, loc->next);
}

bool peal_locality_see(struct peal_locality_probe *probe, const struct peal_locality_device *at,
		       u32 qpn);
bool peal_locality_prove(struct peal_qp *qp, const struct peal_locality_probe *answer);
struct peal_table *peal_locality_table(const struct peal_qp *qp);
struct peal_table *peal_locality_device_table(u32 number);

/*
 * Probes are packets with a manufacturer's opcode (IBTA 9.2.1 leaves 0xc0 and up to them) and
 * the probe as payload. They leave and come in like all others, through routes, netfilter and
 * the ICRC. sq.lock: ask, if the peer may be in this kernel. @trip: ns, how long an answer
 * takes at most, as far as it is known.
 */
void peal_locality_ask(struct peal_qp *qp, struct peal_line *line, u64 trip);
/* rq.lock */
void peal_locality_answer(struct peal_qp *qp, struct peal_line *line,
			  const struct peal_locality_probe *answer);
/* Return: false when the packet has no probe in it. */
bool peal_locality_read(const struct peal_datagram *dg, struct peal_locality_probe *probe);

#endif
