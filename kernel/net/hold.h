/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Packets that a device hands on later, because an administrator wants them to be late, to be
 * overtaken, or to come twice (base/fault.h).
 *
 * Owns: copies of the packets, and when they are handed on.
 * Does not know: which packets these are (transport/demux.c), and how they are delivered (rx.c).
 *
 * A copy holds neither memory of the sender nor anything of the network stack.
 *
 * Lock: the lock of hold.packets. It is taken inside the locks of queue pairs. Nothing is taken
 * inside it.
 */
#ifndef PEAL_HOLD_H
#define PEAL_HOLD_H

#include <linux/hrtimer.h>
#include <linux/skbuff.h>
#include <linux/workqueue.h>

struct peal_rx_packet;

#define PEAL_HOLD_PACKETS	4096	/* of a device; bounds the memory */

struct peal_hold {
	struct sk_buff_head packets;	/* by the time when they are due; its lock guards them */
	struct hrtimer timer;		/* the first one is due; softirq */
	struct work_struct work;	/* hands on those that are due */
};

/* @work: delivers the packets of peal_hold_due(). */
void peal_hold_init(struct peal_hold *hold, work_func_t work);
/* Drop all packets. Call when no packet arrives any more. Sleeps. */
void peal_hold_end(struct peal_hold *hold);

/*
 * Hold a copy of @rx. It is handed on after @ns, or when the next packet for its queue pair has
 * been delivered, if it is @overtaken. Rules do not see it again. Inside the epoch. Return: false
 * if there is no memory, or if the device holds too many.
 */
bool peal_hold_packet(struct peal_hold *hold, const struct peal_rx_packet *rx, u64 ns,
		      bool overtaken);
/*
 * A packet for queue pair @qpn was delivered. Inside the epoch. Return: a packet that it has
 * overtaken, or NULL. The caller checks it again, because the sender may have written to the packet
 * before it was copied.
 */
struct sk_buff *peal_hold_overtaken(struct peal_hold *hold, u32 qpn);
/* Return: the same for a packet that is due, or NULL. Then the work will be queued for the next. */
struct sk_buff *peal_hold_due(struct peal_hold *hold);

#endif
