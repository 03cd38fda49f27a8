/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Room in the transmit queues: how much of what a program sends may wait there.
 *
 * Owns: the sockets that are charged for each packet, the queue pairs that wait for
 * room, and how large the room of each program is.
 * Does not know: what is sent, and where packets wait.
 *
 * Each context has a room, and the kernel's users of a device have one together. So
 * packets that are held up somewhere (a band that is starved, a class that is shaped)
 * use up the room of one program, and the others go on.
 *
 * Back-pressure is the stack's own: a packet is charged to the room's socket until it
 * is freed, and the socket's wait queue says when half of the room is free again. The
 * destructor is the core's (sock_wfree) and so are all its callbacks: packets that
 * lie in a queueing discipline for seconds hold up neither a device's removal nor the
 * module's.
 *
 * The socket also says whose the packets are. BPF and netfilter see the cgroup of the
 * program that opened the room, as with its own sockets.
 *
 * How large a room is
 *	sk_sndbuf of its socket. Every room begins with PEAL_ROOM_LEAST, which no other
 *	room can take away. A room that runs full asks for more, up to PEAL_ROOM_BYTES.
 *	What all rooms of a device have beyond the least is counted, and no room gets
 *	more than a quarter of what is left of PEAL_ROOMS_BYTES. So the largest rooms
 *	stop growing first, and a program that comes later still finds something. Rooms
 *	that do not need what they have lose it when another one asks.
 *
 *	The size may change at any time without a lost wake-up, because it is never
 *	below PEAL_ROOM_LEAST. A queue pair waits only while at least half of the least
 *	is in use, so the room's own packets are still to be freed, and the last of them
 *	finds the room empty whatever its size is then. The count is exact without any
 *	work per packet, because it counts sizes and not packets.
 *
 * Locks: the socket's wait queue, then room->lock. A queue pair joins the waiters and
 * then arms; the CPU that frees a packet finds `entry` on the socket's queue, takes it
 * off and calls the waiters: some at once, the others by a work, in their order and
 * while there is room. A program has as many queue pairs as it likes. rooms->lock is
 * taken with the queue pair's locks held and none of the other two.
 */
#ifndef PEAL_ROOM_H
#define PEAL_ROOM_H

#include <linux/list.h>
#include <linux/spinlock.h>
#include <linux/types.h>

struct net;
struct peal_room;
struct sk_buff;
struct sock;

/* The rooms of one device. */
struct peal_rooms {
	struct net *net;		/* the device's */
	struct peal_room *kernel;	/* that of the kernel's users; NULL: not open */
	spinlock_t lock;		/* guards all below and the rooms' sizes */
	long extra;			/* what the rooms have beyond their least, in bytes */
	struct list_head large;		/* open rooms with such; the next to look at is first */
	struct list_head closed;	/* closed rooms whose packets still wait in queues */
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

/* The device's sockets belong to @net from now on. Sleeps. Return: 0 or a negative errno. */
int peal_rooms_open(struct peal_rooms *rooms, struct net *net);
/* For functions of the stack that want a socket: the kernel's. */
struct sock *peal_rooms_sock(const struct peal_rooms *rooms);
/* All contexts are gone. No socket is left in the namespace afterwards. Sleeps. */
void peal_rooms_close(struct peal_rooms *rooms);

/*
 * For a context of the calling program, whose cgroup its packets carry. Sleeps.
 * Return: an ERR_PTR when there is no memory.
 */
struct peal_room *peal_room_open(struct peal_rooms *rooms);
/* No queue pair waits any more, and none will. Sleeps. */
void peal_room_close(struct peal_room *room);

/* With softirqs off; no lock of rooms is held. */
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
 * The same for one that will wait for a neighbour that does not answer. It leaves the
 * room to other packets, and there is no waiting for it. Return: false when as much as
 * the room holds waits there.
 */
bool peal_room_charge_silent(struct peal_room *room, struct sk_buff *skb);

#endif
