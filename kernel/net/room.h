/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Room in the transmit queues: how many bytes of packets each program may have waiting
 * there.
 *
 * Owns: the sockets that are charged for each packet, the queue pairs that wait for room,
 * and the size of each program's room.
 * Does not know: what is sent, and in which queues packets wait.
 *
 * Each context has a room. The kernel's users of a device share one. Packets that are held
 * up somewhere (a band that is starved, a class that is shaped) therefore use up the room
 * of one program, and other programs can still send.
 *
 * Back-pressure comes from the network stack. A packet is charged to the room's socket until
 * it is freed, and the stack wakes the socket's wait queue when half of the room is free
 * again. The destructor is the core's (sock_wfree), and so are all its callbacks. No skb
 * calls into this module, so packets that lie in a queueing discipline for seconds delay
 * neither the removal of a device nor that of the module.
 *
 * The socket also tells to which program the packets belong. BPF and netfilter see the
 * cgroup of the program that opened the room, as they do with that program's own sockets.
 *
 * The size of a room
 *	The size is sk_sndbuf of the room's socket. Every room begins with PEAL_ROOM_LEAST,
 *	which no other room can take away. A room that runs full asks for more, up to
 *	PEAL_ROOM_BYTES. rooms->extra counts what all rooms of a device have beyond the
 *	least, and no room gets more than a quarter of what is left of PEAL_ROOMS_BYTES. So
 *	the largest rooms stop growing first, and a program that comes later still gets a
 *	share. A room that does not need its size loses it when another room asks.
 *
 *	The size may change at any time without a lost wake-up, because it is never below
 *	PEAL_ROOM_LEAST. A queue pair waits only while at least half of the least is in use.
 *	So some of the room's own packets are still to be freed, and when the last of them
 *	is freed the room is empty whatever its size is then. rooms->extra is exact and
 *	needs no work per packet, because it counts sizes and not packets.
 *
 * Locks: the socket's wait queue, then room->lock. A queue pair first joins the waiters and
 * then arms. The CPU that frees a packet finds `entry` on the socket's queue, removes it
 * and calls the waiters. It calls the first PEAL_ROOM_CALLS at once, because a program may
 * have any number of queue pairs. A work item calls the others, in their order and only
 * while half of the room is free. rooms->lock is taken with the queue pair's locks held, and with
 * neither of the two locks above.
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
	struct net *net;		/* the device's namespace */
	struct peal_room *kernel;	/* room of the kernel's users; NULL: not open */
	spinlock_t lock;		/* also guards the rooms' sizes */

	/* Guarded by rooms.lock: */
	long extra;			/* what the rooms have beyond their least, in bytes */
	struct list_head large;		/* open rooms with extra; the first is the next to shrink */
	struct list_head closed;	/* closed rooms whose packets still wait in queues */
};

/*
 * A queue pair that waits for room. @ready is called once when there is room again. It is
 * called in any context, perhaps with interrupts off, because whoever frees packets calls it from
 * inside room->lock. peal_room_wait() calls it without that lock. It puts its queue pair on a
 * list. It must not call the functions declared here, because some of them take room->lock.
 */
struct peal_waiter {
	/* Guarded by room.lock: */
	struct list_head node;		/* the owner initialises it */

	void (*ready)(struct peal_waiter *waiter);
};

/* From now on the device's sockets belong to @net. Sleeps. Return: 0 or a negative errno. */
int peal_rooms_open(struct peal_rooms *rooms, struct net *net);
/* The socket of the kernel's room, for functions of the stack that require a socket. */
struct sock *peal_rooms_sock(const struct peal_rooms *rooms);
/* Call when all contexts are gone. Leaves no socket in the namespace. Sleeps. */
void peal_rooms_close(struct peal_rooms *rooms);

/*
 * Open a room for a context of the calling program. The room's packets carry the program's
 * cgroup. Sleeps.
 * Return: the room, or an ERR_PTR when there is no memory.
 */
struct peal_room *peal_room_open(struct peal_rooms *rooms);
/* Call when no queue pair waits for the room, and none will. Sleeps. */
void peal_room_close(struct peal_room *room);

/* May something be sent now? With softirqs off and without the locks of rooms. */
bool peal_room_is_left(struct peal_room *room);
/* Is so much of the room in use that a silent neighbour's packets need an account of their own? */
bool peal_room_is_scarce(struct peal_room *room);
/*
 * Let @waiter wait for room. Return: false when there was room in the meantime, so that the
 * waiter is not queued. True when it waits, also when it waited before the call.
 */
bool peal_room_wait(struct peal_room *room, struct peal_waiter *waiter);
/* When this returns, ready() is not running and will not be called. */
void peal_room_cancel(struct peal_room *room, struct peal_waiter *waiter);
/* Charge @skb to the room until @skb is freed. */
void peal_room_charge(struct peal_room *room, struct sk_buff *skb);
/*
 * As peal_room_charge(), for a packet to a neighbour that does not answer. It is charged to
 * another socket, so that it leaves the room to other packets. No queue pair can wait for
 * space there. Return: false when packets of the room's size wait there already.
 */
bool peal_room_charge_silent(struct peal_room *room, struct sk_buff *skb);

#endif
