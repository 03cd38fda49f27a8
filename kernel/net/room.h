/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Room in the transmit queues: how much of a device's may wait there.
 *
 * Owns: the sockets that are charged for each packet, and who waits for room.
 * Does not know: what is sent, and where packets wait.
 *
 * Back-pressure is the stack's own: a packet is charged to the socket until
 * whoever sends it frees it, and the socket's wait queue says when half of the
 * room is free again. The destructor is the core's (sock_wfree) and so are all
 * its callbacks: packets that lie in a queueing discipline for seconds hold up
 * neither a device's removal nor the module's.
 *
 * Locks: the socket's wait queue, then room->lock. Who waits joins the waiters and
 * then arms; who frees a packet finds `entry` on the socket's queue, takes it off
 * and calls the waiters: some at once, the others by a work, in their order and
 * while there is room. A program has as many queue pairs as it likes.
 */
#ifndef PEAL_ROOM_H
#define PEAL_ROOM_H

#include <linux/list.h>
#include <linux/net.h>
#include <linux/spinlock.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

struct sk_buff;

/*
 * In bytes of skbs with their overhead (truesize): 800 packets without payload,
 * which a queue of the usual 1000 packets holds, or 120 of the largest path MTU.
 * Half of it, when who waits is called, is 20 us of a 100 Gb/s link.
 */
#define PEAL_ROOM_BYTES		(1024 * 1024)

struct peal_room {
	struct socket *sock;		/* unbound: it accounts, nothing else */
	struct socket *silent;		/* the same, for neighbours that do not answer */
	wait_queue_entry_t entry;	/* on sock's queue while somebody waits */
	spinlock_t lock;		/* guards both lists; inside the wait queue's lock */
	struct list_head waiters;	/* struct peal_waiter, by node */
	struct list_head called;	/* those whose turn it is */
	struct work_struct work;	/* calls them */
};

/*
 * May something be sent now? When not, @waiter.ready is called once when there
 * is room again: from any context, under room->lock with interrupts off. It puts
 * its queue pair on a list; it must not call what is declared here.
 */
struct peal_waiter {
	struct list_head node;		/* initialised by the owner; under room->lock */
	void (*ready)(struct peal_waiter *waiter);
};

/* Sleeps. Return: 0 or a negative errno. */
int peal_room_open(struct peal_room *room, struct net *net);
/* Nobody waits any more, and nobody will. Sleeps. */
void peal_room_close(struct peal_room *room);

bool peal_room_is_left(struct peal_room *room);
/* Is so much of it in use that it matters for whom? */
bool peal_room_is_scarce(struct peal_room *room);
/*
 * False: there was room in the meantime, and the waiter was not queued. True
 * also when it waits already.
 */
bool peal_room_wait(struct peal_room *room, struct peal_waiter *waiter);
/* After this returns ready() is not running and will not be called. */
void peal_room_cancel(struct peal_room *room, struct peal_waiter *waiter);
/* Until @skb is freed. */
void peal_room_charge(struct peal_room *room, struct sk_buff *skb);
/*
 * The same for one that will wait for a neighbour that does not answer. It takes
 * nobody's room, and there is no waiting for it. Return: false when as much waits there.
 */
bool peal_room_charge_silent(struct peal_room *room, struct sk_buff *skb);

#endif
