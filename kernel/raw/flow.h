/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Flow rules: which frames of the netdev a raw packet queue pair receives.
 *
 * Owns: the rules of one device, and the choice of the rules that a frame matches.
 * Does not know: where frames come from (ingress.h), the encoding of rules in the verbs.
 *
 * The rules are in the order in which a frame is compared with them: rules with specifications by
 * priority, 0 first, and then the two default rules. The first rule that matches takes the frame
 * away from the stack. All rules that are equal to it, of this queue pair or others, get the frame,
 * too. A default rule takes only frames that the stack would not use. It gets frames to other
 * stations, and copies of multicast frames. Sniffers get a copy of every frame in both directions.
 *
 * RoCEv2 frames go to sniffers only, because the device and rdma_rxe answer for their UDP port.
 *
 * Lock: flows->lock serialises creation and destruction and may sleep. The data path reads the
 * lists inside the epoch.
 */
#ifndef PEAL_FLOW_H
#define PEAL_FLOW_H

#include <linux/list.h>
#include <linux/mutex.h>

#include "raw/ingress.h"

struct peal_account;
struct peal_qp;

enum peal_flow_kind {
	PEAL_FLOW_NORMAL,
	PEAL_FLOW_MULTICAST,	/* all multicast frames that no other rule matches */
	PEAL_FLOW_ALL,		/* multicast and foreign frames that no other rule matches */
	PEAL_FLOW_SNIFFER,
};

struct peal_flow_rule {
	enum peal_flow_kind kind;
	u16 priority;
	bool passes;			/* the frame goes on to other rules and to the stack */
	struct peal_frame_fields value, mask;	/* value has no bit that mask lacks */
};

struct peal_flow {
	struct peal_qp *qp;
	struct peal_flow_rule rule;
	struct peal_ingress_use use;

	/* Guarded by flows.lock: */
	struct list_head node;		/* also read inside the epoch */
};

struct peal_flows {
	struct peal_ingress ingress;
	struct mutex lock;		/* guards the fields marked with it */

	/* Guarded by flows.lock: */
	struct list_head rules;		/* in the order of the comparison */
	struct list_head sniffers;
};

void peal_flows_init(struct peal_flows *flows, struct peal_port *port);
/* Call when all rules are gone. Sleeps. */
void peal_flows_destroy(struct peal_flows *flows);

/*
 * Begin to deliver what @rule matches to @qp, which outlives @flow. @flow is the caller's memory.
 * Sleeps, and takes RTNL. Return: 0, -ENOSPC (the account has too many), or an error of
 * peal_ingress_begin_use().
 */
int peal_flow_add(struct peal_flows *flows, struct peal_flow *flow, struct peal_qp *qp,
		  const struct peal_flow_rule *rule);
/* Sleeps. When this returns, @flow is not used any more. */
void peal_flow_remove(struct peal_flows *flows, struct peal_flow *flow);

#endif
