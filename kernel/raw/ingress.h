/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The frames of a port's netdev that the port's owner may see or take.
 *
 * Owns: a netfilter hook at the ingress of the netdev, which can take frames away from the stack; a
 * tap, which sees all frames in both directions; what the netdev must receive for them; and the
 * queue of frames that cannot be delivered where they come in. Hook and tap exist only while they
 * are used.
 * Does not know: queue pairs, rules. The owner of the port decides about each frame, through ops.
 */
#ifndef PEAL_INGRESS_H
#define PEAL_INGRESS_H

#include <linux/netdevice.h>
#include <linux/netfilter.h>
#include <linux/skbuff.h>
#include <linux/workqueue.h>

#include "raw/frame.h"

struct peal_ingress;
struct peal_port;

enum peal_taking {
	PEAL_FRAME_PASS,	/* the frame is the stack's */
	PEAL_FRAME_COPY,	/* the frame is the stack's, and a copy is delivered */
	PEAL_FRAME_TAKE,	/* the stack does not get it */
};

struct peal_ingress_ops {
	/* Inside the epoch: what happens to a frame that has come in. */
	enum peal_taking (*decide)(struct peal_ingress *ingress, const struct peal_frame *frame);
	/*
	 * Inside the epoch, no lock held: deliver a frame. @tapped: the tap has seen it. The frame
	 * stays the caller's.
	 */
	void (*deliver)(struct peal_ingress *ingress, const struct peal_frame *frame, bool tapped);
};

/* What the netdev must receive, which it may otherwise filter out in hardware. */
enum peal_filter {
	PEAL_FILTER_NONE,
	PEAL_FILTER_UNICAST,	/* frames to `mac` */
	PEAL_FILTER_MULTICAST,	/* frames to `mac` */
	PEAL_FILTER_GROUPS,	/* all multicast frames */
	PEAL_FILTER_ALL,
};

/* One use of the hook or the tap. */
struct peal_ingress_use {
	bool tap;
	enum peal_filter filter;
	u8 mac[ETH_ALEN];
};

struct peal_ingress {
	const struct peal_ingress_ops *ops;
	struct peal_port *port;
	struct nf_hook_ops hook;
	struct packet_type tap;
	struct sk_buff_head backlog;
	struct work_struct work;	/* delivers the frames of the backlog */

	/* Guarded by RTNL: */
	bool left;			/* the netdev has left, or is leaving */
	bool used;			/* there was a use */
	u32 hooks, taps;		/* number of uses */
	int all, groups;		/* uses with these filters */
};

void peal_ingress_init(struct peal_ingress *ingress, const struct peal_ingress_ops *ops,
		       struct peal_port *port);
/* Call when there is no use any more. Sleeps. */
void peal_ingress_end(struct peal_ingress *ingress);
/* Under RTNL: the netdev leaves its namespace. Sleeps. */
void peal_ingress_leave(struct peal_ingress *ingress);

/* Takes RTNL. Return: 0, -ENODEV (the netdev has left), or an error of the stack. */
int peal_ingress_begin_use(struct peal_ingress *ingress, const struct peal_ingress_use *use);
void peal_ingress_end_use(struct peal_ingress *ingress, const struct peal_ingress_use *use);

/*
 * A queue pair of this device sends @frame. Deliver it here, too, if it is for this station or for
 * a group, as the switch inside an RNIC does. With softirqs off. Return: true when the frame has
 * been consumed, because it must not leave.
 */
bool peal_ingress_loop(struct peal_ingress *ingress, struct peal_frame *frame);

#endif
