/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Raw packet queue pairs, whose messages are Ethernet frames of the device's netdev, and flow
 * rules, which say which frames they receive.
 *
 * The rules are in the order in which a frame is compared with them: rules with specifications by
 * priority, 0 first, and then the two default rules. The first rule that matches takes the frame
 * away from the stack. All rules that are equal to it, of this queue pair or others, get the frame,
 * too. A default rule takes only frames that the stack would not use. It gets frames to other
 * stations, and copies of multicast frames. Sniffers get a copy of every frame in both directions,
 * and what net/sniff.h adds.
 *
 * RoCEv2 frames go to sniffers only, because the device and rdma_rxe answer for their UDP port.
 */
#ifndef PEAL_RAW_H
#define PEAL_RAW_H

#include <linux/list.h>
#include <linux/netdevice.h>
#include <linux/netfilter.h>
#include <linux/skbuff.h>
#include <linux/workqueue.h>

#include "object/qp.h"

struct peal_port;
struct peal_tx_quota;

/* The rules of one device. Hook and tap exist only while rules need them. */
struct peal_flows {
	struct peal_port *port;
	struct nf_hook_ops hook;	/* takes frames of the netdev away from the stack */
	struct packet_type tap;		/* sees all frames of the netdev, for the sniffers */
	struct sk_buff_head backlog;	/* frames that cannot be delivered where they come in */
	struct work_struct work;	/* delivers the frames of the backlog */

	/* Guarded by RTNL: */
	struct list_head rules;		/* in the order of the comparison */
	struct list_head sniffers;
	bool left;			/* the netdev has left, or is leaving */
	bool used;			/* there was a rule */
};

void peal_flows_init(struct peal_flows *flows, struct peal_port *port);
/* Under RTNL: the netdev leaves its namespace. Sleeps. */
void peal_flows_leave(struct peal_flows *flows);
/* Call when all rules are gone. Sleeps. */
void peal_flows_destroy(struct peal_flows *flows);

/*
 * Both take RTNL. Return: the rule, or an ERR_PTR: -EPERM, -EOPNOTSUPP, -EINVAL, -ENOMEM, -ENOSPC
 * (the account has too many), -ENODEV (the netdev has left), or an error of the stack.
 */
struct ib_flow *peal_flow_create(struct peal_flows *flows, struct ib_qp *ib,
				 const struct ib_flow_attr *attr);
int peal_flow_destroy(struct ib_flow *ib);

/* Called before @qp is published. @tx_quota outlives @qp. Return: 0, -EPERM or -ENOMEM. */
int peal_raw_attach(struct peal_qp *qp, struct peal_flows *flows, struct peal_tx_quota *tx_quota);

#endif
